"""Sessions, links, drains, and slots that are stale, over both data paths."""

import struct
from collections.abc import Callable

import pytest
from proton import Delivery, Endpoint

from amqpbroker.amqp.driver import LINK_OPENED, SESSION_OPENED, PureDriver, StaleSlot
from tests.amqp.driver.pair import HEADER, Pair, answer, messages, outcomes, receive, send, whole


def test_a_begin_and_an_attach_each_get_a_slot(pair: Pair) -> None:
    session = pair.connection.session()
    session.open()
    session.sender("p").open()
    session.receiver("c").open()
    records = pair.pump()
    slot = records[0][1]
    assert records == [
        (SESSION_OPENED, slot),
        (LINK_OPENED, records[1][1], slot, True),
        (LINK_OPENED, records[2][1], slot, False),
    ]
    assert len({slot, records[1][1], records[2][1]}) == 3


def test_endpoints_open_as_told(pair: Pair) -> None:
    session, _ = pair.session()
    link, _ = pair.producer(session, limit=12_345, credit=7)
    assert pair.connection.state & Endpoint.REMOTE_ACTIVE
    assert session.state & Endpoint.REMOTE_ACTIVE
    assert link.state & Endpoint.REMOTE_ACTIVE
    assert link.remote_max_message_size == 12_345
    assert link.credit == 7


@pytest.mark.parametrize("closed", [True, False])
def test_a_link_is_closed_or_detached(pair: Pair, closed: bool) -> None:
    session, _ = pair.session()
    link, slot = pair.consumer(session)
    pair.driver.close_link(slot, None, closed=closed)
    seen = set()
    data = pair.driver.pump()
    pair.transport.push(data)
    while event := pair.collector.peek():
        seen.add(event.type.name)
        pair.collector.pop()
    assert ("PN_LINK_REMOTE_CLOSE" if closed else "PN_LINK_REMOTE_DETACH") in seen
    assert link.remote_condition is None


def test_what_was_asked_for_before_a_free_still_leaves(pair: Pair) -> None:
    session, slot = pair.session()
    link, link_slot = pair.consumer(session)
    pair.driver.send_run(link_slot, [1], [b"last"], True)
    pair.driver.close_link(link_slot, None, closed=True)
    pair.driver.free_link(link_slot)
    pair.driver.close_session(slot, None)
    pair.driver.free_session(slot)
    pair.pump()
    assert [p for _, p in receive(link)] == [b"last"]
    assert link.state & Endpoint.REMOTE_CLOSED
    assert session.state & Endpoint.REMOTE_CLOSED


def test_a_name_attached_again_gets_a_new_slot(pair: Pair) -> None:
    session, _ = pair.session()
    slots = set()
    for i in range(20):
        link, slot = pair.producer(session, name="same")
        send(link, b"x")
        assert messages(pair.pump(), slot) == [(0, b"x", False)]
        slots.add(slot)
        link.close()
        pair.pump()
        pair.driver.close_link(slot, None, closed=True)
        if i % 2:
            pair.pump()
        pair.driver.free_link(slot)
        pair.pump()
        link.free()
    assert len(slots) == 20


def test_garbage_is_an_error(kind: type[PureDriver]) -> None:
    driver = kind(max_frame_size=512, channel_max=1, partial_bytes_max=0)
    assert driver.error() is None
    assert driver.push(HEADER)
    assert not driver.push(b"\x00\x00\x00\x05garbage")
    assert not driver.push(b"more")
    error = driver.error()
    assert error is not None
    assert error[0] == "amqp:connection:framing-error"
    assert driver.take() == []
    assert b"framing-error" in driver.pump()
    driver.free()


def test_nothing_is_taken_after_close(pair: Pair) -> None:
    pair.connection.close()
    data = pair.output()
    assert not all(pair.driver.push(piece) for piece in pair.cut(data))
    assert pair.driver.error() is None


def test_force_flow_sends_one_session_flow(pair: Pair) -> None:
    _, slot = pair.session(capacity=10 * 65_536)
    assert pair.driver.pump() == b""
    for _ in range(2):
        pair.driver.force_flow(slot)
        flow = pair.driver.pump()
        assert flow[8:11] == b"\x00\x53\x13"
        assert struct.unpack(">I", flow[:4])[0] == len(flow)
        assert pair.driver.pump() == b""


