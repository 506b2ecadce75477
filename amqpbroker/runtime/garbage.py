"""When Python's collector of cycles runs in a broker process: by hand, in a quiet moment.

Measured with 1,000,000 entries queued: collection on, 5.8 us a message and p99 38 ms; frozen and off, 5.0 us and
14 ms (docs/decisions). Entries are free of cycles, so what is found are the remains of connections and of
exceptions: little, but it must not grow for ever. Only `serve` uses this; a broker inside somebody's program
leaves the collector as it is.
"""

import gc

from amqpbroker.base.ids import Millis

QUIET_MS = 1_000
"""Without traffic before a sweep: shorter would fall between two messages of a steady trickle."""

GAP_MS = 60_000
"""Between sweeps: one visits every queued entry, 0.1 to 0.2 s at a million, which a heartbeat must not cause."""

BUSY_MS = 600_000
"""A broker that is never quiet is swept all the same after this."""


class Garbage:
    """Keeps Python's collector off, and sweeps when it disturbs least."""

    def __init__(self, now: Millis) -> None:
        self._swept_at = now
        self._busy_at = now
        self._is_dirty = False  # There was traffic since the last sweep.

    @staticmethod
    def freeze() -> None:
        """Take what start-up made out of the collector's sight, and turn it off."""
        gc.collect()
        gc.freeze()
        gc.disable()

    def saw_traffic(self, now: Millis) -> None:
        """Something happened in this turn."""
        self._busy_at = now
        self._is_dirty = True

    def next_deadline(self) -> Millis | None:
        """When a sweep may be due; None while nothing has happened since the last."""
        if not self._is_dirty:
            return None
        quiet = max(self._busy_at + QUIET_MS, self._swept_at + GAP_MS)
        return Millis(min(quiet, self._swept_at + BUSY_MS))

    def sweep_if_due(self, now: Millis) -> None:
        """Collect cycles, if it is time."""
        at = self.next_deadline()
        if at is not None and at <= now:
            gc.collect()
            self._swept_at = now
            self._is_dirty = False
