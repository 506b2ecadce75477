"""One session of a peer: its channel, its links, and how many frames the peer still takes on it.

Must not know Proton or sockets. Transfer ids and windows are serial numbers modulo 2^32 [2.5.6].
"""

from typing import TYPE_CHECKING, Final

from amqpbroker.base.ids import SessionId

if TYPE_CHECKING:
    from amqpbroker.amqp.incoming import IncomingLink
    from amqpbroker.amqp.outgoing import OutgoingLink

SERIAL: Final = 1 << 32
SERIAL_HALF: Final = 1 << 31
UNLIMITED_FRAMES: Final = SERIAL_HALF - 1  # Windows above half the serial space cannot be told apart.


def serial_difference(left: int, right: int) -> int:
    """`left - right` in serial arithmetic [RFC 1982]: between -2^31 and 2^31 - 1."""
    return (left - right + SERIAL_HALF) % SERIAL - SERIAL_HALF


class Session:
    """What the peer's Begin and Flow frames said, and the links that were attached since."""

    __slots__ = (
        "channel",
        "frames_sent",
        "handle_max",
        "id",
        "is_ended",
        "links",
        "local_channel",
        "slot",
        "window_end",
    )

    def __init__(
        self, session: SessionId, channel: int, slot: int, handle_max: int, incoming_window: int
    ) -> None:
        self.id = session
        self.channel = channel  # The peer's number for it; what arrives names it so.
        self.local_channel = 0  # Ours, from the Begin that Proton wrote.
        self.slot = slot  # The driver's.
        self.handle_max = handle_max  # The peer's: highest handle that we may use.
        self.links: dict[int, IncomingLink | OutgoingLink] = {}  # By the peer's handle.
        self.frames_sent = 0  # Transfer frames; Proton's next-outgoing-id, which starts at 0.
        self.window_end = min(incoming_window, UNLIMITED_FRAMES)  # frames_sent may reach this.
        self.is_ended = False  # We sent End; the walker swallows until the peer's.

    @property
    def frames_left(self) -> int:
        """Transfer frames that the peer takes now; never negative."""
        return max(0, self.window_end - self.frames_sent)

    def take_window(self, next_incoming_id: int | None, incoming_window: int) -> bool:
        """Learn from a Flow; False when it acknowledges what was never sent [2.5.6]."""
        ahead = 0  # Before the peer saw our Begin it cannot know the id: nothing is in flight.
        if next_incoming_id is not None:
            ahead = serial_difference(next_incoming_id, self.frames_sent % SERIAL)
            if ahead > 0:
                return False
        self.window_end = self.frames_sent + ahead + min(incoming_window, UNLIMITED_FRAMES)
        return True

    def has_link(self, name: str, *, incoming: bool) -> bool:
        """Whether a link of this name and direction is attached here."""
        return any(link.name == name and link.incoming == incoming for link in self.links.values())
