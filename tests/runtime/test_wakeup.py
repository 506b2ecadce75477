"""Reaching the loop from elsewhere."""

import threading
from collections.abc import Iterator

import pytest

from amqpbroker.base.ids import Millis
from amqpbroker.runtime.poller import Poller
from amqpbroker.runtime.wakeup import CALLS_MAX, Wakeup


@pytest.fixture
def poller() -> Iterator[Poller]:
    made = Poller()
    yield made
    made.close()


@pytest.fixture
def wakeup(poller: Poller) -> Iterator[Wakeup]:
    made = Wakeup(poller)
    yield made
    made.close()


def wait(poller: Poller, timeout_ms: float = 10_000) -> int:
    ready = poller.wait(timeout_ms)
    for take, mask in ready:
        take(mask, Millis(0))
    return len(ready)


def test_a_call_ends_the_wait_and_is_made_in_order(poller: Poller, wakeup: Wakeup) -> None:
    made: list[int] = []

    def call_all() -> None:
        for number in range(3):
            wakeup.call(lambda number=number: made.append(number))  # type: ignore[misc]

    thread = threading.Thread(target=call_all)
    thread.start()
    assert wait(poller) == 1
    thread.join()
    wakeup.make_calls()
    assert made == [0, 1, 2]


def test_many_calls_are_one_byte(poller: Poller, wakeup: Wakeup) -> None:
    for _ in range(100):
        wakeup.call(lambda: None)
    assert wait(poller) == 1
    assert wait(poller, 0) == 0
    wakeup.wake()
    assert wait(poller) == 1


def test_a_call_made_by_a_call_is_made_in_the_next_turn(wakeup: Wakeup) -> None:
    made: list[str] = []
    wakeup.call(lambda: wakeup.call(lambda: made.append("second")))
    wakeup.make_calls()
    assert made == []
    assert wakeup.take_asked()
    wakeup.make_calls()
    assert made == ["second"]


def test_a_flood_of_calls_is_made_in_portions(wakeup: Wakeup) -> None:
    made: list[int] = []
    for number in range(CALLS_MAX + 1):
        wakeup.call(lambda number=number: made.append(number))  # type: ignore[misc]
    wakeup.make_calls()
    assert len(made) == CALLS_MAX
    assert wakeup.take_asked()


def test_turn_again_is_asked_once(poller: Poller, wakeup: Wakeup) -> None:
    wakeup.turn_again()
    assert wakeup.take_asked()
    assert not wakeup.take_asked()
    assert wait(poller, 0) == 0


def test_a_call_after_the_end_is_harmless(poller: Poller) -> None:
    wakeup = Wakeup(poller)
    wakeup.close()
    wakeup.call(lambda: None)
