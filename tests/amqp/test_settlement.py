"""Outcomes and what becomes of the message: ranges, modes, counts, annotations, expiry of what comes back (B8, 9.3)."""

from itertools import product
from typing import Any

import pytest

from tests.amqp.memory import MemoryBroker
from tests.amqp.scenes import body, consumer, delivered, frames_of, producer, put, session
from tests.raw.client import RawClient, error
from tests.raw.frames import (
    Composite,
    Described,
    Frame,
    data,
    decode_sections,
    header,
    message,
    message_annotations,
    modified,
    rejected,
)


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker()


def fill(broker: MemoryBroker, count: int, **header_fields: Any) -> None:  # noqa: ANN401
    put(broker, *(message(b"%d" % number, **header_fields) for number in range(count)))


def header_of(frame: Frame) -> dict[str, Any]:
    return dict(decode_sections(frame.payload).get("header", {}))


def count_of(frame: Frame) -> int:
    return header_of(frame).get("delivery_count") or 0


def again(client: RawClient, count: int) -> Frame:
    """The next delivery, for one more credit at delivery-count `count`."""
    return client.credit(1, delivery_count=count).receive()[0]


# --- accepted


@pytest.mark.rule("B8.1", "B5.17")
def test_ranges_out_of_order_and_repeated_all_settle(broker: MemoryBroker) -> None:
    fill(broker, 10)
    client = consumer(broker, credit=10)
    client.receive(10)
    client.disposition(7, last=9, state="accepted")
    client.disposition(2, last=8, state="accepted")
    client.disposition(0, last=1, state="accepted")
    client.disposition(0, last=9, state="accepted").disposition(0, state="released")
    client.expect_nothing()
    queue = broker.queue("q") if broker.has_queue("q") else None
    assert queue is not None
    assert (queue.count(), queue.stats.acknowledged) == (0, 10)


@pytest.mark.rule("B5.17")
def test_a_range_covers_the_deliveries_of_all_links_of_the_session(broker: MemoryBroker) -> None:
    put(broker, message(b"a1"), message(b"a2"), address="a")
    put(broker, message(b"b1"), message(b"b2"), address="b")
    client = session(broker).consumer("a").consumer("b")
    client.wait_for("attach", handle=1)
    client.credit(1, 0).credit(1, 1).credit(2, 0).credit(2, 1)
    assert sorted(frame.delivery_id for frame in client.receive(4)) == [0, 1, 2, 3]
    client.disposition(1, last=2, state="accepted")
    assert broker.queue("a").count() == broker.queue("b").count() == 1
    client.disposition(0, last=3, state="released")
    assert broker.queue("a").ready == broker.queue("b").ready == 1


@pytest.mark.rule("B8.1", "B4.10")
@pytest.mark.parametrize("rcv", [0, 1])
@pytest.mark.parametrize("state", ["accepted", "released", "modified", "rejected"])
def test_an_outcome_that_is_not_settled_is_answered_with_a_settled_one(
    broker: MemoryBroker, rcv: int, state: str
) -> None:
    fill(broker, 3)
    client = consumer(broker, credit=3, rcv_settle_mode=rcv)
    client.receive(3)
    client.disposition(0, last=2, state=state, settled=False)
    settled = [
        number
        for frame in frames_of(client)
        if frame.name == "disposition" and frame.role is False and frame.settled
        for number in range(frame.first, (frame.last or frame.first) + 1)
    ]
    assert settled == [0, 1, 2]
    client.disposition(0, last=2, state=state)
    client.expect_nothing()
    assert broker.queue("q").leased == 0
    assert broker.queue("q").ready == (3 if state in ("released", "modified") else 0)


@pytest.mark.rule("B8.10", "B5.1")
def test_what_is_sent_settled_is_gone_when_it_is_sent(broker: MemoryBroker) -> None:
    fill(broker, 3)
    client = consumer(broker, credit=2, snd_settle_mode=1)
    frames = client.receive(2)
    assert all(frame.settled for frame in frames)
    assert broker.queue("q").count() == 1
    client.disposition(0, last=1, state="released").wire.close()
    assert delivered(consumer(broker, credit=9)) == [b"2"]


@pytest.mark.rule("B8.10", "B5.1")
@pytest.mark.parametrize("snd", [0, 2, None])
def test_what_is_not_asked_to_be_settled_is_sent_unsettled(
    broker: MemoryBroker, snd: int | None
) -> None:
    fill(broker, 1)
    client = consumer(broker, credit=1, snd_settle_mode=snd)
    assert not client.receive()[0].settled


# --- released, modified, rejected


@pytest.mark.rule("B8.2", "B8.8", "D-4")
def test_released_does_not_count(broker: MemoryBroker) -> None:
    fill(broker, 1)
    client = consumer(broker)
    for number in range(5):
        frame = again(client, number)
        assert frame.payload == message(b"0")
        client.disposition(number, state="released")


