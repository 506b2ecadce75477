"""How each broker is started, warmed and stopped. Knows nothing of workloads.

A broker is named on the command line: `ours`, `ours-pure`, `proto_fast`, `proto_lmdb`, `artemis`, or
any of them with `-again` behind it for a second process of it, or
`NAME=amqp://host:port` for one that runs already, with `#PID` behind it for its CPU and memory.
"""

import os
import shlex
import shutil
import socket
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from bench import artemis, client
from bench.process import Usage, now, pause, usage

REPOSITORY = Path(__file__).parent.parent
# Where it is beside the repository.
PROTOTYPES = REPOSITORY.parent / "shared" / "design" / "prototypes"
HOST = "127.0.0.1"
START_LIMIT = 60.0  # seconds until the port answers; enough for a JVM on a busy machine.
STOP_LIMIT = 15.0  # seconds after SIGTERM until SIGKILL.

PURE = "AMQPBROKER_PURE_PYTHON"  # Set: our broker leaves its compiled twins aside.
AGAIN = (
    "-again"  # A second process of the same broker: what a ratio of 1 looks like on this machine.
)
OURS = "{python} -m amqpbroker serve -c {config}"
CONFIG = """\
broker:
  name: bench
  data_dir: null
listeners:
  - name: amqp
    bind: "{host}:{port}"
"""

Prepare = Callable[[int, Path], list[str]]  # (port, an empty folder) -> the command line


class BrokerMissingError(Exception):
    """This broker cannot run here; the text says what is missing."""


@dataclass(frozen=True)
class Running:
    """A broker that accepts connections."""

    name: str
    url: str
    pid: int | None  # None: not ours to measure
    warm_up: int  # messages before a figure counts

    def usage(self) -> Usage | None:
        """What its process tree has used; None when that cannot be seen."""
        return None if self.pid is None else usage(self.pid)


@dataclass(frozen=True)
class Place:
    """A broker's folder, port and command line, before its process exists."""

    url: str
    command: list[str]
    folder: Path
    environment: Mapping[str, str]

    @contextmanager
    def spawned(self) -> Iterator[int]:
        """Its process, which may not listen yet; stopped at the end of the block."""
        inherited = {name: value for name, value in os.environ.items() if name != PURE}
        with (self.folder / "log").open("wb") as log:
            process = subprocess.Popen(
                self.command,
                cwd=self.folder,
                env={**inherited, "PYTHONPATH": str(REPOSITORY), **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        try:
            yield process.pid
        except BaseException:
            sys.stderr.write((self.folder / "log").read_text(errors="replace")[-2000:])
            raise
        finally:
            stop(process)


@dataclass(frozen=True)
class Recipe:
    """How to start a broker of this name."""

    name: str
    prepare: Prepare
    warm_up: int = 20_000
    environment: Mapping[str, str] = field(default_factory=dict)

    @contextmanager
    def prepared(self) -> Iterator[Place]:
        """All but the process; its folder is removed at the end of the block."""
        folder = Path(tempfile.mkdtemp(prefix=f"bench-{self.name}-"))
        try:
            port = free_port()
            command = self.prepare(port, folder)
            yield Place(f"amqp://{HOST}:{port}", command, folder, self.environment)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    @contextmanager
    def running(self) -> Iterator[Running]:
        """A fresh process of it, accepting connections."""
        with self.prepared() as place, place.spawned() as pid:
            wait_until_answered(place.url, pid)
            yield Running(self.name, place.url, pid, self.warm_up)


@dataclass(frozen=True)
class External:
    """A broker that somebody else started."""

    name: str
    url: str
    pid: int | None
    warm_up: int = 20_000

    @contextmanager
    def running(self) -> Iterator[Running]:
        """It, as it is."""
        yield Running(self.name, self.url, self.pid, self.warm_up)


Source = Recipe | External


def source(text: str, ours: str = OURS) -> Source:
    """The broker that a command line names; `ours` is the template of our own command line."""
    name, equals, url = text.partition("=")
    if equals:
        url, _, pid = url.partition("#")
        return External(name, url, int(pid) if pid else None)
    if text.endswith(AGAIN):
        return replace(source(text.removesuffix(AGAIN), ours), name=text)
    if text == "ours":
        return Recipe(text, ours_command(ours))
    if text == "ours-pure":
        return Recipe(text, ours_command(ours), environment={PURE: "1"})
    if text in ("proto_fast", "proto_lmdb"):
        return Recipe(text, prototype_command(text))
    if text == "artemis":
        return Recipe(text, artemis.command, warm_up=200_000)
    raise BrokerMissingError(f"unknown broker {text!r}")


def ours_command(template: str) -> Prepare:
    """Our broker, all in memory, with {python}, {config}, {port} and {folder} of the template filled in."""

    def prepare(port: int, folder: Path) -> list[str]:
        config = folder / "broker.yaml"
        config.write_text(CONFIG.format(host=HOST, port=port))
        filled = template.format(python=sys.executable, config=config, port=port, folder=folder)
        return shlex.split(filled)

    return prepare


def prototype_command(name: str) -> Prepare:
    """A prototype out of the design's folder, copied and built, since that folder may be read-only."""
    if not PROTOTYPES.is_dir():
        raise BrokerMissingError(f"{name}: no prototypes at {PROTOTYPES}")

    def prepare(port: int, folder: Path) -> list[str]:
        script = folder / f"{name}.py"
        shutil.copy(PROTOTYPES / script.name, script)
        if name == "proto_fast":
            shutil.copy(built_extension(), folder)
        return [sys.executable, str(script), f"{HOST}:{port}"]

    return prepare


def built_extension() -> Path:
    """fast.c as an extension of this Python."""
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    built = client.cache_folder() / f"fast{suffix}"
    source_file = PROTOTYPES / "fast.c"
    if not built.exists() or built.stat().st_mtime < source_file.stat().st_mtime:
        include = sysconfig.get_paths()["include"]
        flags = ["-O2", "-shared", "-fPIC", "-w", f"-I{include}"]
        subprocess.run(["cc", *flags, str(source_file), "-o", str(built)], check=True)
    return built


def free_port() -> int:
    """A port that nobody listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def wait_until_answered(url: str, pid: int) -> None:
    """Return when something accepts connections at `url`; raise BrokerMissingError when `pid` ends before."""
    port = int(url.rpartition(":")[2])
    deadline = now() + START_LIMIT
    while now() < deadline:
        with suppress(OSError), socket.create_connection((HOST, port), timeout=1):
            return
        if ended(pid):
            raise BrokerMissingError("the broker ended before its port answered")
        pause(0.02)
    raise BrokerMissingError(f"no answer at {url} within {START_LIMIT:.0f} s")


def ended(pid: int) -> bool:
    """Whether our child `pid` is a zombie or gone; leaves the reaping to its Popen."""
    found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    return found is not None


def stop(process: "subprocess.Popen[bytes]") -> None:
    """End a broker: by SIGTERM, and when that does not help, at once."""
    process.terminate()
    try:
        process.wait(timeout=STOP_LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
