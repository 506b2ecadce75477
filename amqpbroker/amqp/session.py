"""One session of a peer: its channel, its links, and how many frames the peer still takes on it.

Must not know Proton or sockets. Transfer ids and windows are serial numbers modulo 2^32 [2.5.6].
"""

from typing import TYPE_CHECKING, Final

from amqpbroker.base.ids import SessionId

if TYPE_CHECKING:
    from amqpbroker.amqp.incoming import IncomingLink
    from amqpbroker.amqp.outgoing import OutgoingLink
    from amqpbroker.amqp.performatives import Begin

SERIAL: Final = 1 << 32
SERIAL_HALF: Final = 1 << 31
# Windows above half the serial space cannot be told apart.
UNLIMITED_FRAMES: Final = SERIAL_HALF - 1


def serial_difference(left: int, right: int) -> int:
    """`left - right` in serial arithmetic [RFC 1982]: between -2^31 and 2^31 - 1."""
    return (left - right + SERIAL_HALF) % SERIAL - SERIAL_HALF


class Session:
    """What the peer's Begin and Flow frames said, and the links that were attached since."""

    __slots__ = (
        "_names",
        "channel",
        "frames_sent",
        "handle_max",
        "id",
        "is_ended",
        "links",
        "local_channel",
        "next_incoming_id",
        "slot",
        "window_end",
    )

    def __init__(self, session: SessionId, channel: int, slot: int, begin: "Begin") -> None:
        self.id = session
        self.channel = channel  # The peer's number for it; what arrives names it so.
        self.local_channel = 0  # Ours, from the Begin that Proton wrote.
        self.slot = slot  # The driver's.
        self.handle_max = begin.handle_max  # The peer's: highest handle that we may use.
        self.next_incoming_id = begin.next_outgoing_id  # When the walker's window was set last.
        self.links: dict[int, IncomingLink | OutgoingLink] = {}  # By the peer's handle.
        # Looked up at each attach: looking through the links would make many of them quadratic.
        self._names: set[tuple[str, bool]] = set()
        self.frames_sent = 0  # Transfer frames; Proton's next-outgoing-id, which starts at 0.
        self.window_end = min(
            begin.incoming_window, UNLIMITED_FRAMES
        )  # frames_sent may reach this.
        self.is_ended = False  # We sent End; the walker swallows until the peer's.

    @property
    def frames_left(self) -> int:
        """Transfer frames that the peer takes now; never negative."""
        return max(0, self.window_end - self.frames_sent)

    def has_sent(self, next_incoming_id: int | None) -> bool:
        """False when a Flow acknowledges what was never sent [2.5.6]."""
        return next_incoming_id is None or self._ahead(next_incoming_id) <= 0

    def take_window(self, next_incoming_id: int | None, incoming_window: int) -> None:
        """Learn from a Flow."""
        # Before the peer saw our Begin it cannot know the id: nothing is in flight.
        ahead = 0 if next_incoming_id is None else self._ahead(next_incoming_id)
        self.window_end = self.frames_sent + ahead + min(incoming_window, UNLIMITED_FRAMES)

    def _ahead(self, next_incoming_id: int) -> int:
        return serial_difference(next_incoming_id, self.frames_sent % SERIAL)

    def took_frames(self, count: int) -> None:
        """So many transfers came until the walker's window was set anew."""
        self.next_incoming_id = (self.next_incoming_id + count) % SERIAL

    def is_rewound(self, next_outgoing_id: int, taken: int) -> bool:
        """Whether a Flow says that fewer transfers were sent than came, `taken` of them in this window."""
        return serial_difference(next_outgoing_id, self.next_incoming_id + taken) < 0

    def has_link(self, name: str, *, incoming: bool) -> bool:
        """Whether a link of this name and direction is attached here."""
        return (name, incoming) in self._names

    def add_link(self, link: "IncomingLink | OutgoingLink") -> None:
        """The peer has attached it, under a handle and a name that were free."""
        self.links[link.at.handle] = link
        self._names.add((link.name, link.incoming))

    def take_link(self, handle: int) -> "IncomingLink | OutgoingLink":
        """The link that the peer detaches; handle and name are free again (B3.4)."""
        link = self.links.pop(handle)
        self._names.remove((link.name, link.incoming))
        return link

    def take_links(self) -> "list[IncomingLink | OutgoingLink]":
        """All of them: the session has ended."""
        links = list(self.links.values())
        self.links.clear()
        self._names.clear()
        return links
