"""What an outcome does to a leased entry: the one place. Delivery states are [3.4], the choices rule 9.3.

`received` is absent on purpose: it is a state, not an outcome; it ends nothing.
"""

from enum import Enum
from typing import NamedTuple

from amqpbroker.engine.commands import Outcome, OutcomeKind


class Fate(Enum):
    """Where the entry goes next."""

    GONE = "gone"
    READY = "ready again at its old place"
    DEAD = "to the dead letter address; gone when there is none"


class Rule(NamedTuple):
    """Fate, whether delivery-count rises, whether this link may see the entry again."""

    fate: Fate
    counts: bool
    same_link: bool


ACCEPTED = Rule(Fate.GONE, counts=False, same_link=False)
REJECTED = Rule(Fate.DEAD, counts=False, same_link=False)
RELEASED = Rule(Fate.READY, counts=False, same_link=True)
# Detach, session end, Close: what was prefetched and never looked at is no failed delivery.
LINK_CLOSED = RELEASED
# Our choice, not the spec's: the consumer may have died of this message, so it counts; otherwise a
# message that kills every consumer would never reach the queue's delivery limit.
LINK_LOST = Rule(Fate.READY, counts=True, same_link=True)


def rule_of(outcome: Outcome) -> Rule:
    """The rule for what a consumer said. modified: "MUST NOT be redelivered" here when it says so [3.4.5]."""
    match outcome.kind:
        case OutcomeKind.ACCEPTED:
            return ACCEPTED
        case OutcomeKind.REJECTED:
            return REJECTED
        case OutcomeKind.RELEASED:
            return RELEASED
        case OutcomeKind.MODIFIED:
            return Rule(Fate.READY, outcome.failed, not outcome.undeliverable_here)
