"""What has come of this turn so far: effects, records, queues to serve. The one thing all parts of the engine share.

A turn's records are one batch, never cut, so that whatever happened in one turn is kept or lost together.
"""

from collections import deque

from amqpbroker.base.ids import BatchNumber, LinkId, Number, QueueId
from amqpbroker.engine.commands import ACCEPTED, Outcome
from amqpbroker.engine.credit import Producer
from amqpbroker.engine.effects import Append, Dispose, Effect
from amqpbroker.engine.journal import Journal
from amqpbroker.engine.message import Entry
from amqpbroker.engine.queue import Queue


class StoringRun:
    """A run of one link that waits for the store."""

    __slots__ = ("connection", "entries", "first", "link", "queue", "size")

    def __init__(
        self, producer: Producer, first: Number, queue: Queue, entries: list[Entry], size: int
    ) -> None:
        self.link = producer.link
        self.connection = producer.session.connection
        self.first = first
        self.queue = queue
        self.entries = entries
        self.size = size  # Bytes of its payloads.


class Turn:
    """Filled by every part of the engine; emptied by the loop."""

    __slots__ = ("effects", "journal", "pending", "touched", "waiting")

    def __init__(self) -> None:
        self.effects: list[Effect] = []
        self.journal = Journal()
        self.touched: dict[QueueId, Queue] = {}  # To be served, in order of first touch.
        self.waiting: list[StoringRun] = []  # Of the batch that is open.
        self.pending: deque[tuple[BatchNumber, list[StoringRun]]] = deque()  # Of those handed over.

    def touch(self, queue: Queue) -> None:
        """Serve this queue in the next pass."""
        self.touched[queue.id] = queue

    def take_effects(self) -> list[Effect]:
        """All effects since the last call."""
        effects = self.effects
        self.effects = []
        if self.journal.notes:
            effects += self.journal.notes
            self.journal.notes.clear()
        return effects

    def dispose(self, link: LinkId, first: Number, count: int, outcome: Outcome) -> None:
        """Answer a run; it grows the run before it when that ends where this one begins."""
        effects = self.effects
        last = effects[-1] if effects else None
        if (
            type(last) is Dispose
            and last.link == link
            and last.outcome is outcome
            and last.first + last.count == first
        ):
            effects.pop()
            first = last.first
            count += last.count
        effects.append(Dispose(link, first, count, outcome))

    def accept(self, link: LinkId, first: Number, count: int) -> None:
        """Answer a run with accepted."""
        self.dispose(link, first, count, ACCEPTED)

    def close_batch(self) -> None:
        """Hand over the records of this turn, if any."""
        batch = self.journal.close()
        if batch is None:
            assert not self.waiting
            return
        self.effects.append(Append(batch))
        self.pending.append((batch.number, self.waiting))
        self.waiting = []
