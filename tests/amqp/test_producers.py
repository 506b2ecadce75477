"""What a producer meets: attach and its answer, credit, transfers right and wrong, the dispositions (B4, B13)."""

from typing import Any

import pytest

from amqpbroker.engine.settings import AddressSettings, BrokerSettings
from tests.amqp.memory import SETTINGS, MemoryBroker
from tests.amqp.scenes import (
    OUTCOMES,
    SlowStore,
    consumer,
    delivered,
    frames_of,
    producer,
    put,
    session,
)
from tests.raw.client import RawClient, at_least, error
from tests.raw.frames import Composite, message, raw, value

NO_CREATION = BrokerSettings(
    address=AddressSettings(auto_create_addresses=False, auto_create_queues=False)
)


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker()


@pytest.fixture
def client(broker: MemoryBroker) -> RawClient:
    return session(broker)


# --- attach


@pytest.mark.rule("B4.1", "B4.2", "B13.5")
def test_a_jms_producers_attach_is_mirrored_and_then_it_gets_credit(client: RawClient) -> None:
    client.attach(
        "qpid-jms:sender:ID:1:q",
        "sender",
        snd_settle_mode=0,
        rcv_settle_mode=0,
        source={"address": "ID:producer", "outcomes": OUTCOMES},
        target={"address": "q", "durable": 0, "timeout": 0, "capabilities": ["queue"]},
    )
    reply = client.wait_for("attach")
    assert reply.fields["name"] == "qpid-jms:sender:ID:1:q"
    assert reply.role is True
    assert (reply.snd_settle_mode, reply.rcv_settle_mode) == (0, 0)
    assert reply.source["address"] == "ID:producer"
    assert reply.source["outcomes"] == OUTCOMES
    assert reply.target["address"] == "q"
    assert reply.target["capabilities"] == ["queue"]
    assert reply.max_message_size == SETTINGS.max_message_size
    client.expect("flow", handle=reply.handle, link_credit=1000, delivery_count=0)


@pytest.mark.rule("B4.2", "B13.7")
@pytest.mark.parametrize("snd", [0, 1, 2])
@pytest.mark.parametrize("rcv", [0, 1])
def test_the_settle_modes_of_the_reply_are_those_asked_for(
    client: RawClient, snd: int, rcv: int
) -> None:
    client.producer("q", snd_settle_mode=snd, rcv_settle_mode=rcv)
    client.wait_for("attach", snd_settle_mode=snd, rcv_settle_mode=rcv)


@pytest.mark.rule("B4.3", "B12")
def test_a_refusal_is_an_attach_with_a_null_target_and_at_once_a_detach() -> None:
    client = session(MemoryBroker(broker=NO_CREATION))
    frames_of(client)
    client.producer("nowhere")
    reply = client.wait_for("attach")
    assert reply.target is None
    detach = client.expect("detach", closed=True, error=error("amqp:not-found"))
    assert "nowhere" in detach.error["description"]
    client.expect_nothing()
    client.detach(0)
    client.expect_nothing()
    assert not client.producer("nowhere", handle=0).wait_for("attach").target


@pytest.mark.rule("B4.4")
def test_a_producer_of_a_topic_is_refused_and_makes_no_node(
    broker: MemoryBroker, client: RawClient
) -> None:
    client.producer("t", target={"address": "t", "capabilities": ["topic"]})
    assert client.wait_for("attach").target is None
    client.expect("detach", closed=True, error=error("amqp:not-implemented"))
    assert not broker.has_queue("t")


@pytest.mark.rule("B4.4")
def test_a_capability_that_fits_the_queue_that_is_there_is_no_conflict(client: RawClient) -> None:
    client.producer("q").wait_for("flow", link_credit=1000)
    client.producer("q", target={"address": "q", "capabilities": ["queue"]})
    client.expect("attach", target={"address": "q"})


