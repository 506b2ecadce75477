"""One place where connections are accepted: its sockets, its limit, and what to do when descriptors run out.

Must not know what becomes of a connection: it hands each socket on, together with whether the listener is full.
"""

import errno
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from amqpbroker.base.ids import Millis
from amqpbroker.runtime.endpoints import ListenError, describe, open_sockets
from amqpbroker.runtime.poller import READ, Poller
from amqpbroker.runtime.settings import ListenerSettings

ACCEPTS_MAX = 100
"""Connections taken per socket and turn: a storm of thousands must not keep the others waiting (about 3 ms)."""

RETRY_MS = 200
"""How long accepting pauses when the process or the machine is out of descriptors or memory. Shorter burns a
turn for nothing; longer is felt by those who wait in the backlog."""

EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class Door(Protocol):
    """What waiting connections are taken from: a listening socket, or Proton's selectable of one."""

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection and its address; OSError when there is none, or none that can be had."""

    def fileno(self) -> int:
        """-1 once it is closed."""


def waiting(
    door: Door, exhausted: Callable[[OSError], None]
) -> Iterator[tuple[socket.socket, Any]]:
    """The connections that wait at a door, with their peers' addresses; ACCEPTS_MAX at most.

    `exhausted` is told when there are no descriptors or memory for the next. The door may be closed meanwhile.
    """
    for _ in range(ACCEPTS_MAX):
        if door.fileno() == -1:
            return
        try:
            taken = door.accept()
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno in EXHAUSTED:
                exhausted(error)
                return
            continue  # That one failed before it was ours, as accept(2) tells: the next may be fine.
        yield taken


Accepted = Callable[["Listener", socket.socket, str, Millis], None]
"""Told of each new socket, not blocking, and its peer's address."""

Exhausted = Callable[["Listener", OSError], None]
"""Told once that accepting failed for want of descriptors or memory, until it succeeds again."""


class Listener:
    """The listening sockets of one `listeners:` entry, open from the start. Raises ListenError."""

    def __init__(
        self, settings: ListenerSettings, poller: Poller, accepted: Accepted, exhausted: Exhausted
    ) -> None:
        self.settings = settings
        self.connections = 0  # Open ones; the wires count themselves in and out.
        self.is_full_noted = False  # Written by the loop: one line per time that it fills up.
        self.retry_at: Millis | None = None  # When accepting goes on; None: it is not paused.
        self._poller = poller
        self._accepted = accepted
        self._exhausted = exhausted
        self._is_exhausted = False
        try:
            self._sockets = open_sockets(settings.bind, settings.backlog)
        except ListenError as error:
            raise ListenError(f"listener {settings.name}: {error}") from error
        self._unix = (
            settings.bind.removeprefix("unix:") if settings.bind.startswith("unix:") else ""
        )
        self._inode = Path(self._unix).lstat().st_ino if self._unix else 0
        self.addresses = [
            describe(one.getsockname(), one.family, self._unix) for one in self._sockets
        ]
        self.port: int = 0 if self._unix else self._sockets[0].getsockname()[1]
        self._watch()

    @property
    def is_full(self) -> bool:
        """Whether one more connection is more than max_connections."""
        return self.connections >= self.settings.max_connections

    def resume_if_due(self, now: Millis) -> None:
        """Accept again after a pause that is over."""
        if self.retry_at is not None and self.retry_at <= now:
            self.retry_at = None
            self._watch()

    def close(self) -> None:
        """Stop listening; connections stay. The socket file of a Unix listener goes, if it still is ours."""
        for one in self._sockets:
            self._poller.forget(one.fileno())
            one.close()
        self._sockets.clear()
        self.retry_at = None
        with suppress(OSError):
            if self._unix and Path(self._unix).lstat().st_ino == self._inode:
                Path(self._unix).unlink()

    def _watch(self) -> None:
        for one in self._sockets:
            self._poller.watch(one.fileno(), READ, partial(self._take, one))

    def _take(self, door: Door, _mask: int, now: Millis) -> None:
        for sock, address in waiting(door, partial(self._pause, now)):
            self._is_exhausted = False
            self._hand_on(sock, address, now)

    def _hand_on(self, sock: socket.socket, address: object, now: Millis) -> None:
        try:
            sock.settimeout(0)
            if self.settings.tcp_nodelay and not self._unix:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError:  # macOS answers EINVAL for a connection that was reset already.
            sock.close()
            return
        self._accepted(self, sock, describe(address, sock.family, self._unix), now)

    def _pause(self, now: Millis, error: OSError) -> None:
        """Look away for a while: a socket that stays readable and cannot be accepted from is a busy loop."""
        for one in self._sockets:
            self._poller.forget(one.fileno())
        self.retry_at = Millis(now + RETRY_MS)
        if not self._is_exhausted:
            self._is_exhausted = True
            self._exhausted(self, error)
