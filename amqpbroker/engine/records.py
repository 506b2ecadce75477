"""What the store is told: values that describe change, complete in themselves; and what it is asked.

The store encodes them and knows nothing else of the engine; a replicated log could carry the same batches.
Keys are (queue, order, sequence): `order` is the queue kind's own order key, so that a cursor is a range scan
(docs/seams.md, section 5).
"""

from typing import Protocol

from amqpbroker.base.ids import BatchNumber, Millis, QueueId, Sequence


class Put:
    """An entry exists."""

    __slots__ = ("arrived", "durable", "expires", "order", "payload", "queue", "sequence")

    def __init__(
        self,
        queue: QueueId,
        order: bytes,
        sequence: Sequence,
        payload: bytes,
        *,
        arrived: Millis,
        expires: Millis,
        durable: bool,
    ) -> None:
        self.queue = queue
        self.order = order  # Empty for arrival order.
        self.sequence = sequence
        self.payload = payload
        self.arrived = arrived
        self.expires = expires  # 0: never.
        self.durable = durable  # False: spilled only, gone after a restart.


class Delete:
    """The entry is gone for good."""

    __slots__ = ("order", "queue", "sequence")

    def __init__(self, queue: QueueId, order: bytes, sequence: Sequence) -> None:
        self.queue = queue
        self.order = order
        self.sequence = sequence


class Update:
    """The entry's changing facts, all of them, as they are from now on."""

    __slots__ = ("annotations", "due", "failures", "order", "queue", "sequence")

    def __init__(
        self,
        queue: QueueId,
        order: bytes,
        sequence: Sequence,
        *,
        failures: int,
        due: Millis,
        annotations: bytes,
    ) -> None:
        self.queue = queue
        self.order = order
        self.sequence = sequence
        self.failures = failures  # Failed deliveries: the header's delivery-count.
        self.due = due  # Held until then; 0: not held.
        self.annotations = annotations  # Merged by modified outcomes, an encoded map.


class Meta:
    """A named fact of the broker itself: a queue's attributes, an address, the next queue id.

    `value` is None when the fact ends; else canonical JSON in UTF-8 with a leading version number.
    """

    __slots__ = ("key", "value")

    def __init__(self, key: str, value: bytes | None) -> None:
        self.key = key
        self.value = value


Record = Put | Delete | Update | Meta


class Batch:
    """Records that take effect together and in this order."""

    __slots__ = ("number", "records")

    def __init__(self, number: BatchNumber, records: list[Record]) -> None:
        self.number = number
        self.records = records


class Store(Protocol):
    """What is asked of any store, by one thread. It stands here since amqp and store do not import each other."""

    def submit(self, batch: Batch) -> None:
        """Keep this batch, after those before it; returns at once."""

    def take_stored(self) -> BatchNumber | None:
        """The newest batch that is kept now, if it moved since the last call; the loop is woken when it does."""

    def close(self) -> None:
        """Finish what was submitted and let go of everything."""