@pytest.mark.rule("B4.5")
@pytest.mark.parametrize("name", ["a b c", "köln/straße", "日本", "a.b.c", "~!@$%^&*()", "q" * 300])
def test_any_text_names_a_queue(broker: MemoryBroker, name: str) -> None:
    put(broker, message(b"x"), address=name)
    assert delivered(consumer(broker, name, credit=1)) == [b"x"]


@pytest.mark.rule("B13.6")
@pytest.mark.parametrize("count", [None, 0, 7, 2**31, 2**32 - 2])
def test_the_producers_initial_delivery_count_is_where_its_credit_starts(
    broker: MemoryBroker, client: RawClient, count: int | None
) -> None:
    client.producer("q", initial_delivery_count=count)
    client.wait_for("flow", handle=0, link_credit=1000, delivery_count=count or 0)
    for _ in range(5):  # Past 2^32 in the last case.
        client.transfer(message(b"x")).expect("disposition", state="accepted")
    client.flow(handle=0, delivery_count=((count or 0) + 5) % 2**32, link_credit=995, echo=True)
    client.expect("flow", handle=0, delivery_count=((count or 0) + 5) % 2**32, link_credit=995)
    assert broker.queue("q").ready == 5


@pytest.mark.rule("B4.2")
def test_a_reply_that_does_not_fit_the_peers_frames_ends_the_session(
    broker: MemoryBroker,
) -> None:
    client = broker.client().opened(max_frame_size=512).begun()
    client.producer("q", source={"address": "s" * 200, "outcomes": OUTCOMES}, name="n" * 200)
    client.wait_for("end", error=error("amqp:frame-size-too-small"))
    client.end()
    client.begun(0).producer("q", handle=0).wait_for("flow", link_credit=1000)
    client.transfer(message(b"x")).expect("disposition", state="accepted")


# --- credit


@pytest.mark.rule("B4.8")
def test_credit_comes_again_before_it_is_used_up(client: RawClient) -> None:
    client.producer("q").wait_for("flow", link_credit=1000)
    for number in range(699):
        client.transfer(message(b"x")).wait_for("disposition", first=number)
    client.transfer(message(b"x")).wait_for("flow", handle=0, delivery_count=700, link_credit=1000)


@pytest.mark.rule("B4.8", "B4.9", "B4.18")
def test_a_run_of_messages_is_answered_by_one_range(client: RawClient) -> None:
    client.producer("q").wait_for("flow", link_credit=1000)
    with client.pipelined():
        for _ in range(250):
            client.transfer(message(b"x", durable=True))
    client.expect("disposition", first=0, last=249, settled=True, state="accepted", role=True)
    client.expect_nothing()


@pytest.mark.rule("PF-9", "B12")
def test_more_than_the_credit_ends_the_link_and_not_the_session() -> None:
    client = producer(MemoryBroker(SETTINGS._replace(credit=2, credit_low=1), store=SlowStore()))
    with client.pipelined():
        for _ in range(3):
            client.transfer(message(b"x", durable=True))
    client.wait_for("detach", error=error("amqp:link:transfer-limit-exceeded"))
    client.detach(0).producer("q").wait_for("attach", target={"address": "q"})


# --- answers


@pytest.mark.rule("B4.9")
def test_an_answer_has_the_state_accepted_and_is_settled(client: RawClient) -> None:
    client.producer("q").wait_for("flow")
    client.transfer(message(b"x"), delivery_id=0)
    client.wait_for("disposition", role=True, first=0, settled=True, state=Composite("accepted"))


@pytest.mark.rule("B4.11")
def test_settled_transfers_are_never_answered(broker: MemoryBroker) -> None:
    client = producer(broker, snd_settle_mode=1)
    with client.pipelined():
        client.transfer(message(b"a"), settled=True)
        client.transfer(message(b"b"), settled=True, delivery_tag=b"")
        client.transfer(message(b"c", durable=True), settled=True, delivery_tag=b"")
    client.expect_nothing()
    assert delivered(consumer(broker, credit=9)) == [b"a", b"b", b"c"]


