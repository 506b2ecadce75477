"""Where durable messages are kept: batches of records in, "stored up to here" out (docs/seams.md, section 5).

memory.py keeps nothing. Nothing outside this package knows how a batch is kept.
"""

from typing import Protocol

from amqpbroker.base.ids import BatchNumber
from amqpbroker.engine.records import Batch

__all__ = ["Store"]


class Store(Protocol):
    """What the loop asks of any store. One thread calls it."""

    def submit(self, batch: Batch) -> None:
        """Keep this batch, after those before it; returns at once."""

    def take_stored(self) -> BatchNumber | None:
        """The newest batch that is kept now, if it moved since the last call; the loop is woken when it does."""

    def close(self) -> None:
        """Finish what was submitted and let go of everything."""
