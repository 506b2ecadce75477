"""What the store is told when the turn ends, never cut within a turn; and what the log is told of queues."""

from amqpbroker.base.ids import BatchNumber
from amqpbroker.engine.effects import Note
from amqpbroker.engine.records import Batch, Record


class Journal:
    """Written by every queue; closed once a turn."""

    __slots__ = ("newest", "notes", "records")

    def __init__(self) -> None:
        self.notes: list[Note] = []
        self.records: list[Record] = []
        self.newest = BatchNumber(0)  # The batch handed over last.

    def close(self) -> Batch | None:
        """The open batch; None when nothing was written. A new one is open afterwards."""
        if not self.records:
            return None
        self.newest = BatchNumber(self.newest + 1)
        batch = Batch(self.newest, self.records)
        self.records = []
        return batch
