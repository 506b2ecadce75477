"""A Proton reactor container with its own selector and acceptor, that the broker's loop can drive.

Everything of Proton's `Container` works in it: listen, connect, schedule, handlers; its sockets take the stock
event path. What differs: it waits with epoll or kqueue, so that descriptors above 1,023 serve as well; its
listeners are dual stack, have a real backlog and survive a process without descriptors.

The broker's own listeners share its poller and make no Proton events. Then the loop drives: `drive(turn)` makes
`process()` a turn of the loop, which calls `dispatch()` for Proton's events and waits by itself.

It must not know peers, engine or store.
"""

import math
import socket
from collections.abc import Callable
from functools import cached_property, partial

from proton import Event, Handler, SSLDomain, Url
from proton.reactor import Container

from amqpbroker.base.ids import Millis
from amqpbroker.engine.deadlines import Deadlines
from amqpbroker.runtime import endpoints, proton_private
from amqpbroker.runtime.listener import RETRY_MS, waiting
from amqpbroker.runtime.poller import READ, WRITE, Poller
from amqpbroker.runtime.proton_private import Acceptor, IOHandler, Selectable, SSLConfig


class BrokerContainer(Container):
    """A Proton container on its own poller; `handlers` and `options` as in Proton."""

    def __init__(self, *handlers: Handler, **options: object) -> None:
        self.poller = Poller()
        self._selector = SelectableWatch(self.poller)
        self._turn: Callable[[], bool] | None = None
        options.setdefault("global_handler", WaitingIO(self._selector))
        proton_private.set_up(self, handlers, options)

    @cached_property
    def ssl(self) -> SSLConfig | None:  # type: ignore[override]  # Proton's is made at once.
        """TLS of connections that name no domain of their own; None where Proton has no TLS. Made on first use."""
        return proton_private.make_ssl()

    # --- Proton's interface

    def listen(
        self,
        url: str | Url,
        ssl_domain: SSLDomain | None = None,
        handler: Handler | None = None,
    ) -> "ManyAcceptor":
        """Accept connections at `url` on Proton's event path, with `handler` for each of them.

        "*" is dual stack and "localhost" both loopbacks, as for the broker's listeners; port 0 is any free one.
        """
        acceptor = super().listen(url, ssl_domain)
        assert isinstance(acceptor, ManyAcceptor)
        acceptor.serve_with(handler)
        return acceptor

    def acceptor(
        self, host: str, port: str | int, handler: Handler | None = None
    ) -> "ManyAcceptor":
        """As Proton's, but dual stack and able to take many connections per turn."""
        return ManyAcceptor(self, host, int(port), handler)

    def process(self) -> bool:
        """One turn: Proton's, or the loop's when one drives."""
        return super().process() if self._turn is None else self._turn()

    # --- for the loop that drives

    def drive(self, turn: Callable[[], bool]) -> None:
        """From now on `process` is `turn`, and Proton does not stop for want of sockets of its own."""
        assert self._turn is None
        self._turn = turn
        proton_private.count_one_more(self)

    @property
    def is_driven(self) -> bool:
        """Whether a loop waits in Proton's place."""
        return self._turn is not None

    def dispatch(self) -> bool:
        """Hand out Proton's waiting events; False when stop() was called and its last event is out."""
        while proton_private.has_events(self) or proton_private.is_stopped(self):
            if not super().process():
                return False
        return True

    def wait_ms(self) -> float | None:
        """Until Proton's next timer or heartbeat, by Proton's own clock; None when there is none."""
        deadline = self._selector.next_deadline()
        return None if deadline is None else max(0.0, deadline - self.mark() * 1000)

    def fire_due(self) -> None:
        """Have Proton's timers and heartbeats that are due make their events."""
        if self._selector.next_deadline() is not None:
            for selectable in self._selector.take_due(self.mark()):
                selectable.expired()  # Sets its next deadline by itself.

    def close(self) -> None:
        """Close every socket of Proton's that is left, and the poller. Idempotent."""
        self._selector.close()
        self.poller.close()


