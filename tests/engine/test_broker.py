"""Whole commands in, whole effects out."""

import sys

import pytest

from amqpbroker.base import errors
from amqpbroker.engine.commands import (
    ACCEPTED,
    RELEASED,
    Credit,
    Detach,
    Outcome,
    OutcomeKind,
    Publish,
    Settle,
    Unpublished,
)
from amqpbroker.engine.effects import (
    AttachRefused,
    ConsumerAttached,
    ForceDetach,
    Grant,
    ProducerAttached,
    Transfer,
)
from amqpbroker.engine.records import Delete, Meta, Put, Update
from tests.engine.rig import (
    REJECTED,
    Rig,
    answers,
    header_of,
    kinds,
    message,
    of,
    taken,
    the,
)

FAILED = Outcome(OutcomeKind.MODIFIED, failed=True)
NOT_HERE = Outcome(OutcomeKind.MODIFIED, undeliverable_here=True)


def test_attach_publish_credit_dispatch_settle_detach() -> None:
    rig = Rig()
    producer, attached = rig.attach_producer("q")
    assert kinds(attached) == ["ProducerAttached", "Grant"]
    assert the(attached, ProducerAttached).address == "q"
    assert the(attached, Grant).credit == 1000
    consumer, attached = rig.attach_consumer("q")
    assert kinds(attached) == ["ConsumerAttached"]
    assert the(attached, ConsumerAttached).address == "q"
    assert not the(attached, ConsumerAttached).copies
    assert rig.credit(consumer, 10) == []

    effects = rig.publish(producer, "one", "two")
    assert kinds(effects) == ["Dispose", "Transfer"]
    assert answers(effects) == [(0, 2, "accepted")]
    transfer = the(effects, Transfer)
    assert transfer.link == consumer
    assert transfer.sequences == [1, 2]
    assert transfer.payloads == [message("one"), message("two")]
    assert not transfer.settled

    assert rig.settle(consumer, [1, 2]) == []
    assert rig.detach(consumer) == []
    assert not rig.has_queue()


@pytest.mark.rule("D-11", "B8.9")
def test_what_a_closed_consumer_held_comes_first_and_in_order() -> None:
    rig = Rig()
    producer = rig.producer()
    first = rig.consumer(credit=3)
    rig.publish(producer, "1", "2", "3", "4", "5")
    rig.detach(first)
    second = rig.consumer()
    assert taken(rig.credit(second, 9)) == ["1", "2", "3", "4", "5"]


@pytest.mark.rule("D-12", "B8.2", "B8.12")
def test_released_entries_return_by_arrival_not_by_release() -> None:
    rig = Rig()
    producer = rig.producer()
    consumer = rig.consumer(credit=3)
    rig.publish(producer, "1", "2", "3", "4")
    rig.settle(consumer, [3], RELEASED)
    rig.settle(consumer, [1], RELEASED)
    assert taken(rig.credit(consumer, 9)) == ["1", "3", "4"]


@pytest.mark.rule("Q-1")
def test_a_released_entry_is_the_next_one_again() -> None:
    rig = Rig()
    producer = rig.producer()
    consumer = rig.consumer(credit=1)
    rig.publish(producer, "A", "B", "C")
    rig.settle(consumer, [1], RELEASED)
    assert taken(rig.credit(consumer, 2)) == ["A", "B"]


@pytest.mark.rule("D-4", "B8.3", "B8.8")
def test_only_a_failed_delivery_raises_the_count_on_the_wire() -> None:
    rig = Rig()
    producer = rig.producer()
    consumer = rig.consumer(credit=1)
    rig.publish(producer, "m")
    counts = []
    for outcome in (RELEASED, Outcome(OutcomeKind.MODIFIED), FAILED, FAILED, RELEASED):
        rig.settle(consumer, [1], outcome)
        (payload,) = the(rig.credit(consumer, 1), Transfer).payloads
        counts.append(header_of(payload)[4])
    assert counts == [None, None, 1, 2, 2]


@pytest.mark.rule("D-4")
def test_a_senders_own_delivery_count_does_not_leak() -> None:
    rig = Rig()
    consumer = rig.consumer(credit=1)
    effects = rig.publish(rig.producer(), message("m", count=7))
    assert header_of(the(effects, Transfer).payloads[0])[4] is None
    assert taken(effects, consumer) == ["m"]


