"""Qpid JMS, the client of Java: the Maven project in jms/, without the network."""

import re
from collections.abc import Callable

import pytest

from tests.interop.suites import Spare, Tally, run

TESTS = 31
SECONDS_MAX = 300
SUMMARY = re.compile(
    r"^\[\w+\] Tests run: (\d+), Failures: (\d+), Errors: (\d+), Skipped: (\d+)$", re.MULTILINE
)


@pytest.mark.interop
@pytest.mark.timeout(SECONDS_MAX + 60)
def test_qpid_jms(broker: str, spare: Spare, count: Callable[[str], None]) -> None:
    output = run(
        [
            "mvn",
            "--batch-mode",
            "--offline",
            "test",
            f"-Dbroker.address={broker}",
            f"-Dspare.script={spare.script}",
            f"-Dspare.port={spare.port}",
        ],
        "jms",
        seconds_max=SECONDS_MAX,
        environment={"NO_COLOR": "1"},
    )
    tally = tallied(output)
    count(f"qpid-jms: {tally.passed} passed, {tally.failed} failed")
    assert tally == Tally(TESTS, 0), output


def tallied(output: str) -> Tally:
    found = SUMMARY.search(output)
    if found is None:
        return Tally(0, 0)
    ran, *not_passed = map(int, found.groups())
    return Tally(ran - sum(not_passed), sum(not_passed))
