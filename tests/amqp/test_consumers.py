"""What a consumer meets: attach and its answer, order, redelivery to whom, the ends of its link (B5, B13)."""

import pytest

from amqpbroker.engine.settings import AddressSettings, BrokerSettings
from tests.amqp.memory import MemoryBroker
from tests.amqp.scenes import OUTCOMES, body, consumer, delivered, frames_of, put, session
from tests.raw.client import RawClient, error
from tests.raw.frames import Composite, Described, Symbol, decode_sections, message, modified


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker()


@pytest.fixture
def client(broker: MemoryBroker) -> RawClient:
    return session(broker)


def numbered(count: int) -> list[bytes]:
    return [message(b"%d" % number) for number in range(count)]


# --- attach


@pytest.mark.rule("B5.1", "B5.7", "B5.6", "D-8")
def test_a_jms_consumers_attach_is_answered_with_what_is_in_force(client: RawClient) -> None:
    client.attach(
        "qpid-jms:receiver:ID:1:q",
        "receiver",
        snd_settle_mode=0,
        rcv_settle_mode=0,
        source={
            "address": "q",
            "durable": 0,
            "expiry_policy": "link-detach",
            "outcomes": OUTCOMES,
            "default_outcome": modified(delivery_failed=True),
            "capabilities": ["queue"],
        },
        target={},
    )
    reply = client.wait_for("attach")
    assert reply.fields["name"] == "qpid-jms:receiver:ID:1:q"
    assert reply.role is False
    assert (reply.snd_settle_mode, reply.rcv_settle_mode) == (0, 0)
    assert reply.initial_delivery_count == 0
    assert reply.target is not None
    source = reply.source
    assert source["address"] == "q"
    assert source["durable"] == 0
    assert source["expiry_policy"] == "link-detach"
    assert source["timeout"] == 0
    assert not source["dynamic"]
    assert source["distribution_mode"] == "move"
    assert source["filter"] is None
    assert source["default_outcome"] == Composite("released")
    assert source["outcomes"] == OUTCOMES
    assert source["capabilities"] == ["queue"]
    client.expect_nothing()


@pytest.mark.rule("B5.1", "B13.7")
@pytest.mark.parametrize("snd", [0, 1, 2])
@pytest.mark.parametrize("rcv", [0, 1])
def test_the_settle_modes_of_the_reply_are_those_asked_for(
    client: RawClient, snd: int, rcv: int
) -> None:
    client.consumer("q", snd_settle_mode=snd, rcv_settle_mode=rcv)
    client.wait_for("attach", snd_settle_mode=snd, rcv_settle_mode=rcv)


@pytest.mark.rule("B5.2", "B5.3")
@pytest.mark.parametrize(
    ("wished", "granted"),
    [
        ("link-detach", "link-detach"),
        ("session-end", "session-end"),
        ("connection-close", "connection-close"),
        ("never", "link-detach"),
    ],
)
@pytest.mark.parametrize("durable", [0, 1, 2])
def test_the_reply_says_what_of_durability_and_expiry_is_granted(
    client: RawClient, wished: str, granted: str, durable: int
) -> None:
    source = {"address": "q", "durable": durable, "expiry_policy": wished, "timeout": 600}
    client.consumer("q", source=source)
    reply = client.wait_for("attach").source
    assert (reply["durable"], reply["expiry_policy"], reply["timeout"]) == (0, granted, 0)


@pytest.mark.rule("B5.5")
def test_capabilities_come_back(client: RawClient) -> None:
    client.consumer("q", source={"address": "q", "capabilities": ["queue", "vendor-thing"]})
    assert client.wait_for("attach").source["capabilities"] == ["queue", "vendor-thing"]


@pytest.mark.rule("B5.6")
@pytest.mark.parametrize("outcomes", [OUTCOMES[:1], [OUTCOMES[2], OUTCOMES[0]]])
def test_a_peer_that_lists_only_some_outcomes_gets_its_list_back(
    client: RawClient, outcomes: list[str]
) -> None:
    client.consumer("q", source={"address": "q", "outcomes": outcomes})
    assert client.wait_for("attach").source["outcomes"] == outcomes