@pytest.mark.rule("B4.11")
def test_in_mode_mixed_each_transfer_says_whether_it_is_settled(broker: MemoryBroker) -> None:
    client = producer(broker, snd_settle_mode=2)
    with client.pipelined():
        for number in range(6):
            client.transfer(message(b"%d" % number), settled=number % 2 == 1)
    for number in (0, 2, 4):
        client.expect("disposition", first=number, state="accepted")
    client.expect_nothing()
    assert broker.queue("q").ready == 6


@pytest.mark.rule("B4.10")
@pytest.mark.parametrize("durable", [False, True])
def test_a_producer_in_mode_second_gets_an_unsettled_answer_and_settles_itself(
    broker: MemoryBroker, durable: bool
) -> None:
    client = producer(broker, rcv_settle_mode=1)
    for number in range(3):
        client.transfer(message(b"%d" % number, durable=durable))
        answer = client.expect("disposition", role=True, first=number, state="accepted")
        assert not answer.settled
    client.disposition(0, role="sender", last=2, state="accepted")
    for frame in frames_of(client):  # What may come says settled, and nothing else.
        assert frame.name == "disposition"
        assert frame.settled
    client.transfer(message(b"3"), delivery_tag=b"0").expect("disposition", first=3)
    assert delivered(consumer(broker, credit=9)) == [b"0", b"1", b"2", b"3"]


@pytest.mark.rule("B4.10", "B10.2")
def test_in_mode_second_a_refusal_waits_for_the_producer_too(broker: MemoryBroker) -> None:
    client = producer(broker, rcv_settle_mode=1)
    client.transfer(b"\x00\x53\x99\x45")
    answer = client.expect("disposition", first=0, state="rejected")
    assert not answer.settled
    assert answer.state["error"]["condition"] == "amqp:decode-error"
    client.disposition(0, role="sender", state=answer.state).transfer(message(b"x"))
    client.wait_for("disposition", first=1, state="accepted")


@pytest.mark.rule("B4.10")
def test_what_a_producer_in_mode_second_never_settles_is_forgotten_with_its_link(
    broker: MemoryBroker,
) -> None:
    client = producer(broker, rcv_settle_mode=1)
    client.transfer(message(b"a")).expect("disposition", first=0)
    client.detach(0).expect("detach", error=None)
    client.disposition(0, role="sender", state="accepted")
    client.producer("q", handle=0, rcv_settle_mode=1).wait_for("attach")


# --- transfers


@pytest.mark.rule("B4.12")
@pytest.mark.parametrize("repeats", [False, True])
def test_only_the_first_transfer_of_a_delivery_needs_id_tag_and_format(
    broker: MemoryBroker, repeats: bool
) -> None:
    """Bug case 18."""
    client = producer(broker)
    whole = message(b"x" * 1000)
    again: dict[str, Any] = (
        {"delivery_id": 0, "delivery_tag": b"0", "message_format": 0} if repeats else {}
    )
    client.transfer(whole[:300], more=True).transfer(whole[300:600], more=True, **again)
    client.expect_nothing()
    client.transfer(whole[600:], **again)
    client.expect("disposition", first=0, state="accepted")
    client.expect_nothing()
    (delivery,) = consumer(broker, credit=1).receive()
    assert delivery.payload == whole


@pytest.mark.rule("B4.12")
def test_deliveries_of_two_links_of_a_session_may_interleave(
    broker: MemoryBroker, client: RawClient
) -> None:
    client.producer("a").producer("b").wait_for("flow", handle=1)
    a, b = message(b"a" * 99), message(b"b" * 99)
    client.transfer(a[:50], 0, more=True).transfer(b[:50], 1, more=True)
    client.transfer(a[50:], 0).transfer(b[50:], 1)
    client.wait_for("disposition", first=0, state="accepted")
    client.wait_for("disposition", first=1, state="accepted")
    assert delivered(consumer(broker, "a", credit=1)) == [b"a" * 99]
    assert delivered(consumer(broker, "b", credit=1)) == [b"b" * 99]


