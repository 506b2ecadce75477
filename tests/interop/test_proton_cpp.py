"""Proton C++: cpp/interop.cpp."""

import re
from collections.abc import Callable

import pytest

from tests.interop.suites import Tally, run

TESTS = 12
SECONDS_MAX = 120


@pytest.mark.interop
@pytest.mark.timeout(SECONDS_MAX + 60)
def test_proton_cpp(broker: str, count: Callable[[str], None]) -> None:
    output = run(["make", "--silent", "check", f"BROKER={broker}"], "cpp", seconds_max=SECONDS_MAX)
    found = re.search(r"^proton-cpp: (\d+) passed, (\d+) failed$", output, re.MULTILINE)
    tally = Tally(int(found[1]), int(found[2])) if found else Tally(0, 0)
    count(f"proton-cpp: {tally.passed} passed, {tally.failed} failed")
    assert tally == Tally(TESTS, 0), output
