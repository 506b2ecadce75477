"""What a peer takes."""

import pytest

from amqpbroker.base.ids import ConnectionId, SessionId
from amqpbroker.engine.commands import OpenConnection
from amqpbroker.engine.connection import Connection, LinkKey, Session


@pytest.mark.parametrize(
    ("frames", "room", "blocked"),
    [(1, 1, False), (0, 1, True), (1, 0, True), (-3, 5, True), (5, -3, True)],
)
def test_a_session_is_blocked_by_its_window_or_its_connection(
    frames: int, room: int, blocked: bool
) -> None:
    connection = Connection(OpenConnection(ConnectionId(1), "c", room, 10, 3))
    assert Session(SessionId(1), connection, frames, 100).is_blocked() == blocked


@pytest.mark.rule("B13.1")
def test_links_are_named_per_direction() -> None:
    assert LinkKey("c", "x", incoming=True) != LinkKey("c", "x", incoming=False)