class SelectableWatch:
    """Proton's selectables, watched by our poller: what Proton's IOHandler takes for its selector.

    A selectable is readable or writable as soon as the poller says so: the poller's callback makes Proton's
    event. Deadlines are Proton's seconds, rounded up to milliseconds of the same clock.
    """

    def __init__(self, poller: Poller) -> None:
        self._poller = poller
        self._fds: dict[Selectable, int] = {}
        self._deadlines: Deadlines[Selectable] = Deadlines()

    def add(self, selectable: Selectable) -> None:
        """Start watching."""
        self.update(selectable)

    def update(self, selectable: Selectable) -> None:
        """Watch for what the selectable wants now."""
        if selectable.deadline is None:
            self._deadlines.cancel(selectable)
        else:
            self._deadlines.set(selectable, Millis(math.ceil(selectable.deadline * 1000)))
        fd = selectable.fileno()
        before = self._fds.get(selectable, -1)
        if before not in (-1, fd):
            self._poller.forget(before)
        if fd == -1:
            self._fds.pop(selectable, None)
            return
        self._fds[selectable] = fd
        events = (READ if selectable.reading else 0) | (WRITE if selectable.writing else 0)
        if events or before == fd:
            self._poller.watch(fd, events, partial(_make_event, selectable))

    def remove(self, selectable: Selectable) -> None:
        """Stop watching; its socket may be closed already."""
        self._deadlines.cancel(selectable)
        fd = self._fds.pop(selectable, -1)
        if fd != -1:
            self._poller.forget(fd)

    def select(
        self, timeout: float | None
    ) -> tuple[list[Selectable], list[Selectable], list[Selectable]]:
        """Wait when nobody drives: events are made on the way, so only who is past its deadline is returned."""
        for ready, mask in self._poller.wait(None if timeout is None else timeout * 1000):
            ready(mask, Millis(0))  # Proton keeps its own time.
        return [], [], []

    def next_deadline(self) -> Millis | None:
        """The earliest deadline."""
        return self._deadlines.next()

    def take_due(self, now: float) -> list[Selectable]:
        """Those whose deadline is at `now`, in Proton's seconds, or before; it is forgotten."""
        return list(self._deadlines.due(Millis(int(now * 1000))))

    def close(self) -> None:
        """Close the sockets of all selectables that are left."""
        for selectable in list(self._fds):
            self.remove(selectable)
            selectable.close()


def _make_event(selectable: Selectable, mask: int, _now: Millis) -> None:
    if mask & READ:
        selectable.readable()
    if mask & WRITE:
        selectable.writable()


class WaitingIO(IOHandler):
    """Proton's socket code with our selector; it leaves the waiting to the loop that drives, if one does."""

    def __init__(self, watch: SelectableWatch) -> None:
        super().__init__()
        self._watch = watch
        proton_private.set_selector(self, watch)

    def on_reactor_quiesced(self, event: Event) -> None:
        """Wait for sockets and timers, unless a loop does that between the events."""
        container = event.container
        assert isinstance(container, BrokerContainer)
        if container.is_driven or not container.quiesced:
            return
        wait_ms = container.wait_ms()
        timeout = container.timeout
        if wait_ms is not None:
            timeout = min(timeout, wait_ms / 1000)
        self._watch.select(timeout)
        container.mark()
        container.fire_due()
        container.yield_()


class ManyAcceptor(Acceptor):
    """Listening sockets whose connections take Proton's event path; close() ends them all."""

    def __init__(
        self, container: BrokerContainer, host: str, port: int, handler: Handler | None = None
    ) -> None:
        self._ssl_domain = None
        self._reactor = container
        self._handler = handler
        self._listening: list[Selectable] = []
        for sock in endpoints.open_tcp(host, port):
            self._listening.append(proton_private.listening_selectable(self, sock))
        self.port: int = self._listening[0].getsockname()[1]

    def serve_with(self, handler: Handler | None) -> None:
        """Give the connections accepted from now on this handler; None: the container's."""
        self._handler = handler

    def close(self) -> None:
        """Stop listening; connections stay."""
        for selectable in self._listening:
            if not selectable.is_terminal:
                selectable.terminate()
                selectable.update()

    def on_selectable_readable(self, event: Event) -> None:
        """Take the connections that wait."""
        selectable = event.context
        assert isinstance(selectable, Selectable)
        for sock, address in waiting(selectable, partial(self._pause, selectable)):
            sock.settimeout(0)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            proton_private.adopt_socket(self, sock, address[0], address[1])

    def _pause(self, selectable: Selectable, _error: OSError) -> None:
        """Look away from a socket that cannot be served now, or the loop would spin."""
        selectable.reading = False
        selectable.update()
        self._reactor.schedule(RETRY_MS / 1000, _Resume(selectable))


class _Resume(Handler):
    """A timer's handler that makes a paused listening socket accept again."""

    def __init__(self, selectable: Selectable) -> None:
        self._paused = selectable

    def on_timer_task(self, _event: Event) -> None:
        if not self._paused.is_terminal:
            self._paused.reading = True
            self._paused.update()
