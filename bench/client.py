"""Builds load.c and drives it. Knows its options' names and its lines, nothing of brokers."""

import hashlib
import itertools
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

SOURCE = Path(__file__).with_name("load.c")
FLAGS = ("-O2", "-Wall", "-std=c11")

# A run with any of these counts for nothing.
FAULTS = (
    *("gaps", "duplicates", "order_errors", "bad_bodies", "foreign", "bad_settles"),
    *("rejected", "released", "stalled"),
)

# Each run stamps its number into its messages: what an earlier run left behind is an error, not a count.
RUN_NUMBERS = itertools.count(os.getpid() % 10_000 * 100_000)


class LoadError(Exception):
    """The load client could not do its work, or a message was lost, doubled or out of order."""


def cache_folder() -> Path:
    """Where what takes long to make is kept: the built client, the distributions of other brokers."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(base) / "amqpbroker-bench"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def build() -> Path:
    """The load client's program, compiled when the source changed since."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise LoadError("no C compiler found: the load client is built by cc")
    digest = hashlib.sha256(SOURCE.read_bytes() + " ".join(FLAGS).encode()).hexdigest()[:16]
    program = cache_folder() / f"load-{digest}"
    if not program.exists():
        fresh = program.with_suffix(f".{os.getpid()}")  # Two builds at once must not mix.
        subprocess.run([compiler, *FLAGS, str(SOURCE), "-o", str(fresh)], check=True)
        fresh.replace(program)
    return program


class Load:
    """One run of the client: ready, go, result, in that order; closed by the end of `running`."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def wait_ready(self) -> None:
        """Return when all its links are attached."""
        self._line("ready")

    def go(self) -> None:
        """Let the messages go."""
        self._signal()

    def result(self) -> dict[str, Any]:
        """What it counted, when the last message is through. Raises LoadError unless all is well."""
        result = self._line("messages")
        if any(result[name] for name in FAULTS):
            raise LoadError(json.dumps(result))
        return result

    def close(self) -> None:
        """Close its connections; idempotent, so that it may come before the broker's own end."""
        if self._process.poll() is None:
            self._signal()
            self._process.wait(timeout=30)

    def _signal(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def _line(self, key: str) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        answer = cast("dict[str, Any]", json.loads(line)) if line else {}
        if key not in answer:
            raise LoadError(answer.get("error") or line or "the load client ended without a word")
        return answer


@contextmanager
def running(url: str, options: Sequence[object]) -> Iterator[Load]:
    """A client on `url` that waits for go() and, after its result, for the end of the block."""
    command = [str(build()), "--url", url, "--wait", *map(str, options)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            load = Load(process)
            yield load
            load.close()
        finally:
            process.kill()


def run(url: str, options: Sequence[object]) -> dict[str, Any]:
    """One whole run, nothing sampled in between."""
    with running(url, options) as load:
        load.wait_ready()
        load.go()
        return load.result()


def fresh_run() -> list[object]:
    """Options that tell a run's messages from every other's."""
    return ["--run", next(RUN_NUMBERS) % (1 << 31)]
