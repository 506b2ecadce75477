"""A broker process for other clients, and the counts of their suites at the end of the run.

INTEROP_BROKER=host:port takes a broker that runs already, INTEROP_COMMAND a program that is given a port and
runs another broker there: so a suite can be tried against a broker that is known to be right.
"""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from shlex import quote

import pytest

from tests.interop.suites import Spare

ROOT = Path(__file__).parents[2]
START_SECONDS_MAX = 40  # Another broker on a Java virtual machine needs ten.
STOP_SECONDS_MAX = 20
IN_PROCESS = "test_proton_python.py"  # The one suite whose tests are pytest's own.
COUNTS = pytest.StashKey[list[str]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[COUNTS] = []


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    lines = config.stash[COUNTS]
    passed, failed = (
        sum(report.when == "call" and IN_PROCESS in report.nodeid for report in reports)
        for reports in map(terminalreporter.getreports, ("passed", "failed"))
    )
    if passed or failed:
        lines.append(f"proton-python: {passed} passed, {failed} failed")
    if lines:
        terminalreporter.section("interop")
    for line in sorted(lines):
        terminalreporter.line(line)


@pytest.fixture
def count(pytestconfig: pytest.Config) -> Callable[[str], None]:
    """Has a line printed at the end of the run, passed or failed."""
    return pytestconfig.stash[COUNTS].append


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address, host:port, of a broker that all suites share."""
    given = os.environ.get("INTEROP_BROKER")
    if given:
        yield given
        return
    spare = make_spare(tmp_path_factory.mktemp("broker"))
    log = spare.script.with_suffix(".log")
    with log.open("w") as output:
        process = subprocess.Popen(
            ["sh", str(spare.script)], stdout=output, stderr=subprocess.STDOUT
        )
    try:
        await_listening(process, spare.port, log)
        yield f"localhost:{spare.port}"
    finally:
        process.terminate()
        code = process.wait(STOP_SECONDS_MAX)
    assert code in (0, 143), f"the broker ended with {code}:\n{log.read_text()}"


@pytest.fixture
def spare(tmp_path: Path) -> Spare:
    """A broker that is not running yet."""
    return make_spare(tmp_path)


def make_spare(folder: Path) -> Spare:
    """A script in `folder` that runs a broker on a port that is free now."""
    with socket.create_server(("localhost", 0)) as server:
        port = server.getsockname()[1]
    other = os.environ.get("INTEROP_COMMAND")
    if other:
        command = f"exec {other} {port}"
    else:
        config = folder / "broker.yaml"
        config.write_text(f'listeners:\n  - {{name: amqp, bind: "localhost:{port}"}}\n')
        path = quote(str(ROOT))
        python = quote(sys.executable)
        command = f"PYTHONPATH={path} exec {python} -m amqpbroker serve -c {quote(str(config))}"
    script = folder / "broker.sh"
    script.write_text(f"cd {quote(str(folder))} || exit 1\n{command}\n")
    return Spare(script, port)


def await_listening(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("localhost", port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    pytest.fail(f"the broker did not start:\n{log.read_text()}")
