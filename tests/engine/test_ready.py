"""One arrival order, with its segments, frontier and places that are filled again."""

import random
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqpbroker.base.ids import Millis, Sequence
from amqpbroker.base.sections import Facts
from amqpbroker.engine import ready
from amqpbroker.engine.message import HELD, LEASED, READY, STORING, Arrival, Entry, entries_of
from amqpbroker.engine.ready import Lane

NOW = Millis(100)
EVEN = Arrival(Facts(), NOW, Millis(0))
LAPSED = Arrival(Facts(), NOW, Millis(99))
BLOCK = 1 << ready.SEGMENT_BITS


def filled(count: int, lane: Lane | None = None, *, state: int = READY) -> Lane:
    lane = lane or Lane()
    entries = entries_of(lane.next, [b"x"] * count, EVEN, state)
    lane.append(entries, uneven=False, storing=state == STORING)
    return lane


def take(lane: Lane, count: int) -> list[int]:
    """Lease up to `count`, over as many calls as it needs."""
    found: list[Entry] = []
    while len(found) < count and (more := lane.take(count - len(found), NOW, [])):
        for entry in more:
            entry.state = LEASED
        found += more
    lane.check()
    return [entry.sequence for entry in found]


def give_back(lane: Lane, *sequences: int) -> None:
    for sequence in sequences:
        entry = lane.find(sequence)
        assert entry is not None
        entry.state = READY
    lane.give_back([Sequence(sequence) for sequence in sequences])
    lane.check()


def clear(lane: Lane, *sequences: int) -> None:
    lane.clear([Sequence(sequence) for sequence in sequences])
    lane.check()


def test_entries_are_taken_in_order_over_segments() -> None:
    lane = filled(BLOCK + 500)
    filled(2 * BLOCK, lane)
    assert take(lane, 5000) == list(range(1, 3 * BLOCK + 501))
    assert lane.is_drained()
    assert lane.take(1, NOW, []) == []


def test_a_take_never_spans_two_segments() -> None:
    lane = filled(2 * BLOCK)
    assert len(lane.take(5000, NOW, [])) == BLOCK - 1
    assert len(lane.take(5000, NOW, [])) == BLOCK


@pytest.mark.rule("D-11", "D-12")
@pytest.mark.parametrize("count", [3, ready.INSORT_MAX + 3])
def test_returned_ones_go_first_and_in_order(count: int) -> None:
    lane = filled(50)
    take(lane, 40)
    back = random.Random(1).sample(range(1, 41), count)
    give_back(lane, *back)
    give_back(lane, *{39, 2} - set(back))
    expected = sorted({*back, 39, 2})
    assert take(lane, 100) == [*expected, *range(41, 51)]


def test_what_is_untaken_is_taken_next() -> None:
    lane = filled(10)
    chunk = lane.take(6, NOW, [])
    lane.untake(chunk[2:])
    assert take(lane, 1) == [3]
    give_back(lane, 3)
    for entry in chunk[:2]:
        entry.state = LEASED
    give_back(lane, 1, 2)
    chunk = lane.take(3, NOW, [])
    lane.untake(chunk[1:])
    assert take(lane, 0) == []
    assert [entry.sequence for entry in chunk] == [1, 2, 3]
    assert take(lane, 4) == [2, 3, 4, 5]
    lane.untake([])


def test_nothing_passes_what_is_being_stored() -> None:
    lane = filled(2)
    filled(3, lane, state=STORING)
    filled(2, lane)
    filled(1, lane, state=STORING)
    assert take(lane, 9) == [1, 2]
    assert lane.is_drained()
    for entry in lane.entries():
        if entry.sequence in (3, 4, 5):
            entry.state = READY
    lane.stored(3, 5)
    assert take(lane, 9) == [3, 4, 5, 6, 7]


def test_gaps_and_held_ones_are_passed_over_above_the_frontier() -> None:
    lane = filled(9)
    clear(lane, 2, 3, 9)
    segment = lane._segments[0]
    held = lane.find(5)
    assert held is not None
    held.state = HELD
    assert segment.uneven
    assert take(lane, 3) == [1, 4, 6]
    assert take(lane, 9) == [7, 8]
    assert lane.is_drained()


