"""One arrival order: which entry is offered next. Must not know consumers, credit or why an entry came back.

A lane is a series of segments of consecutive sequences. Above the *frontier* nothing was offered yet; entries that
came back below it wait in `returned` and go first. The common path, a run from an even segment, is one slice.

A segment is dropped when its last entry is gone, so one old lease pins one segment and not all that came after it,
and a queue that is kept drained holds no memory. Position by sequence is O(1): whoever needs a place holds a
plain sequence.
"""

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Iterable
from operator import neg

from amqpbroker.base.ids import Millis, Sequence
from amqpbroker.engine.message import READY, STORING, Entry, has_expired

# 1024 slots: 8 KiB pinned by one old entry. Smaller segments cut runs more often, larger ones pin more.
SEGMENT_BITS = 10
# Up to so many entries are put into their places one by one; more are appended and sorted.
INSORT_MAX = 8


class Segment:
    """Slots of consecutive sequences within one block of 2**SEGMENT_BITS."""

    __slots__ = ("first", "left", "slots", "uneven")

    def __init__(self, first: int) -> None:
        self.first = first  # Sequence of slots[0].
        self.slots: list[Entry | None] = []  # None: gone.
        self.left = 0  # Entries that are not gone.
        self.uneven = False  # Some slot wants a look before it is offered first: odd, held, gone.

    def extend(self, entries: list[Entry], *, uneven: bool) -> None:
        """Append entries that follow its last one."""
        self.slots.extend(entries)
        self.left += len(entries)
        if uneven:
            self.uneven = True


