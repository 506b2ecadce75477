"""Entries, and what of them goes on the wire."""

import gc
import sys

import pytest

from amqpbroker.base import sections
from amqpbroker.base.ids import LinkId, Millis, Sequence
from amqpbroker.engine.message import (
    READY,
    RETURNED,
    Arrival,
    Entry,
    History,
    entries_of,
    expiry_of,
    has_expired,
    outgoing,
)
from tests.engine.rig import header_of, message

NOW = Millis(1000)


def entry(payload: bytes, *, at: int = 1000) -> Entry:
    facts = sections.scan(payload)
    arrival = Arrival(facts, Millis(at), expiry_of(facts, Millis(at)))
    return Entry(1, payload, arrival, READY)


@pytest.mark.rule("B10.1")
def test_a_plain_message_goes_out_as_it_came_the_first_time() -> None:
    first = entry(message("m", durable=True))
    assert outgoing(first, NOW) is first.payload
    first.history = RETURNED
    again = outgoing(first, NOW)
    assert header_of(again) == [True, None, None, None, None]
    assert again.endswith(message("m"))


@pytest.mark.rule("D-4", "B10.4")
def test_failed_deliveries_are_in_the_header() -> None:
    first = entry(message("m"))
    first.history = History(3)
    assert header_of(outgoing(first, NOW))[4] == 3


@pytest.mark.rule("T-6")
@pytest.mark.parametrize(("now", "left"), [(1000, 50), (1049, 1), (1050, 1), (1030, 20)])
def test_the_ttl_is_what_is_left_of_it_and_at_least_one(now: int, left: int) -> None:
    assert header_of(outgoing(entry(message("m", ttl=50)), Millis(now)))[2] == left


@pytest.mark.rule("B10.6", "T-4")
@pytest.mark.parametrize(
    ("payload", "expires"),
    [
        (message(), 0),
        (message(ttl=0), 0),
        (message(ttl=7), 1007),
        (message(absolute_expiry=900), 900),
        (message(ttl=7, absolute_expiry=900), 1007),
    ],
)
def test_when_a_message_expires(payload: bytes, expires: int) -> None:
    assert expiry_of(sections.scan(payload), NOW) == expires


@pytest.mark.rule("T-4")
def test_expiry_is_strictly_after() -> None:
    mortal = entry(message(ttl=5))
    assert not has_expired(mortal, Millis(1005))
    assert has_expired(mortal, Millis(1006))
    assert not has_expired(entry(message()), Millis(1 << 60))


def test_an_entry_is_small_and_names_nothing_that_names_it() -> None:
    (only,) = entries_of(Sequence(1), [b"x"], entry(message()).arrival, READY)
    assert sys.getsizeof(only) <= 72
    named = gc.get_referents(only)
    assert not [each for each in named if only in gc.get_referents(each)]


def test_a_history_says_nothing_by_itself() -> None:
    assert (RETURNED.failures, RETURNED.refusers, RETURNED.annotations) == (0, frozenset(), b"")
    assert LinkId(1) in History(refusers=frozenset({LinkId(1)})).refusers
