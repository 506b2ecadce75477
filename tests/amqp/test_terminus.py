"""Sources and targets in and out, without a connection."""

import pytest

from amqpbroker.amqp.performatives import Attach, Coordinator, Released, Source, Target
from amqpbroker.amqp.terminus import (
    OUTCOMES,
    can_reject,
    consumer_reply,
    producer_reply,
    refused_reply,
    source_of,
    target_of,
    wants_copies,
)
from amqpbroker.base.codec import Described, Symbol, ULong
from amqpbroker.base.errors import (
    INVALID_FIELD,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    PRECONDITION_FAILED,
    Refusal,
)
from amqpbroker.engine.commands import Lifetime, Node, Terminus


def producer(target: Target | Coordinator | None, source: Source | None = None) -> Attach:
    return Attach(name="l", handle=7, role=False, source=source or Source(), target=target)


def consumer(source: Source | None) -> Attach:
    return Attach(name="l", handle=7, role=True, source=source, target=Target())


def terminus(found: Terminus | Refusal) -> Terminus:
    assert isinstance(found, Terminus), found
    return found


def refusal(found: Terminus | Refusal) -> str:
    assert isinstance(found, Refusal)
    assert found.description
    return found.condition


@pytest.mark.rule("B4.4")
@pytest.mark.parametrize(
    ("capabilities", "node"),
    [
        ((), Node.ANY),
        (("queue",), Node.QUEUE),
        (("temporary-queue",), Node.QUEUE),
        (("topic",), Node.TOPIC),
        (("something-else", "queue"), Node.QUEUE),
    ],
)
def test_a_capability_says_which_kind_of_node_is_meant(
    capabilities: tuple[str, ...], node: Node
) -> None:
    assert (
        terminus(target_of(producer(Target(address="q", capabilities=capabilities)), "f")).node
        is node
    )
    assert (
        terminus(source_of(consumer(Source(address="q", capabilities=capabilities)), "f")).node
        is node
    )


def test_a_queue_and_a_topic_at_once_cannot_be() -> None:
    target = Target(address="q", capabilities=("queue", "topic"))
    assert refusal(target_of(producer(target), "f")) == PRECONDITION_FAILED


@pytest.mark.rule("B4.6")
@pytest.mark.parametrize("address", [None, ""])
def test_a_target_without_an_address_is_the_anonymous_terminus(address: str | None) -> None:
    found = terminus(target_of(producer(Target(address=address)), "f"))
    assert found.address is None
    assert found.lifetime is None


def test_no_target_at_all_is_refused() -> None:
    assert refusal(target_of(producer(None), "f")) == INVALID_FIELD


def test_transactions_are_not_there_yet() -> None:
    assert refusal(target_of(producer(Coordinator()), "f")) == NOT_IMPLEMENTED


@pytest.mark.rule("B7.6")
def test_a_null_source_looks_for_a_subscription() -> None:
    assert refusal(source_of(consumer(None), "f")) == NOT_FOUND


@pytest.mark.parametrize("address", [None, "", b"bytes", 7, "a" * 2000])
def test_a_source_needs_a_proper_address(address: object) -> None:
    assert refusal(source_of(consumer(Source(address=address)), "f")) == INVALID_FIELD


@pytest.mark.rule("B11.3")
@pytest.mark.parametrize(
    ("policy", "lifetime"),
    [
        (None, Lifetime.ON_CLOSE),
        (Described(ULong(0x2B), []), Lifetime.ON_CLOSE),
        (Described(ULong(0x2C), []), Lifetime.ON_NO_LINKS),
        (Described(ULong(0x2D), []), Lifetime.ON_NO_MESSAGES),
        (
            Described(Symbol("amqp:delete-on-no-links-or-messages:list"), []),
            Lifetime.ON_NO_LINKS_OR_MESSAGES,
        ),
    ],
)
def test_a_dynamic_node_has_the_lifetime_asked_for(
    policy: Described | None, lifetime: Lifetime
) -> None:
    properties = {Symbol("lifetime-policy"): policy} if policy else None
    wished = Target(dynamic=True, dynamic_node_properties=properties)
    found = terminus(target_of(producer(wished), "fresh"))
    assert found.lifetime is lifetime
    assert found.fresh_name == "fresh"
    assert found.address is None