@pytest.mark.rule("F-2", "B5.7")
def test_a_filter_that_is_not_known_is_not_in_the_reply(client: RawClient) -> None:
    wished = {"x": Described(Symbol("vendor:filter"), "y")}
    client.consumer("q", source={"address": "q", "filter": wished})
    assert client.wait_for("attach").source["filter"] is None


@pytest.mark.rule("B5.8", "B12")
def test_a_refusal_is_an_attach_with_a_null_source_and_at_once_a_detach() -> None:
    settings = AddressSettings(auto_create_addresses=False, auto_create_queues=False)
    client = session(MemoryBroker(broker=BrokerSettings(address=settings)))
    frames_of(client)
    client.consumer("nowhere")
    reply = client.wait_for("attach")
    assert reply.source is None
    assert reply.target is not None
    assert reply.initial_delivery_count == 0
    detach = client.expect("detach", closed=True, error=error("amqp:not-found"))
    assert "nowhere" in detach.error["description"]
    client.expect_nothing()
    client.credit(5).detach(0).expect_nothing()


@pytest.mark.rule("B5.8", "B12")
@pytest.mark.parametrize(
    ("source", "condition"),
    [
        (None, "amqp:not-found"),
        ({"address": None}, "amqp:invalid-field"),
        ({"address": ""}, "amqp:invalid-field"),
        ({"address": "q", "distribution_mode": "steal"}, "amqp:invalid-field"),
        ({"address": "t", "capabilities": ["topic"]}, "amqp:not-implemented"),
        ({"address": "q", "capabilities": ["queue", "topic"]}, "amqp:precondition-failed"),
    ],
)
def test_a_source_that_cannot_be_is_refused_with_a_reason(
    broker: MemoryBroker, client: RawClient, source: dict[str, object] | None, condition: str
) -> None:
    client.consumer("q", source=source)
    assert client.wait_for("attach").source is None
    detach = client.expect("detach", closed=True, error=error(condition))
    assert detach.error["description"]
    assert not list(broker.engine.queues())
    client.detach(0).consumer("q", handle=0).wait_for("attach", source={"address": "q"})


@pytest.mark.rule("B5.9")
def test_a_reply_that_does_not_fit_the_peers_frames_ends_the_session(broker: MemoryBroker) -> None:
    client = broker.client().opened(max_frame_size=512).begun()
    client.consumer("q", source={"address": "q", "capabilities": ["c" * 99] * 4})
    client.wait_for("end", error=error("amqp:frame-size-too-small"))
    client.end().begun().consumer("q", handle=0).wait_for("attach", source={"address": "q"})


# --- order


@pytest.mark.rule("Q-1", "D-11")
def test_a_released_message_comes_next_and_before_the_newer_ones(broker: MemoryBroker) -> None:
    put(broker, *numbered(3))
    client = consumer(broker, credit=1)
    assert delivered(client) == [b"0"]
    client.disposition(0, state="released").credit(3, delivery_count=1)
    assert delivered(client) == [b"0", b"1", b"2"]


@pytest.mark.rule("Q-2")
def test_two_consumers_are_served_in_turn(broker: MemoryBroker) -> None:
    first = consumer(broker, credit=1)
    second = consumer(broker, credit=1)
    put(broker, *numbered(2))
    assert (delivered(first), delivered(second)) == ([b"0"], [b"1"])


@pytest.mark.rule("Q-2")
def test_consumers_with_much_credit_share_what_comes_one_by_one(broker: MemoryBroker) -> None:
    first, second = consumer(broker, credit=100), consumer(broker, credit=100)
    put(broker, *numbered(10))
    assert delivered(first) == [b"0", b"2", b"4", b"6", b"8"]
    assert delivered(second) == [b"1", b"3", b"5", b"7", b"9"]


