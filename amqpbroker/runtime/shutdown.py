"""Signals to orders: the first SIGTERM or SIGINT asks for an orderly end, the second for the end.

Handlers run between two instructions of the loop's own thread, so they only leave a call with the wake-up.
"""

import signal
from collections.abc import Callable
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Signals:
    """Takes the signals over for the time of a `with` block; for a process's main thread only."""

    def __init__(
        self,
        call: Callable[[Callable[[], None]], None],
        begin: Callable[[], None],
        end_now: Callable[[], None],
    ) -> None:
        self._call = call  # Has the loop make a call in its next turn.
        self._begin = begin
        self._end_now = end_now
        self._count = 0
        self._before: dict[int, object] = {}

    def __enter__(self) -> None:
        for number in SIGNALS:
            self._before[number] = signal.signal(number, self._on_signal)

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._count += 1
        self._call(self._begin if self._count == 1 else self._end_now)
