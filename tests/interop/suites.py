"""Run another client's test suite as a program. Must not know which client it is."""

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

HERE = Path(__file__).parent
SETUP = ".ci/interop-setup.sh"


class Spare(NamedTuple):
    """How to start a broker of one's own: `sh script` runs it on `port` until SIGTERM."""

    script: Path
    port: int


class Tally(NamedTuple):
    """How a suite ended."""

    passed: int
    failed: int


def run(
    command: Sequence[str],
    folder: str,
    *,
    seconds_max: int,
    environment: Mapping[str, str] | None = None,
) -> str:
    """What `command`, run in tests/interop/`folder`, prints; its exit code is not looked at.

    After `seconds_max` the command and all that it started are killed and the test fails.
    """
    if shutil.which(command[0]) is None:
        pytest.fail(f"{command[0]} is missing; {SETUP} installs it")
    process = subprocess.Popen(
        command,
        cwd=HERE / folder,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=seconds_max)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        pytest.fail(f"{command[0]}: not done after {seconds_max} s\n{output}")
    return output
