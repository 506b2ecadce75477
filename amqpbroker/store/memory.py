"""A store that keeps nothing: every queue lives in memory. Must not know what is in a batch."""

from amqpbroker.base.ids import BatchNumber
from amqpbroker.engine.records import Batch


class MemoryStore:
    """Answers each batch at the end of the turn that brought it; after a restart all is gone."""

    __slots__ = ("_newest",)

    def __init__(self) -> None:
        self._newest: BatchNumber | None = None  # Submitted and not yet told.

    def submit(self, batch: Batch) -> None:
        """Promise nothing, in order."""
        assert self._newest is None or batch.number > self._newest, "batches come in order"
        self._newest = batch.number

    def take_stored(self) -> BatchNumber | None:
        """The newest batch, once; None when none came since."""
        newest = self._newest
        self._newest = None
        return newest

    def close(self) -> None:
        """Nothing to close."""
