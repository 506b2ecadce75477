"""`serve` as a process: its log, its exit codes, signals, and a port that is taken. (Of loop.py.)"""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from amqpbroker.amqp.switchboard import EngineBroken
from amqpbroker.runtime import loop
from amqpbroker.runtime.garbage import Garbage
from tests.runtime.loops import PATIENCE_S, Echo, read_exactly

ROOT = Path(loop.__file__).parents[2]

PROGRAM = """
import sys
from amqpbroker.amqp.settings import PeerSettings
from amqpbroker.engine.settings import BrokerSettings
from amqpbroker.ops import log
from amqpbroker.runtime.loop import serve
from amqpbroker.runtime.settings import ListenerSettings, ServeSettings

log.set_up(log.LogSettings())
listener = ListenerSettings(name="amqp", bind=sys.argv[1], peer=PeerSettings(container_id="test"))
sys.exit(serve(ServeSettings((listener,), BrokerSettings(), shutdown_grace_ms=int(sys.argv[2]))))
"""

OPEN = b"AMQP\0\1\0\0" + b"\0\0\0\x13\2\0\0\0\0\x53\x10\xc0\6\1\xa1\3cli"
CLOSE_FORCED = b"amqp:connection:forced"


class Served:
    """A broker process."""

    def __init__(self, bind: str, grace_ms: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, bind, str(grace_ms)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stderr=subprocess.PIPE,
            text=True,
        )
        self.log: list[str] = []

    def wait_for(self, pattern: str) -> re.Match[str]:
        """The first further line of the log that has `pattern`."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(line)
            if found := re.search(pattern, line):
                return found
        raise AssertionError("".join(self.log))

    def end(self) -> int:
        """The exit code, and the rest of the log."""
        assert self.process.stderr is not None
        self.log += self.process.stderr
        return self.process.wait(PATIENCE_S)


@contextmanager
def served(bind: str = "127.0.0.1:0", grace_ms: int = 5_000) -> Iterator[Served]:
    made = Served(bind, grace_ms)
    try:
        yield made
    finally:
        made.process.kill()
        made.process.wait()
        assert made.process.stderr is not None
        made.process.stderr.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_an_idle_broker_with_0(number: int) -> None:
    with served() as broker:
        broker.wait_for("broker_started")
        broker.process.send_signal(number)
        assert broker.end() == 0
        assert "broker_stopped" in broker.log[-1]


def test_the_bound_port_is_in_the_log_and_answers() -> None:
    with served("localhost:0") as broker:
        port = int(broker.wait_for(r"listener_up .*\bport=(\d+)")[1])
        with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as client:
            client.sendall(OPEN)
            assert read_exactly(client, 8) == OPEN[:8]


def test_a_connected_client_is_told_and_waited_for() -> None:
    with served() as broker:
        port = int(broker.wait_for(r"listener_up .*\bport=(\d+)")[1])
        with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as client:
            client.sendall(OPEN)
            broker.wait_for("peer_opened")
            broker.process.send_signal(signal.SIGTERM)
            told = b""
            while CLOSE_FORCED not in told:
                data = client.recv(4_096)
                assert data, told
                told += data
            client.sendall(b"\0\0\0\x0c\2\0\0\0\0\x53\x18\x45")
            assert broker.end() == 0


def test_a_second_signal_does_not_wait() -> None:
    with served(grace_ms=3_600_000) as broker:
        port = int(broker.wait_for(r"listener_up .*\bport=(\d+)")[1])
        with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as client:
            client.sendall(OPEN)
            broker.wait_for("peer_opened")
            broker.process.send_signal(signal.SIGTERM)
            broker.wait_for("broker_stopping")
            broker.process.send_signal(signal.SIGTERM)
            assert broker.end() == 0


def test_the_grace_ends_what_does_not_answer() -> None:
    with served(grace_ms=100) as broker:
        port = int(broker.wait_for(r"listener_up .*\bport=(\d+)")[1])
        with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as client:
            client.sendall(OPEN)
            broker.wait_for("peer_opened")
            broker.process.send_signal(signal.SIGTERM)
            assert broker.end() == 0


def test_a_taken_port_is_one_line_and_exit_1() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with served(f"127.0.0.1:{port}") as broker:
            assert broker.end() == 1
            (line,) = broker.log
            assert line.startswith(
                f"amqpbroker: listener amqp: cannot listen on 127.0.0.1:{port}: Address already in use; "
            )


def test_the_descriptor_limit_is_raised_to_what_is_allowed() -> None:
    code = "import resource as r; r.setrlimit(r.RLIMIT_NOFILE, (64, 256))\n"
    code += "from amqpbroker.runtime import loop\nloop._raise_descriptor_limit()\n"
    code += "print(r.getrlimit(r.RLIMIT_NOFILE))"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    said = subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, env=env, text=True)
    assert said == "(256, 256)\n"


@pytest.mark.parametrize("error", [EngineBroken("test"), RuntimeError("somewhere in the turn")])
def test_a_broken_turn_is_exit_70_with_the_stack(
    error: Exception, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(_now: object) -> None:
        raise error

    monkeypatch.setattr(Garbage, "freeze", lambda: None)
    echo = Echo()
    echo.board.on_turn = breaks
    echo.loop.wakeup.wake()
    assert loop.serve_loop(echo.loop) == 70
    broken = next(one for one in caplog.records if one.getMessage() == "broker_broken")
    assert broken.exc_info is not None
    with pytest.raises(ConnectionRefusedError):
        echo.client()
