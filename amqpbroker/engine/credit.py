"""What a producer was granted. Credit comes back when its messages are kept or refused, not when they arrive."""

from amqpbroker.base.ids import LinkId
from amqpbroker.engine.connection import LinkKey, Session
from amqpbroker.engine.routing import Address


class Producer:
    """An incoming link, seen from the engine.

    granted + unstored <= credit: so a slow disk stops the producer and does not become memory.
    """

    __slots__ = (
        "address",
        "can_reject",
        "created",
        "granted",
        "key",
        "link",
        "session",
        "unstored",
    )

    def __init__(
        self,
        link: LinkId,
        key: LinkKey,
        session: Session,
        address: Address | None,
        *,
        can_reject: bool,
    ) -> None:
        self.link = link
        self.key = key
        self.session = session
        self.address = address  # None: the anonymous terminus; each message says where it goes.
        self.can_reject = can_reject
        self.created: Address | None = None  # The dynamic node that was made for it.
        self.granted = 0  # Given and not used.
        self.unstored = 0  # Messages that wait for the store.

    def refill(self) -> int:
        """Credit to give now: what its listener grants, once the low mark is reached, less what waits for the store."""
        connection = self.session.connection
        if self.granted > connection.credit_low:
            return 0
        more = connection.credit - self.unstored - self.granted
        if more <= 0:
            return 0
        self.granted += more
        return more
