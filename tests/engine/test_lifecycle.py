"""Nodes and queues that come and go."""

import pytest

from amqpbroker.base import errors
from amqpbroker.base.ids import ConnectionId, LinkId, Millis, SessionId
from amqpbroker.engine.commands import (
    ACCEPTED,
    RELEASED,
    AttachProducer,
    Lifetime,
    Node,
    Settle,
    Terminus,
)
from amqpbroker.engine.effects import (
    AttachRefused,
    ConsumerAttached,
    Dispose,
    ForceDetach,
    ProducerAttached,
)
from amqpbroker.engine.records import Meta
from amqpbroker.engine.settings import (
    AddressSettings,
    BrokerSettings,
    DeclaredAddress,
    QueueSettings,
)
from tests.engine.rig import Rig, answers, kinds, message, of, taken, the

DELAYED = BrokerSettings(address=AddressSettings(auto_delete_queues_delay=Millis(100)))


# --- auto-delete ------------------------------------------------------------------------------------------------


@pytest.mark.rule("LC-1")
def test_an_idle_queue_is_deleted_at_once_without_a_delay() -> None:
    rig = Rig()
    consumer = rig.consumer()
    assert rig.has_queue()
    rig.detach(consumer)
    assert not rig.has_queue()


@pytest.mark.rule("LC-1")
def test_an_idle_queue_is_deleted_at_idle_plus_delay() -> None:
    rig = Rig(DELAYED)
    rig.detach(rig.consumer())
    assert rig.broker.next_deadline() == rig.now + 100
    rig.move_to(rig.now + 99)
    assert rig.has_queue()
    rig.move_to(rig.now + 1)
    assert not rig.has_queue()


@pytest.mark.rule("LC-1")
def test_whatever_comes_meanwhile_starts_the_delay_anew() -> None:
    rig = Rig(DELAYED)
    rig.detach(rig.consumer())
    rig.move_to(rig.now + 50)
    rig.detach(rig.consumer())
    rig.move_to(rig.now + 99)
    assert rig.has_queue()
    rig.move_to(rig.now + 1)
    assert not rig.has_queue()


@pytest.mark.rule("LC-1")
def test_a_queue_that_was_never_used_stays() -> None:
    rig = Rig()
    rig.detach(rig.producer())
    assert rig.has_queue()


@pytest.mark.rule("LC-1")
def test_a_queue_with_messages_stays_until_they_are_gone() -> None:
    rig = Rig()
    consumer = rig.consumer()
    rig.publish(rig.producer(), message("m", ttl=10))
    rig.detach(consumer)
    assert rig.has_queue()
    rig.move_to(rig.now + 11)
    assert not rig.has_queue()


@pytest.mark.rule("LC-1", "LC-2")
def test_what_is_declared_or_not_to_be_deleted_stays() -> None:
    declared = DeclaredAddress("q", QueueSettings("q"))
    rig = Rig(BrokerSettings(addresses=(declared,)))
    rig.detach(rig.consumer())
    assert rig.has_queue()
    rig = Rig(BrokerSettings(address=AddressSettings(auto_delete_queues=False)))
    rig.detach(rig.consumer())
    assert rig.has_queue()


@pytest.mark.rule("LC-1", "LC-2")
def test_a_producer_outlives_the_queue_and_its_next_message_makes_another() -> None:
    """Bug case 105: an accepted message is never lost."""
    rig = Rig()
    producer = rig.producer()
    for number in range(100):
        consumer = rig.consumer()
        detached = rig.detach(consumer)
        assert detached == []
        assert not rig.has_queue()
        assert answers(rig.publish(producer, str(number))) == [(number, 1, "accepted")]
        consumer = rig.consumer()
        effects = rig.credit(consumer, 1)
        assert taken(effects) == [str(number)]
        rig.settle(consumer, [1])
        rig.detach(consumer)


def test_a_deleted_queue_is_forgotten_by_the_store() -> None:
    rig = Rig()
    consumer = rig.consumer(credit=1)
    rig.publish(rig.producer(), message("m", durable=True))
    rig.stored()
    rig.settle(consumer, [1])
    rig.detach(consumer)
    last = rig.records[-1]
    assert isinstance(last, Meta)
    assert (last.key, last.value) == ("queue/1", None)


