"""Rule 9.3, our column, line by line."""

import pytest

from amqpbroker.engine.commands import ACCEPTED, RELEASED, Outcome, OutcomeKind
from amqpbroker.engine.outcome import LINK_CLOSED, LINK_LOST, Fate, Rule, rule_of


def modified(*, failed: bool = False, undeliverable_here: bool = False) -> Outcome:
    return Outcome(OutcomeKind.MODIFIED, failed=failed, undeliverable_here=undeliverable_here)


@pytest.mark.rule("9.3", "B8.1", "B8.2", "B8.3", "B8.4", "B8.6")
@pytest.mark.parametrize(
    ("outcome", "fate", "counts", "same_link"),
    [
        (ACCEPTED, Fate.GONE, False, False),
        (RELEASED, Fate.READY, False, True),
        (modified(), Fate.READY, False, True),
        (modified(failed=True), Fate.READY, True, True),
        (modified(undeliverable_here=True), Fate.READY, False, False),
        (modified(failed=True, undeliverable_here=True), Fate.READY, True, False),
        (Outcome(OutcomeKind.REJECTED), Fate.DEAD, False, False),
    ],
)
def test_what_a_consumer_says(outcome: Outcome, fate: Fate, counts: bool, same_link: bool) -> None:
    assert rule_of(outcome) == Rule(fate, counts, same_link)


@pytest.mark.rule("9.3", "D-33", "B8.9")
def test_what_the_end_of_a_link_says() -> None:
    assert Rule(Fate.READY, counts=False, same_link=True) == LINK_CLOSED
    assert Rule(Fate.READY, counts=True, same_link=True) == LINK_LOST
