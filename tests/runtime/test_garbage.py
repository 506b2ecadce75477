"""When cycles are collected."""

import gc
from collections.abc import Iterator

import pytest

from amqpbroker.base.ids import Millis
from amqpbroker.runtime.garbage import BUSY_MS, GAP_MS, QUIET_MS, Garbage


@pytest.fixture
def sweeps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    made: list[int] = []
    monkeypatch.setattr(gc, "collect", lambda: made.append(1))
    return made


def test_without_traffic_there_is_nothing_to_wait_for(sweeps: list[int]) -> None:
    garbage = Garbage(Millis(0))
    assert garbage.next_deadline() is None
    garbage.sweep_if_due(Millis(10**9))
    assert sweeps == []


def test_a_quiet_moment_after_traffic_is_used_once(sweeps: list[int]) -> None:
    garbage = Garbage(Millis(0))
    garbage.saw_traffic(Millis(GAP_MS))
    assert garbage.next_deadline() == GAP_MS + QUIET_MS
    garbage.sweep_if_due(Millis(GAP_MS + QUIET_MS - 1))
    assert sweeps == []
    garbage.sweep_if_due(Millis(GAP_MS + QUIET_MS))
    assert sweeps == [1]
    assert garbage.next_deadline() is None


def test_heartbeats_do_not_cause_one_sweep_each(sweeps: list[int]) -> None:
    garbage = Garbage(Millis(0))
    for now in range(0, GAP_MS, 2_000):
        garbage.saw_traffic(Millis(now))
        garbage.sweep_if_due(Millis(now + 1_999))
    assert sweeps == []


def test_a_broker_that_is_never_quiet_is_swept_all_the_same(sweeps: list[int]) -> None:
    garbage = Garbage(Millis(0))
    for now in range(0, BUSY_MS + 1, 500):
        garbage.saw_traffic(Millis(now))
        garbage.sweep_if_due(Millis(now))
    assert sweeps == [1]


@pytest.fixture
def _collector_restored() -> Iterator[None]:
    yield
    gc.unfreeze()
    gc.enable()


@pytest.mark.usefixtures("_collector_restored")
def test_freeze_turns_the_collector_off() -> None:
    Garbage.freeze()
    assert not gc.isenabled()
    assert gc.get_freeze_count() > 0
