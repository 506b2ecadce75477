"""The program as its users start it: exit codes, and what is said where."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from amqpbroker import __version__, cli

EXAMPLE = Path(__file__).parents[1] / "conf" / "broker.yaml"
ANY_PORT = "listeners: [{name: amqp, bind: 'localhost:0'}]\n"
READY_S = 20  # A start takes a tenth of a second; a loaded machine may take a hundred times that.


def program(*arguments: str) -> Sequence[str]:
    return [sys.executable, "-m", "amqpbroker", *arguments]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        program(*arguments), capture_output=True, text=True, check=False, timeout=50
    )


@contextmanager
def serving(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A broker process; killed if the test leaves it running."""
    with subprocess.Popen(
        program("serve", *arguments), stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def line_with(process: subprocess.Popen[str], event: str) -> str:
    assert process.stderr is not None
    said = []
    for line in process.stderr:
        said.append(line)
        if f"event={event}" in line:
            return line
    raise AssertionError("".join(said))


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "broker.yaml"
    file.write_text(ANY_PORT)
    return file


def test_version_names_what_runs() -> None:
    done = run("--version")
    assert done.returncode == 0
    kind = "(compiled|pure)"
    pattern = (
        rf"amqpbroker {re.escape(__version__)} \(Python \d+\.\d+\.\d+, Proton 0\.40\.\d+; "
        rf"driver {kind}, frames {kind}, sections {kind}\)\n"
    )
    assert re.fullmatch(pattern, done.stdout)


def test_version_tells_the_truth_about_each_twin() -> None:
    said = dict(re.findall(r"(driver|frames|sections) (\w+)", cli.version_text()))
    assert [name for name, kind in said.items() if kind == "pure"] == cli.pure_twins()


def test_a_twin_that_does_not_load_is_told_by_version_and_by_serve(config: Path) -> None:
    # A None in sys.modules makes its import fail, as a file for another Python does.
    start = (
        "import sys; sys.modules['amqpbroker.amqp._driver'] = None; from amqpbroker import cli; "
    )
    version = subprocess.run(
        [sys.executable, "-c", start + "cli.main(['--version'])"],
        capture_output=True, text=True, check=True, timeout=READY_S,
    )  # fmt: skip
    assert "driver pure" in version.stdout
    arguments = [sys.executable, "-c", f"{start} cli.main(['serve', '-c', '{config}'])"]
    with subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert "pure=driver" in line_with(process, "driver_pure")
        finally:
            process.kill()


def test_version_imports_nothing_heavy() -> None:
    text = "import sys; from amqpbroker import cli; cli.main(['--version']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert not loaded & {
        "proton",
        "pydantic",
        "yaml",
        "importlib.metadata",
        "logging",
        "asyncio",
        "shutil",
    }


def test_a_start_without_a_file_leaves_out_what_it_can_do_without() -> None:
    text = "import sys; from amqpbroker import cli; from amqpbroker.runtime import loop; "
    text += "cli.load_defaults(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    heavy = {"pydantic", "yaml", "asyncio", "dataclasses", "inspect", "secrets", "hashlib", "ssl"}
    assert not set(done.stdout.split()) & heavy


def test_start_up_is_quick() -> None:
    began = time.perf_counter()
    run("--version")
    # 0.05 s here; the bound only catches an import gone wrong.
    assert time.perf_counter() - began < 2


@pytest.mark.parametrize("arguments", [(), ("config",), ("serve", "--nonsense"), ("nonsense",)])
def test_wrong_use_is_told_with_code_2(arguments: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert "usage: amqpbroker" in done.stderr


def test_the_example_is_good() -> None:
    done = run("config", "check", "-c", str(EXAMPLE))
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{EXAMPLE}: ok\n", "")


@pytest.mark.parametrize("verb", [("config", "check"), ("serve",)])
def test_a_bad_file_is_refused_with_all_its_problems_and_code_2(
    tmp_path: Path, verb: tuple[str, ...]
) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(
        "listeners:\n  - name: amqp\n    bind: 'localhost:0'\n    credits: 5\nlogin: {}\n"
    )
    done = run(*verb, "-c", str(file))
    assert (done.returncode, done.stdout) == (2, "")
    first, second = done.stderr.splitlines()
    assert first == f"{file}:4:5: listeners[0].credits: unknown key, did you mean credit?"
    assert second == f"{file}:5:1: login: unknown key, did you mean logging?"


def test_a_broker_runs_until_it_is_told_to_stop(config: Path) -> None:
    with serving("-c", str(config)) as process:
        up = line_with(process, "listener_up")
        line_with(process, "broker_started")
        port = int(re.findall(r"port=(\d+)", up)[0])
        with socket.create_connection(("127.0.0.1", port), timeout=READY_S) as client:
            client.sendall(b"AMQP\x00\x01\x00\x00")
            client.settimeout(READY_S)
            assert client.recv(8) == b"AMQP\x00\x01\x00\x00"
        process.send_signal(signal.SIGTERM)
        line_with(process, "broker_stopped")
        assert process.wait(READY_S) == 0


def test_ctrl_c_is_an_ordinary_end(config: Path) -> None:
    with serving("-c", str(config)) as process:
        line_with(process, "broker_started")
        process.send_signal(signal.SIGINT)
        assert process.wait(READY_S) == 0


def test_a_taken_port_is_one_clear_line_and_code_1(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        bind = f"127.0.0.1:{taken.getsockname()[1]}"
        file = tmp_path / "taken.yaml"
        file.write_text(f"listeners: [{{name: amqp, bind: '{bind}'}}]\n")
        done = run("serve", "-c", str(file))
    assert done.returncode == 1
    assert len([line for line in done.stderr.splitlines() if "driver_pure" not in line]) == 1
    assert bind in done.stderr
    assert "Traceback" not in done.stderr


def test_the_log_is_json_when_asked(tmp_path: Path) -> None:
    file = tmp_path / "json.yaml"
    file.write_text(ANY_PORT + "logging: {format: json}\n")
    with serving("-c", str(file)) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith('{"time": "')


def test_a_pure_broker_says_so_in_its_version() -> None:
    done = subprocess.run(
        program("--version"),
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "AMQPBROKER_PURE_PYTHON": "1"},
    )
    assert "driver pure, frames pure, sections pure" in done.stdout
