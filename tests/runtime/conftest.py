"""Every loop that a test makes is closed after it, so that a failure does not hide behind leaked sockets."""

from collections.abc import Iterator

import pytest

from tests.runtime.loops import Echo


@pytest.fixture(autouse=True)
def _close_loops() -> Iterator[None]:
    yield
    while Echo.made:
        Echo.made.pop().close()
