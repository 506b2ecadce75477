"""What must be true of every message: who sent it, whether it arrived, who holds it, and how it ended.

An obvious model beside the broker, told in the order in which bytes arrive there. What may be lost is written down
where it is documented: expiry, presettled deliveries on their way, and what lies in a dynamic node that ends.
"""

from enum import Enum


class State(Enum):
    """Of a message."""

    SENT = "not yet whole at the broker"
    KEPT = "the broker has it"
    GONE = "acknowledged, or gone with its queue"
    VOID = "refused, or never arrived: nobody may see it"


class Message:
    """One message, by its producer's link and number."""

    def __init__(self, queue: "QueueBook", producer: str, number: int) -> None:
        self.queue = queue
        self.producer = producer
        self.number = number
        self.state = State.SENT
        self.ttl = 0
        self.expires: int | None = None
        self.payload = b""
        self.body = b""
        self.holder: object = None  # The link whose client holds it unsettled.
        self.was_delivered = False
        self.has_header = False
        self.failures_min = 0
        self.failures_max = 0
        self.refusers: set[object] = set()

    def __repr__(self) -> str:
        return f"{self.queue.name}/{self.producer}/{self.number} {self.state.name}"

    def has_expired(self, now: int) -> bool:
        return self.expires is not None and self.expires <= now


class QueueBook:
    """All messages of one queue."""

    def __init__(self, name: str, *, is_dynamic: bool = False) -> None:
        self.name = name
        self.messages: list[Message] = []
        self.is_dynamic = is_dynamic
        self.is_alive = True
        self.losses = 0  # So many presettled deliveries may have been lost on their way.
        self.has_returns = False  # Something may have come back, so that it may be marked.

    def kept(self) -> list[Message]:
        return [each for each in self.messages if each.state is State.KEPT]

    def end(self) -> None:
        """The node is deleted with all that is in it."""
        self.is_alive = False
        for message in self.messages:
            if message.state in (State.SENT, State.KEPT):
                message.state = State.GONE
                message.holder = None


class Books:
    """All queues, and all messages by their bodies' first words."""

    def __init__(self) -> None:
        self.queues: dict[str, QueueBook] = {}
        self._messages: dict[bytes, Message] = {}

    def queue(self, name: str) -> QueueBook:
        if name not in self.queues:
            self.queues[name] = QueueBook(name)
        return self.queues[name]

    def message(self, queue: QueueBook, producer: str, number: int) -> Message:
        made = Message(queue, producer, number)
        queue.messages.append(made)
        self._messages[self.key(made)] = made
        return made

    def key(self, message: Message) -> bytes:
        return f"{message.producer}:{message.number}".encode()

    def found(self, body: bytes) -> Message:
        return self._messages[body.split(b" ", 1)[0]]