def test_expired_ones_are_set_aside_wherever_they_are_met() -> None:
    lane = Lane()
    lane.append(entries_of(Sequence(1), [b"x"] * 3, LAPSED, READY), uneven=True, storing=False)
    filled(1, lane)
    lapsed: list[Entry] = []
    assert [entry.sequence for entry in lane.take(9, NOW, lapsed)] == [4]
    assert [entry.sequence for entry in lapsed] == [1, 2, 3]
    lapsed.clear()
    give_back(lane, 1)
    assert lane.take(9, NOW, lapsed) == []
    assert [entry.sequence for entry in lapsed] == [1]


def test_returned_ones_that_are_gone_since_are_passed_over() -> None:
    lane = filled(4)
    take(lane, 4)
    give_back(lane, 1, 2, 3)
    lane.clear([Sequence(2)])
    other = lane.find(3)
    assert other is not None
    other.state = HELD
    assert [entry.sequence for entry in lane.take(9, NOW, [])] == [1]


def test_a_place_is_found_by_sequence() -> None:
    lane = filled(BLOCK + 5)
    clear(lane, 7)
    assert lane.find(7) is None
    assert lane.find(0) is None
    assert lane.find(BLOCK + 6) is None
    assert lane.find(10 * BLOCK) is None
    entry = lane.find(BLOCK + 4)
    assert entry is not None
    assert entry.sequence == BLOCK + 4


def test_a_segment_that_starts_anew_in_its_block_has_no_place_before() -> None:
    lane = filled(5)
    clear(lane, *take(lane, 5))
    filled(2, lane)
    assert lane.find(3) is None
    assert take(lane, 9) == [6, 7]


def test_reading_takes_nothing() -> None:
    lane = filled(BLOCK + 10)
    take(lane, 5)
    clear(lane, *range(6, BLOCK + 3))
    filled(1, lane, state=STORING)
    found, cursor = lane.read(0, 3, NOW)
    assert [entry.sequence for entry in found] == [BLOCK + 3, BLOCK + 4, BLOCK + 5]
    assert cursor == BLOCK + 6
    found, cursor = lane.read(cursor, 99, NOW)
    assert [entry.sequence for entry in found] == list(range(BLOCK + 6, BLOCK + 11))
    assert lane.read(cursor, 99, NOW) == ([], cursor)
    assert lane.frontier == 6


def test_reading_from_beyond_all_that_is_left_ends_at_the_limit() -> None:
    lane = filled(3)
    clear(lane, *take(lane, 3))
    assert lane.read(1, 5, NOW) == ([], 4)


def test_clearing_over_segments_drops_those_that_are_empty() -> None:
    lane = filled(3 * BLOCK)
    take(lane, 3 * BLOCK)
    clear(lane, *range(2, 2 * BLOCK))
    assert list(lane._segments) == [0, 2, 3]
    clear(lane, 1)
    assert list(lane._segments) == [2, 3]


def test_an_old_lease_pins_one_segment_and_no_more() -> None:
    lane = Lane()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    filled(1, lane)
    take(lane, 1)
    for _ in range(300):
        filled(1000, lane)
        lane.clear([Sequence(sequence) for sequence in take_fast(lane, 1000)])
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert next(iter(lane.entries())).sequence == 1
    assert len(lane._segments) <= 2
    assert grown < 40_000


def take_fast(lane: Lane, count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        found += [entry.sequence for entry in lane.take(count - len(found), NOW, [])]
    return found


VERB = st.sampled_from(["add", "add", "take", "take", "untake", "back", "gone"])


@given(st.lists(st.tuples(VERB, st.integers(1, 4), st.randoms(use_true_random=False)), min_size=5))
def test_agrees_with_a_sorted_list(steps: list[tuple[str, int, random.Random]]) -> None:
    """A segment of four, so that everything happens at its edges."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ready, "SEGMENT_BITS", 2)
        lane = Lane()
        waiting: list[int] = []
        leased: list[int] = []
        for verb, count, chance in steps:
            if verb == "add":
                waiting += range(lane.next, lane.next + count)
                filled(count, lane)
            elif verb == "take":
                got = take(lane, count)
                assert got == sorted(waiting)[:count]
                waiting = [each for each in waiting if each not in got]
                leased += got
            elif verb == "untake":
                lane.untake(lane.take(count, NOW, []))
                lane.check()
            elif leased:
                chosen = chance.sample(leased, min(count, len(leased)))
                leased = [each for each in leased if each not in chosen]
                if verb == "back":
                    give_back(lane, *chosen)
                    waiting += chosen
                else:
                    clear(lane, *chosen)
            assert [entry.sequence for entry in lane.entries()] == sorted(waiting + leased)
            assert lane.is_drained() <= (not waiting)