@pytest.mark.rule("B8.3", "B8.8", "D-4", "B10.15")
def test_each_failed_delivery_counts_and_the_header_says_how_many(broker: MemoryBroker) -> None:
    fill(broker, 2, durable=True, priority=7)
    client = consumer(broker)
    for number in range(4):
        frame = again(client, number)
        assert body(frame) == b"0"
        assert count_of(frame) == number
        assert header_of(frame)["durable"] is True
        assert header_of(frame)["priority"] == 7
        client.disposition(number, state=modified(delivery_failed=True))
    client.disposition(again(client, 4).delivery_id, state="accepted")
    assert count_of(again(client, 5)) == 0  # The other one never failed.


@pytest.mark.rule("B8.8")
def test_only_the_first_delivery_may_be_the_first_acquirers(broker: MemoryBroker) -> None:
    put(broker, header(first_acquirer=True) + data(b"x"))
    client = consumer(broker)
    assert header_of(again(client, 0))["first_acquirer"] is True
    client.disposition(0, state="released")
    assert not header_of(again(client, 1)).get("first_acquirer")


@pytest.mark.rule("D-4")
def test_a_producers_own_delivery_count_is_not_passed_on(broker: MemoryBroker) -> None:
    put(broker, header(durable=True, delivery_count=7) + data(b"x"))
    client = consumer(broker)
    assert count_of(again(client, 0)) == 0
    client.disposition(0, state=modified(delivery_failed=True))
    assert count_of(again(client, 1)) == 1


FLAGS = [None, False, True]


@pytest.mark.rule("B8.3", "B8.4", "B8.5", "D-10")
@pytest.mark.parametrize("failed", FLAGS)
@pytest.mark.parametrize("elsewhere", FLAGS)
@pytest.mark.parametrize("annotations", [None, {"x-opt-why": "because"}])
def test_every_form_of_modified_means_what_it_says(
    broker: MemoryBroker,
    failed: bool | None,
    elsewhere: bool | None,
    annotations: dict[str, object] | None,
) -> None:
    """Bug case 61."""
    fill(broker, 1)
    client = consumer(broker, credit=1)
    client.receive()
    state = modified(
        delivery_failed=failed, undeliverable_here=elsewhere, message_annotations=annotations
    )
    client.disposition(0, state=state).credit(5, delivery_count=1)
    if elsewhere:
        client.expect_nothing()
        (frame,) = consumer(broker, credit=1).receive()
    else:
        (frame,) = client.receive()
    assert count_of(frame) == (1 if failed else 0)
    assert decode_sections(frame.payload).get("message_annotations") == annotations
    assert body(frame) == b"0"


@pytest.mark.rule("B8.5", "D-10")
def test_annotations_of_modified_are_merged_and_the_newest_value_stands(
    broker: MemoryBroker,
) -> None:
    put(broker, message_annotations({"x-opt-a": "sent", "x-opt-b": "sent"}) + data(b"x"))
    client = consumer(broker)
    for number, annotations in enumerate([{"x-opt-b": "first"}, {"x-opt-b": "2", "x-opt-c": "2"}]):
        again(client, number)
        client.disposition(number, state=modified(message_annotations=annotations))
    sections = decode_sections(again(client, 2).payload)
    assert sections["message_annotations"] == {"x-opt-a": "sent", "x-opt-b": "2", "x-opt-c": "2"}
    assert sections["data"] == b"x"


@pytest.mark.rule("B8.4")
def test_what_a_link_refused_goes_to_others_and_stays_when_there_are_none(
    broker: MemoryBroker,
) -> None:
    fill(broker, 3)
    client = consumer(broker, credit=1)
    client.receive()
    client.disposition(0, state=modified(undeliverable_here=True))
    assert delivered(client.credit(9, delivery_count=1)) == [b"1", b"2"]
    client.disposition(1, last=2, state="accepted")
    assert broker.queue("q").ready == 1
    other = consumer(broker, credit=5)
    assert delivered(other) == [b"0"]
    other.disposition(0, state="released")
    assert delivered(other.credit(5, delivery_count=1)) == [b"0"]
    client.expect_nothing()


@pytest.mark.rule("B8.4", "D-9")
def test_a_new_link_of_the_same_client_may_have_what_the_old_one_refused(
    broker: MemoryBroker,
) -> None:
    fill(broker, 1)
    client = consumer(broker, credit=1)
    client.receive()
    client.disposition(0, state=modified(undeliverable_here=True)).detach(0).wait_for("detach")
    client.consumer("q", handle=0).wait_for("attach")
    assert delivered(client.credit(1)) == [b"0"]


