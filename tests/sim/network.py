"""A network that a seed decides: bytes arrive late, cut anywhere, or never.

What a client does takes effect when its last byte has arrived at the broker, and never when the connection was lost
before. So each action leaves a mark at its end in the stream, and the books are exact, whatever gets lost.
"""

import weakref
from collections import deque
from collections.abc import Callable
from random import Random

from amqpbroker.amqp.peer import Peer
from tests.amqp.memory import MemoryBroker


class SimWire:
    """One connection; RawClient writes to it and reads from it (tests/raw/client.py, Wire)."""

    def __init__(self, broker: MemoryBroker) -> None:
        self.broker = broker
        self.peer: Peer | None = broker.switchboard.accept(broker.settings, "sim", broker.now)
        self.ghost = weakref.ref(self.peer)  # Dead once nobody keeps the peer.
        self.up = bytearray()  # Written by the client, not yet read by the broker.
        self.down = bytearray()  # Written by the broker, not yet read by the client.
        self.is_ended = False  # No more bytes come from the broker.
        self.is_unheard = False
        self.is_up_stalled = False
        self.is_down_stalled = False
        self.heard_at = broker.now  # The broker's latest sign of life.
        self._written = 0
        self._arrived = 0
        self._marks: deque[tuple[int, Callable[[], None]]] = deque()

    # --- for the client

    def send(self, data: bytes) -> None:
        if self.peer is not None:
            self.up += data
            self._written += len(data)

    def recv(self, timeout: float) -> bytes | None:
        data = bytes(self.down)
        self.down.clear()
        return data or (b"" if self.is_ended else None)

    def close(self) -> None:
        self.drop(0)

    def mark(self, effect: Callable[[], None]) -> None:
        """Have this called once the broker has read all that was written so far."""
        if self.peer is not None and not self.is_unheard:
            self._marks.append((self._written, effect))

    # --- for the world

    def unhear(self) -> None:
        """The broker has ended the connection: whatever else arrives has no effect."""
        self.is_unheard = True
        self._marks.clear()

    @property
    def is_up_idle(self) -> bool:
        return not self.up or self.peer is None or self.is_up_stalled

    def carry_up(self, most: int) -> None:
        """The broker reads up to so many bytes, if it wants any."""
        peer = self.peer
        if peer is None or self.is_up_stalled:
            return
        if not peer.wants_input or not self.up:
            return
        data = bytes(self.up[:most])
        del self.up[:most]
        self._arrived += len(data)
        self.heard_at = self.broker.now
        peer.receive(data, self.broker.now)
        while self._marks and self._marks[0][0] <= self._arrived:
            self._marks.popleft()[1]()

    def carry_down(self, most: int) -> int:
        """The network takes up to so many bytes of the broker's output; how many it took."""
        peer = self.peer
        if peer is None or self.is_down_stalled:
            return 0
        taken = 0
        while taken < most and (view := peer.output()):
            part = bytes(view[: most - taken])
            view.release()
            self.down += part
            taken += len(part)
            if peer._waits_for_peer:
                self.heard_at = self.broker.now  # It reads at least.
            peer.written(len(part), self.broker.now)
        if peer.is_finished and not peer.output():
            self.is_ended = True
            self.peer = None
        return taken

    def drop(self, most: int) -> None:
        """The connection is lost: so many bytes more arrive, and none comes back."""
        if self.peer is None:
            return
        self.is_up_stalled = False
        self.carry_up(most)
        peer, self.peer = self.peer, None
        peer.input_closed(self.broker.now)
        while view := peer.output():
            peer.written(len(view), self.broker.now)
        self.up.clear()
        self.down.clear()
        self._marks.clear()
        self.is_ended = True


def some_bytes(random: Random) -> int:
    """How much a network carries at once: often all, sometimes a byte or three."""
    return random.choice((1, 3, 9, 40, 200, 1000, 5000, 1 << 20, 1 << 20, 1 << 20))