def test_an_address_goes_with_its_last_link_and_queue() -> None:
    rig = Rig()
    producer = rig.producer()
    rig.detach(rig.consumer())
    assert not rig.has_queue()
    rig.detach(producer)
    rig.broker.check()
    consumer, attached = rig.attach_consumer()
    assert kinds(attached) == ["ConsumerAttached"]
    assert rig.queue().id == 2
    rig.detach(consumer)


# --- dynamic nodes ----------------------------------------------------------------------------------------------


def dynamic(
    rig: Rig, lifetime: Lifetime = Lifetime.ON_CLOSE
) -> tuple[ConnectionId, SessionId, LinkId, str]:
    """Connection, session, creating producer link, address."""
    connection = rig.connection()
    session = rig.session(connection)
    link, effects = rig.attach_producer(None, session=session, lifetime=lifetime)
    address = the(effects, ProducerAttached).address
    assert address is not None
    return connection, session, link, address


@pytest.mark.rule("AD-8", "B11.1", "B11.2")
def test_a_dynamic_node_is_named_by_the_broker_and_works_both_ways() -> None:
    rig = Rig()
    session = rig.session()
    link, effects = rig.attach_consumer(None, session=session, lifetime=Lifetime.ON_CLOSE)
    address = the(effects, ConsumerAttached).address
    assert address.startswith("tmp.")
    rig.credit(link, 1)
    assert taken(rig.publish(rig.producer(address), "reply"), link) == ["reply"]


@pytest.mark.rule("B11.6")
def test_a_fresh_name_without_the_reserved_beginning_gets_it() -> None:
    rig = Rig()
    target = Terminus(None, Node.ANY, Lifetime.ON_CLOSE, "fresh")
    session = rig.session()
    effects = rig.do(AttachProducer(session, LinkId(99), "x", target, can_reject=True))
    assert the(effects, ProducerAttached).address == "tmp.fresh"


@pytest.mark.rule("B11.5")
def test_only_the_connection_that_made_it_may_consume() -> None:
    rig = Rig()
    connection, _, _, address = dynamic(rig)
    _, effects = rig.attach_consumer(address)
    assert the(effects, AttachRefused).refusal.condition == errors.RESOURCE_LOCKED
    own = rig.session(connection)
    _, effects = rig.attach_consumer(address, session=own)
    assert kinds(effects) == ["ConsumerAttached"]


@pytest.mark.rule("B11.4", "B5.15", "LC-3")
def test_it_ends_when_its_link_is_closed_and_others_are_told() -> None:
    rig = Rig()
    connection, _, link, address = dynamic(rig)
    consumer = rig.consumer(address, session=rig.session(connection), credit=1)
    producer = rig.producer(address)
    rig.publish(producer, "a", "b")
    effects = rig.detach(link)
    assert kinds(effects) == ["ForceDetach", "ForceDetach"]
    assert {each.link for each in of(effects, ForceDetach)} == {consumer, producer}
    assert {each.refusal.condition for each in of(effects, ForceDetach)} == {
        errors.RESOURCE_DELETED
    }
    assert not rig.has_queue(address)
    assert rig.do(Settle(consumer, ACCEPTED, [])) == []
    assert rig.publish(producer, "c") == []


@pytest.mark.rule("B11.4")
def test_it_outlives_a_plain_detach_but_not_its_session() -> None:
    rig = Rig()
    _, session, link, address = dynamic(rig)
    rig.detach(link, closed=False)
    assert rig.has_queue(address)
    assert rig.close_session(session) == []
    assert not rig.has_queue(address)


@pytest.mark.rule("B11.4")
@pytest.mark.parametrize("lifetime", list(Lifetime))
@pytest.mark.parametrize("clean", [True, False])
def test_it_ends_with_its_connection_whatever_its_lifetime(lifetime: Lifetime, clean: bool) -> None:
    rig = Rig()
    connection, _, link, address = dynamic(rig, lifetime)
    rig.consumer(address, session=rig.session(connection), credit=1)
    producer = rig.producer(address)
    rig.publish(producer, "a", "b")
    rig.detach(link, closed=False)
    effects = rig.close(connection, clean=clean)
    assert [each.link for each in of(effects, ForceDetach)] == [producer]
    assert not rig.has_queue(address)


