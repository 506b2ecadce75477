"""Every private name of Proton that the container leans on, and what it leans on it for.

Proton's reactor has no public way to bring another selector or another acceptor, so container.py reaches inside,
through this file only. NAMES is what must exist; `moved()` says which of them a Proton release took away, and
tests/runtime/test_proton_private.py fails with its answer.
"""

import socket
from collections.abc import Mapping, Sequence
from typing import Any, Protocol
from uuid import uuid4  # noqa: TID251  As Proton names a container that is given no name.

from proton import Connection, Handler, SSLDomain, SSLUnavailable, Transport, Url
from proton._handlers import IOHandler
from proton._reactor import Acceptor, GlobalOverrides, Reactor, SSLConfig, TimerSelectable
from proton._selectable import Selectable
from proton.reactor import Container

__all__ = [
    "NAMES",
    "Acceptor",
    "IOHandler",
    "SSLConfig",
    "Selectable",
    "Selector",
    "adopt_socket",
    "count_one_more",
    "has_events",
    "is_stopped",
    "listening_selectable",
    "make_ssl",
    "moved",
    "set_selector",
    "set_up",
]

NAMES: dict[str, str] = {
    "Acceptor.__init__": "not called: it would bind IPv4 only, with a backlog of 10",
    "Acceptor._handler": "the handler of the connections that a listener accepts",
    "Acceptor._reactor": "the container that an acceptor belongs to",
    "Acceptor._selectable": "not set: our acceptor has one selectable per socket",
    "Acceptor._ssl_domain": "whether accepted connections start with TLS",
    "Acceptor.on_selectable_readable": "where the stock acceptor takes one connection per turn",
    "Container.__init__": "not called, see set_up: it would make two TLS domains at once",
    "Connection._acceptor": "a connection with one needs no outgoing socket",
    "Connection.url": "the address of the peer",
    "IOHandler._selector": "where the container's own selector goes",
    "IOHandler.on_reactor_quiesced": "where the stock reactor waits",
    "IOHandler.on_selectable_final": "calls selector.remove",
    "IOHandler.on_selectable_init": "calls selector.add",
    "IOHandler.on_selectable_updated": "calls selector.update",
    "IOHandler.update": "arms a connection's selectable from its transport",
    "Reactor._collector": "whether events wait",
    "Reactor._selectables": "1 or fewer, with no timers: the reactor stops (PROTON_FACTS 7)",
    "Reactor._stop": "whether stop() was called",
    "Reactor.process": "hands out the events that wait",
    "Selectable._delegate": "the socket of a selectable",
    "Selectable._transport": "the transport that a selectable's socket belongs to",
    "TimerSelectable.expired": "runs the timers that are due",
    "Transport._selectable": "the selectable that a transport's socket has",
}


class Selector(Protocol):
    """What Proton's IOHandler asks of the selector it is given."""

    def add(self, selectable: Selectable) -> None:
        """Start watching."""

    def update(self, selectable: Selectable) -> None:
        """Its reading, writing or deadline changed."""

    def remove(self, selectable: Selectable) -> None:
        """Stop watching."""

    def select(
        self, timeout: float | None
    ) -> tuple[Sequence[Selectable], Sequence[Selectable], Sequence[Selectable]]:
        """Wait; who is readable, writable and past its deadline."""


def moved() -> list[str]:
    """The names of NAMES that this Proton does not have, each with what it was needed for."""
    return [f"{name}: {why}" for name, why in NAMES.items() if not _is_there(name)]


def _is_there(name: str) -> bool:
    """Class attributes are looked up; instance attributes are looked for in the code that sets or reads them."""
    owners = {
        owner.__name__: owner
        for owner in (
            Acceptor,
            Connection,
            Container,
            IOHandler,
            Reactor,
            Selectable,
            TimerSelectable,
            Transport,
        )
    }
    owner, _, attribute = name.partition(".")
    if hasattr(owners[owner], attribute):
        return True
    readers = owners.values()
    codes = (getattr(method, "__code__", None) for one in readers for method in vars(one).values())
    return any(code is not None and attribute in code.co_names for code in codes)


def set_up(container: Container, handlers: Sequence[Handler], options: Mapping[str, Any]) -> None:
    """Do what Container.__init__ does, all but `ssl`: that makes two TLS domains, a fifth of a start."""
    Reactor.__init__(container, *handlers, **options)
    container.global_handler = GlobalOverrides(
        options.get("global_handler", container.global_handler)
    )
    container.trigger = None
    container.container_id = options.get("container_id", str(uuid4()))
    container.allow_insecure_mechs = True
    container.allowed_mechs = None
    container.sasl_enabled = True
    container.user = None
    container.password = None


def make_ssl() -> SSLConfig | None:
    """What Container.__init__ would have had as `ssl`."""
    try:
        return SSLConfig()
    except SSLUnavailable:
        return None


def set_selector(io: IOHandler, selector: Selector) -> None:
    """Have Proton's socket code use `selector` in place of its own."""
    io._selector = selector  # type: ignore[assignment]


def count_one_more(container: Container) -> None:
    """Make the reactor see one more selectable, so that it does not stop for want of any."""
    container._selectables += 1


def has_events(container: Container) -> bool:
    """Whether Proton events wait to be handed out."""
    return container._collector.peek() is not None


def is_stopped(container: Container) -> bool:
    """Whether somebody called container.stop()."""
    return bool(container._stop)


def listening_selectable(acceptor: Acceptor, sock: socket.socket) -> Selectable:
    """Have the acceptor told when the listening socket is readable."""
    container: Container = acceptor._reactor
    selectable = container.selectable(handler=acceptor, delegate=sock)
    selectable.reading = True
    # IOHandler looks for a transport: a listening socket has none.
    selectable._transport = None  # type: ignore[attr-defined]
    container.update(selectable)
    return selectable


def adopt_socket(acceptor: Acceptor, sock: socket.socket, host: str, port: int) -> None:
    """Make an accepted socket a connection on Proton's event path, as the stock acceptor does."""
    container: Container = acceptor._reactor
    connection = container.connection(acceptor._handler or container.handler)
    connection._acceptor = acceptor  # type: ignore[assignment]
    connection.url = Url(host=host, port=port)  # type: ignore[assignment, no-untyped-call]
    transport = Transport(Transport.SERVER)
    domain: SSLDomain | None = acceptor._ssl_domain
    if domain:
        transport.ssl(domain)
    transport.bind(connection)
    selectable = container.selectable(delegate=sock)
    selectable._transport = transport  # type: ignore[attr-defined]
    transport._selectable = selectable
    IOHandler.update(transport, selectable, container.now)
