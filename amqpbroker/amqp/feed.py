"""What goes out to the consumers of one connection: as much as its buffer has room for, large messages frame by frame.

The engine dispatches within a *room* in bytes, which it counts down and we correct. What does not go out at once waits
at its link, and the links that have such entries take turns. Must not know queues, sockets or what a message holds.
"""

from typing import TYPE_CHECKING, Final

from amqpbroker.engine import commands

if TYPE_CHECKING:
    from amqpbroker.amqp.connection import Connection
    from amqpbroker.amqp.outgoing import OutgoingLink
    from amqpbroker.amqp.session import Session
    from amqpbroker.base.ids import Millis, Sequence

# Messages between two pumps. For each that is not pumped out Proton keeps some 600 bytes, and keeps them for the next:
# a stalled consumer of messages of 100 bytes cost six times its outgoing buffer. Ordinary runs are shorter than this.
RUN_MAX: Final = 500


class Feed:
    """The outgoing side of one connection, until it leaves."""

    __slots__ = ("_bound", "_connection", "_is_told", "_misjudged", "_room", "_waiting")

    def __init__(self, connection: "Connection") -> None:
        self._connection = connection
        self._bound = connection.settings.outgoing_buffer
        self._room = 0  # The engine's view of what may still be sent.
        self._is_told = False  # The engine knows the connection, and so its room.
        self._waiting: dict[OutgoingLink, None] = {}  # In the order of their turns.
        # The engine counts an entry's frames when it dispatches it: wrong for large ones, and for those never sent.
        self._misjudged: set[Session] = set()

    @property
    def is_waiting(self) -> bool:
        """Whether entries wait for window or buffer."""
        return bool(self._waiting)

    def engage(self) -> int:
        """The room to begin with; from now on the engine is told when it changes."""
        self._is_told = True
        self._room = self._bound
        return self._room

    def disengage(self) -> None:
        """The engine forgets the connection; what waits is its links' no more."""
        self._is_told = False
        self._waiting.clear()
        self._misjudged.clear()

    def spend(self, size: int) -> None:
        """The engine has dispatched so many bytes to this connection."""
        self._room -= size

    def send(
        self, slot: int, tags: "list[Sequence]", payloads: list[bytes], *, settled: bool
    ) -> None:
        """Hand Proton whole messages that fit frames and window."""
        driver = self._connection.driver
        if len(tags) <= RUN_MAX:
            driver.send_run(slot, tags, payloads, settled)
            return
        for start in range(0, len(tags), RUN_MAX):
            end = start + RUN_MAX
            driver.send_run(slot, tags[start:end], payloads[start:end], settled)
            self._connection.pump()

    def wait(self, link: "OutgoingLink") -> None:
        """The link has entries that do not go out at once."""
        self._waiting.setdefault(link)

    def forget(self, link: "OutgoingLink") -> None:
        """What waits at the link is never sent: its session has more frames than the engine knows."""
        self._waiting.pop(link, None)
        self._misjudged.add(link.at.session)
        self._connection.touch()

    def go_on(self, now: "Millis") -> None:
        """Let the links that wait go on, a frame each in turn, as window and buffer allow."""
        connection, waiting = self._connection, self._waiting
        stuck = 0
        while stuck < len(waiting) and connection.peer.outbox.size < self._bound:
            link = next(iter(waiting))
            del waiting[link]
            if link.at.is_closed:
                continue
            if link.feed():
                self._misjudged.add(link.at.session)
                stuck = 0
                connection.pump()  # One frame at a time: their number is what we count.
            else:
                stuck += 1
            if link.is_feeding:
                waiting[link] = None
        while self._misjudged:
            session = self._misjudged.pop()
            if not session.is_ended:
                window = commands.Window(session.id, session.frames_left)
                connection.switchboard.apply(window, now)

    def tell_room(self, now: "Millis") -> None:
        """Correct the engine's view, but not for every few bytes."""
        connection = self._connection
        room = self._bound - connection.peer.outbox.size
        if self._is_told and self._room < self._bound // 2 and room > self._room + self._bound // 4:
            self._room = room
            connection.switchboard.apply(commands.Room(connection.peer.connection, room), now)