@pytest.mark.rule("B8.6", "D-17")
@pytest.mark.parametrize("state", [rejected(), rejected("app:bad", "x" * 3_000)])
def test_a_rejected_message_is_not_offered_again(broker: MemoryBroker, state: Composite) -> None:
    """Bug case 60; without a dead letter address it is gone."""
    fill(broker, 2)
    client = consumer(broker, credit=1)
    client.receive()
    client.disposition(0, state=state).credit(5, delivery_count=1)
    assert delivered(client) == [b"1"]
    stats = broker.queue("q").stats
    assert (stats.killed, stats.acknowledged) == (1, 0)


@pytest.mark.rule("B8.7")
def test_settled_without_a_state_is_released(broker: MemoryBroker) -> None:
    fill(broker, 2)
    client = consumer(broker, credit=2)
    client.receive(2)
    client.disposition(0, last=1, state=None)
    assert delivered(client.credit(2, delivery_count=2)) == [b"0", b"1"]


@pytest.mark.rule("B8.13")
def test_the_state_received_keeps_the_message_where_it_is(broker: MemoryBroker) -> None:
    fill(broker, 1)
    client = consumer(broker, credit=5)
    client.receive()
    received = Composite("received", section_number=0, section_offset=0)
    client.disposition(0, state=received, settled=False)
    client.expect_nothing()
    assert broker.queue("q").leased == 1
    client.disposition(0, state="accepted")
    assert broker.queue("q").count() == 0


@pytest.mark.rule("B12")
@pytest.mark.parametrize(
    "state", [Composite("transactional_state", txn_id=b"t"), Described(0x99, [])]
)
def test_a_state_that_is_no_outcome_of_ours_ends_the_link_and_the_message_stays(
    broker: MemoryBroker, state: object
) -> None:
    fill(broker, 1)
    client = consumer(broker, credit=1)
    client.receive()
    client.disposition(0, state=state)
    client.wait_for("detach", error=error("amqp:not-implemented"))
    client.detach(0).consumer("q", handle=0).wait_for("attach")
    assert delivered(client.credit(1)) == [b"0"]


# --- time


@pytest.mark.rule("T-5")
def test_a_message_at_a_consumer_does_not_expire_before_it_comes_back(
    broker: MemoryBroker,
) -> None:
    put(broker, message(b"a", ttl=100), message(b"b", ttl=100), message(b"c"))
    client = consumer(broker, credit=2)
    client.receive(2)
    broker.advance(500)
    assert broker.queue("q").leased == 2
    client.disposition(0, state="accepted").disposition(1, state="released")
    assert delivered(client.credit(5, delivery_count=2)) == [b"c"]
    stats = broker.queue("q").stats
    assert (stats.acknowledged, stats.expired) == (1, 1)


@pytest.mark.rule("B8.9", "D-33", "T-6")
def test_a_redelivered_message_says_count_and_time_left(broker: MemoryBroker) -> None:
    put(broker, message(b"a", ttl=1_000))
    client = consumer(broker, credit=1)
    client.receive()
    broker.advance(300)
    client.wire.close()
    (frame,) = consumer(broker, credit=1).receive()
    assert header_of(frame)["ttl"] == 700
    assert count_of(frame) == 1


# --- counters


@pytest.mark.rule("D-29", "T-8")
def test_every_way_out_of_a_queue_is_counted_once(broker: MemoryBroker) -> None:
    """Semantics, section 11."""
    source = producer(broker)
    for number in range(6):
        source.transfer(message(b"%d" % number, ttl=100 if number == 5 else None))
    client = consumer(broker, credit=5)
    client.receive(5)
    queue = broker.queue("q")
    client.disposition(0, state="accepted")
    client.disposition(1, state="rejected")
    client.disposition(2, state="released")
    client.disposition(3, state=modified(delivery_failed=True))
    broker.advance(101)
    stats = queue.stats
    assert (stats.added, stats.acknowledged, stats.killed, stats.expired) == (6, 1, 1, 1)
    assert (queue.ready, queue.leased, queue.count()) == (2, 1, 3)


@pytest.mark.rule("B8.12", "D-12")
def test_any_mixture_of_outcomes_keeps_the_order_of_what_is_left(broker: MemoryBroker) -> None:
    states = ["accepted", "released", modified(delivery_failed=True), "rejected"]
    fill(broker, 16)
    client = consumer(broker, credit=16)
    client.receive(16)
    left: list[bytes] = []
    for number, (first, _) in reversed(list(enumerate(product(states, states)))):
        client.disposition(number, state=first)
        if first not in ("accepted", "rejected"):
            left.insert(0, b"%d" % number)
    frames = client.credit(16, delivery_count=16).receive(len(left))
    assert [body(frame) for frame in frames] == left
    client.expect_nothing()
