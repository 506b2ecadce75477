"""A queue by itself: what it counts, and that its check finds what is wrong."""

from collections.abc import Callable

import pytest

from amqpbroker.base.ids import Millis
from amqpbroker.engine.commands import RELEASED, Outcome, OutcomeKind
from amqpbroker.engine.message import LEASED
from amqpbroker.engine.queue import STALE_MAX, Queue, merge
from amqpbroker.engine.settings import AddressSettings, BrokerSettings
from tests.engine.rig import REJECTED, Rig, kinds, message, taken

NOT_HERE = Outcome(OutcomeKind.MODIFIED, undeliverable_here=True)


@pytest.mark.rule("11", "T-8")
def test_each_way_out_has_its_counter() -> None:
    rig = Rig(BrokerSettings(address=AddressSettings(auto_delete_queues=False)))
    consumer = rig.consumer(credit=3)
    queue = rig.queue()
    rig.publish(rig.producer(), "1", "2", "3", message("4", ttl=1))
    assert (queue.count(), queue.ready, queue.leased) == (4, 1, 3)
    assert queue.bytes == 3 * len(message("1")) + len(message("4", ttl=1))
    rig.settle(consumer, [1])
    rig.settle(consumer, [2], REJECTED)
    rig.move_to(rig.now + 2)
    rig.settle(consumer, [3], RELEASED)
    stats = queue.stats
    assert (stats.added, stats.acknowledged, stats.killed, stats.expired) == (4, 1, 1, 1)
    assert (queue.count(), queue.ready) == (1, 1)
    assert queue.bytes == len(message("3"))


def test_durable_entries_are_counted_with_their_records() -> None:
    rig = Rig()
    consumer = rig.consumer(credit=9)
    rig.publish(rig.producer(), message("1", durable=True), "2", message("3", durable=True))
    rig.stored()
    assert rig.queue().durables == 2
    rig.settle(consumer, [1, 2])
    assert rig.queue().durables == 1


def test_messages_alike_share_their_arrival_over_runs() -> None:
    rig = Rig()
    producer = rig.producer()
    rig.publish(producer, "1", "2")
    rig.publish(producer, "3")
    assert len({entry.arrival for entry in rig.queue().lane.entries()}) == 1
    rig.move_to(rig.now + 1)
    rig.publish(producer, "4")
    assert len({entry.arrival for entry in rig.queue().lane.entries()}) == 2


def test_a_consumer_that_comes_later_gets_what_others_refused_and_left() -> None:
    rig = Rig()
    one = rig.consumer(credit=2)
    rig.publish(rig.producer(), "1", "2")
    rig.settle(one, [1, 2], Outcome(OutcomeKind.MODIFIED, undeliverable_here=True))
    two = rig.consumer()
    assert rig.queue().consumers[two].behind == [1, 2]
    rig.detach(two)
    assert rig.queue().refused.keys() == {1, 2}


def test_what_comes_back_again_and_again_does_not_pile_up_where_nobody_takes_it() -> None:
    rig = Rig()
    one, two = rig.consumer(credit=1), rig.consumer()
    idle = rig.consumer()
    rig.publish(rig.producer(), "m")
    rig.settle(one, [1], NOT_HERE)
    for _ in range(3 * STALE_MAX):
        rig.credit(two, 1)
        rig.settle(two, [1], RELEASED)
    behind = rig.queue_consumer(idle).behind
    assert len(behind) <= STALE_MAX + 2
    assert taken(rig.credit(idle, 1)) == ["m"]
    assert rig.credit(idle, 5) == []


def test_what_was_refused_and_is_taken_by_another_is_not_offered_again() -> None:
    rig = Rig()
    one, two, three = rig.consumer(credit=2), rig.consumer(), rig.consumer()
    rig.publish(rig.producer(), "1", "2")
    rig.settle(one, [1, 2], NOT_HERE)
    assert taken(rig.credit(two, 1)) == ["1"]
    assert taken(rig.credit(three, 9)) == ["2"]


def test_what_was_refused_expires_like_all_else() -> None:
    rig = Rig()
    one, two = rig.consumer(credit=2), rig.consumer()
    rig.publish(rig.producer(), message("1", ttl=5), message("2", ttl=5), "3")
    rig.settle(one, [1], NOT_HERE)
    rig.settle(one, [2], RELEASED)
    rig.now = Millis(rig.now + 6)
    assert taken(rig.credit(two, 9)) == ["3"]
    assert rig.queue().stats.expired == 2


def test_a_drain_waits_for_what_others_refused_while_the_window_is_closed() -> None:
    rig = Rig()
    session = rig.session(frames=0)
    one, two = rig.consumer(credit=1), rig.consumer(session=session)
    rig.publish(rig.producer(), "m")
    rig.settle(one, [1], NOT_HERE)
    assert rig.credit(two, 5, drain=True) == []
    effects = rig.window(session, 5)
    assert kinds(effects) == ["Transfer", "Drained"]


@pytest.mark.rule("D-10")
def test_a_malformed_map_changes_no_annotations() -> None:
    good = b"\xc1\x07\x02\xa3\x01a\xa1\x011"
    assert merge(b"", good) == good
    assert merge(good, b"") == good
    assert merge(good, b"nonsense") == good
    assert merge(b"", b"nonsense") == b""


def leave_a_lease(queue: Queue) -> None:
    next(iter(queue.lane.entries())).state = LEASED


def forget_a_byte(queue: Queue) -> None:
    queue.bytes -= 1


def lose_a_message(queue: Queue) -> None:
    queue.stats.added += 1


def overdraw(queue: Queue) -> None:
    next(iter(queue.consumers.values())).credit = -1


def forget_who_is_willing(queue: Queue) -> None:
    next(iter(queue.consumers.values())).credit = 1


def forget_a_place(queue: Queue) -> None:
    queue.lane.returned.clear()


@pytest.mark.parametrize(
    "harm",
    [
        leave_a_lease,
        forget_a_byte,
        lose_a_message,
        overdraw,
        forget_who_is_willing,
        forget_a_place,
    ],
)
def test_the_check_finds_what_is_wrong(harm: Callable[[Queue], None]) -> None:
    rig = Rig()
    consumer = rig.consumer(credit=1)
    rig.publish(rig.producer(), "1")
    rig.settle(consumer, [1], RELEASED)
    queue = rig.queue()
    queue.check()
    harm(queue)
    with pytest.raises(AssertionError):
        queue.check()
