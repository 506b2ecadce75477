"""The turn: the only place where time, input and output meet, and the program around it.

One turn: wait once for every socket and timer; read the clock once; take what arrived, in the order in which it
did; let the switchboard end the turn (stored completions, deadlines, dispatch, the batch to the store); write
each connection that has output, once. Nothing is looked at per connection that is not ready, dirty or paused,
so that idle connections cost nothing, and without a deadline the loop sleeps until something comes.

Four fates of an error: a peer's own fault ends that peer (wire.py); an exception of the engine, or of anything
else in the turn, ends the process with code 70, since its state may be half changed; a listener that cannot be
opened ends the start with code 1 and one line.
"""

import resource
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

from amqpbroker.amqp import switchboard as amqp
from amqpbroker.amqp.settings import PeerSettings
from amqpbroker.base.errors import RESOURCE_LIMIT_EXCEEDED, Refusal
from amqpbroker.base.ids import Millis
from amqpbroker.engine.broker import Broker
from amqpbroker.engine.effects import Note
from amqpbroker.ops.log import log_note
from amqpbroker.runtime.clock import Clock, SystemClock
from amqpbroker.runtime.container import BrokerContainer
from amqpbroker.runtime.endpoints import ListenError
from amqpbroker.runtime.garbage import Garbage
from amqpbroker.runtime.listener import Listener
from amqpbroker.runtime.settings import ListenerSettings, ServeSettings
from amqpbroker.runtime.shutdown import Signals
from amqpbroker.runtime.wakeup import Wakeup
from amqpbroker.runtime.wire import Peer, Wire, Wires
from amqpbroker.store.memory import MemoryStore

EXIT_OK = 0
EXIT_CANNOT_START = 1
EXIT_BROKEN = 70  # EX_SOFTWARE of sysexits.h.

SWITCH_INTERVAL_S = 0.0002
"""At Python's default of 5 ms one busy thread beside the loop (metrics, a console) divides its calls into Proton
by a hundred and fifty; at 0.1 ms the switching itself begins to cost (PROTON_FACTS 1)."""

REFUSALS_MAX = 100
"""Connections beyond a listener's limit that are told so at the same time; more are closed without a word."""

STOOD_MS = 10
"""Waited in vain without the clock moving before it counts as frozen; one wait of 1 ms may end within it."""

FROZEN_MS = 100
"""The wait while the clock stands still (its wall was set back): deadlines do not come nearer, and waiting for
the rest of one again and again would spin."""


# The real switchboard is what `build` puts in. Its part is said again here, as wire.py says the peer's, so that the
# loop's tests can bring peers that echo, stall or raise on demand, which no AMQP does: tests/runtime/fakes.py.


class Turned(Peer, Protocol):
    """What the loop asks of amqp/peer.py besides what its wire does."""

    def refuse(self, refusal: Refusal, now: Millis) -> None:
        """Let it open, then tell it that it is not welcome."""


class Switchboard(Protocol):
    """What the loop asks of amqp/switchboard.py."""

    def accept(self, settings: PeerSettings, remote: str, now: Millis) -> Turned:
        """A peer for a socket that was just accepted."""

    def end_turn(self, now: Millis) -> None:
        """What is due and what was stored; dispatch; the batch; every dirty peer's output."""

    def next_deadline(self) -> Millis | None:
        """When end_turn has something to do although nothing arrived."""

    def take_dirty(self) -> Sequence[Peer]:
        """Peers with output, or that are finished, since the last call."""

    def take_notes(self) -> Sequence[Note]:
        """For the log."""

    def close_all(self, now: Millis) -> None:
        """Close amqp:connection:forced to every peer."""