@pytest.mark.rule("9.3", "B8.9")
@pytest.mark.parametrize(("clean", "count"), [(True, None), (False, 1)])
def test_a_lost_connection_counts_and_a_clean_close_does_not(clean: bool, count: object) -> None:
    rig = Rig()
    connection = rig.connection()
    rig.consumer(session=rig.session(connection), credit=1)
    rig.publish(rig.producer(), "m")
    rig.close(connection, clean=clean)
    other = rig.consumer()
    (payload,) = the(rig.credit(other, 1), Transfer).payloads
    assert header_of(payload)[4] == count


@pytest.mark.rule("9.3", "B3.5")
@pytest.mark.parametrize("how", ["detach", "close", "session"])
def test_the_end_of_a_link_or_session_counts_nothing(how: str) -> None:
    rig = Rig()
    session = rig.session()
    consumer = rig.consumer(session=session, credit=1)
    rig.publish(rig.producer(), "m")
    if how == "session":
        rig.close_session(session)
    else:
        rig.detach(consumer, closed=how == "close")
    (payload,) = the(rig.credit(rig.consumer(), 1), Transfer).payloads
    assert header_of(payload)[4] is None


@pytest.mark.rule("9.3", "D-17")
def test_a_rejected_entry_is_killed() -> None:
    rig = Rig()
    consumer = rig.consumer(credit=1)
    rig.publish(rig.producer(), "m")
    rig.settle(consumer, [1], REJECTED)
    assert (rig.queue().stats.killed, rig.queue().stats.acknowledged) == (1, 0)
    assert rig.queue().count() == 0


@pytest.mark.rule("9.3", "B8.10")
def test_a_settled_consumer_holds_nothing() -> None:
    rig = Rig()
    consumer = rig.consumer(settled=True, credit=5)
    effects = rig.publish(rig.producer(), "1", "2")
    assert the(effects, Transfer).settled
    assert rig.queue().stats.acknowledged == 2
    rig.settle(consumer, [1], RELEASED)
    rig.detach(consumer)
    assert not rig.has_queue()


@pytest.mark.rule("B8.1", "B5.17")
def test_outcomes_for_what_is_settled_or_was_never_sent_are_ignored() -> None:
    rig = Rig()
    consumer = rig.consumer(credit=5)
    rig.publish(rig.producer(), "1", "2", "3")
    rig.settle(consumer, [2, 2, 99, 1])
    rig.settle(consumer, [2], RELEASED)
    assert (rig.queue().leased, rig.queue().ready) == (1, 0)


@pytest.mark.rule("B8.4", "9.3")
def test_undeliverable_here_goes_to_the_others_and_stays_when_all_refuse() -> None:
    rig = Rig()
    one = rig.consumer(credit=1)
    two = rig.consumer()
    rig.publish(rig.producer(), "m", "n")
    rig.settle(one, [1], NOT_HERE)
    assert taken(rig.credit(one, 1)) == ["n"]
    assert taken(rig.credit(two, 1)) == ["m"]
    rig.settle(two, [1], NOT_HERE)
    assert rig.credit(one, 5) == rig.credit(two, 5) == []
    assert rig.queue().ready == 1
    three = rig.consumer()
    assert taken(rig.credit(three, 5)) == ["m"]


@pytest.mark.rule("B8.4", "B8.12")
def test_what_others_refused_goes_out_in_order_of_arrival() -> None:
    rig = Rig()
    one = rig.consumer(credit=4)
    two = rig.consumer()
    rig.publish(rig.producer(), "1", "2", "3", "4")
    rig.settle(one, [1, 3], NOT_HERE)
    rig.settle(one, [2], RELEASED)
    assert taken(rig.credit(two, 9)) == ["1", "2", "3"]


@pytest.mark.rule("B8.4", "D-12")
def test_what_is_refused_later_may_be_older() -> None:
    rig = Rig()
    one = rig.consumer(credit=3)
    two = rig.consumer()
    rig.publish(rig.producer(), "1", "2", "3")
    for sequence in (3, 2, 1):
        rig.settle(one, [sequence], NOT_HERE)
    assert taken(rig.credit(two, 1)) == ["1"]
    assert taken(rig.credit(two, 2)) == ["2", "3"]