@pytest.mark.rule("D-12", "B8.12")
def test_messages_released_out_of_order_come_again_in_order_of_arrival(
    broker: MemoryBroker,
) -> None:
    put(broker, *numbered(5))
    client = consumer(broker, credit=3)
    assert delivered(client) == [b"0", b"1", b"2"]
    client.disposition(2, state="released").disposition(0, state="released")
    client.credit(9, delivery_count=3)
    assert delivered(client) == [b"0", b"2", b"3", b"4"]


@pytest.mark.rule("D-11", "B8.9")
@pytest.mark.parametrize("how", ["detach", "closed", "end", "close", "lost"])
def test_what_a_consumer_held_when_it_went_comes_again_first_and_in_order(
    broker: MemoryBroker, how: str
) -> None:
    put(broker, *numbered(5))
    client = consumer(broker, credit=3)
    assert len(client.receive(3)) == 3
    if how == "end":
        client.end().wait_for("end")
    elif how == "close":
        client.close().wait_for("close")
    elif how == "lost":
        client.wire.close()
    else:
        client.detach(0, closed=how == "closed").wait_for("detach")
    again = consumer(broker, credit=9).receive(5)
    assert [body(frame) for frame in again] == [b"%d" % number for number in range(5)]
    headers = [decode_sections(frame.payload).get("header", {}) for frame in again]
    failures = 1 if how == "lost" else None  # Rule D-33: only a loss counts.
    assert [each.get("delivery_count") for each in headers] == [failures] * 3 + [None] * 2
    assert not any(each.get("first_acquirer") for each in headers)


# --- the ends


@pytest.mark.rule("B5.15", "LC-3")
def test_a_consumer_of_a_node_that_is_deleted_is_detached(broker: MemoryBroker) -> None:
    """Bug case 106."""
    owner = session(broker)
    owner.attach("maker", "sender", target={"dynamic": True})
    address = owner.wait_for("attach").target["address"]
    owner.begin(1).wait_for("begin", remote_channel=1)
    owner.consumer(address, channel=1).wait_for("attach")
    owner.transfer(message(b"x")).transfer(message(b"y"))
    owner.credit(10, channel=1, handle=0)
    assert len(owner.receive(2)) == 2
    owner.detach(0)
    owner.wait_for("detach", channel=1, closed=True, error=error("amqp:resource-deleted"))
    with owner.pipelined():
        owner.disposition(0, channel=1, last=1, state="accepted")  # Late: ignored.
        owner.detach(0, channel=1)
    owner.consumer("q", channel=1, handle=0).wait_for("attach", source={"address": "q"})


@pytest.mark.rule("B13.3")
@pytest.mark.parametrize("closed", [True, False])
def test_a_detach_before_the_attach_is_answered_is_legal(client: RawClient, closed: bool) -> None:
    with client.pipelined():
        client.consumer("q").credit(5).detach(0, closed=closed)
    client.wait_for("attach", source={"address": "q"})
    client.wait_for("detach", error=None)
    client.expect_nothing()


@pytest.mark.rule("B13.10")
def test_a_link_may_come_and_go_with_leases_left_over(broker: MemoryBroker) -> None:
    """Bug case 111."""
    put(broker, *numbered(3))
    client = session(broker)
    for number in range(100):
        client.consumer("q", handle=0, name="same").wait_for("attach")
        client.credit(2)
        first, _second = client.receive(2)
        client.disposition(first.delivery_id, state="released")
        client.detach(0).wait_for("detach", error=None)
        assert first.delivery_id == 2 * number
    assert broker.queue("q").ready == 3
    assert delivered(consumer(broker, credit=9)) == [b"0", b"1", b"2"]


