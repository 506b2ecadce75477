"""Fakes for the loop's rim: a switchboard whose peers echo, a clock that stands where it is put."""

from collections import deque
from collections.abc import Callable

from amqpbroker.amqp.settings import PeerSettings
from amqpbroker.amqp.switchboard import EngineBroken
from amqpbroker.base.errors import Refusal
from amqpbroker.base.ids import Millis
from amqpbroker.engine.effects import Note
from amqpbroker.runtime.wakeup import Wakeup

PEER = PeerSettings(container_id="test")


class FakeClock:
    """Time as the test sets it."""

    def __init__(self, at: int = 1_000_000) -> None:
        self.at = Millis(at)

    def now(self) -> Millis:
        return self.at


class EchoPeer:
    """Says back what it hears. The words below make it do other things."""

    def __init__(self, board: "EchoBoard", remote: str) -> None:
        self.board = board
        self.remote = remote
        self.owner: object = None
        self.wants_input = True
        self.is_finished = False
        self.is_input_closed = False
        self.failures: list[BaseException] = []
        self.received = bytearray()
        self.sent = bytearray()

    def receive(self, data: bytes, now: Millis) -> None:
        self.received += data
        self.board.receives += 1
        if self.is_finished:
            return
        if data == b"raise":
            raise ValueError(data)
        if data == b"break":
            raise EngineBroken("test")
        if data.startswith(b"bye"):
            self.is_finished = True
        if data == b"pause":
            self.wants_input = False
        if data.startswith(b"flood "):
            data = b"x" * int(data[6:])
        self.say(data)

    def say(self, data: bytes) -> None:
        self.sent += data
        self.board.touch(self)

    def input_closed(self, now: Millis) -> None:
        self.is_input_closed = True
        self.is_finished = True
        self.board.touch(self)

    def output(self) -> memoryview:
        return memoryview(bytes(self.sent[:262_144]))

    def written(self, count: int, now: Millis) -> None:
        del self.sent[:count]

    def refuse(self, refusal: Refusal, now: Millis) -> None:
        self.say(refusal.condition.encode())
        self.is_finished = True

    def fail(self, error: BaseException, now: Millis) -> None:
        self.failures.append(error)
        self.say(b"internal error")
        self.is_finished = True

    def let_go(self) -> None:
        pass


class EchoBoard:
    """A switchboard of echoing peers; `on_turn` is what the test does at the end of each turn."""

    def __init__(self, wakeup: Wakeup) -> None:
        self.wakeup = wakeup
        self.peers: list[EchoPeer] = []
        self.deadline: Millis | None = None
        self.turns = 0
        self.receives = 0
        self.waits_for_answers = False  # After close_all, which nobody gives.
        self.on_turn: Callable[[Millis], None] = lambda _now: None
        self._dirty: deque[EchoPeer] = deque()

    def touch(self, peer: EchoPeer) -> None:
        if peer not in self._dirty:
            self._dirty.append(peer)

    def accept(self, settings: PeerSettings, remote: str, now: Millis) -> EchoPeer:
        peer = EchoPeer(self, remote)
        self.peers.append(peer)
        return peer

    def end_turn(self, now: Millis) -> None:
        self.turns += 1
        self.on_turn(now)

    def next_deadline(self) -> Millis | None:
        return self.deadline

    def take_dirty(self) -> list[EchoPeer]:
        dirty = list(self._dirty)
        self._dirty.clear()
        return dirty

    def take_notes(self) -> list[Note]:
        return []

    def close_all(self, now: Millis) -> None:
        for peer in self.peers:
            peer.say(b"forced")
            peer.is_finished = not self.waits_for_answers
