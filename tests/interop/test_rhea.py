"""rhea, the client of Node.js: rhea/rhea.test.js."""

import re
from collections.abc import Callable

import pytest

from tests.interop.suites import Tally, run

TESTS = 22
SECONDS_MAX = 180


@pytest.mark.interop
@pytest.mark.timeout(SECONDS_MAX + 60)
def test_rhea(broker: str, count: Callable[[str], None]) -> None:
    output = run(
        ["npm", "test"], "rhea", seconds_max=SECONDS_MAX, environment={"INTEROP_BROKER": broker}
    )
    tally = Tally(counted("pass", output), counted("fail", output))
    count(f"rhea: {tally.passed} passed, {tally.failed} failed")
    assert tally == Tally(TESTS, 0), output


def counted(what: str, output: str) -> int:
    found = re.search(rf"^# {what} (\d+)$", output, re.MULTILINE)
    return int(found[1]) if found else 0
