"""Accepting: limits, storms, half-made connections, no descriptors, and the end of a Unix socket's file."""

import errno
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from amqpbroker.base.ids import Millis
from amqpbroker.runtime import listener as listener_module
from amqpbroker.runtime.listener import ACCEPTS_MAX, RETRY_MS
from amqpbroker.runtime.loop import REFUSALS_MAX
from tests.runtime.fakes import FakeClock
from tests.runtime.loops import Echo, read_all, read_exactly, running


def test_beyond_the_limit_a_connection_is_told_so_and_ended(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with running(Echo(max_connections=1)) as echo, echo.client() as first:
        first.sendall(b"hello")
        read_exactly(first, 5)
        for _ in range(2):
            with echo.client() as second:
                assert read_all(second) == b"amqp:resource-limit-exceeded"
        first.sendall(b"still")
        assert read_exactly(first, 5) == b"still"
    assert [one.getMessage() for one in caplog.records].count("listener_full") == 1


def test_a_place_that_becomes_free_is_taken() -> None:
    echo = Echo(max_connections=1)
    with echo.client() as first:
        first.sendall(b"bye")
        echo.turn_until(lambda: bool(echo.board.peers) and echo.board.peers[0].is_finished)
        assert read_all(first) == b"bye"
    echo.turn_until(lambda: echo.listener.connections == 0)
    with echo.client() as second:
        second.sendall(b"hello")
        echo.turn_until(lambda: len(echo.board.peers) == 2 and echo.board.receives == 2)
        assert read_exactly(second, 5) == b"hello"


def test_refusals_are_bounded_too() -> None:
    echo = Echo(max_connections=0)
    clients = [echo.client() for _ in range(REFUSALS_MAX + 5)]
    echo.turn_until(lambda: len(echo.board.peers) == REFUSALS_MAX)
    echo.loop.wakeup.wake()
    echo.loop.turn()
    assert all(read_all(client) == b"" for client in clients[REFUSALS_MAX:])


def test_a_storm_is_taken_in_portions() -> None:
    echo = Echo()
    for _ in range(2 * ACCEPTS_MAX):
        echo.client()
    echo.loop.turn()
    assert len(echo.board.peers) == ACCEPTS_MAX
    echo.turn_until(lambda: len(echo.board.peers) == 2 * ACCEPTS_MAX)


def test_small_writes_are_not_held_back() -> None:
    echo = Echo()
    with echo.client():
        echo.turn_until(lambda: len(echo.board.peers) == 1)
        (wire,) = echo.loop._wires.open
        assert wire._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_ipv6_and_ipv4_arrive_at_one_listener() -> None:
    with running(Echo("*:0")) as echo:
        for host in ("127.0.0.1", "::1"):
            with echo.client(host) as client:
                client.sendall(b"hello")
                assert read_exactly(client, 5) == b"hello"
        remotes = [peer.remote.rpartition(":")[0] for peer in echo.board.peers]
    assert remotes == ["127.0.0.1", "[::1]"]


def test_a_unix_listener_serves_and_takes_its_file_away(tmp_path: Path) -> None:
    path = tmp_path / "broker.sock"
    with running(Echo(f"unix:{path}")) as echo, echo.unix_client(path) as client:
        client.sendall(b"hello")
        assert read_exactly(client, 5) == b"hello"
        assert echo.board.peers[0].remote == f"unix:{path}"
    assert not path.exists()


def test_a_listener_is_said_to_be_up_with_the_port_it_has(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    tcp, unix = Echo(), Echo(f"unix:{tmp_path}/broker.sock")
    fields = [one.fields for one in caplog.records if one.getMessage() == "listener_up"]  # type: ignore[attr-defined]
    assert fields == [
        {"listener": "test", "port": tcp.listener.port, "at": f"127.0.0.1:{tcp.listener.port}"},
        {"listener": "test", "at": f"unix:{tmp_path}/broker.sock"},
    ]
    tcp.close()
    unix.close()


def test_a_unix_listener_leaves_a_file_that_is_not_its_own_any_more(tmp_path: Path) -> None:
    path = tmp_path / "broker.sock"
    echo = Echo(f"unix:{path}")
    path.rename(tmp_path / "kept")  # Its number must not be free for the next file.
    path.write_text("somebody else's")
    echo.close()
    assert path.exists()


class Door:
    """A listening socket that can run dry."""

    def __init__(self, real: socket.socket) -> None:
        self.real = real
        self.errors: list[int] = []
        self.calls = 0

    def accept(self) -> tuple[socket.socket, object]:
        self.calls += 1
        if self.errors:
            number = self.errors.pop(0)
            raise OSError(number, os.strerror(number))
        return self.real.accept()

    def fileno(self) -> int:
        return self.real.fileno()

    def close(self) -> None:
        self.real.close()


def with_door(echo: Echo) -> Door:
    listener = echo.listener
    door = Door(listener._sockets[0])
    listener._poller.forget(door.fileno())
    listener._sockets[0] = door  # type: ignore[call-overload]
    listener._watch()
    return door


def test_a_connection_that_failed_before_it_was_ours_does_not_stop_the_next() -> None:
    echo = Echo()
    door = with_door(echo)
    door.errors = [errno.ECONNABORTED, errno.EPROTO]
    with echo.client() as client:
        client.sendall(b"hello")
        echo.turn_until(lambda: echo.board.receives == 1)


def test_without_descriptors_accepting_pauses_and_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    echo = Echo(clock=clock)
    door = with_door(echo)
    door.errors = [errno.EMFILE, errno.EMFILE]
    with echo.client() as client:
        client.sendall(b"hello")
        echo.turn_until(lambda: door.calls == 1)
        for _ in range(50):  # Readable all the time, and not looked at.
            echo.loop.wakeup.wake()
            echo.loop.turn()
        assert door.calls == 1
        for _ in range(2):
            clock.at = Millis(clock.at + RETRY_MS)
            echo.loop.wakeup.wake()
            echo.loop.turn()
            echo.loop.wakeup.wake()
            echo.loop.turn()
        echo.turn_until(lambda: echo.board.receives == 1)
    failed = [one for one in caplog.records if one.getMessage() == "listener_failed"]
    assert len(failed) == 1


OUT_OF_DESCRIPTORS = """
import os, resource, socket, sys, threading
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
from tests.runtime.loops import Echo, read_exactly
echo = Echo()
thread = threading.Thread(target=echo.loop.run)
thread.start()
first = echo.client()
first.sendall(b"hello")
read_exactly(first, 5)
# The client's ends live in the same process, so both sides run dry together: first all but one by fillers.
fillers = []
try:
    while True:
        fillers.append(os.open(os.devnull, os.O_RDONLY))
except OSError:
    os.close(fillers.pop())
waiting = echo.client()  # Takes the last: accept has none.
waiting.sendall(b"hello")
before = echo.board.turns
for _ in range(20):
    first.sendall(b"still")
    assert read_exactly(first, 5) == b"still"
waiting.settimeout(0.5)
try:
    waiting.recv(5)
    raise SystemExit("served without a descriptor")
except TimeoutError:
    pass
spun = echo.board.turns - before
assert spun < 60, spun
for fd in fillers:
    os.close(fd)
waiting.settimeout(10)
assert read_exactly(waiting, 5) == b"hello"
echo.loop.call(echo.loop.stop_now)
thread.join()
print("ok")
"""


def test_a_process_without_descriptors_serves_those_it_has_and_recovers() -> None:
    root = Path(listener_module.__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", OUT_OF_DESCRIPTORS],
        cwd=root,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "ok\n", done.stderr
