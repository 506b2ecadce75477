"""The anonymous terminus: each message says where it goes, and how that fails (B4.6, B4.7, the table of B11)."""

from typing import Any

import pytest

from amqpbroker.engine.settings import AddressSettings, BrokerSettings, DeclaredAddress
from tests.amqp.memory import SETTINGS, MemoryBroker
from tests.amqp.scenes import OUTCOMES, consumer, delivered, frames_of, producer, session
from tests.raw.client import RawClient, error
from tests.raw.frames import Typed, header, message, message_annotations, properties

CLOSED = BrokerSettings(
    addresses=(DeclaredAddress("known"),),
    address=AddressSettings(auto_create_addresses=False),
)
NO_REJECTED = {"outcomes": [OUTCOMES[0], OUTCOMES[2]]}


def to(address: str | None, body: bytes = b"x", **header_fields: Any) -> bytes:  # noqa: ANN401
    head = header(**header_fields) if header_fields else b""
    return head + properties(to=address) + message(body)


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker()


@pytest.fixture
def client(broker: MemoryBroker) -> RawClient:
    return producer(broker, None)


@pytest.mark.rule("B4.6", "B2.2")
def test_the_open_offers_the_relay_and_the_reply_has_no_address(broker: MemoryBroker) -> None:
    client = broker.client().sasl_anonymous().header().open()
    assert "ANONYMOUS-RELAY" in client.expect("open").offered_capabilities
    client.begun().producer(None)
    reply = client.wait_for("attach")
    assert reply.target is not None
    assert reply.target["address"] is None
    client.wait_for("flow", link_credit=1000)


@pytest.mark.rule("B4.6")
def test_each_message_goes_where_it_says(broker: MemoryBroker, client: RawClient) -> None:
    with client.pipelined():
        for number, address in enumerate(["a", "b", "a", "a", "b", "c d", "ü"]):
            client.transfer(to(address, b"%d" % number))
    answers = frames_of(client)
    assert {frame.state.kind for frame in answers} == {"accepted"}
    assert sum((frame.last or frame.first) - frame.first + 1 for frame in answers) == 7
    for address, bodies in {"a": b"023", "b": b"14", "c d": b"5", "ü": b"6"}.items():
        expected = [bytes((byte,)) for byte in bodies]
        assert delivered(consumer(broker, address, credit=9)) == expected


@pytest.mark.rule("B4.6")
def test_a_type_hint_does_not_hurt(broker: MemoryBroker, client: RawClient) -> None:
    hint = message_annotations({"x-opt-jms-dest": Typed("byte", 0)})
    client.transfer(hint + to("q")).expect("disposition", state="accepted")
    assert broker.queue("q").ready == 1


@pytest.mark.rule("B4.6", "B4.9", "B4.17")
def test_durable_and_transient_messages_may_mix(broker: MemoryBroker, client: RawClient) -> None:
    with client.pipelined():
        for number in range(20):
            client.transfer(to(f"q{number % 3}", b"%d" % number, durable=number % 2 == 0))
    answered = [
        number
        for frame in frames_of(client)
        for number in range(frame.first, (frame.last or frame.first) + 1)
    ]
    assert sorted(answered) == list(range(20))
    expected = [b"%d" % number for number in range(0, 20, 3)]
    assert delivered(consumer(broker, "q0", credit=9)) == expected


@pytest.mark.rule("B4.7", "B12")
@pytest.mark.parametrize("payload", [message(b"x"), to(None), to("")])
def test_a_message_without_an_address_is_rejected_with_its_tag(
    client: RawClient, payload: bytes
) -> None:
    client.transfer(payload, delivery_tag=b"\xffthe tag")
    answer = client.expect("disposition", first=0, settled=True, state="rejected")
    assert answer.state["error"]["condition"] == "amqp:invalid-field"
    assert answer.state["error"]["info"] == {"delivery-tag": b"\xffthe tag"}
    client.transfer(to("q")).expect("disposition", state="accepted")


@pytest.mark.rule("B4.7", "B11", "B12")
def test_a_message_to_nowhere_is_rejected_and_the_link_stays() -> None:
    client = producer(MemoryBroker(broker=CLOSED), None, source={"outcomes": OUTCOMES})
    client.transfer(to("nowhere"), delivery_tag=b"t")
    answer = client.expect("disposition", first=0, settled=True, state="rejected")
    assert answer.state["error"]["condition"] == "amqp:not-found"
    assert "nowhere" in answer.state["error"]["description"]
    assert answer.state["error"]["info"] == {"delivery-tag": b"t"}
    client.transfer(to("known")).expect("disposition", first=1, state="accepted")