@pytest.mark.rule("B13.1", "B12")
def test_a_link_of_the_same_name_from_another_connection_takes_over(broker: MemoryBroker) -> None:
    """Bug case 109."""
    put(broker, *numbered(4))
    stalled = session(broker, "c").consumer("q", name="s")
    stalled.wait_for("attach")
    assert len(stalled.credit(3).receive(3)) == 3
    newer = session(broker, "c").consumer("q", name="s")
    newer.wait_for("attach", source={"address": "q"})
    stalled.wait_for("detach", error=error("amqp:link:stolen"))
    assert delivered(newer.credit(9)) == [b"0", b"1", b"2", b"3"]
    stalled.disposition(0, last=2, state="accepted").detach(0)
    stalled.consumer("q", handle=0, name="other").wait_for("attach", source={"address": "q"})
    newer.disposition(0, last=3, state="accepted")
    assert not broker.queue("q").count()


@pytest.mark.rule("B13.1")
def test_a_producer_and_a_consumer_of_one_name_are_two_links(broker: MemoryBroker) -> None:
    client = session(broker, "c").producer("q", name="s").consumer("q", name="s")
    client.wait_for("attach", role=True)
    client.wait_for("attach", role=False)
    other = session(broker, "c").producer("q", name="s").wait_for("attach", role=True)
    assert other.target
    client.wait_for("detach", handle=0, error=error("amqp:link:stolen"))
    client.expect_nothing()
    put(broker, message(b"x"))
    assert delivered(client.credit(1, handle=1)) == [b"x"]


@pytest.mark.rule("B13.1")
def test_a_link_may_be_stolen_from_another_session_of_ones_own(broker: MemoryBroker) -> None:
    client = session(broker).begin(1)
    client.wait_for("begin", remote_channel=1)
    client.consumer("q", name="s").wait_for("attach")
    client.consumer("q", name="s", channel=1)
    client.wait_for("detach", channel=0, error=error("amqp:link:stolen"))
    client.wait_for("attach", channel=1, source={"address": "q"})


@pytest.mark.rule("B13.1")
def test_a_name_twice_in_one_session_ends_the_session(client: RawClient) -> None:
    client.consumer("q", name="s").wait_for("attach")
    client.consumer("q", name="s").wait_for("end", error=error("amqp:session:errant-link"))


@pytest.mark.rule("B13.2")
def test_what_was_unsettled_at_a_detach_is_delivered_anew_after_the_reattach(
    broker: MemoryBroker,
) -> None:
    put(broker, *numbered(3))
    client = session(broker)
    source = {"address": "q", "durable": 2, "expiry_policy": "never"}
    client.consumer("q", source=source, name="s").wait_for("attach")
    client.credit(2).receive(2)
    client.detach(0, closed=False).wait_for("detach")
    client.consumer("q", source=source, name="s", handle=0, unsettled=None).wait_for("attach")
    client.credit(9)
    assert delivered(client) == [b"0", b"1", b"2"]


@pytest.mark.rule("B5.17", "B8.14")
def test_settling_what_is_not_there_does_nothing(broker: MemoryBroker) -> None:
    put(broker, *numbered(2))
    client = consumer(broker, credit=1)
    client.receive()
    client.disposition(77, state="accepted").disposition(5, last=1000, state="released")
    client.disposition(0, state="accepted").disposition(0, state="released")
    client.expect_nothing()
    assert broker.queue("q").count() == 1
    client.detach(0).wait_for("detach")
    client.disposition(0, state="released").expect_nothing()


@pytest.mark.rule("B5.9", "B3.3")
def test_a_transfer_on_a_consumers_link_ends_that_link_alone(broker: MemoryBroker) -> None:
    put(broker, *numbered(2))
    client = consumer(broker, credit=1)
    client.producer("other").wait_for("flow", handle=1)
    client.transfer(message(b"wrong"), 0)
    client.wait_for("detach", handle=0, error=error("amqp:not-allowed"))
    client.transfer(message(b"wrong"), 0).transfer(message(b"part"), 0, more=True)
    client.detach(0)
    client.transfer(message(b"right"), 1).wait_for("disposition", first=3, state="accepted")
    client.consumer("q", handle=0).wait_for("attach")
    client.credit(9)
    assert delivered(client) == [b"0", b"1"]
    assert broker.queue("q").count() == 2
    assert broker.queue("other").ready == 1
