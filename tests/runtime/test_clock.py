"""Broker time: the wall's, but never backwards."""

import time

import pytest

from amqpbroker.runtime import clock as clock_module
from amqpbroker.runtime.clock import SystemClock


class Wall:
    """A wall clock that can be set."""

    def __init__(self) -> None:
        self.nanos = 1_700_000_000_000_000_000

    def time_ns(self) -> int:
        return self.nanos


@pytest.fixture
def wall(monkeypatch: pytest.MonkeyPatch) -> Wall:
    made = Wall()
    monkeypatch.setattr(clock_module, "time", made)
    return made


def test_it_is_wall_time_in_milliseconds() -> None:
    before = time.time_ns() // 1_000_000
    assert before <= SystemClock().now() <= time.time_ns() // 1_000_000


def test_a_step_forward_counts(wall: Wall) -> None:
    clock = SystemClock()
    before = clock.now()
    wall.nanos += 3_600 * 1_000_000_000
    assert clock.now() == before + 3_600_000


def test_a_step_back_freezes_it_until_the_wall_has_caught_up(wall: Wall) -> None:
    clock = SystemClock()
    before = clock.now()
    wall.nanos -= 5_000_000_000
    assert clock.now() == before
    wall.nanos += 4_999_000_000
    assert clock.now() == before
    wall.nanos += 2_000_000
    assert clock.now() == before + 1
