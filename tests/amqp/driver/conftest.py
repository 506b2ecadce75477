"""Each test of the driver runs over both data paths, most of them over input cut in three ways."""

from collections.abc import Iterator

import pytest

from amqpbroker.amqp.driver import PureDriver
from tests.amqp.driver.pair import DRIVERS, Cut, Pair, RandomCut, byte_by_byte, new_seed, whole


@pytest.fixture(params=DRIVERS, ids=lambda kind: kind.__name__)
def kind(request: pytest.FixtureRequest) -> type[PureDriver]:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(params=["whole", "byte by byte", "random"])
def cut(request: pytest.FixtureRequest) -> Cut:
    if request.param == "whole":
        return whole
    if request.param == "byte by byte":
        return byte_by_byte
    return RandomCut(new_seed())


@pytest.fixture
def pair(kind: type[PureDriver], cut: Cut) -> Iterator[Pair]:
    pair = Pair(kind, cut)
    yield pair
    pair.driver.free()
