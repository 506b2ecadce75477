"""Who is there, and that everyone who must know knows."""

import pytest

from amqpbroker.engine.commands import AttachConsumer, CloseSession, OpenSession, Terminus
from tests.engine.rig import PLENTY, Rig, taken


@pytest.mark.rule("B3.4", "B3.7")
def test_links_and_sessions_that_come_and_go_leave_nothing() -> None:
    rig = Rig()
    connection = rig.connection("me")
    for _ in range(50):
        session = rig.session(connection)
        rig.consumer(session=session, name="x", credit=1)
        rig.producer(session=session, name="x")
        rig.close_session(session)
    links = rig.broker._links
    assert not links.consumers
    assert not links.producers
    assert not links.by_key
    assert not links.sessions
    assert not links.connections[connection].sessions


@pytest.mark.rule("B13.1")
def test_a_name_is_free_again_when_its_link_is_gone() -> None:
    rig = Rig()
    session = rig.session()
    rig.detach(rig.consumer(session=session, name="x"))
    _, effects = rig.attach_consumer(session=session, name="x")
    assert len(effects) == 1


@pytest.mark.rule("D-11", "GR-4")
def test_the_leases_of_all_links_of_a_session_go_back_as_one() -> None:
    rig = Rig()
    session = rig.session()
    for _ in range(3):
        rig.consumer(session=session, credit=2)
    rig.publish(rig.producer(), *"abcdef")
    other = rig.consumer(credit=9)
    effects = rig.close_session(session)
    assert taken(effects, other) == list("abcdef")


def test_the_end_of_what_waits_for_a_window_is_the_end_of_its_waiting() -> None:
    rig = Rig()
    connection = rig.connection()
    session = rig.session(connection, frames=0)
    link = rig.consumer(session=session, credit=1)
    rig.publish(rig.producer(), "m")
    assert link in rig.broker._links.sessions[session].blocked
    rig.detach(link)
    assert not rig.broker._links.sessions[session].blocked
    assert rig.window(session, 5) == []


def test_commands_of_one_turn_are_applied_in_order() -> None:
    rig = Rig()
    connection = rig.connection("me")
    source = Terminus("q")
    first, second = (rig.number() for _ in range(2))
    attach = [
        AttachConsumer(session, link, "x", source, wants_copies=False, settled=False)  # type: ignore[arg-type]
        for session, link in ((first, rig.number()), (second, rig.number()))
    ]
    effects = rig.do(
        OpenSession(connection, first, PLENTY, 100),  # type: ignore[arg-type]
        attach[0],
        CloseSession(first),  # type: ignore[arg-type]
        OpenSession(connection, second, PLENTY, 100),  # type: ignore[arg-type]
        attach[1],
    )
    assert [type(each).__name__ for each in effects] == ["ConsumerAttached"] * 2