@pytest.mark.rule("B11.7")
def test_dynamic_properties_of_a_wrong_type_are_refused() -> None:
    for properties in (
        {Symbol("supported-dist-modes"): 7},
        {Symbol("lifetime-policy"): Described(ULong(0x99), [])},
        {Symbol("lifetime-policy"): "delete-on-close"},
    ):
        wished = Source(dynamic=True, dynamic_node_properties=properties)
        assert refusal(source_of(consumer(wished), "f")) == INVALID_FIELD


@pytest.mark.rule("B5.4")
def test_distribution_mode_is_copy_or_move() -> None:
    assert wants_copies(consumer(Source(address="q", distribution_mode="copy")))
    assert not wants_copies(consumer(Source(address="q", distribution_mode="move")))
    assert not wants_copies(consumer(Source(address="q")))
    wrong = Source(address="q", distribution_mode="round-robin")
    assert refusal(source_of(consumer(wrong), "f")) == INVALID_FIELD


@pytest.mark.rule("F-2", "B6.1")
def test_a_selector_is_refused_and_an_unknown_filter_is_left_out() -> None:
    for descriptor in (ULong(0x0000468C00000004), Symbol("apache.org:selector-filter:string")):
        filters = {Symbol("any-key"): Described(descriptor, "color = 'red'")}
        found = source_of(consumer(Source(address="q", filter=filters)), "f")
        assert refusal(found) == NOT_IMPLEMENTED
    unknown = {Symbol("f1"): Described(Symbol("example:filter"), "x")}
    wished = consumer(Source(address="q", filter=unknown))
    assert terminus(source_of(wished, "f")).address == "q"
    reply = consumer_reply(wished, "q", copies=False)
    assert reply.source is not None
    assert reply.source.filter is None


@pytest.mark.rule("RJ-2")
def test_a_producer_that_lists_outcomes_without_rejected_cannot_be_told() -> None:
    assert can_reject(producer(Target(address="q")))
    assert can_reject(producer(Target(address="q"), Source(outcomes=("amqp:rejected:list",))))
    assert not can_reject(producer(Target(address="q"), Source(outcomes=("amqp:accepted:list",))))


@pytest.mark.rule("B4.2")
def test_the_reply_to_a_producer_mirrors_its_attach() -> None:
    wished = producer(Target(address="q", capabilities=("queue",)), Source(outcomes=OUTCOMES))
    wished.snd_settle_mode, wished.rcv_settle_mode = 1, 1
    reply = producer_reply(wished, "q", 1000)
    assert (reply.name, reply.role) == ("l", True)
    assert (reply.snd_settle_mode, reply.rcv_settle_mode) == (1, 1)
    assert reply.source is wished.source
    assert isinstance(reply.target, Target)
    assert (reply.target.address, reply.target.capabilities) == ("q", ("queue",))
    assert reply.max_message_size == 1000
    assert reply.initial_delivery_count is None


@pytest.mark.rule("B5.3", "B5.7", "D-8")
def test_the_reply_to_a_consumer_says_what_is_granted() -> None:
    wished = consumer(
        Source(address=None, dynamic=True, durable=2, expiry_policy="never", timeout=9)
    )
    reply = consumer_reply(wished, "tmp.x", copies=True)
    source = reply.source
    assert source is not None
    assert (source.address, source.durable, source.timeout) == ("tmp.x", 0, 0)
    assert (source.expiry_policy, source.distribution_mode) == ("link-detach", "copy")
    assert source.outcomes == OUTCOMES
    assert isinstance(source.default_outcome, Released)
    assert reply.initial_delivery_count == 0


@pytest.mark.rule("B5.6")
def test_outcomes_that_a_consumer_lists_are_echoed() -> None:
    listed = ("amqp:accepted:list",)
    reply = consumer_reply(consumer(Source(address="q", outcomes=listed)), "q", copies=False)
    assert reply.source is not None
    assert reply.source.outcomes == listed


@pytest.mark.rule("B4.3", "B5.8")
def test_a_refusal_has_a_null_terminus_of_its_own_side() -> None:
    assert refused_reply(producer(Target(address="q"))).target is None
    refused = refused_reply(consumer(Source(address="q")))
    assert refused.source is None
    assert refused.initial_delivery_count == 0
