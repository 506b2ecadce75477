"""Runs that expire, and entries that do."""

import pytest

from amqpbroker.base.ids import Millis, Sequence
from amqpbroker.engine import lifecycle
from amqpbroker.engine.commands import RELEASED, Credit
from amqpbroker.engine.effects import Transfer
from amqpbroker.engine.expiry import STALE_MIN, Expiry
from tests.engine.rig import Rig, header_of, message, of, taken, the


@pytest.mark.rule("T-4")
def test_an_entry_expires_strictly_after_its_time() -> None:
    rig = Rig()
    rig.publish(rig.producer(), message("m", ttl=5), message("never", ttl=0))
    assert rig.broker.next_deadline() == rig.now + 6
    rig.move_to(rig.now + 5)
    assert rig.queue().ready == 2
    rig.move_to(rig.now + 1)
    assert (rig.queue().ready, rig.queue().stats.expired) == (1, 1)
    assert rig.broker.next_deadline() is None


@pytest.mark.rule("T-5")
def test_an_expired_entry_is_not_delivered_even_before_the_sweep() -> None:
    rig = Rig()
    consumer = rig.consumer()
    rig.publish(rig.producer(), message("old", ttl=5), "new")
    rig.now = Millis(rig.now + 6)
    rig.broker.apply(Credit(consumer, 9, drain=True), rig.now)
    assert taken(rig.broker.take_effects()) == ["new"]
    assert rig.queue().stats.expired == 1


@pytest.mark.rule("T-5")
def test_a_leased_entry_does_not_expire_until_it_comes_back() -> None:
    rig = Rig()
    consumer = rig.consumer(credit=2)
    rig.publish(rig.producer(), message("1", ttl=5), message("2", ttl=5))
    rig.move_to(rig.now + 10)
    assert rig.queue().leased == 2
    rig.settle(consumer, [1])
    assert taken(rig.settle(consumer, [2], RELEASED)) == []
    assert (rig.queue().stats.acknowledged, rig.queue().stats.expired) == (1, 1)


@pytest.mark.rule("T-6", "B10.4")
def test_the_consumer_is_told_the_time_left() -> None:
    rig = Rig()
    consumer = rig.consumer()
    rig.publish(rig.producer(), message("m", ttl=50), message("n", absolute_expiry=rig.now + 40))
    rig.move_to(rig.now + 30)
    payloads = the(rig.credit(consumer, 2), Transfer).payloads
    assert [header_of(payload)[2] for payload in payloads] == [20, 10]
    rig.now = Millis(rig.now + 10)
    rig.settle(consumer, [2], RELEASED)
    (payload,) = the(rig.credit(consumer, 1), Transfer).payloads
    assert header_of(payload)[2] == 1


@pytest.mark.rule("T-7")
def test_a_browser_does_not_get_what_has_expired_and_does_not_remove_it() -> None:
    rig = Rig()
    rig.publish(rig.producer(), message("old", ttl=5), "new")
    browser = rig.consumer(copies=True)
    rig.now = Millis(rig.now + 6)
    rig.broker.apply(Credit(browser, 9, drain=True), rig.now)
    assert taken(rig.broker.take_effects()) == ["new"]
    assert rig.queue().count() == 2
    rig.turn()
    assert rig.queue().count() == 1


def test_a_durable_entry_that_expires_while_it_is_stored_is_answered_and_gone() -> None:
    rig = Rig()
    rig.consumer(credit=1)
    rig.publish(rig.producer(), message("m", durable=True, ttl=5))
    rig.move_to(rig.now + 10)
    assert rig.queue().storing == 1
    assert taken(rig.stored()) == []
    assert rig.queue().stats.expired == 1


def test_what_expired_while_it_was_stored_is_not_left_lying() -> None:
    rig = Rig()
    rig.publish(rig.producer(), message("m", durable=True, ttl=5))
    rig.move_to(rig.now + 10)
    rig.stored()
    assert not rig.has_queue()


def test_entries_that_expire_in_the_middle_leave_no_gap_in_the_order() -> None:
    rig = Rig()
    producer = rig.producer()
    rig.publish(producer, "1", message("x", ttl=1), "2")
    rig.publish(producer, *"345")
    rig.move_to(rig.now + 2)
    consumer = rig.consumer()
    assert taken(rig.credit(consumer, 9)) == ["1", "2", "3", "4", "5"]


def test_a_sweep_is_cut_into_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "SWEEP_MAX", 2)
    rig = Rig()
    producer = rig.producer()
    for text in "abcde":
        rig.publish(producer, message(text, ttl=5))
    left = []
    rig.move_to(rig.now + 10)
    while rig.has_queue():
        left.append(rig.queue().count())
        rig.move_to(rig.now + 1)
    assert left == [3, 1]


def test_messages_of_one_turn_with_one_ttl_are_one_item() -> None:
    rig = Rig()
    rig.publish(rig.producer(), *[message("m", ttl=5)] * 100)
    assert len(rig.queue().expiry) == 1


def test_items_of_entries_that_are_gone_do_not_pile_up() -> None:
    rig = Rig()
    producer = rig.producer()
    consumer = rig.consumer(credit=1)
    queue = rig.queue()
    for number in range(1, STALE_MIN + 50):
        effects = rig.do(
            rig.publishing(producer, message("m", ttl=1_000_000)), Credit(consumer, 1, drain=False)
        )
        assert len(of(effects, Transfer)) == 1
        rig.settle(consumer, [number])
    assert len(queue.expiry) <= STALE_MIN + 1


def test_runs_are_due_by_expiry_and_pruning_keeps_what_is_there() -> None:
    expiry = Expiry()
    for number in range(STALE_MIN + 2):
        expiry.add(Millis(100 + number), Sequence(number), Sequence(number))
    expiry.add(Millis(50), Sequence(7000), Sequence(7002))
    assert expiry.next() == 51
    expiry.prune(0, lambda sequence: sequence == 7002 or sequence == 3)
    assert len(expiry) == 2
    assert expiry.due(Millis(50)) is None
    assert expiry.due(Millis(51)) == range(7000, 7003)
    assert expiry.due(Millis(1000)) == range(3, 4)
    assert expiry.due(Millis(1000)) is None
    assert expiry.next() is None