@pytest.mark.rule("B11")
def test_each_of_several_failures_is_told_with_its_own_tag() -> None:
    client = producer(MemoryBroker(broker=CLOSED), None)
    with client.pipelined():
        for number, address in enumerate(["nowhere", "nowhere", "known", "nowhere", "x"]):
            client.transfer(to(address), delivery_tag=b"tag %d" % number)
    answers = frames_of(client)
    tags = {
        frame.first: frame.state["error"]["info"]["delivery-tag"]
        for frame in answers
        if frame.state.kind == "rejected"
    }
    assert tags == {number: b"tag %d" % number for number in (0, 1, 3, 4)}
    assert [frame.first for frame in answers if frame.state.kind == "accepted"] == [2]


@pytest.mark.rule("B11", "RJ-2")
@pytest.mark.parametrize("settled", [False, True])
def test_what_cannot_be_rejected_ends_the_link_with_the_tag(settled: bool) -> None:
    """Sent settled; or unsettled by a producer that does not take `rejected`."""
    broker = MemoryBroker(broker=CLOSED)
    client = producer(broker, None, source={} if settled else NO_REJECTED)
    with client.pipelined():
        client.transfer(to("known", b"before"), settled=settled, delivery_tag=b"0")
        client.transfer(to("nowhere"), settled=settled, delivery_tag=b"the tag")
        client.transfer(to("known", b"after"), settled=settled, delivery_tag=b"2")
    detach = client.wait_for("detach", closed=True)
    assert detach.error["condition"] == "amqp:not-found"
    assert detach.error["info"] == {"delivery-tag": b"the tag"}
    client.detach(0).producer(None, handle=0).wait_for("flow", handle=0)
    client.transfer(to("known", b"again"), settled=True)
    assert delivered(consumer(broker, "known", credit=9)) == [b"before", b"again"]


@pytest.mark.rule("B11", "B4.11")
def test_a_settled_message_to_nowhere_may_have_no_tag() -> None:
    client = producer(MemoryBroker(broker=CLOSED), None)
    client.transfer(to("nowhere"), settled=True, delivery_tag=b"")
    detach = client.expect("detach", closed=True, error=error("amqp:not-found"))
    assert detach.error["info"] == {"delivery-tag": b""}


@pytest.mark.rule("B11", "B4.10")
def test_in_mode_second_a_failure_has_its_tag_too() -> None:
    client = producer(MemoryBroker(broker=CLOSED), None, rcv_settle_mode=1)
    client.transfer(to("nowhere"), delivery_tag=b"t")
    answer = client.expect("disposition", first=0, state="rejected")
    assert not answer.settled
    assert answer.state["error"]["info"] == {"delivery-tag": b"t"}
    client.disposition(0, role="sender", state=answer.state)
    client.transfer(to("known")).wait_for("disposition", first=1, state="accepted")


@pytest.mark.rule("B11", "B10.2")
@pytest.mark.parametrize("settled", [False, True])
def test_a_broken_message_has_its_tag_named(client: RawClient, settled: bool) -> None:
    client.transfer(b"broken", settled=settled, delivery_tag=b"t")
    answer = client.expect("detach" if settled else "disposition")
    found = answer.error if settled else answer.state["error"]
    assert found["condition"] == "amqp:decode-error"
    assert found["info"] == {"delivery-tag": b"t"}


@pytest.mark.rule("B11")
def test_a_failure_on_a_link_with_an_address_names_no_tag(broker: MemoryBroker) -> None:
    client = producer(broker, "q")
    client.transfer(b"broken")
    assert client.expect("disposition").state["error"]["info"] is None


@pytest.mark.rule("B4.8")
def test_the_credit_of_failed_messages_comes_back() -> None:
    client = producer(MemoryBroker(SETTINGS._replace(credit=4, credit_low=1), CLOSED), None)
    for number in range(20):
        client.transfer(to("nowhere")).wait_for("disposition", first=number, state="rejected")


@pytest.mark.rule("B4.6", "LC-1")
def test_an_anonymous_producer_keeps_no_queue_alive(
    broker: MemoryBroker, client: RawClient
) -> None:
    for number in range(3):
        client.transfer(to("q")).expect("disposition", first=number, state="accepted")
        other = consumer(broker, credit=1)
        other.receive()
        other.disposition(0, state="accepted").detach(0)
        frames_of(other)
        assert not broker.has_queue("q")


@pytest.mark.rule("B4.3")
def test_a_null_target_is_no_anonymous_terminus(broker: MemoryBroker) -> None:
    client = session(broker)
    client.producer(None, target=None)
    client.wait_for("attach", target=None)
    client.expect("detach", error=error("amqp:invalid-field"))
