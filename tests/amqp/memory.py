"""A broker without sockets or clock, and clients joined to it in memory."""

from collections import deque
from collections.abc import Callable

from amqpbroker.amqp.peer import Peer
from amqpbroker.amqp.settings import PeerSettings
from amqpbroker.amqp.switchboard import Switchboard
from amqpbroker.base.ids import Millis
from amqpbroker.engine.broker import Broker
from amqpbroker.engine.effects import Note
from amqpbroker.engine.queue import Queue
from amqpbroker.engine.records import Store
from amqpbroker.engine.settings import BrokerSettings
from amqpbroker.store.memory import MemoryStore
from tests.raw.client import RawClient

SETTINGS = PeerSettings(container_id="broker")


class MemoryBroker:
    """All of the broker but its sockets; time stands still unless `advance` is called."""

    def __init__(
        self,
        settings: PeerSettings = SETTINGS,
        broker: BrokerSettings | None = None,
        store: Store | None = None,
    ) -> None:
        self.settings = settings
        self.now = Millis(1_000_000)
        self.store: Store = store or MemoryStore()
        self.engine = Broker(broker or BrokerSettings())
        self._names = 0
        self.switchboard = Switchboard(self.engine, self.store, self._fresh_name)
        self.notes: list[Note] = []

    def _fresh_name(self) -> str:
        self._names += 1
        return f"fresh-{self._names}"

    def wire(self, cut: Callable[[bytes], list[bytes]] | None = None) -> "MemoryWire":
        return MemoryWire(self, cut)

    def client(self, cut: Callable[[bytes], list[bytes]] | None = None) -> RawClient:
        """A raw client whose bytes reach the broker whole, or as `cut` cuts them."""
        return self.client_of(self.wire(cut))

    def client_of(self, wire: "MemoryWire") -> RawClient:
        return RawClient(wire=wire)

    def turn(self) -> None:
        """One turn of the loop, without the sockets."""
        self.switchboard.end_turn(self.now)
        self.switchboard.take_dirty()
        self.notes += self.switchboard.take_notes()
        self.engine.check()

    def advance(self, ms: int) -> None:
        """Let time pass, and do what is due."""
        self.now = Millis(self.now + ms)
        self.turn()

    def queue(self, name: str) -> Queue:
        return next(queue for queue in self.engine.queues() if queue.name == name)

    def has_queue(self, name: str) -> bool:
        return any(queue.name == name for queue in self.engine.queues())


class MemoryWire:
    """What RawClient asks of a wire; each write is one read of the broker and one turn.

    While the broker does not want to read, what is written waits, as in a socket's buffer.
    """

    def __init__(self, broker: MemoryBroker, cut: Callable[[bytes], list[bytes]] | None) -> None:
        self.broker = broker
        self.peer: Peer = broker.switchboard.accept(broker.settings, "memory", broker.now)
        self.is_stalled = False  # Reads nothing, as a client that hangs.
        self._cut = cut
        self._unread: deque[bytes] = deque()

    def send(self, data: bytes) -> None:
        self._unread += [data] if self._cut is None else self._cut(data)
        self._deliver()

    def _deliver(self) -> None:
        while self._unread and self.peer.wants_input:
            piece = self._unread.popleft()
            if not self.peer.is_finished:
                self.peer.receive(piece, self.broker.now)
            self.broker.turn()

    def recv(self, timeout: float) -> bytes | None:
        if self.is_stalled:
            return None
        self._deliver()
        self.broker.turn()
        data = bytes(self.peer.output())
        if data:
            self.peer.written(len(data), self.broker.now)
            self.broker.turn()
            return data
        return b"" if self.peer.is_finished else None

    def close(self) -> None:
        """The connection is lost, unless it was closed."""
        self.peer.input_closed(self.broker.now)
        self.broker.turn()