@pytest.mark.rule("D-10", "B8.5")
def test_annotations_of_modified_are_merged_and_kept() -> None:
    rig = Rig()
    producer = rig.producer()
    consumer = rig.consumer(credit=1)
    rig.publish(producer, message("m", durable=True))
    rig.stored()
    one = b"\xc1\x07\x02\xa3\x01a\xa1\x011"
    two = b"\xc1\x0d\x04\xa3\x01a\xa1\x012\xa3\x01b\xa1\x013"
    for outcome in (one, two):
        rig.settle(consumer, [1], Outcome(OutcomeKind.MODIFIED, annotations=outcome))
        effects = rig.credit(consumer, 1)
    (payload,) = the(effects, Transfer).payloads
    assert b"\x00\x53\x72\xc1\x0d\x04\xa3\x01a\xa1\x012\xa3\x01b\xa1\x013" in payload
    updates = [record for record in rig.records if isinstance(record, Update)]
    assert [update.annotations for update in updates] == [one, two]


@pytest.mark.rule("D-30")
def test_the_count_of_a_durable_entry_is_written_when_it_comes_back() -> None:
    rig = Rig()
    consumer = rig.consumer(credit=1)
    rig.publish(rig.producer(), message("m", durable=True))
    rig.stored()
    rig.settle(consumer, [1], FAILED)
    rig.credit(consumer, 1)
    rig.settle(consumer, [1], ACCEPTED)
    rig.turn()
    meta, number, put, update, delete = rig.records
    assert isinstance(meta, Meta)
    assert meta.value == b'[1,{"address":"q","name":"q"}]'
    assert isinstance(number, Meta)
    assert number.value == b"[1,2]"
    assert isinstance(put, Put)
    assert (put.sequence, put.arrived, put.expires, put.durable) == (1, rig.now, 0, True)
    assert isinstance(update, Update)
    assert (update.sequence, update.failures, update.due) == (1, 1, 0)
    assert isinstance(delete, Delete)
    assert delete.sequence == 1


@pytest.mark.rule("GR-4")
def test_all_leases_of_a_connection_are_back_before_anything_is_offered() -> None:
    rig = Rig()
    connection = rig.connection()
    for _ in range(2):
        rig.consumer(session=rig.session(connection), credit=2)
    other = rig.consumer()
    rig.publish(rig.producer(), "1", "2", "3", "4", "5")
    rig.credit(other, 1)
    rig.settle(other, [5], RELEASED)
    rig.do(Credit(other, 9, drain=False))
    assert rig.queue().ready == 0
    rig.detach(other)
    waiting = rig.consumer(credit=9)
    assert taken(rig.close(connection), waiting) == ["1", "2", "3", "4"]


@pytest.mark.rule("B13.1")
def test_a_second_link_of_the_same_name_takes_over() -> None:
    rig = Rig()
    connection = rig.connection("me")
    old = rig.consumer(session=rig.session(connection), name="x", credit=1)
    rig.publish(rig.producer(session=rig.session(rig.connection("me")), name="x"), "m")
    new, effects = rig.attach_consumer(session=rig.session(connection), name="x")
    assert kinds(effects) == ["ForceDetach", "ConsumerAttached"]
    assert the(effects, ForceDetach).link == old
    assert the(effects, ForceDetach).refusal.condition == errors.STOLEN
    assert rig.settle(old, [1]) == []
    assert taken(rig.credit(new, 1)) == ["m"]


@pytest.mark.rule("B13.1")
def test_a_stolen_producers_address_goes_when_nothing_keeps_it() -> None:
    rig = Rig()
    connection = rig.connection("me")
    old = rig.producer("old", session=rig.session(connection), name="x")
    rig.detach(rig.consumer("old"))
    new, effects = rig.attach_producer("new", session=rig.session(connection), name="x")
    assert kinds(effects) == ["ForceDetach", "ProducerAttached", "Grant"]
    assert the(effects, ForceDetach).link == old
    assert [address.name for address in rig.broker._routing] == ["new"]
    assert rig.publish(old, "m") == []
    assert answers(rig.publish(new, "m")) == [(0, 1, "accepted")]


