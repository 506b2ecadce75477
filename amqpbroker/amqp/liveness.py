"""Whether a peer is still there, and whether it can tell that we are: every time-out of a connection.

Reads and writes only note the time; the deadline is computed when it fires, so that traffic sets no timers.
Proton's own idle timer is off: it would fire while a large frame trickles in (PROTON_FACTS 4).
"""

from enum import Enum
from typing import Final

from amqpbroker.amqp.settings import PeerSettings
from amqpbroker.base.ids import Millis

CLOSE_TIMEOUT_MS: Final = 5_000  # For a peer to answer our Close before its socket is shut.


class Due(Enum):
    """What has become due."""

    NOTHING = "nothing"
    HEARTBEAT = "an empty frame must go out"
    IDLE = "the peer was silent too long"
    HANDSHAKE = "the peer did not open in time"
    UNANSWERED = "the peer did not answer our close"


class Liveness:
    """The times of one connection."""

    __slots__ = (
        "_accepted_at",
        "_close_by",
        "_handshake_ms",
        "_heartbeat_ms",
        "_idle_ms",
        "_is_open",
        "read_at",
        "wrote_at",
    )

    def __init__(self, settings: PeerSettings, now: Millis) -> None:
        self._handshake_ms = settings.handshake_timeout_ms
        self._idle_ms = settings.idle_timeout_ms  # We advertise half of it; 0: never.
        self._heartbeat_ms = 0  # Longest silence of ours; 0: as long as we like.
        self._is_open = False
        self._close_by: Millis | None = None
        self._accepted_at = now
        self.read_at = now
        self.wrote_at = now

    def opened(self, idle_timeout_ms: int) -> None:
        """The peer's Open came, and asks for a frame within this time (0: not at all)."""
        self._is_open = True
        # Half of what the peer bears, since a frame takes time on its way [2.4.5].
        self._heartbeat_ms = idle_timeout_ms // 2

    def closing(self, now: Millis) -> None:
        """Our Close is out: from now on only its answer is waited for."""
        self._close_by = Millis(now + CLOSE_TIMEOUT_MS)

    def next_deadline(self) -> Millis | None:
        """When to ask `due` again."""
        if self._close_by is not None:
            return self._close_by
        if not self._is_open:
            return Millis(self._accepted_at + self._handshake_ms)
        times: list[int] = []
        if self._idle_ms:
            times.append(self.read_at + self._idle_ms)
        if self._heartbeat_ms:
            times.append(self.wrote_at + self._heartbeat_ms)
        return Millis(min(times)) if times else None

    def due(self, now: Millis) -> Due:
        """What is due at `now`; a heartbeat counts as written at once."""
        if self._close_by is not None:
            return Due.UNANSWERED if now >= self._close_by else Due.NOTHING
        if not self._is_open:
            late = now >= self._accepted_at + self._handshake_ms
            return Due.HANDSHAKE if late else Due.NOTHING
        if 0 < self._idle_ms <= now - self.read_at:
            return Due.IDLE
        if 0 < self._heartbeat_ms <= now - self.wrote_at:
            self.wrote_at = now
            return Due.HEARTBEAT
        return Due.NOTHING
