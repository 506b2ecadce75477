"""Lets other threads, signal handlers and the store reach the loop: it turns again, and makes calls for them.

The theory of the flag: a caller appends first and looks at the flag second; the loop takes the byte, lowers
the flag, and takes the calls last. So whoever sees the flag still up has its call taken by that very turn, and
a thousand calls cost one system call.
"""

import socket
from collections import deque
from collections.abc import Callable

from amqpbroker.base.ids import Millis
from amqpbroker.runtime.poller import READ, Poller

CALLS_MAX = 1_000
"""Made per turn; the rest waits for the next, so that peers are not starved."""


class Wakeup:
    """A queue of calls from elsewhere, and a socket that ends the loop's wait when one comes."""

    def __init__(self, poller: Poller) -> None:
        self._poller = poller
        self._inside, self._outside = socket.socketpair()
        self._inside.settimeout(0)
        self._outside.settimeout(0)
        self._calls: deque[Callable[[], None]] = deque()
        self._is_raised = False
        self._is_asked = False  # From within a turn: no byte is needed to be seen.
        poller.watch(self._inside.fileno(), READ, self._lower)

    def call(self, call: Callable[[], None]) -> None:
        """Have the loop make this call in its next turn. From any thread, or from a signal handler."""
        self._calls.append(call)
        self.wake()

    def wake(self) -> None:
        """Have the loop turn once more without waiting. From any thread, or from a signal handler."""
        if self._is_raised:
            return
        self._is_raised = True
        try:
            self._outside.send(b"!")
        except OSError:
            return  # Full: it wakes anyway. Closed: the loop has ended, and nobody waits.

    def turn_again(self) -> None:
        """As wake, from within a turn: it costs no system call."""
        self._is_asked = True

    def take_asked(self) -> bool:
        """Whether the loop must turn again without waiting; forgets that it was asked."""
        asked, self._is_asked = self._is_asked, False
        return asked or bool(self._calls)

    def make_calls(self) -> None:
        """Make the calls that wait, in the order they came; CALLS_MAX at most."""
        for _ in range(min(len(self._calls), CALLS_MAX)):
            self._calls.popleft()()

    def close(self) -> None:
        """Give both sockets back; later calls are made by nobody."""
        self._poller.forget(self._inside.fileno())
        self._inside.close()
        self._outside.close()

    def _lower(self, _mask: int, _now: Millis) -> None:
        self._inside.recv(64)
        self._is_raised = False