def test_the_incoming_window_is_the_capacity_in_frames(kind: type[PureDriver]) -> None:
    pair = Pair(kind, whole, frame=1024)
    session = pair.connection.session()
    session.open()
    ((_, slot),) = pair.pump()
    pair.driver.open_session(slot, 10 * 1024)
    begin = pair.driver.pump()
    assert begin[8:11] == b"\x00\x53\x11"
    assert b"\x52\x0a" in begin  # Incoming-window 10.
    pair.driver.free()


def test_a_producer_is_drained(pair: Pair) -> None:
    session, _ = pair.session()
    link, slot = pair.producer(session, credit=10)
    send(link, b"1", b"2")
    pair.pump()
    pair.driver.drain(slot)
    pair.pump()
    link.drained()
    pair.pump()
    assert pair.driver.drained(slot) == 8
    assert pair.driver.drained(slot) == 0
    pair.driver.grant(slot, 3)
    pair.pump()
    assert link.credit == 3


def test_a_consumer_is_given_its_drain_back(pair: Pair) -> None:
    session, _ = pair.session()
    link, slot = pair.consumer(session, credit=0)
    link.drain(5)
    pair.pump()
    pair.driver.send_run(slot, [1], [b"x"], False)
    pair.driver.give_back(slot)
    pair.pump()
    assert [p for _, p in receive(link)] == [b"x"]
    assert link.credit == 0
    assert not link.draining()


Call = Callable[[PureDriver, int], object]


SESSION_CALLS: dict[str, Call] = {
    "open_session": lambda d, s: d.open_session(s, 1 << 20),
    "close_session": lambda d, s: d.close_session(s, None),
    "free_session": lambda d, s: d.free_session(s),
    "force_flow": lambda d, s: d.force_flow(s),
}


LINK_CALLS: dict[str, Call] = {
    "open_link": lambda d, s: d.open_link(s, 0),
    "close_link": lambda d, s: d.close_link(s, None, closed=True),
    "discard": lambda d, s: d.discard(s),
    "free_link": lambda d, s: d.free_link(s),
    "grant": lambda d, s: d.grant(s, 1),
    "drain": lambda d, s: d.drain(s),
    "drained": lambda d, s: d.drained(s),
    "dispose": lambda d, s: d.dispose(s, 0, 1, 0x24, True, None),
    "dispose nothing": lambda d, s: d.dispose(s, 0, 0, 0x24, True, None),
    "tag": lambda d, s: d.tag(s, 0),
    "send_run": lambda d, s: d.send_run(s, [1], [b""], False),
    "send_begin": lambda d, s: d.send_begin(s, 1),
    "send_part": lambda d, s: d.send_part(s, b""),
    "send_end": lambda d, s: d.send_end(s, False),
    "send_abort": lambda d, s: d.send_abort(s),
    "give_back": lambda d, s: d.give_back(s),
}


DRIVER_CALLS: dict[str, Call] = {
    "push": lambda d, s: d.push(b"x"),
    "pump": lambda d, s: d.pump(),
    "take": lambda d, s: d.take(),
    "error": lambda d, s: d.error(),
    "open_connection": lambda d, s: d.open_connection(),
    "close_connection": lambda d, s: d.close_connection(None),
}


def filled(kind: type[PureDriver]) -> tuple[Pair, int, list[int]]:
    """A pair with a session and two links, messages and outcomes under way."""
    pair = Pair(kind, whole)
    session, slot = pair.session()
    producer, producer_slot = pair.producer(session)
    _, consumer_slot = pair.consumer(session)
    send(producer, b"1", b"2")
    pair.driver.send_run(consumer_slot, [1, 2], [b"x", b"y"], False)
    pair.pump()
    return pair, slot, [producer_slot, consumer_slot]


@pytest.mark.parametrize("name", LINK_CALLS)
@pytest.mark.parametrize("end", ["link", "session", "driver"])
def test_a_freed_link_is_stale(kind: type[PureDriver], name: str, end: str) -> None:
    pair, session, links = filled(kind)
    if end == "link":
        for link in links:
            pair.driver.free_link(link)
    elif end == "session":
        pair.driver.free_session(session)
    else:
        pair.driver.free()
    for link in [*links, 0, -1, 1 << 40]:
        with pytest.raises(StaleSlot):
            LINK_CALLS[name](pair.driver, link)
    pair.driver.free()