@pytest.mark.rule("B4.12")
def test_a_delivery_cannot_begin_before_the_one_before_it_has_ended(client: RawClient) -> None:
    client.producer("q").wait_for("flow")
    client.transfer(b"\x00\x53\x75\xa0", more=True)
    client.transfer(b"x", delivery_id=1)
    client.wait_for("close", error=error("amqp:invalid-field"))


@pytest.mark.rule("B4.13")
def test_an_aborted_delivery_leaves_nothing_and_the_next_one_is_whole(broker: MemoryBroker) -> None:
    """Bug case 17."""
    client = producer(broker)
    for _ in range(3):
        client.transfer(b"\x00\x53\x75\xa0", more=True)
    client.transfer(aborted=True)
    client.expect_nothing()
    client.transfer(message(b"next")).expect("disposition", first=1, state="accepted")
    client.flow(handle=0, delivery_count=2, echo=True).expect("flow", delivery_count=2)
    assert delivered(consumer(broker, credit=9)) == [b"next"]


@pytest.mark.rule("B4.13")
def test_the_credit_of_aborted_deliveries_comes_back() -> None:
    client = producer(MemoryBroker(SETTINGS._replace(credit=4, credit_low=1)))
    for number in range(20):
        client.transfer(b"\x00", more=True).transfer(aborted=True)
        if number % 3 == 2:
            client.expect("flow", handle=0, delivery_count=number + 1, link_credit=4)
    client.transfer(message(b"x")).wait_for("disposition", state="accepted")


@pytest.mark.rule("B4.13")
def test_a_connection_that_is_cut_within_a_delivery_leaves_nothing(broker: MemoryBroker) -> None:
    """Bug case 17, second run."""
    client = producer(broker)
    for _ in range(3):
        client.transfer(b"\x00\x53\x75\xa0", more=True)
    client.wire.close()
    assert broker.queue("q").count() == 0
    put(broker, message(b"x"))
    assert delivered(consumer(broker, credit=9)) == [b"x"]


@pytest.mark.rule("B4.14")
def test_resumed_deliveries_are_not_implemented(broker: MemoryBroker) -> None:
    client = producer(broker)
    client.transfer(message(b"x"), resume=True)
    client.expect("detach", error=error("amqp:not-implemented"))
    client.detach(0).producer("q", handle=0).wait_for("attach", target={"address": "q"})


@pytest.mark.rule("B4.16")
@pytest.mark.parametrize("closed", [True, False])
def test_what_was_sent_before_the_detach_is_kept(broker: MemoryBroker, closed: bool) -> None:
    client = producer(broker)
    with client.pipelined():
        for number in range(5):
            client.transfer(message(b"%d" % number, durable=True))
        client.detach(0, closed=closed)
    client.wait_for("detach", error=None)
    assert delivered(consumer(broker, credit=9)) == [b"%d" % number for number in range(5)]


@pytest.mark.rule("B4.17")
def test_durable_and_transient_messages_of_a_link_keep_their_order(broker: MemoryBroker) -> None:
    client = producer(broker)
    with client.pipelined():
        for number in range(20):
            client.transfer(message(b"%d" % number, durable=number % 3 == 0))
    answered = sorted(
        number
        for frame in frames_of(client)
        for number in range(frame.first, (frame.last or frame.first) + 1)
    )
    assert answered == list(range(20))
    assert delivered(consumer(broker, credit=99)) == [b"%d" % number for number in range(20)]


@pytest.mark.rule("B10.10")
def test_a_tag_is_any_bytes_and_may_come_again_after_settlement(broker: MemoryBroker) -> None:
    client = producer(broker)
    for number, tag in enumerate([bytes(range(224, 256)), b"\xff", b"\x00", b"\xff", b"\x00" * 32]):
        client.transfer(message(b"x"), delivery_tag=tag).expect(
            "disposition", first=number, state="accepted"
        )


