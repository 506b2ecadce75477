"""A consumer when it has just come."""

import pytest

from tests.engine.rig import Rig


@pytest.mark.rule("N-10")
@pytest.mark.parametrize(
    ("copies", "settled", "is_settled"),
    [(False, False, False), (False, True, True), (True, False, True)],
)
def test_a_browser_is_always_settled(copies: bool, settled: bool, is_settled: bool) -> None:
    rig = Rig()
    consumer = rig.queue_consumer(rig.consumer(copies=copies, settled=settled))
    assert consumer.settled == is_settled
    assert (consumer.credit, consumer.drains, consumer.leases) == (0, 0, {})