@pytest.mark.parametrize("name", SESSION_CALLS)
@pytest.mark.parametrize("end", ["session", "driver"])
def test_a_freed_session_is_stale(kind: type[PureDriver], name: str, end: str) -> None:
    pair, session, links = filled(kind)
    if end == "session":
        pair.driver.free_session(session)
    else:
        pair.driver.free()
    for slot in (session, links[0], 0):
        with pytest.raises(StaleSlot):
            SESSION_CALLS[name](pair.driver, slot)
    pair.driver.free()


def test_a_session_freed_before_its_links_were_taken_takes_them_along(
    kind: type[PureDriver],
) -> None:
    pair = Pair(kind, whole)
    session, slot = pair.session()
    other, other_slot = pair.session()
    _, consumer_slot = pair.consumer(other)
    pair.driver.send_run(consumer_slot, [1], [b"x"], False)
    pair.pump()
    session.sender("lost").open()
    pair.driver.push(pair.output())
    pair.driver.free_session(slot)
    session.sender("late").open()
    other.sender("kept").open()
    pair.driver.push(pair.output())
    ((tag, _, of, _),) = pair.driver.take()
    assert (tag, of) == (LINK_OPENED, other_slot)
    assert pair.driver.take() == []
    pair.driver.close_connection(None)
    session.close()
    pair.pump()
    pair.driver.free()


@pytest.mark.parametrize("name", DRIVER_CALLS)
def test_a_freed_driver_is_stale(kind: type[PureDriver], name: str) -> None:
    pair, _, _ = filled(kind)
    pair.driver.free()
    pair.driver.free()
    with pytest.raises(StaleSlot):
        DRIVER_CALLS[name](pair.driver, 0)


def test_a_number_is_stale_once_disposed_of(pair: Pair) -> None:
    session, _ = pair.session()
    link, slot = pair.producer(session)
    send(link, b"1", b"2", b"3")
    pair.pump()
    pair.driver.dispose(slot, 1, 1, 0x24, True, None)
    for first, count in ((1, 1), (3, 1), (-1, 1), (2, 2)):
        with pytest.raises(StaleSlot):
            pair.driver.dispose(slot, first, count, 0x24, True, None)
    for number in (1, 3, -1, 1 << 40):
        with pytest.raises(StaleSlot):
            pair.driver.tag(slot, number)
    assert pair.driver.tag(slot, 0) == b"t0"


def test_a_link_used_the_other_way_is_a_bug(pair: Pair) -> None:
    session, _ = pair.session()
    _, incoming = pair.producer(session)
    _, outgoing = pair.consumer(session)
    for name in ("grant", "drain", "drained", "dispose", "tag", "discard"):
        with pytest.raises(AssertionError, match="other way"):
            LINK_CALLS[name](pair.driver, outgoing)
    for name in ("send_run", "send_begin", "send_part", "send_end", "send_abort", "give_back"):
        with pytest.raises(AssertionError, match="other way"):
            LINK_CALLS[name](pair.driver, incoming)
    with pytest.raises(AssertionError, match="revoked"):
        pair.driver.grant(incoming, -1)


def test_a_connection_closes_with_everything_in_flight(pair: Pair) -> None:
    session, slot = pair.session()
    producer, producer_slot = pair.producer(session)
    consumer, consumer_slot = pair.consumer(session)
    send(producer, b"1", b"2")
    half = producer.delivery("half")
    producer.send(b"half")
    pair.driver.send_run(consumer_slot, [1, 2, 3], [b"x", b"y", b"z"], False)
    pair.pump()
    got = [d for d, _ in receive(consumer)]
    answer(got[0], Delivery.ACCEPTED)
    answer(got[1], Delivery.MODIFIED, settle=False)
    pair.driver.send_begin(consumer_slot, 4)
    pair.driver.send_part(consumer_slot, b"half")
    pair.driver.dispose(producer_slot, 1, 1, 0x24, False, None)
    pair.connection.close()
    records = pair.pump()
    assert sorted(tag for _, tag, _ in outcomes(records, consumer_slot)) == [1, 2]
    # The engine may still answer what came before the end.
    pair.driver.dispose(producer_slot, 0, 1, 0x24, True, None)
    pair.driver.send_part(consumer_slot, b"half")
    pair.driver.send_end(consumer_slot, False)
    pair.driver.close_session(slot, None)
    pair.driver.close_connection(None)
    pair.pump()
    assert pair.connection.state & Endpoint.REMOTE_CLOSED
    assert half is not None
