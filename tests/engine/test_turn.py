"""What a turn collects."""

import pytest

from amqpbroker.base.ids import LinkId, Number
from amqpbroker.engine.commands import Outcome, OutcomeKind
from amqpbroker.engine.effects import Append, Dispose
from amqpbroker.engine.records import Meta
from amqpbroker.engine.turn import Turn

ONE, OTHER = LinkId(1), LinkId(2)


def found(turn: Turn) -> list[tuple[int, int, int]]:
    effects = turn.take_effects()
    return [(each.link, each.first, each.count) for each in effects if isinstance(each, Dispose)]


@pytest.mark.rule("B4.9")
def test_answers_that_touch_become_one() -> None:
    turn = Turn()
    turn.accept(ONE, Number(0), 2)
    turn.accept(ONE, Number(2), 3)
    assert found(turn) == [(1, 0, 5)]
    assert found(turn) == []


def test_answers_that_differ_stay_apart() -> None:
    turn = Turn()
    rejected = Outcome(OutcomeKind.REJECTED)
    turn.accept(ONE, Number(0), 1)
    turn.dispose(ONE, Number(1), 1, rejected)
    turn.accept(ONE, Number(2), 1)
    turn.accept(ONE, Number(4), 1)
    turn.accept(OTHER, Number(5), 1)
    assert len(found(turn)) == 5


def test_the_records_of_a_turn_are_handed_over_once() -> None:
    turn = Turn()
    turn.close_batch()
    turn.journal.records.append(Meta("a", b"1"))
    turn.close_batch()
    turn.close_batch()
    (append,) = turn.take_effects()
    assert isinstance(append, Append)
    assert append.batch.number == 1
    assert [number for number, _ in turn.pending] == [1]
