"""A peer and its sessions, as far as the engine must know them: who they are and how much they take now."""

from typing import TYPE_CHECKING, NamedTuple

from amqpbroker.base.ids import ConnectionId, LinkId, SessionId

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

    __slots__ = ("blocked", "container", "dynamic", "id", "room", "sessions", "unstored_bytes")

    def __init__(self, connection: ConnectionId, container: str, room: int) -> None:
        self.id = connection
        self.container = container
        self.room = (
            room  # Bytes it takes now; an entry starts when any is left, so may fall below 0.
        )
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
