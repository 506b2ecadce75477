"""Messages in: what is answered, when, and how."""

import pytest

from amqpbroker.base import errors
from amqpbroker.engine.effects import Dispose, ForceDetach, Grant, ProducerAttached
from amqpbroker.engine.settings import AddressSettings, BrokerSettings, DeclaredAddress
from tests.engine.rig import Rig, answers, kinds, message, of, taken, the

MALFORMED = b"\x00\x53\x77"


def test_a_run_of_transient_messages_has_one_answer() -> None:
    rig = Rig()
    producer = rig.producer()
    payloads = [message("a"), message("b", ttl=5), message("c", count=3), message("d")]
    assert answers(rig.publish(producer, *payloads)) == [(0, 4, "accepted")]
    assert answers(rig.publish(producer, "e")) == [(4, 1, "accepted")]


@pytest.mark.rule("B4.11")
def test_presettled_messages_are_answered_to_the_peer_all_the_same() -> None:
    rig = Rig()
    producer = rig.producer()
    durable = message("b", durable=True)
    assert answers(rig.publish(producer, "a", durable, settled=True)) == [(0, 1, "accepted")]
    assert answers(rig.stored()) == [(1, 1, "accepted")]


@pytest.mark.rule("B4.9")
def test_durable_messages_are_answered_when_stored_in_runs() -> None:
    rig = Rig()
    connection = rig.connection()
    producer = rig.producer(session=rig.session(connection))
    payloads = [message(text, durable=True) for text in "abc"]
    rig.publish(producer, *payloads[:2])
    rig.publish(producer, *payloads[2:])
    rig.detach(producer)
    assert rig.broker.unstored_bytes(connection) == sum(map(len, payloads))
    answer = the(rig.stored(), Dispose)
    assert (answer.first, answer.count) == (0, 3)
    assert rig.broker.unstored_bytes(connection) == 0


@pytest.mark.rule("B4.17")
def test_durable_and_transient_keep_one_order() -> None:
    rig = Rig()
    producer = rig.producer()
    rig.consumer(credit=9)
    effects = rig.publish(producer, message("a", durable=True), "b")
    assert taken(effects) == []
    effects = rig.publish(producer, message("c", durable=True), "d")
    assert taken(effects) == []
    assert taken(rig.stored()) == ["a", "b", "c", "d"]


@pytest.mark.rule("B4.16")
def test_messages_of_a_link_that_is_gone_are_stored_and_answered() -> None:
    rig = Rig()
    producer = rig.producer()
    rig.publish(producer, message("a", durable=True))
    rig.detach(producer)
    assert answers(rig.stored()) == [(0, 1, "accepted")]
    assert rig.queue().ready == 1


# --- faults -----------------------------------------------------------------------------------------------------


@pytest.mark.rule("B10.2")
def test_a_malformed_message_is_rejected_and_the_others_are_not() -> None:
    rig = Rig()
    producer = rig.producer()
    effects = rig.publish(producer, "a", MALFORMED, "b")
    assert answers(effects) == [(0, 1, "accepted"), (1, 1, "rejected"), (2, 1, "accepted")]
    refusal = of(effects, Dispose)[1].outcome.refusal
    assert refusal is not None
    assert refusal.condition == errors.DECODE_ERROR
    assert rig.queue().stats.added == 2


@pytest.mark.rule("RJ-2", "RJ-3", "B11")
@pytest.mark.parametrize(("settled", "can_reject"), [(True, True), (False, False)])
def test_a_failure_that_no_outcome_can_tell_detaches_the_link(
    settled: bool, can_reject: bool
) -> None:
    rig = Rig()
    producer = rig.producer(can_reject=can_reject)
    effects = rig.publish(producer, "a", MALFORMED, "b", settled=settled)
    assert kinds(effects) == ["Dispose", "ForceDetach"]
    detach = the(effects, ForceDetach)
    assert (detach.link, detach.number) == (producer, 1)
    assert detach.refusal.condition == errors.DECODE_ERROR
    assert rig.publish(producer, "c") == []
    assert rig.queue().ready == 1


# --- the anonymous terminus -------------------------------------------------------------------------------------


@pytest.mark.rule("B4.6", "AD-9")
def test_each_message_to_the_anonymous_terminus_says_where_it_goes() -> None:
    rig = Rig()
    producer, effects = rig.attach_producer(None)
    assert the(effects, ProducerAttached).address is None
    payloads = [message(text, to=to) for text, to in [("1", "a"), ("2", "a"), ("3", "b")]]
    assert answers(rig.publish(producer, *payloads)) == [(0, 3, "accepted")]
    assert taken(rig.credit(rig.consumer("a"), 9)) == ["1", "2"]
    assert taken(rig.credit(rig.consumer("b"), 9)) == ["3"]