@pytest.mark.rule("B10.10")
@pytest.mark.parametrize("tag", [b"", b"t" * 33])
def test_an_unsettled_delivery_has_a_tag_of_1_to_32_bytes(broker: MemoryBroker, tag: bytes) -> None:
    client = producer(broker)
    client.transfer(message(b"x"), delivery_tag=tag or None)
    client.expect("detach", error=error("amqp:invalid-field"))


@pytest.mark.rule("B13.4")
def test_a_detach_that_crosses_ours_is_the_answer_to_it(broker: MemoryBroker) -> None:
    client = producer(broker)
    client.transfer(message(b"x"), resume=True)
    client.expect("detach", error=error("amqp:not-implemented"))
    client.transfer(message(b"y"))  # On its way before the detach was seen.
    client.detach(0)
    assert all(frame.name == "disposition" for frame in frames_of(client))
    client.producer("q", handle=0).wait_for("flow", link_credit=1000)
    client.transfer(message(b"z")).wait_for("disposition", state="accepted")
    assert delivered(consumer(broker, credit=9)) == [b"z"]


@pytest.mark.rule("B13.10")
def test_a_link_may_be_attached_and_detached_any_number_of_times(broker: MemoryBroker) -> None:
    client = session(broker)
    frames_of(client)
    for number in range(200):
        client.producer("q", handle=0, name="same").wait_for("flow", link_credit=1000)
        client.transfer(message(b"x"), delivery_id=number).expect("disposition", first=number)
        client.detach(0).expect("detach", error=None)
    assert broker.queue("q").ready == 200


@pytest.mark.rule("LC-1", "LC-2")
@pytest.mark.parametrize("durable", [False, True])
def test_a_queue_that_went_while_its_producer_stayed_comes_again_with_the_next_message(
    broker: MemoryBroker, durable: bool
) -> None:
    """Bug case 105."""
    client = producer(broker)
    for number in range(3):
        other = consumer(broker, credit=1)
        client.transfer(message(b"%d" % number, durable=durable))
        client.expect("disposition", first=number, state="accepted")
        assert [frame.name for frame in other.receive()] == ["transfer"]
        other.disposition(0, state="accepted").detach(0).wait_for("detach")
        assert not broker.has_queue("q")
    client.transfer(message(b"3", durable=durable)).expect("disposition", first=3, state="accepted")
    assert delivered(consumer(broker, credit=9)) == [b"3"]


@pytest.mark.rule("LC-1")
def test_a_message_that_comes_with_the_last_consumers_detach_is_not_lost(
    broker: MemoryBroker,
) -> None:
    """Bug case 105, in both orders within one turn."""
    both = session(broker)
    both.producer("q").consumer("q").wait_for("attach", role=False)
    for number in range(50):
        with both.pipelined():
            if number % 2:
                both.transfer(message(b"x", durable=number % 4 == 1))
            both.detach(1)
            if not number % 2:
                both.transfer(message(b"x", durable=number % 4 == 0))
            both.consumer("q", handle=1)
        both.wait_for("detach")
    assert broker.queue("q").ready == 50


@pytest.mark.rule("B4.7", "B12")
@pytest.mark.parametrize("payload", [b"", b"\x00\x53\x99\x45", value("x")[:-1], raw("01 02 03")])
def test_a_malformed_message_is_rejected_and_its_link_lives(
    broker: MemoryBroker, payload: bytes
) -> None:
    client = producer(broker)
    client.transfer(payload)
    answer = client.expect("disposition", first=0, settled=True, state="rejected")
    assert answer.state["error"]["condition"] == "amqp:decode-error"
    assert answer.state["error"]["description"]
    client.transfer(message(b"x")).expect("disposition", first=1, state="accepted")
    client.flow(handle=0, delivery_count=2, echo=True).expect("flow", link_credit=at_least(1))
