"""go-amqp's own integration tests, run from the module cache as they were published: goamqp/go.mod says which version.

The functions in integration_test.go need a broker. What is counted is their subtests: 300 are those of one of them,
which closes links, sessions and connections a hundred times each; eleven functions have none and are counted apart.
"""

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interop.suites import Tally, run

MODULE = "github.com/Azure/go-amqp"
FUNCTIONS = 17
SUBTESTS = 315
SECONDS_MAX = 300
OFFLINE = {"GOPROXY": "off", "GOFLAGS": "-mod=readonly"}


@pytest.mark.interop
@pytest.mark.timeout(SECONDS_MAX + 120)
def test_go_amqp(broker: str, count: Callable[[str], None]) -> None:
    names = integration_tests()
    output = run(
        ["go", "test", "-json", "-count=1", "-run", f"^({'|'.join(names)})$", MODULE],
        "goamqp",
        seconds_max=SECONDS_MAX,
        environment={**OFFLINE, "AMQP_BROKER_ADDR": f"amqp://{broker}"},
    )
    functions, subtests, said = tallied(output)
    count(
        f"go-amqp: {subtests.passed} passed, {subtests.failed} failed"
        f" in {functions.passed + functions.failed} test functions"
    )
    assert (functions, subtests) == (Tally(FUNCTIONS, 0), Tally(SUBTESTS, 0)), said


def integration_tests() -> list[str]:
    """The names of the test functions that use a broker."""
    folder = run(
        ["go", "list", "-m", "-f", "{{.Dir}}", MODULE],
        "goamqp",
        seconds_max=60,
        environment=OFFLINE,
    )
    source = (Path(folder.strip()) / "integration_test.go").read_text()
    return re.findall(r"^func (Test\w+)\(", source, re.MULTILINE)


def tallied(output: str) -> tuple[Tally, Tally, str]:
    """Functions, subtests, and all that was said, from the events that `go test -json` prints."""
    ended: Counter[tuple[str, bool]] = Counter()
    said = []
    for line in output.splitlines():
        if not line.startswith("{"):
            said.append(line + "\n")
            continue
        event = json.loads(line)
        said.append(event.get("Output", ""))
        if "Test" in event:
            ended[event["Action"], "/" in event["Test"]] += 1
    functions, subtests = (
        Tally(ended["pass", inner], ended["fail", inner] + ended["skip", inner])
        for inner in (False, True)
    )
    return functions, subtests, "".join(said)