@pytest.mark.rule("B11.3")
def test_on_no_links_it_ends_with_the_last_link_after_its_maker() -> None:
    rig = Rig()
    _, _, link, address = dynamic(rig, Lifetime.ON_NO_LINKS)
    producer = rig.producer(address)
    rig.publish(producer, "m")
    rig.detach(link)
    assert rig.has_queue(address)
    rig.detach(producer)
    assert not rig.has_queue(address)


@pytest.mark.rule("B11.3")
@pytest.mark.parametrize("settled", [True, False])
def test_on_no_messages_it_ends_with_the_last_message_after_its_maker(settled: bool) -> None:
    rig = Rig()
    connection, _, link, address = dynamic(rig, Lifetime.ON_NO_MESSAGES)
    own = rig.session(connection)
    consumer = rig.consumer(address, session=own, settled=settled)
    rig.publish(rig.producer(address), "m")
    rig.detach(link)
    assert rig.has_queue(address)
    effects = rig.credit(consumer, 1)
    if not settled:
        assert taken(rig.settle(consumer, [1], RELEASED)) == []
        rig.credit(consumer, 1)
        effects = rig.settle(consumer, [1])
    assert len(of(effects, ForceDetach)) == 2
    assert not rig.has_queue(address)


@pytest.mark.rule("B11.3")
def test_on_neither_it_ends_when_both_are_gone() -> None:
    rig = Rig()
    connection, _, link, address = dynamic(rig, Lifetime.ON_NO_LINKS_OR_MESSAGES)
    own = rig.session(connection)
    consumer = rig.consumer(address, session=own, credit=1)
    producer = rig.producer(address)
    rig.publish(producer, "m")
    rig.detach(link)
    rig.detach(producer)
    rig.settle(consumer, [1])
    assert rig.has_queue(address)
    rig.detach(consumer)
    assert not rig.has_queue(address)


@pytest.mark.rule("B11.6")
def test_a_dead_node_is_not_found_and_never_made_again() -> None:
    rig = Rig()
    _, _, link, address = dynamic(rig)
    rig.detach(link)
    for attach in (rig.attach_producer, rig.attach_consumer):
        _, effects = attach(address)
        assert the(effects, AttachRefused).refusal.condition == errors.NOT_FOUND
    effects = rig.publish(rig.producer(None), message("m", to=address))
    refusal = the(effects, Dispose).outcome.refusal
    assert refusal is not None
    assert refusal.condition == errors.NOT_FOUND
    assert not rig.has_queue(address)


@pytest.mark.rule("B11.8")
def test_a_connection_has_no_more_of_them_than_it_may() -> None:
    rig = Rig(BrokerSettings(dynamic_nodes_max=2))
    session = rig.session()
    links = [
        rig.producer(None, session=session, lifetime=Lifetime.ON_CLOSE, name=str(each))
        for each in range(2)
    ]
    _, effects = rig.attach_producer(None, session=session, lifetime=Lifetime.ON_CLOSE)
    assert the(effects, AttachRefused).refusal.condition == errors.RESOURCE_LIMIT_EXCEEDED
    rig.detach(links[0])
    _, effects = rig.attach_consumer(None, session=session, lifetime=Lifetime.ON_CLOSE)
    assert kinds(effects) == ["ConsumerAttached"]


def test_messages_of_a_dynamic_node_are_never_stored() -> None:
    rig = Rig()
    _, _, link, _ = dynamic(rig)
    effects = rig.publish(link, message("m", durable=True))
    assert kinds(effects) == ["Dispose"]
    assert rig.records == []


@pytest.mark.rule("B13.1", "B11.4")
def test_a_stolen_link_leaves_the_node_that_was_made_for_it() -> None:
    rig = Rig()
    connection = rig.connection("me")
    old, effects = rig.attach_consumer(
        None, session=rig.session(connection), lifetime=Lifetime.ON_CLOSE, name="x"
    )
    address = the(effects, ConsumerAttached).address
    _, effects = rig.attach_consumer(address, session=rig.session(connection), name="x")
    assert kinds(effects) == ["ForceDetach", "ConsumerAttached"]
    assert the(effects, ForceDetach).link == old
    assert rig.has_queue(address)
