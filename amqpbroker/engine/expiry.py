"""When entries of one queue expire. Must not know what an entry is.

Runs that expire together are one item, so that a producer's common ttl costs one item per turn and not one per message.
Entries mostly leave by other ways and leave their item behind; `prune` bounds the waste.
"""

import heapq
from collections.abc import Callable

from amqpbroker.base.ids import Millis, Sequence

STALE_MIN = 1_000  # With fewer stale items than this, pruning costs more than the memory it frees.


class Expiry:
    """Runs of sequences by expiry; may name entries that are gone, misses none that is there."""

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: list[tuple[Millis, Sequence, Sequence]] = []  # Expires, first, last.

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, expires: Millis, first: Sequence, last: Sequence) -> None:
        """Entries first to last expire together. O(log n)."""
        heapq.heappush(self._heap, (expires, first, last))

    def next(self) -> Millis | None:
        """The first point in time at which something has expired: one past its expiry (T-4)."""
        return Millis(self._heap[0][0] + 1) if self._heap else None

    def due(self, now: Millis) -> range | None:
        """Take the earliest run that has expired; None when there is none."""
        if self._heap and self._heap[0][0] < now:
            _, first, last = heapq.heappop(self._heap)
            return range(first, last + 1)
        return None

    def prune(self, entries: int, is_present: Callable[[int], bool]) -> None:
        """Forget stale items when there are more than the queue's `entries` explain. O(1) amortised."""
        if len(self._heap) <= 2 * entries + STALE_MIN:
            return
        self._heap = [
            item for item in self._heap if any(map(is_present, range(item[1], item[2] + 1)))
        ]
        heapq.heapify(self._heap)
