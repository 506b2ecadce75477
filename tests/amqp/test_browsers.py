"""Browsers: consumers that ask for copies (B5.4, N-9, N-10, T-7)."""

from typing import Any

import pytest

from tests.amqp.memory import MemoryBroker
from tests.amqp.scenes import body, consumer, delivered, drain, frames_of, put, session
from tests.raw.client import RawClient
from tests.raw.frames import message, value


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker()


def fill(broker: MemoryBroker, *texts: bytes, **header_fields: Any) -> None:  # noqa: ANN401
    put(broker, *(message(text, **header_fields) for text in texts))


def browser(broker: MemoryBroker, *, credit: int = 0, **attach: Any) -> RawClient:  # noqa: ANN401
    source = {"address": "q", "distribution_mode": "copy"}
    return consumer(broker, credit=credit, source=source, **attach)


@pytest.mark.rule("B5.4", "B5.7")
@pytest.mark.parametrize(("wished", "mode"), [("copy", "copy"), ("move", "move"), (None, "move")])
def test_the_reply_says_which_mode_is_in_force(
    broker: MemoryBroker, wished: str | None, mode: str
) -> None:
    client = session(broker)
    client.consumer("q", source={"address": "q", "distribution_mode": wished})
    client.wait_for("attach", source={"distribution_mode": mode})


@pytest.mark.rule("B5.4", "N-9", "B5.10")
def test_a_jms_browser_sees_each_message_once_and_its_end_by_drain(broker: MemoryBroker) -> None:
    fill(broker, b"a", b"b", b"c")
    client = browser(broker, snd_settle_mode=1)
    frames = drain(client, 1_000)
    assert [body(frame) for frame in frames[:-1]] == [b"a", b"b", b"c"]
    assert all(frame.settled for frame in frames[:-1])
    assert len(drain(client, 10, 1_000)) == 1
    assert broker.queue("q").ready == 3
    client.detach(0).wait_for("detach", error=None)
    assert delivered(consumer(broker, credit=9)) == [b"a", b"b", b"c"]


@pytest.mark.rule("B5.4", "N-10")
@pytest.mark.parametrize("snd", [None, 0, 1, 2])
def test_copies_are_settled_whatever_mode_was_asked_for(
    broker: MemoryBroker, snd: int | None
) -> None:
    fill(broker, b"a")
    client = browser(broker, credit=1, snd_settle_mode=snd)
    assert client.receive()[0].settled


@pytest.mark.rule("N-10")
@pytest.mark.parametrize("state", ["accepted", "released", "rejected", "modified", None])
def test_what_a_browser_says_of_its_copies_changes_nothing(
    broker: MemoryBroker, state: str | None
) -> None:
    fill(broker, b"a", b"b")
    client = browser(broker, credit=9)
    client.receive(2)
    client.disposition(0, last=1, state=state, settled=state is None).expect_nothing()
    client.wire.close()
    frames = consumer(broker, credit=9).receive(2)
    assert [frame.payload for frame in frames] == [message(b"a"), message(b"b")]


@pytest.mark.rule("N-9")
def test_a_browser_stays_and_sees_what_arrives(broker: MemoryBroker) -> None:
    fill(broker, b"a")
    client = browser(broker, credit=3)
    assert delivered(client) == [b"a"]
    fill(broker, b"b", b"c", b"d")
    assert delivered(client) == [b"b", b"c"]
    assert delivered(client.credit(1, delivery_count=3)) == [b"d"]
    client.expect_nothing()


@pytest.mark.rule("N-9")
def test_a_browser_steps_over_what_a_consumer_holds(broker: MemoryBroker) -> None:
    fill(broker, b"a", b"b", b"c")
    holder = consumer(broker, credit=2)
    assert delivered(holder) == [b"a", b"b"]
    client = browser(broker, credit=9)
    assert delivered(client) == [b"c"]
    holder.disposition(0, last=1, state="released").detach(0)
    frames_of(holder)
    client.expect_nothing()  # It has passed their place.
    assert delivered(browser(broker, credit=9)) == [b"a", b"b", b"c"]


@pytest.mark.rule("N-9", "B5.4")
def test_two_browsers_and_a_consumer_do_not_share(broker: MemoryBroker) -> None:
    first, second = browser(broker, credit=9), browser(broker, credit=9)
    client = consumer(broker, credit=9)
    for text in (b"a", b"b", b"c"):
        fill(broker, text)
    assert delivered(first) == delivered(second) == delivered(client) == [b"a", b"b", b"c"]


@pytest.mark.rule("T-7")
def test_an_expired_message_is_not_browsed_and_goes(broker: MemoryBroker) -> None:
    client = browser(broker)
    fill(broker, b"short", ttl=100)
    fill(broker, b"long")
    broker.advance(101)
    assert delivered(client.credit(9)) == [b"long"]
    assert broker.queue("q").stats.expired == 1


@pytest.mark.rule("B5.4", "LC-1")
def test_a_browser_keeps_an_empty_queue_alive_and_only_it(broker: MemoryBroker) -> None:
    client = browser(broker, credit=9)
    fill(broker, b"a")
    other = consumer(broker, credit=1)
    other.receive()
    other.disposition(0, state="accepted").detach(0)
    frames_of(other)
    assert broker.has_queue("q")
    client.detach(0)
    frames_of(client)
    assert not broker.has_queue("q")


@pytest.mark.rule("B5.4", "B5.18")
def test_a_browser_respects_credit_and_window(broker: MemoryBroker) -> None:
    put(broker, *[value("x" * 1_000)] * 3)
    client = broker.client().opened(max_frame_size=512).begun(incoming_window=4)
    source = {"address": "q", "distribution_mode": "copy"}
    client.consumer("q", source=source).wait_for("attach")
    client.credit(2, incoming_window=4)
    frames = frames_of(client)
    assert len(frames) == 4
    client.flow(next_incoming_id=4, incoming_window=4)
    frames += frames_of(client)
    assert [bool(frame.more) for frame in frames] == [True, True, False] * 2
    client.flow(next_incoming_id=6, incoming_window=4).expect_nothing()


@pytest.mark.rule("B5.4")
def test_a_copy_of_a_redelivered_message_says_that_it_failed(broker: MemoryBroker) -> None:
    fill(broker, b"a")
    holder = consumer(broker, credit=1)
    holder.receive()
    holder.wire.close()
    (frame,) = browser(broker, credit=1).receive()
    assert frame.payload != message(b"a")
    assert body(frame) == b"a"
