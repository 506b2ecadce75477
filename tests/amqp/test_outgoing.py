"""How a consumer's link feeds Proton; what consumers see of it is in test_credit.py and test_large.py."""

import pytest

from tests.amqp.memory import MemoryBroker
from tests.amqp.scenes import body, frames_of, put
from tests.raw.client import RawClient
from tests.raw.frames import Frame, message, value


def narrow(broker: MemoryBroker, window: int, credit: int) -> RawClient:
    client = broker.client().opened(max_frame_size=512).begun(incoming_window=window)
    client.consumer("q").wait_for("attach")
    return client.credit(credit, incoming_window=window)


def transfers(client: RawClient) -> list[Frame]:
    return [frame for frame in frames_of(client) if frame.name == "transfer"]


@pytest.mark.rule("B10.14", "B5.18")
def test_each_slice_fills_its_frame_but_the_last() -> None:
    broker = MemoryBroker()
    put(broker, value("x" * 2_000))
    frames = transfers(narrow(broker, 100, 1))
    sizes = [len(frame.payload) for frame in frames]
    assert len(set(sizes[:-1])) == 1
    assert sizes[0] > 400
    assert [bool(frame.more) for frame in frames] == [True] * (len(frames) - 1) + [False]
    assert {frame.delivery_id for frame in frames} <= {0, None}


@pytest.mark.rule("B5.18")
def test_small_messages_wait_behind_a_large_one_in_their_order() -> None:
    broker = MemoryBroker()
    put(broker, message(b"0"), value("x" * 4_000), message(b"1"), message(b"2"))
    client = narrow(broker, 3, 9)
    frames = transfers(client)
    assert len(frames) == 3
    client.flow(next_incoming_id=3, incoming_window=100)
    frames += transfers(client)
    whole = [body(frame) for frame in frames if not frame.more and len(frame.payload) < 100]
    assert whole == [b"0", b"1", b"2"]
    assert b"".join(frame.payload for frame in frames[1:-2]) == value("x" * 4_000)


@pytest.mark.rule("B3.6", "B5.18")
def test_an_echo_within_a_delivery_does_not_count_it_as_delivered() -> None:
    broker = MemoryBroker()
    put(broker, value("x" * 4_000), value("y" * 4_000))
    client = narrow(broker, 2, 5)
    assert len(transfers(client)) == 2
    client.credit(5, next_incoming_id=2, incoming_window=0, echo=True)
    client.expect("flow", handle=0, delivery_count=0, link_credit=5)
    client.flow(next_incoming_id=2, incoming_window=100)
    assert len(transfers(client)) == 16
    client.credit(5, next_incoming_id=18, incoming_window=100, echo=True)
    client.expect("flow", handle=0, delivery_count=2, link_credit=3)


@pytest.mark.rule("B8.1", "B5.18")
def test_what_comes_behind_a_delivery_that_is_settled_half_way_is_whole() -> None:
    broker = MemoryBroker()
    put(broker, value("x" * 4_000), value("y" * 1_000), message(b"z"))
    client = narrow(broker, 2, 3)
    assert len(transfers(client)) == 2
    client.disposition(0, state="accepted")
    client.flow(next_incoming_id=2, incoming_window=100)
    aborted, *rest = transfers(client)
    assert aborted.aborted
    assert b"".join(frame.payload for frame in rest[:-1]) == value("y" * 1_000)
    assert body(rest[-1]) == b"z"
    client.disposition(1, last=2, state="accepted")
    assert broker.queue("q").count() == 0
