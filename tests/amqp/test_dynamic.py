"""Nodes that a link asks for and that end with it: whose they are, when they end, what is said then (B11)."""

import re
from typing import Any

import pytest

from amqpbroker.amqp.peer import Peer
from amqpbroker.amqp.switchboard import Switchboard
from amqpbroker.base.ids import Millis
from amqpbroker.engine.broker import Broker
from amqpbroker.engine.settings import BrokerSettings
from amqpbroker.store.memory import MemoryStore
from tests.amqp.memory import SETTINGS, MemoryBroker
from tests.amqp.scenes import consumer, delivered, frames_of, producer, session
from tests.raw.client import RawClient, error
from tests.raw.frames import Described, Symbol, Typed, encode, message, properties, raw

ON_CLOSE, ON_NO_LINKS, ON_NO_MESSAGES, ON_NO_LINKS_OR_MESSAGES = 0x2B, 0x2C, 0x2D, 0x2E


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker()


def policy(code: int | str) -> dict[str, object]:
    """dynamic-node-properties with a lifetime-policy."""
    return {"lifetime-policy": Described(Symbol(code) if isinstance(code, str) else code, [])}


def dynamic(**fields: Any) -> dict[str, Any]:  # noqa: ANN401
    return {"address": None, "dynamic": True, **fields}


def target(client: RawClient, handle: int = 0, **fields: Any) -> str:  # noqa: ANN401
    """The address of a dynamic target on this handle."""
    client.attach(role="sender", handle=handle, target=dynamic(**fields))
    found = client.wait_for("attach", role=True).target
    assert found["dynamic"] is True
    client.wait_for("flow", link_credit=1000)
    assert isinstance(found["address"], str)
    return found["address"]


def source(client: RawClient, handle: int = 0, **fields: Any) -> str:  # noqa: ANN401
    """The address of a dynamic source on this handle."""
    client.attach(role="receiver", handle=handle, source=dynamic(**fields))
    found = client.wait_for("attach", role=False).source
    assert found["dynamic"] is True
    assert isinstance(found["address"], str)
    return found["address"]


# --- made


@pytest.mark.rule("B11.1", "B11.3")
def test_a_jms_temporary_queue_is_made_and_its_properties_come_back(broker: MemoryBroker) -> None:
    client = session(broker)
    client.attach(
        "qpid-jms:temp-queue-creator:ID:1",
        "sender",
        source={},
        target=dynamic(
            durable=0,
            expiry_policy="link-detach",
            dynamic_node_properties=policy(ON_CLOSE),
            capabilities=["temporary-queue"],
        ),
    )
    found = client.wait_for("attach").target
    assert found["dynamic"] is True
    assert found["address"]
    assert found["dynamic_node_properties"] == policy(ON_CLOSE)
    assert found["capabilities"] == ["temporary-queue"]
    assert found["expiry_policy"] == "link-detach"


@pytest.mark.rule("B11.2", "B5.7")
def test_a_dynamic_source_is_a_queue_whose_name_is_in_the_reply(broker: MemoryBroker) -> None:
    """Bug case 104: request and reply."""
    requester = session(broker)
    address = source(requester)
    requester.credit(1)
    responder = producer(broker, address)
    responder.transfer(message(b"answer")).expect("disposition", state="accepted")
    assert delivered(requester) == [b"answer"]


@pytest.mark.rule("B11.1")
def test_a_dynamic_target_takes_messages_itself(broker: MemoryBroker) -> None:
    client = session(broker)
    address = target(client)
    client.transfer(message(b"x")).expect("disposition", state="accepted")
    client.consumer(address).wait_for("attach", source={"address": address})
    assert delivered(client.credit(1, handle=1)) == [b"x"]


@pytest.mark.rule("B11.3")
@pytest.mark.parametrize(
    "name",
    [
        "amqp:delete-on-close:list",
        "amqp:delete-on-no-links:list",
        "amqp:delete-on-no-messages:list",
        "amqp:delete-on-no-links-or-messages:list",
        *range(0x2B, 0x2F),
    ],
)
def test_a_lifetime_policy_may_be_named_by_code_or_symbol(
    broker: MemoryBroker, name: int | str
) -> None:
    assert source(session(broker), dynamic_node_properties=policy(name))


@pytest.mark.rule("B11.3", "B11.7")
@pytest.mark.parametrize(
    "properties",
    [
        policy(0x2F),
        {"lifetime-policy": "soon"},
        {"supported-dist-modes": 7},
        {"supported-dist-modes": "copy"},
    ],
)
def test_properties_that_mean_nothing_are_refused(
    broker: MemoryBroker, properties: dict[str, object]
) -> None:
    client = session(broker)
    client.attach(role="receiver", source=dynamic(dynamic_node_properties=properties))
    assert client.wait_for("attach").source is None
    client.expect("detach", error=error("amqp:invalid-field"))


@pytest.mark.rule("B11.7")
@pytest.mark.parametrize(
    "modes", [Symbol("move"), raw("f0 00 00 00 0f 00 00 00 02 a3 04 6d6f7665 04 636f7079"), None]
)
def test_supported_dist_modes_are_symbols(broker: MemoryBroker, modes: object) -> None:
    assert source(session(broker), dynamic_node_properties={"supported-dist-modes": modes})


@pytest.mark.rule("B11.6")
def test_a_name_cannot_be_guessed() -> None:
    switchboard = Switchboard(Broker(BrokerSettings()), MemoryStore())
    names = {switchboard.fresh_name() for _ in range(1_000)}
    assert len(names) == 1_000
    assert all(re.fullmatch(r"[0-9a-f]{32}", name) for name in names)  # 128 bits.
    assert isinstance(switchboard.accept(SETTINGS, "x", Millis(0)), Peer)


