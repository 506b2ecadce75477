"""What an incoming and an outgoing link have in common: where a link is attached, by all its names."""

from typing import TYPE_CHECKING

from amqpbroker.base.ids import LinkId

if TYPE_CHECKING:
    from amqpbroker.amqp.performatives import Attach
    from amqpbroker.amqp.session import Session


class Attachment:
    """One link of one session, from the peer's Attach to both Detach frames."""

    __slots__ = ("attach", "handle", "is_closed", "link", "local_handle", "session", "slot")

    def __init__(self, link: LinkId, session: "Session", slot: int, attach: "Attach") -> None:
        self.link = link  # The engine's name for it.
        self.session = session
        self.slot = slot  # The driver's.
        self.attach = attach  # As the peer sent it.
        self.handle = attach.handle  # The peer's number for it; what arrives names it so.
        self.local_handle = 0  # Ours, from the Attach that Proton wrote.
        self.is_closed = False  # We sent Detach, or are about to; the peer's is awaited.