class Loop:
    """A broker's sockets and its one thread. `make_switchboard` is given what the store calls to wake the loop."""

    def __init__(
        self,
        make_switchboard: Callable[[Wakeup], Switchboard],
        clock: Clock,
        *,
        shutdown_grace_ms: int,
        container: BrokerContainer | None = None,
    ) -> None:
        self.container = BrokerContainer() if container is None else container
        self.listeners: list[Listener] = []
        self.wakeup = Wakeup(self.container.poller)
        self.garbage: Garbage | None = None  # Set by serve only.
        self.switchboard = make_switchboard(self.wakeup)
        self._clock = clock
        self._grace_ms = shutdown_grace_ms
        self._wires = Wires(self.container.poller, _note_broken, amqp.EngineBroken)
        self._now = clock.now()
        self._stood_ms = 0.0  # Waited in vain since the clock last moved.
        self._afterwards: list[Callable[[], None]] = []
        self._stop_by: Millis | None = None  # While stopping: when what is left is cut off.
        self._is_stopped = False
        self.container.drive(self.turn)

    # --- for the program around it

    @property
    def now(self) -> Millis:
        """Broker time of the turn that runs, or ran last."""
        return self._now

    def listen(self, settings: ListenerSettings) -> Listener:
        """Open one listener; ListenError when it cannot be had."""
        listener = Listener(settings, self.container.poller, self._accept, _note_exhausted)
        self.listeners.append(listener)
        port = {"port": listener.port} if listener.port else {}  # A Unix socket has none.
        where = {**port, "at": ",".join(listener.addresses)}
        log_note("listener_up", {"listener": settings.name, **where})
        return listener

    def run(self) -> None:
        """Turn until stopped. Raises what broke, with all sockets closed."""
        self.container.start()
        try:
            while self.turn():
                pass
        finally:
            self.close()

    def call(self, call: Callable[[], None]) -> None:
        """Have the loop's thread make this call in its next turn. From any thread, or from a signal handler.

        What it raises ends the broker.
        """
        self.wakeup.call(call)

    def afterwards(self, call: Callable[[], None]) -> None:
        """Have this call made when the loop is closed, whatever has ended it; the last that came is made first."""
        self._afterwards.append(call)

    def stop(self) -> None:
        """Stop accepting, close every connection, and end when they are gone or the grace is over."""
        if self._stop_by is not None:
            return
        now = self._now
        self._stop_by = Millis(now + self._grace_ms)
        log_note("broker_stopping", {"connections": len(self._wires.open)})
        self._close_listeners()
        self.switchboard.close_all(now)
        self.wakeup.turn_again()

    def stop_now(self) -> None:
        """End after this turn, whatever is unsent."""
        self.stop()
        self._stop_by = Millis(0)

    def close(self) -> None:
        """Give every socket back. Idempotent; the loop does not turn afterwards."""
        self._is_stopped = True
        self._close_listeners()
        for wire in list(self._wires.open):
            wire.close()
        self.wakeup.close()
        self.container.close()
        while self._afterwards:
            self._afterwards.pop()()

    # --- the turn

    def turn(self) -> bool:
        """One turn, which waits as long as nothing is to be done; False when the loop has ended."""
        if self._is_stopped:
            return self.container.dispatch()
        if not self.container.dispatch():
            self.stop()  # A Proton handler stopped the container.
        wait = self._wait_ms()
        ready = self.container.poller.wait(wait)
        now = self._read_clock(0 if ready or wait is None else wait)
        for take, mask in ready:
            take(mask, now)
        self.container.fire_due()
        self.wakeup.make_calls()
        self._end_turn(now)
        if self.garbage is not None:
            if ready:
                self.garbage.saw_traffic(now)
            self.garbage.sweep_if_due(now)
        return not self._has_ended(now)

    def _end_turn(self, now: Millis) -> None:
        wires = self._wires
        wires.close_due(now)
        for listener in self.listeners:
            listener.resume_if_due(now)
        self.switchboard.end_turn(now)
        for peer in self.switchboard.take_dirty():
            wire = peer.owner
            if isinstance(wire, Wire):
                wire.flush(now)
        wires.resume_paused()
        for note in self.switchboard.take_notes():
            _say(note)

    def _wait_ms(self) -> float | None:
        """How long nothing will be due; None: for ever."""
        if self.wakeup.take_asked():
            return 0
        at = self.switchboard.next_deadline()
        garbage = None if self.garbage is None else self.garbage.next_deadline()
        for other in (self._wires.next_deadline(), self._stop_by, garbage):
            if other is not None and (at is None or other < at):
                at = other
        for listener in self.listeners:
            if listener.retry_at is not None and (at is None or listener.retry_at < at):
                at = listener.retry_at
        is_frozen = self._stood_ms >= STOOD_MS
        wait = None if at is None else max(FROZEN_MS if is_frozen else 0, at - self._now)
        proton = self.container.wait_ms()
        if wait is None or proton is None:
            return proton if wait is None else wait
        return min(wait, proton)

    def _read_clock(self, timed_out_ms: float) -> Millis:
        now = self._clock.now()
        self._stood_ms = self._stood_ms + timed_out_ms if now == self._now else 0.0
        self._now = now
        return now

    def _has_ended(self, now: Millis) -> bool:
        if self._stop_by is None or (self._wires.talking and now < self._stop_by):
            return False
        self._wires.abandon_all(now)
        self._end_turn(now)  # Leases go back, and what became of the peers is said.
        self.container.stop()
        self.container.dispatch()
        self._is_stopped = True
        log_note("broker_stopped", {})
        return True

    # --- listeners

    def _accept(self, listener: Listener, sock: socket.socket, remote: str, now: Millis) -> None:
        bound = listener.settings.max_connections
        if listener.connections >= bound + REFUSALS_MAX:
            sock.close()
            return
        is_full = listener.is_full
        peer = self.switchboard.accept(listener.settings.peer, remote, now)
        self._wires.add(sock, listener, peer)
        if is_full:
            text = f"listener {listener.settings.name} has max_connections {bound} already"
            peer.refuse(Refusal(RESOURCE_LIMIT_EXCEEDED, text), now)
            if not listener.is_full_noted:
                log_note("listener_full", {"listener": listener.settings.name, "max": bound})
        listener.is_full_noted = is_full

    def _close_listeners(self) -> None:
        for listener in self.listeners:
            listener.close()
            log_note("listener_down", {"listener": listener.settings.name})
        self.listeners.clear()


