"""Accepted sockets: bytes from the kernel to a peer, and from a peer to the kernel.

A wire is read while its peer wants input, *paused* while it does not, and *blocked* while the kernel takes no more
output. Interest in the poller follows exactly, so that neither a paused nor a half-closed nor a stalled
connection costs a turn anything.

The end: a finished peer's last output is written, then the sending side is shut and input thrown away until the
peer closes too (closing with unread input would send a reset, which may overtake the Close frame), CLOSE_MS
at most.

It must not know frames, the engine, or why a peer has finished.
"""

import socket
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Protocol

from amqpbroker.base.ids import Millis
from amqpbroker.runtime.listener import Listener
from amqpbroker.runtime.poller import READ, WRITE, Poller

READ_BYTES = 65_536
"""Per recv. Measured, CPython 3.11: 4.8 us for a small read, as at 16 KiB; at 128 KiB and above the buffer is
mapped and unmapped each time: 27 us. recv_into a kept buffer and copying out costs 0.6 us more."""

READS_MAX = 4
"""Full reads per connection and turn, 256 KiB: a fast producer must not starve the others. Fewer are made as soon
as one comes back short."""

WRITE_BYTES_MAX = 4 * 1024 * 1024
"""Written per connection and turn; a reader as fast as the memory bus must not hold the loop."""

CLOSE_MS = 5_000
"""From a peer's end to the closing of its socket, whatever is unread or unwritten then."""


class Peer(Protocol):
    """What a wire asks of amqp/peer.py."""

    owner: object

    @property
    def remote(self) -> str:
        """Where it is, for the log."""

    @property
    def wants_input(self) -> bool:
        """False: do not read."""

    @property
    def is_finished(self) -> bool:
        """True: once the output is empty, shut the socket."""

    def receive(self, data: bytes, now: Millis) -> None:
        """Bytes came."""

    def input_closed(self, now: Millis) -> None:
        """No more bytes will come."""

    def output(self) -> memoryview | bytes:
        """What is to be written next; empty when nothing is."""

    def written(self, count: int, now: Millis) -> None:
        """So much of output() has left."""

    def fail(self, error: BaseException, now: Millis) -> None:
        """Its code broke: Close amqp:internal-error, then finish."""

    def let_go(self) -> None:
        """It is finished and all is written: nothing else will be asked of it."""


