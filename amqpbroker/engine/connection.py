"""A peer and its sessions, as far as the engine must know them: who they are and how much they take now."""

from typing import TYPE_CHECKING, NamedTuple

from amqpbroker.base.ids import LinkId, SessionId
from amqpbroker.engine.commands import OpenConnection

if TYPE_CHECKING:
    from amqpbroker.engine.consumer import Consumer
    from amqpbroker.engine.routing import Address


class LinkKey(NamedTuple):
    """What names a link for ever: a second one of the same key takes its place (B13.1)."""

    container: str
    name: str
    incoming: bool


class Connection:
    """An open peer."""

    __slots__ = (
        "blocked",
        "container",
        "credit",
        "credit_low",
        "dynamic",
        "id",
        "room",
        "sessions",
        "unstored_bytes",
    )

    def __init__(self, opened: OpenConnection) -> None:
        self.id = opened.connection
        self.container = opened.container
        self.room = opened.room  # Bytes it takes now; below 0 by the rest of the last entry.
        self.credit = opened.credit  # Of each producer's link;
        self.credit_low = opened.credit_low  # refilled at this mark.
        self.sessions: dict[SessionId, Session] = {}
        self.blocked: dict[LinkId, Consumer] = {}  # Have credit, wait for room.
        self.dynamic: dict[str, Address] = {}  # Nodes that end with it at the latest.
        self.unstored_bytes = 0  # Of its messages that wait for the store, of ended links too.


class Session:
    """A session of a connection."""

    __slots__ = ("blocked", "connection", "frame_bytes", "frames", "id", "links")

    def __init__(
        self, session: SessionId, connection: Connection, frames: int, frame_bytes: int
    ) -> None:
        self.id = session
        self.connection = connection
        self.frames = frames  # The peer's window; may fall below 0 by the rest of one entry.
        self.frame_bytes = frame_bytes
        self.links: dict[LinkId, None] = {}  # In order of attaching.
        self.blocked: dict[LinkId, Consumer] = {}  # Have credit, wait for the window.

    def is_blocked(self) -> bool:
        """Whether nothing may be started on its links now."""
        return self.frames <= 0 or self.connection.room <= 0