@pytest.mark.rule("B13.1")
def test_a_refused_attach_steals_nothing() -> None:
    rig = Rig()
    connection = rig.connection("me")
    old = rig.consumer(session=rig.session(connection), name="x")
    _, effects = rig.attach_consumer("", session=rig.session(connection), name="x")
    assert kinds(effects) == ["AttachRefused"]
    assert taken(rig.publish(rig.producer(), "m")) == []
    assert taken(rig.credit(old, 1)) == ["m"]


@pytest.mark.rule("B7.6")
def test_a_consumer_without_a_source_finds_no_subscription() -> None:
    _, effects = Rig().attach_consumer(None)
    assert the(effects, AttachRefused).refusal.condition == errors.NOT_FOUND


@pytest.mark.rule("B8.14", "B13.4")
def test_what_comes_for_a_link_that_is_gone_is_ignored() -> None:
    rig = Rig()
    producer = rig.producer()
    consumer = rig.consumer(credit=1)
    rig.publish(producer, "m")
    late: list[Publish | Settle | Credit | Unpublished | Detach] = [
        rig.publishing(producer, "late"),
        Settle(consumer, ACCEPTED, []),
        Credit(consumer, 5, drain=True),
        Unpublished(producer, 1),
        Detach(producer, closed=True),
        Detach(consumer, closed=True),
    ]
    rig.detach(producer)
    rig.detach(consumer)
    assert rig.do(*late) == []
    assert rig.queue().ready == 1


def test_sessions_and_connections_that_are_gone_are_ignored() -> None:
    rig = Rig()
    connection = rig.connection()
    session = rig.session(connection)
    rig.close(connection)
    assert rig.close(connection) == []
    assert rig.close_session(session) == []
    assert rig.window(session, 5) == []
    assert rig.room(connection, 5) == []


def test_the_answer_of_a_durable_message_waits_for_the_store() -> None:
    rig = Rig()
    producer = rig.producer()
    rig.consumer(credit=9)
    payload = message("durable", durable=True)
    effects = rig.publish(producer, "before", payload, "after")
    assert answers(effects) == [(0, 1, "accepted"), (2, 1, "accepted")]
    assert taken(effects) == ["before"]
    effects = rig.stored()
    assert kinds(effects) == ["Dispose", "Transfer"]
    assert answers(effects) == [(1, 1, "accepted")]
    assert of(effects, Transfer)[0].payloads[0] == payload
    assert taken(effects) == ["durable", "after"]


def work(rig: Rig, producer: int, consumer: int) -> int:
    """Calls, of Python and of C, that one message takes from Publish to its end."""
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    publish = rig.publishing(producer, "m")  # type: ignore[arg-type]
    broker = rig.broker
    sys.setprofile(count)
    broker.apply(Credit(consumer, 1, drain=False), rig.now)  # type: ignore[arg-type]
    broker.apply(publish, rig.now)
    broker.dispatch(rig.now)
    effects = broker.take_effects()
    (transfer,) = of(effects, Transfer)
    broker.apply(Settle(transfer.link, ACCEPTED, transfer.sequences), rig.now)
    broker.dispatch(rig.now)
    broker.tick(rig.now)
    broker.close_batch()
    sys.setprofile(None)
    assert transfer.link == consumer or len(rig.queue().consumers) > 1
    return calls


@pytest.mark.parametrize("much", ["queues", "connections", "consumers", "depth"])
def test_what_a_message_costs_does_not_grow_with(much: str) -> None:
    costs = []
    for size in (2, 60):
        rig = Rig()
        producer = rig.producer()
        consumer = rig.consumer()
        for number in range(size):
            if much == "queues":
                rig.publish(rig.producer(f"other {number}"), "m")
            elif much == "connections":
                rig.consumer("elsewhere", credit=5)
            elif much == "consumers":
                rig.consumer(credit=5 * (number % 2))
            else:
                rig.publish(producer, *["deep"] * 100)
        work(rig, producer, consumer)
        costs.append(work(rig, producer, consumer))
    # Five entries are taken where there was one; a hundred times the depth is the same.
    if much == "depth":
        assert costs[1] <= costs[0] + 5
    else:
        assert costs[0] == costs[1]
