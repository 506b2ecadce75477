"""One accepted socket: what happens when the peer's code, or the socket, breaks at the worst moment."""

import socket

import pytest

from amqpbroker.base.ids import Millis
from tests.runtime.fakes import EchoPeer, FakeClock
from tests.runtime.loops import Echo, read_all, read_exactly, running

RESET_ON_CLOSE = b"\1\0\0\0\0\0\0\0"  # struct linger.


def connected(echo: Echo) -> tuple[socket.socket, EchoPeer]:
    """A client and the peer behind its wire."""
    client = echo.client()
    count = len(echo.board.peers)
    echo.turn_until(lambda: len(echo.board.peers) > count)
    return client, echo.board.peers[-1]


def turn(echo: Echo, times: int = 1) -> None:
    for _ in range(times):
        echo.loop.wakeup.wake()
        echo.loop.turn()


def test_a_peer_that_cannot_even_say_that_it_failed_is_cut_off(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(error: BaseException, now: Millis) -> None:
        raise RuntimeError("worse")

    echo = Echo()
    client, peer = connected(echo)
    monkeypatch.setattr(peer, "fail", fails)
    client.sendall(b"raise")
    echo.turn_until(lambda: echo.listener.connections == 0)
    assert peer.is_input_closed
    assert read_all(client) == b""
    assert [one.getMessage() for one in caplog.records].count("peer_failed") == 2


def test_a_peer_whose_every_method_raises_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    def raises(*_: object) -> None:
        raise RuntimeError("worst")

    echo = Echo()
    client, peer = connected(echo)
    for name in ("receive", "fail", "input_closed"):
        monkeypatch.setattr(peer, name, raises)
    client.sendall(b"hello")
    echo.turn_until(lambda: echo.listener.connections == 0)
    assert peer.owner is None
    assert echo.loop._wires.talking == 0
    assert read_all(client) == b""


def test_a_peer_that_raises_when_it_is_written_fails_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def raises(count: int, now: Millis) -> None:
        monkeypatch.undo()
        raise RuntimeError("written")

    echo = Echo()
    client, peer = connected(echo)
    monkeypatch.setattr(peer, "written", raises)
    client.sendall(b"hello")
    echo.turn_until(lambda: bool(peer.failures))
    echo.turn_until(lambda: peer.owner is None)
    assert read_all(client).endswith(b"internal error")


def test_the_last_words_of_a_stalled_reader_are_thrown_away_in_the_end() -> None:
    clock = FakeClock()
    echo = Echo(clock=clock)
    client, peer = connected(echo)
    client.sendall(b"flood 20000000")
    echo.turn_until(lambda: bool(peer.sent))
    turn(echo, 20)
    peer.is_finished = True
    echo.board.touch(peer)
    turn(echo)
    assert echo.listener.connections == 1
    clock.at = Millis(clock.at + 60_000)
    turn(echo)
    assert echo.listener.connections == 0
    assert echo.loop._wires.talking == 0


def test_a_reset_while_output_waits_ends_the_peer() -> None:
    echo = Echo()
    client, peer = connected(echo)
    client.sendall(b"flood 20000000")
    echo.turn_until(lambda: bool(peer.sent))
    turn(echo, 20)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
    client.close()
    echo.turn_until(lambda: peer.owner is None)
    assert peer.is_input_closed
    assert not peer.sent
    assert echo.listener.connections == 0


def test_a_half_closed_connection_costs_no_turns() -> None:
    echo = Echo()
    client, peer = connected(echo)
    original = peer.input_closed

    def stays(now: Millis) -> None:
        original(now)
        peer.is_finished = False

    peer.input_closed = stays  # type: ignore[method-assign]
    client.shutdown(socket.SHUT_WR)
    echo.turn_until(lambda: peer.is_input_closed)
    assert echo.loop.container.poller.wait(0) == []
    peer.say(b"late")
    turn(echo)
    assert read_exactly(client, 4) == b"late"


def test_a_paused_connection_costs_no_turns() -> None:
    echo = Echo()
    client, peer = connected(echo)
    peer.wants_input = False
    client.sendall(b"hello")
    echo.turn_until(lambda: bool(echo.loop._wires.paused))
    turn(echo)
    assert echo.loop.container.poller.wait(0) == []
    assert not peer.received
    peer.wants_input = True
    turn(echo, 2)
    assert peer.received == b"hello"
    assert not echo.loop._wires.paused


def test_idle_connections_are_only_watched() -> None:
    with running(Echo()) as echo:
        clients = [echo.client() for _ in range(400)]
        clients[-1].sendall(b"hello")
        read_exactly(clients[-1], 5)
        assert echo.board.receives == 1
        assert not echo.loop._wires.paused
        assert not echo.loop._wires.ending