def _say(note: Note) -> None:
    fields = dict(note.fields)
    failure = fields.pop("failure", None)
    log_note(note.event, fields, failure=failure if isinstance(failure, BaseException) else None)


def _note_broken(peer: Peer, error: Exception) -> None:
    log_note("peer_failed", {"peer": peer.remote}, failure=error)


def _note_exhausted(listener: Listener, error: OSError) -> None:
    fields: Mapping[str, object] = {"listener": listener.settings.name, "reason": error.strerror}
    log_note("listener_failed", fields)


# --- the program


def build(settings: ServeSettings) -> Loop:
    """A loop with everything in it and its listeners open; ListenError when one cannot be had."""
    store = MemoryStore()
    loop = Loop(
        lambda _wakeup: amqp.Switchboard(Broker(settings.broker), store),
        SystemClock(),
        shutdown_grace_ms=settings.shutdown_grace_ms,
    )
    loop.afterwards(store.close)
    try:
        for listener in settings.listeners:
            loop.listen(listener)
    except ListenError:
        loop.close()
        raise
    return loop


def serve(settings: ServeSettings) -> int:
    """Be a broker until SIGTERM or SIGINT; returns the process's exit code."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    _raise_descriptor_limit()
    try:
        loop = build(settings)
    except ListenError as error:
        sys.stderr.write(f"amqpbroker: {error}\n")
        return EXIT_CANNOT_START
    log_note("store_memory", {"durable": "accepted, and gone after a restart"})
    return serve_loop(loop)


def serve_loop(loop: Loop) -> int:
    """Run a loop as a process of its own: signals, the collector, exit codes."""
    Garbage.freeze()
    loop.garbage = Garbage(loop.now)
    with Signals(loop.call, loop.stop, loop.stop_now):
        log_note("broker_started", {"listeners": len(loop.listeners)})
        try:
            loop.run()
        except Exception as error:  # noqa: BLE001  The other of the two places: around the process.
            log_note("broker_broken", {"error": repr(error)}, failure=error)
            return EXIT_BROKEN
    return EXIT_OK


def _raise_descriptor_limit() -> None:
    """Have as many descriptors as the system lets us: the usual 1,024 are fewer than one listener may take."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(OSError, ValueError):  # macOS says "unlimited" and does not mean it.
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
