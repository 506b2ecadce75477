"""What a producer may be granted."""

import pytest

from amqpbroker.base.ids import ConnectionId, LinkId, SessionId
from amqpbroker.engine.commands import OpenConnection
from amqpbroker.engine.connection import Connection, LinkKey, Session
from amqpbroker.engine.credit import Producer


@pytest.mark.rule("AF-3", "B4.8")
@pytest.mark.parametrize(
    ("granted", "unstored", "more"),
    [
        (0, 0, 10),
        (4, 0, 0),  # Above the low mark.
        (3, 0, 7),
        (3, 5, 2),
        (3, 7, 0),
        (0, 10, 0),
        (0, 9, 1),
    ],
)
def test_a_refill_is_up_to_the_credit_less_what_waits_for_the_store(
    granted: int, unstored: int, more: int
) -> None:
    session = Session(
        SessionId(1), Connection(OpenConnection(ConnectionId(1), "c", 0, 10, 3)), 0, 1
    )
    key = LinkKey("c", "name", incoming=True)
    producer = Producer(LinkId(1), key, session, None, can_reject=True)
    producer.granted = granted
    producer.unstored = unstored
    assert producer.refill() == more
    assert producer.granted == granted + more