@pytest.mark.rule("B11.8", "B12")
def test_a_connection_has_only_so_many_of_them() -> None:
    broker = MemoryBroker(broker=BrokerSettings(dynamic_nodes_max=2))
    client = session(broker)
    source(client, 0)
    target(client, 1)
    client.attach(role="receiver", handle=2, source=dynamic())
    client.wait_for("attach", source=None)
    detach = client.expect("detach", error=error("amqp:resource-limit-exceeded"))
    assert "2" in detach.error["description"]
    client.detach(2).detach(0).wait_for("detach", handle=0, error=None)
    source(client, 0)
    source(session(broker))


# --- whose


@pytest.mark.rule("B11.5", "B12")
def test_others_may_send_to_it_and_only_its_connection_may_consume(broker: MemoryBroker) -> None:
    """Bug case 104."""
    owner = session(broker)
    address = source(owner)
    other = session(broker).consumer(address)
    other.wait_for("attach", source=None)
    other.expect("detach", error=error("amqp:resource-locked"))
    other.producer(address).wait_for("attach", target={"address": address})
    owner.consumer(address).wait_for("attach", source={"address": address})
    owner.begin(1).consumer(address, channel=1)
    owner.wait_for("attach", channel=1, source={"address": address})


@pytest.mark.rule("B11.6", "B12")
def test_a_node_that_is_dead_or_never_was_is_not_made_anew(broker: MemoryBroker) -> None:
    owner = session(broker)
    address = source(owner)
    owner.detach(0).wait_for("detach")
    for name in (address, "tmp.guess"):
        client = session(broker).producer(name)
        client.wait_for("attach", target=None)
        client.expect("detach", error=error("amqp:not-found"))
        client.consumer(name).wait_for("attach", source=None)
        client.wait_for("detach", error=error("amqp:not-found"))
    client = producer(broker, None)
    client.transfer(properties(to=address) + message(b"x"))
    answer = client.expect("disposition", state="rejected")
    assert answer.state["error"]["condition"] == "amqp:not-found"
    assert not list(broker.engine.queues())


# --- when they end


@pytest.mark.rule("B11.4", "LC-3")
@pytest.mark.parametrize("make", [source, target])
@pytest.mark.parametrize("how", ["closed", "end", "close", "lost"])
def test_it_ends_with_the_link_that_made_it(broker: MemoryBroker, make: Any, how: str) -> None:  # noqa: ANN401
    owner = session(broker)
    address = make(owner)
    sender = producer(broker, address)
    sender.transfer(message(b"x")).expect("disposition", state="accepted")
    if how == "closed":
        owner.detach(0).wait_for("detach", error=None)
    elif how == "end":
        owner.end().wait_for("end", error=None)
    elif how == "close":
        owner.close().wait_for("close", error=None)
    else:
        owner.wire.close()
    sender.expect("detach", closed=True, error=error("amqp:resource-deleted"))
    assert not broker.has_queue(address)
    sender.detach(0).producer("q", handle=0).wait_for("flow", link_credit=1000)


@pytest.mark.rule("B11.4")
def test_it_outlives_a_detach_that_does_not_close(broker: MemoryBroker) -> None:
    owner = session(broker)
    address = source(owner)
    owner.detach(0, closed=False).wait_for("detach")
    producer(broker, address).transfer(message(b"x")).expect("disposition", state="accepted")
    owner.consumer(address, handle=0).wait_for("attach", source={"address": address})
    assert delivered(owner.credit(1)) == [b"x"]
    owner.end().wait_for("end")
    assert not broker.has_queue(address)


@pytest.mark.rule("B11.3", "B11.4")
@pytest.mark.parametrize(
    ("code", "ends_by"),
    [
        (ON_CLOSE, "close"),
        (ON_NO_LINKS, "links"),
        (ON_NO_MESSAGES, "messages"),
        (ON_NO_LINKS_OR_MESSAGES, "both"),
    ],
)
def test_a_policy_says_what_keeps_a_node_whose_maker_is_gone(
    broker: MemoryBroker, code: int, ends_by: str
) -> None:
    client = session(broker)
    address = target(client, dynamic_node_properties=policy(code))
    client.transfer(message(b"x")).expect("disposition", state="accepted")
    client.consumer(address, handle=1).wait_for("attach")
    client.credit(1, handle=1).receive()
    client.detach(0)
    if ends_by == "close":
        client.wait_for("detach", handle=1, error=error("amqp:resource-deleted"))
        return
    client.wait_for("detach", handle=0, error=None)
    assert broker.has_queue(address)
    if ends_by == "links":
        client.detach(1).wait_for("detach", error=None)  # With the message in it.
    else:
        client.disposition(0, state="accepted")
        assert broker.has_queue(address) == (ends_by == "both")
        if ends_by == "messages":
            client.wait_for("detach", error=error("amqp:resource-deleted"))
        client.detach(1)
        frames_of(client)
    assert not broker.has_queue(address)


@pytest.mark.rule("B11.4")
def test_its_address_serves_as_reply_to_in_messages(broker: MemoryBroker) -> None:
    """B10.12, and bug case 104 from end to end."""
    server = consumer(broker, "requests", credit=10)
    client = session(broker)
    address = source(client)
    client.credit(1)
    request = properties(reply_to=address, correlation_id=Typed("ulong", 5)) + message(b"?")
    client.producer("requests", handle=1).wait_for("flow", handle=1)
    client.transfer(request, 1).wait_for("disposition", state="accepted")
    assert server.receive()[0].payload == request
    server.producer(None, handle=1).wait_for("flow", handle=1)
    server.transfer(properties(to=address) + message(b"!"), 1).wait_for(
        "disposition", state="accepted"
    )
    assert delivered(client) == [b"!"]
    assert encode(address)
