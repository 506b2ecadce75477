"""Names, and what they stand for."""

import pytest

from amqpbroker.base import errors
from amqpbroker.engine.commands import Lifetime, Node
from amqpbroker.engine.effects import AttachRefused, ConsumerAttached
from amqpbroker.engine.settings import (
    AddressSettings,
    BrokerSettings,
    DeclaredAddress,
    QueueSettings,
)
from tests.engine.rig import Rig, kinds, message, of, taken, the


def refusal_of(effects: list[object]) -> str:
    (refused,) = [each for each in effects if isinstance(each, AttachRefused)]
    assert refused.refusal.description
    return refused.refusal.condition


@pytest.mark.rule("AD-5", "10.2")
@pytest.mark.parametrize("node", [Node.ANY, Node.QUEUE])
def test_a_bare_name_is_a_queue_and_made_on_first_use(node: Node) -> None:
    rig = Rig()
    _, effects = rig.attach_consumer("orders", node=node)
    assert the(effects, ConsumerAttached).address == "orders"
    assert rig.queue("orders").is_automatic


def test_topics_are_not_there_yet() -> None:
    rig = Rig()
    assert refusal_of([*rig.attach_consumer("t", node=Node.TOPIC)[1]]) == errors.NOT_IMPLEMENTED
    assert refusal_of([*rig.attach_producer("t", node=Node.TOPIC)[1]]) == errors.NOT_IMPLEMENTED
    _, effects = rig.attach_producer(None, node=Node.TOPIC, lifetime=Lifetime.ON_CLOSE)
    assert refusal_of([*effects]) == errors.NOT_IMPLEMENTED
    assert not rig.has_queue("t")


@pytest.mark.rule("AD-5")
@pytest.mark.parametrize(
    "off",
    [AddressSettings(auto_create_addresses=False), AddressSettings(auto_create_queues=False)],
)
def test_nothing_is_made_where_that_is_off(off: AddressSettings) -> None:
    rig = Rig(BrokerSettings(address=off))
    assert refusal_of([*rig.attach_consumer("q")[1]]) == errors.NOT_FOUND
    assert refusal_of([*rig.attach_producer("q")[1]]) == errors.NOT_FOUND


def test_what_is_declared_is_there_from_the_start() -> None:
    off = AddressSettings(auto_create_addresses=False, auto_create_queues=False)
    declared = (DeclaredAddress("a", QueueSettings("a")), DeclaredAddress("empty"))
    rig = Rig(BrokerSettings(addresses=declared, address=off))
    assert kinds(rig.attach_consumer("a")[1]) == ["ConsumerAttached"]
    assert refusal_of([*rig.attach_consumer("empty")[1]]) == errors.NOT_FOUND
    assert not rig.queue("a").is_automatic


def test_a_queue_that_is_not_durable_stores_nothing() -> None:
    declared = (DeclaredAddress("q", QueueSettings("q", durable=False)),)
    rig = Rig(BrokerSettings(addresses=declared))
    assert kinds(rig.publish(rig.producer(), message("m", durable=True))) == ["Dispose"]


def test_an_empty_name_is_no_name() -> None:
    assert refusal_of([*Rig().attach_producer("")[1]]) == errors.INVALID_FIELD


@pytest.mark.rule("B4.5")
def test_any_other_characters_are_part_of_the_name() -> None:
    rig = Rig()
    name = "naïve name/with spaces::and.more"
    rig.publish(rig.producer(name), "m")
    assert taken(rig.credit(rig.consumer(name), 1)) == ["m"]
    assert of(rig.attach_consumer(name)[1], ConsumerAttached)[0].address == name


def test_the_log_is_told_when_a_queue_comes_and_goes() -> None:
    rig = Rig()
    consumer, _ = rig.attach_consumer("orders")
    assert [(note.event, note.fields["queue"]) for note in rig.notes] == [
        ("queue_created", "orders")
    ]
    rig.publish(rig.producer("orders"), "m")
    rig.credit(consumer, 1)
    rig.settle(consumer, [1])
    rig.detach(consumer)
    assert [note.event for note in rig.notes] == ["queue_created", "queue_deleted"]
