"""Waits for many descriptors at once: epoll on Linux, kqueue on macOS. Must not know what they belong to.

One poller serves the broker's own sockets and Proton's: each descriptor comes with the callback that is told
what it is ready for. Interest is level-triggered, so who cannot use an event (a paused reader, a half-closed
socket) takes its interest back, or the loop would spin.
"""

import selectors
from collections.abc import Callable

from amqpbroker.base.ids import Millis

READ = selectors.EVENT_READ
WRITE = selectors.EVENT_WRITE

Ready = Callable[[int, Millis], None]
"""Told the mask of READ and WRITE that a descriptor is ready for, and the time; errors and hang-ups show as either."""


class Poller:
    """Descriptors, what each is watched for, and one wait for all of them."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._watched: dict[int, tuple[int, Ready]] = {}

    def watch(self, fd: int, events: int, ready: Ready) -> None:
        """From now on `ready` is told when `fd` is ready for any of `events`; 0 forgets `fd`.

        Whoever watched this number before is forgotten: a descriptor that was closed elsewhere leaves its
        number to the next.
        """
        before = self._watched.get(fd)
        if not events:
            self.forget(fd)
        elif before is None:
            self._selector.register(fd, events, ready)
            self._watched[fd] = (events, ready)
        elif before[1] is not ready and before[1] != ready:
            # Another owner: the old one's kernel entry may have gone with its socket.
            self.forget(fd)
            self._selector.register(fd, events, ready)
            self._watched[fd] = (events, ready)
        elif before[0] != events:
            self._selector.modify(fd, events, ready)
            self._watched[fd] = (events, ready)

    def forget(self, fd: int) -> None:
        """Stop watching `fd`; no complaint when it is not watched. Call it before closing `fd`."""
        if self._watched.pop(fd, None) is not None:
            self._selector.unregister(fd)

    def wait(self, timeout_ms: float | None) -> list[tuple[Ready, int]]:
        """Wait for readiness, `timeout_ms` at most (None: for ever); who is ready, and for what."""
        seconds = None if timeout_ms is None else timeout_ms / 1000
        return [(key.data, mask) for key, mask in self._selector.select(seconds)]

    def __len__(self) -> int:
        return len(self._watched)

    def close(self) -> None:
        """Give the kernel's descriptor back; nothing may be called afterwards."""
        self._watched.clear()
        self._selector.close()
