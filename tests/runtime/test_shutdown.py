"""Signals become orders to the loop."""

import os
import signal
from collections.abc import Callable

import pytest

from amqpbroker.runtime.shutdown import SIGNALS, Signals


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_begins_the_end_and_the_second_is_it(number: int) -> None:
    orders: list[str] = []
    calls: list[Callable[[], None]] = []
    before = signal.getsignal(number)
    with Signals(calls.append, lambda: orders.append("begin"), lambda: orders.append("end")):
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), number)
        assert orders == []  # Nothing happens inside the handler.
        for call in calls:
            call()
    assert orders == ["begin", "end"]
    assert signal.getsignal(number) == before
