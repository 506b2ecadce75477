"""Counters."""

import pytest

from amqpbroker.engine.stats import Stats


@pytest.mark.rule("11", "R-17")
def test_all_that_left_is_the_sum_of_the_ways_out() -> None:
    stats = Stats()
    for power, name in enumerate(
        ["added", "acknowledged", "expired", "killed", "replaced", "removed"]
    ):
        setattr(stats, name, 10**power)
    assert stats.left() == 111110
    assert stats.values() == (1, 10, 100, 1000, 10000, 100000)
