"""The only clock: broker time, which is wall time that never runs backwards.

Everyone below the loop is told the time as an argument. A step of the wall clock forward counts (a message
whose time to live has passed by the calendar has expired); a step back freezes broker time until the wall has
caught up, since the engine's deadlines and arrival times must not decrease.
"""

import time
from typing import Protocol

from amqpbroker.base.ids import Millis

NANOS = 1_000_000  # Per millisecond.


class Clock(Protocol):
    """Where the loop reads the time, once per turn."""

    def now(self) -> Millis:
        """Milliseconds since 1970; never less than the last answer."""


class SystemClock:
    """The machine's wall clock, made non-decreasing."""

    __slots__ = ("_latest",)

    def __init__(self) -> None:
        self._latest = Millis(0)

    def now(self) -> Millis:
        """Milliseconds since 1970, or the last answer while the wall clock is behind it."""
        wall = time.time_ns() // NANOS
        if wall > self._latest:
            self._latest = Millis(wall)
        return self._latest