class Wire:
    """One accepted socket and the peer behind it."""

    __slots__ = (
        "_events",
        "_failures",
        "_fd",
        "_is_blocked",
        "_is_ended",
        "_is_paused",
        "_listener",
        "_peer",
        "_socket",
        "_wires",
        "close_at",
        "is_closed",
    )

    def __init__(self, wires: "Wires", sock: socket.socket, listener: Listener, peer: Peer) -> None:
        self._wires = wires
        self._socket = sock
        self._fd = sock.fileno()
        self._listener = listener
        self._peer: Peer | None = peer  # None when it has finished and all its output is written.
        self._is_ended = False  # The peer's sending side is closed.
        self._is_paused = False  # The peer wants no input; looked at each turn by Wires.
        self._is_blocked = False  # The kernel took less than it was given.
        self._failures = 0  # Times that its code has raised.
        self._events = 0  # What the poller watches it for.
        self.close_at: Millis | None = None  # Set once, when the peer has finished.
        self.is_closed = False

    def ready(self, mask: int, now: Millis) -> None:
        """The poller says that something can be done."""
        if mask & READ and not self.is_closed:
            self._attempt(self._read, now)
        if mask & WRITE and not self.is_closed and self._is_blocked:
            self._is_blocked = False
            self._attempt(self._flush, now)

    def flush(self, now: Millis) -> None:
        """Write what the peer has to say, as far as the kernel takes it; end the wire of a finished peer."""
        self._attempt(self._flush, now)

    def resume(self) -> bool:
        """Read again if the peer wants input now; False while it does not."""
        if self.is_closed or self._peer is None:
            return True
        self._is_paused = not self._peer.wants_input
        if not self._is_paused:
            self._watch()
        return not self._is_paused

    def close(self) -> None:
        """Close the socket at once. Idempotent."""
        if self.is_closed:
            return
        self.is_closed = True
        self._wires.poller.forget(self._fd)
        self._wires.open.discard(self)
        self._listener.connections -= 1
        # A late error of the connection is nobody's: the descriptor is free all the same.
        with suppress(OSError):
            self._socket.close()

    def abandon(self, now: Millis) -> None:
        """Close the socket at once and tell the peer that its connection is gone."""
        self._attempt(self._abandon, now)

    def _abandon(self, now: Millis) -> None:
        self.close()
        if self._peer is not None:
            self._end_input(now)
            self._discard_output(self._peer, now)

    # --- reading

    def _read(self, now: Millis) -> None:
        for _ in range(READS_MAX):
            peer = self._peer
            if peer is not None and not peer.wants_input:
                self._pause()
                return
            try:
                data = self._socket.recv(READ_BYTES)
            except BlockingIOError:
                return
            except OSError:
                self._abandon(now)
                return
            if not data:
                self._end_input(now)
                return
            if peer is not None:
                peer.receive(data, now)
            if len(data) < READ_BYTES:
                return

    def _end_input(self, now: Millis) -> None:
        if self._is_ended:
            return
        self._is_ended = True
        peer = self._peer
        if peer is None:
            self.close()
            return
        if not self.is_closed:
            self._watch()  # The end stays readable for ever.
        peer.input_closed(now)

    def _pause(self) -> None:
        self._is_paused = True
        self._wires.paused.add(self)
        self._watch()

    # --- writing

    def _flush(self, now: Millis) -> None:
        peer = self._peer
        if peer is None:
            return
        if peer.is_finished and self.close_at is None:
            self.close_at = Millis(now + CLOSE_MS)
            self._wires.ending.append(self)
        if self.is_closed:
            self._discard_output(peer, now)
        elif not self._is_blocked and self._write(peer, now):
            self._finish() if peer.is_finished else self._watch()

    def _write(self, peer: Peer, now: Millis) -> bool:
        """Write until the output is empty (True), or the kernel takes no more or the wire broke (False)."""
        sent = 0
        while chunk := peer.output():
            try:
                count = self._socket.send(chunk)
            except BlockingIOError:
                count = 0
            except OSError:
                self._abandon(now)
                return False
            if count:
                peer.written(count, now)
                sent += count
            if count < len(chunk) or sent >= WRITE_BYTES_MAX:
                self._is_blocked = True
                self._watch()
                return False
        return True

    def _discard_output(self, peer: Peer, now: Millis) -> None:
        """Say of a broken wire's output that it has left, so that its peer can finish."""
        while chunk := peer.output():
            peer.written(len(chunk), now)
        if peer.is_finished:
            self._part()

    def _finish(self) -> None:
        """The peer has finished and everything is written."""
        self._part()
        self._is_paused = False
        if self._is_ended:
            self.close()
            return
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:  # Reset meanwhile.
            self.close()
            return
        self._watch()

    def _part(self) -> None:
        if self._peer is not None:
            self._peer.owner = None
            self._peer.let_go()
            self._peer = None
            self._wires.talking -= 1

    def _attempt(self, step: Callable[[Millis], None], now: Millis) -> None:
        """Do what may end in a peer's own code; what raises there ends this wire, and the others go on."""
        try:
            step(now)
        except Exception as error:  # noqa: BLE001  Sorted by _broke: what is not this peer's alone goes on.
            self._broke(error, now)

    def _broke(self, error: Exception, now: Millis) -> None:
        """The peer's code raised: let it say so and end; if it cannot, cut it off; if not even that, drop it."""
        peer, wires = self._peer, self._wires
        if isinstance(error, wires.fatal) or peer is None:
            raise error
        wires.broken(peer, error)
        self._failures += 1
        if self._failures == 1:
            self._attempt(partial(peer.fail, error), now)
        elif self._failures == 2:
            self._attempt(self._abandon, now)
        else:
            self._part()
            self.close()

    def _watch(self) -> None:
        """Tell the poller what this wire can use now."""
        events = 0 if self._is_ended or self._is_paused else READ
        if self._is_blocked:
            events |= WRITE
        if events != self._events:
            self._events = events
            self._wires.poller.watch(self._fd, events, self.ready)


class Wires:
    """All accepted sockets, and the few among them that need a look each turn."""

    def __init__(
        self,
        poller: Poller,
        broken: Callable[[Peer, Exception], None],
        fatal: type[Exception],
    ) -> None:
        self.poller = poller
        self.broken = broken  # Told of each exception in a peer's own code.
        self.fatal = fatal  # The exception that is not the peer's own.
        self.open: set[Wire] = set()
        self.talking = 0  # Wires whose peers have not finished, or have output left.
        self.paused: set[Wire] = set()  # Their peers wanted no input when last asked.
        self.ending: deque[Wire] = deque()  # By close_at, since all get the same time.

    def add(self, sock: socket.socket, listener: Listener, peer: Peer) -> Wire:
        """The wire of a socket that was just accepted; it is read from the next turn on."""
        wire = Wire(self, sock, listener, peer)
        peer.owner = wire
        listener.connections += 1
        self.open.add(wire)
        self.talking += 1
        wire.resume()
        return wire

    def next_deadline(self) -> Millis | None:
        """When the first ending wire is closed whatever it does."""
        while self.ending and self.ending[0].is_closed:
            self.ending.popleft()
        return self.ending[0].close_at if self.ending else None

    def close_due(self, now: Millis) -> None:
        """Close the wires that were given the time to end and have not."""
        while (at := self.next_deadline()) is not None and at <= now:
            self.ending.popleft().abandon(now)

    def resume_paused(self) -> None:
        """Read again from the peers that want input again; only paused ones are looked at."""
        if self.paused:
            self.paused = {wire for wire in self.paused if not wire.resume()}

    def abandon_all(self, now: Millis) -> None:
        """Close every socket at once."""
        for wire in list(self.open):
            wire.abandon(now)