@pytest.mark.rule("B4.7", "AD-9", "B11")
def test_a_message_without_a_destination_is_rejected_and_the_link_lives() -> None:
    rig = Rig()
    producer = rig.producer(None)
    effects = rig.publish(producer, "lost", message("ok", to="a"), MALFORMED)
    assert answers(effects) == [(0, 1, "rejected"), (1, 1, "accepted"), (2, 1, "rejected")]
    conditions = [each.outcome.refusal for each in of(effects, Dispose) if each.outcome.refusal]
    assert [each.condition for each in conditions] == [errors.INVALID_FIELD, errors.DECODE_ERROR]


@pytest.mark.rule("B4.7", "B11")
@pytest.mark.parametrize(
    ("settled", "can_reject", "expected"),
    [
        (False, True, "rejected"),
        (False, False, "detached"),
        (True, True, "detached"),
    ],
)
def test_an_unknown_destination_is_told_as_the_table_says(
    settled: bool, can_reject: bool, expected: str
) -> None:
    known = (DeclaredAddress("known"),)
    off = AddressSettings(auto_create_addresses=False)
    rig = Rig(BrokerSettings(addresses=known, address=off))
    producer = rig.producer(None, can_reject=can_reject)
    payloads = [message("1", to="known"), message("2", to="unknown")]
    effects = rig.publish(producer, *payloads, settled=settled)
    if expected == "rejected":
        assert answers(effects) == [(0, 1, "accepted"), (1, 1, "rejected")]
        refusal = of(effects, Dispose)[1].outcome.refusal
    else:
        detach = the(effects, ForceDetach)
        assert detach.number == 1
        refusal = detach.refusal
    assert refusal is not None
    assert refusal.condition == errors.NOT_FOUND


# --- expiry -----------------------------------------------------------------------------------------------------


@pytest.mark.rule("B10.6")
def test_a_message_that_has_expired_already_is_accepted_and_counted() -> None:
    rig = Rig()
    rig.consumer(credit=9)
    past = message("old", absolute_expiry=rig.now - 1)
    effects = rig.publish(rig.producer(), past, message("new", absolute_expiry=rig.now))
    assert answers(effects) == [(0, 2, "accepted")]
    assert taken(effects) == ["new"]
    assert (rig.queue().stats.added, rig.queue().stats.expired) == (2, 1)


@pytest.mark.rule("B10.6")
def test_the_ttl_goes_before_the_absolute_expiry_time() -> None:
    rig = Rig()
    rig.publish(rig.producer(), message("m", ttl=10, absolute_expiry=rig.now - 5))
    assert rig.queue().ready == 1
    rig.move_to(rig.now + 11)
    assert not rig.has_queue()


def test_a_durable_message_that_has_expired_already_is_not_stored() -> None:
    rig = Rig()
    past = message("old", durable=True, absolute_expiry=1)
    assert answers(rig.publish(rig.producer(), past)) == [(0, 1, "accepted")]
    assert rig.records == []


# --- credit -----------------------------------------------------------------------------------------------------


@pytest.mark.rule("AF-3", "B4.8")
def test_credit_is_topped_up_at_the_low_mark() -> None:
    rig = Rig(credit=10, credit_low=3)
    producer, effects = rig.attach_producer()
    assert the(effects, Grant).credit == 10
    assert of(rig.publish(producer, *"abcdef"), Grant) == []
    assert the(rig.publish(producer, "g"), Grant).credit == 7


def test_credit_for_durable_messages_comes_back_when_they_are_stored() -> None:
    """Bug case 15: credit given on receipt lets a fast sender fill memory."""
    rig = Rig(credit=10, credit_low=3)
    producer = rig.producer()
    durable = [message("m", durable=True)] * 10
    assert of(rig.publish(producer, *durable), Grant) == []
    effects = rig.stored()
    assert kinds(effects) == ["Dispose", "Grant"]
    assert the(effects, Grant).credit == 10


def test_credit_while_some_is_unstored_leaves_room_for_it() -> None:
    rig = Rig(credit=10, credit_low=3)
    producer = rig.producer()
    rig.publish(producer, *[message("m", durable=True)] * 4)
    assert the(rig.publish(producer, *"abc"), Grant).credit == 3


@pytest.mark.rule("B4.13")
def test_deliveries_that_bring_no_message_give_their_credit_back() -> None:
    rig = Rig(credit=10, credit_low=3)
    producer = rig.producer()
    assert rig.unpublished(producer, 6) == []
    assert the(rig.unpublished(producer, 1), Grant).credit == 7


def test_rejected_messages_give_their_credit_back() -> None:
    rig = Rig(credit=2, credit_low=1)
    assert the(rig.publish(rig.producer(), MALFORMED), Grant).credit == 1


def test_a_link_that_brings_nothing_changes_nothing() -> None:
    rig = Rig()
    assert rig.publish(rig.producer()) == []