class Lane:
    """Entries in order of arrival; what is offered next, and by which place."""

    __slots__ = ("_blocks", "_segments", "even", "fresh", "frontier", "next", "returned", "storing")

    def __init__(self) -> None:
        self._segments: dict[int, Segment] = {}  # By block: sequence >> SEGMENT_BITS.
        self._blocks: list[int] = []  # Their keys, rising.
        self.next = Sequence(1)  # Of the next arrival.
        self.frontier = Sequence(1)  # The first that was never offered.
        # Falling; those gone since are found out when they are taken.
        self.returned: list[int] = []
        # Runs (first, last) that wait for the store.
        self.storing: deque[tuple[int, int]] = deque()
        # About the latest take(): from above the frontier, and all to be sent as received.
        self.fresh = True
        self.even = True

    # --- in and out ---------------------------------------------------------------------------------------------

    def append(self, entries: list[Entry], *, uneven: bool, storing: bool) -> None:
        """Add entries whose sequences are next, next+1 and so on."""
        first = self.next
        end = first + len(entries)
        self.next = Sequence(end)
        if storing:
            self.storing.append((first, end - 1))
        block = first >> SEGMENT_BITS
        if block == (end - 1) >> SEGMENT_BITS:
            self._tail(block, first).extend(entries, uneven=uneven)
            return
        while first < end:
            block = first >> SEGMENT_BITS
            stop = min(end, (block + 1) << SEGMENT_BITS)
            offset = len(entries) - (end - first)
            part = entries[offset : offset + stop - first]
            self._tail(block, first).extend(part, uneven=uneven)
            first = Sequence(stop)

    def _tail(self, block: int, first: int) -> Segment:
        segment = self._segments.get(block)
        if segment is None:
            segment = self._segments[block] = Segment(first)
            self._blocks.append(block)
        return segment

    def clear(self, sequences: list[Sequence]) -> None:
        """These entries, all present, are gone for good."""
        low = min(sequences)
        high = max(sequences)
        if high >= self.frontier:
            self._mark_uneven(sequences)
        if low >> SEGMENT_BITS != high >> SEGMENT_BITS:
            for sequence in sequences:
                self._clear_one(sequence)
            return
        segment = self._segments[low >> SEGMENT_BITS]
        slots = segment.slots
        first = segment.first
        for sequence in sequences:
            slots[sequence - first] = None
        segment.left -= len(sequences)
        if not segment.left:
            self._drop(low >> SEGMENT_BITS)

    def _clear_one(self, sequence: int) -> None:
        block = sequence >> SEGMENT_BITS
        segment = self._segments[block]
        segment.slots[sequence - segment.first] = None
        segment.left -= 1
        if not segment.left:
            self._drop(block)

    def _mark_uneven(self, sequences: Iterable[int]) -> None:
        for sequence in sequences:
            self._segments[sequence >> SEGMENT_BITS].uneven = True

    def _drop(self, block: int) -> None:
        del self._segments[block]
        del self._blocks[bisect_left(self._blocks, block)]

    def find(self, sequence: int) -> Entry | None:
        """The entry of this sequence; None when it is gone. O(1)."""
        segment = self._segments.get(sequence >> SEGMENT_BITS)
        if segment is None or sequence < segment.first:
            return None
        offset = sequence - segment.first
        return segment.slots[offset] if offset < len(segment.slots) else None

    # --- the next ones ------------------------------------------------------------------------------------------

    def limit(self) -> int:
        """The first sequence that may not be offered yet: that of the first STORING entry, or of the next arrival."""
        return self.storing[0][0] if self.storing else self.next

    def stored(self, first: int, last: int) -> None:
        """The oldest STORING run is kept now; its entries may be offered."""
        assert self.storing[0] == (first, last), "runs are stored in order of arrival"
        self.storing.popleft()

    def take(self, count: int, now: Millis, lapsed: list[Entry]) -> list[Entry]:
        """Up to `count` READY entries, oldest first; the caller leases them or puts them back by `untake`.

        May give fewer than there are: never entries of two segments, nor returned ones with fresh ones. Empty only
        when there is none. Those that have expired go to `lapsed`, for the caller to end.
        """
        if self.returned:
            found = self._take_returned(count, now, lapsed)
            if found:
                self.fresh = self.even = False
                return found
        self.fresh = True
        return self._take_fresh(count, now, lapsed)

    def _take_returned(self, count: int, now: Millis, lapsed: list[Entry]) -> list[Entry]:
        returned = self.returned
        found: list[Entry] = []
        while returned and len(found) < count:
            entry = self.find(returned.pop())
            if entry is None or entry.state != READY:
                continue
            if has_expired(entry, now):
                lapsed.append(entry)
            else:
                found.append(entry)
        return found

    def _take_fresh(self, count: int, now: Millis, lapsed: list[Entry]) -> list[Entry]:
        limit = self.limit()
        frontier: int = self.frontier
        while frontier < limit:
            segment = self._at_or_after(frontier)
            if segment is None or segment.first >= limit:
                frontier = limit
                break
            frontier = max(frontier, segment.first)
            begin = frontier - segment.first
            end = min(limit - segment.first, len(segment.slots))
            if not segment.uneven:
                end = min(end, begin + count)
                self.frontier = Sequence(segment.first + end)
                self.even = True
                return segment.slots[begin:end]  # type: ignore[return-value]  # No gaps: it is even.
            found, end = _pick(segment, begin, end, count, now, lapsed)
            frontier = segment.first + end
            if found:
                self.frontier = Sequence(frontier)
                self.even = False
                return found
        self.frontier = Sequence(frontier)
        return []

    def _at_or_after(self, sequence: int) -> Segment | None:
        """The segment that has the first slot at or after `sequence`."""
        block = sequence >> SEGMENT_BITS
        segment = self._segments.get(block)
        if segment is not None and sequence < segment.first + len(segment.slots):
            return segment
        after = bisect_right(self._blocks, block)
        return self._segments[self._blocks[after]] if after < len(self._blocks) else None

    def untake(self, entries: list[Entry]) -> None:
        """Put back the last ones of the latest take(), as if they had not been taken."""
        if not entries:
            return
        if self.fresh:
            self.frontier = entries[0].sequence
        else:
            self.returned.extend([entry.sequence for entry in reversed(entries)])

    def give_back(self, sequences: list[Sequence]) -> None:
        """Entries that were leased are READY again, each at its old place (D-11, D-12)."""
        if len(sequences) <= INSORT_MAX:
            for sequence in sequences:
                insort(self.returned, sequence, key=neg)
            return
        self.returned.extend(sequences)
        self.returned.sort(reverse=True)

    def is_drained(self) -> bool:
        """Whether there is surely nothing to offer; False is a maybe. O(1)."""
        return not self.returned and self.frontier >= self.limit()

    # --- for those who only look --------------------------------------------------------------------------------

    def read(self, cursor: int, count: int, now: Millis) -> tuple[list[Entry], int]:
        """Up to `count` READY, unexpired entries from `cursor` on, and where to read on; nothing is taken."""
        limit = self.limit()
        found: list[Entry] = []
        while cursor < limit and len(found) < count:
            segment = self._at_or_after(cursor)
            if segment is None or segment.first >= limit:
                return found, max(cursor, limit)
            begin = max(cursor - segment.first, 0)
            end = min(limit - segment.first, len(segment.slots))
            more, end = _pick(segment, begin, end, count - len(found), now, [])
            found.extend(more)
            cursor = segment.first + end
        return found, cursor

    def entries(self) -> Iterable[Entry]:
        """Every entry, oldest first. O(n): for tests and management."""
        for block in self._blocks:
            for entry in self._segments[block].slots:
                if entry is not None:
                    yield entry

    def check(self) -> None:
        """All that must hold of a lane."""
        assert self._blocks == sorted(self._segments), "blocks are the segments' keys, rising"
        assert self.frontier <= self.next
        assert self.returned == sorted(self.returned, reverse=True), "returned ones are in order"
        assert len(set(self.returned)) == len(self.returned), "returned once"
        assert all(sequence < self.frontier for sequence in self.returned)
        storing = [number for first, last in self.storing for number in range(first, last + 1)]
        assert storing == sorted(storing)
        found = []
        for block in self._blocks:
            found += self._check_segment(block)
        assert [entry.sequence for entry in found if entry.state == STORING] == storing

    def _check_segment(self, block: int) -> list[Entry]:
        segment = self._segments[block]
        last = segment.first + len(segment.slots) - 1
        assert segment.first >> SEGMENT_BITS == block == last >> SEGMENT_BITS
        found = [entry for entry in segment.slots if entry is not None]
        assert segment.left == len(found) > 0, "a segment is dropped with its last entry"
        for offset, entry in enumerate(segment.slots):
            assert entry is None or entry.sequence == segment.first + offset
            fresh = segment.first + offset >= self.frontier
            if fresh and not segment.uneven:
                assert entry is not None
                assert entry.state in (READY, STORING)
                assert entry.arrival.even
        return found


def _pick(
    segment: Segment, begin: int, end: int, count: int, now: Millis, lapsed: list[Entry]
) -> tuple[list[Entry], int]:
    """Up to `count` READY entries of slots[begin:end], and the offset after the last one looked at."""
    slots = segment.slots
    found: list[Entry] = []
    for offset in range(begin, end):
        entry = slots[offset]
        if entry is None or entry.state != READY:
            continue
        if has_expired(entry, now):
            lapsed.append(entry)
            continue
        found.append(entry)
        if len(found) == count:
            return found, offset + 1
    return found, end
