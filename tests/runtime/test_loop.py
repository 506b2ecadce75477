"""The turn: who is read, who is written, when it sleeps, and how it ends."""

import socket
from threading import Event

import pytest

from amqpbroker.amqp.switchboard import EngineBroken
from amqpbroker.base.ids import Millis
from amqpbroker.runtime.garbage import GAP_MS, Garbage
from amqpbroker.runtime.loop import FROZEN_MS, STOOD_MS
from tests.runtime.fakes import FakeClock
from tests.runtime.loops import PATIENCE_S, Echo, read_all, read_exactly, running


def test_what_is_sent_comes_back() -> None:
    with running(Echo()) as echo, echo.client() as client:
        client.sendall(b"hello")
        assert read_exactly(client, 5) == b"hello"


def test_a_deadline_in_the_past_is_a_turn_without_waiting() -> None:
    clock = FakeClock()
    echo = Echo(clock=clock)
    echo.board.deadline = Millis(clock.at - 1)
    echo.loop.turn()
    assert echo.board.turns == 1


def test_no_deadline_and_no_traffic_is_a_sleep_until_woken() -> None:
    turned = Event()
    with running(Echo()) as echo:
        first = Event()
        echo.loop.call(first.set)
        assert first.wait(PATIENCE_S)
        before = echo.board.turns
        # 0.3 s is the test itself: a loop that polls would turn in it.
        assert not turned.wait(0.3)
        assert echo.board.turns <= before + 1
        echo.loop.call(turned.set)
        assert turned.wait(PATIENCE_S)


def test_idle_connections_are_not_looked_at() -> None:
    echo = Echo()
    clients = [echo.client() for _ in range(200)]
    echo.turn_until(lambda: len(echo.board.peers) == 200)
    clients[7].sendall(b"hello")
    before = echo.board.receives
    echo.turn_until(lambda: echo.board.receives > before)
    assert echo.board.receives == before + 1


def test_a_busy_producer_does_not_starve_the_others() -> None:
    echo = Echo()
    with echo.client() as busy, echo.client() as quiet:
        echo.turn_until(lambda: len(echo.board.peers) == 2)
        busy.settimeout(0)
        for _ in range(100):
            try:
                busy.send(b"y" * 65_536)
            except BlockingIOError:
                break
        quiet.sendall(b"hello")
        before = echo.board.turns
        echo.turn_until(lambda: b"hello" in echo.board.peers[1].received)
        assert echo.board.turns <= before + 2


def test_a_slow_reader_is_written_when_it_reads_again_and_costs_no_turns_until_then() -> None:
    with running(Echo()) as echo, echo.client() as client:
        client.sendall(b"flood 20000000")
        checked = Event()
        turns: list[int] = []

        def check() -> None:
            turns.append(echo.board.turns)
            checked.set()

        # Until the kernel's buffers are full the loop may turn as often as it likes.
        while len(turns) < 2 or turns[-1] - turns[-2] > 1:
            checked.clear()
            assert not checked.wait(0.1)
            echo.loop.call(check)
            assert checked.wait(PATIENCE_S)
            assert len(turns) < 100
        assert len(read_exactly(client, 20_000_000)) == 20_000_000
        client.sendall(b"hello")
        assert read_exactly(client, 5) == b"hello"


def test_a_peer_that_wants_no_input_is_not_read_until_it_does() -> None:
    with running(Echo()) as echo, echo.client() as client:
        client.sendall(b"pause")
        read_exactly(client, 5)
        client.sendall(b"hello")
        client.settimeout(0.1)
        with pytest.raises(TimeoutError):
            client.recv(5)
        client.settimeout(PATIENCE_S)

        def resume() -> None:
            echo.board.peers[0].wants_input = True

        echo.loop.call(resume)
        assert read_exactly(client, 5) == b"hello"


def test_a_half_closed_client_still_gets_its_answer() -> None:
    with running(Echo()) as echo, echo.client() as client:
        client.sendall(b"hello")
        client.shutdown(socket.SHUT_WR)
        assert read_all(client) == b"hello"


def test_a_reset_ends_the_peer() -> None:
    ended = Event()
    with running(Echo()) as echo:
        echo.board.on_turn = lambda _now: (
            ended.set() if echo.board.peers and echo.board.peers[0].is_input_closed else None
        )
        client = echo.client()
        client.sendall(b"hello")
        read_exactly(client, 5)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        client.close()
        assert ended.wait(PATIENCE_S)


def test_a_finished_peer_has_its_last_words_before_the_end() -> None:
    with running(Echo()) as echo, echo.client() as client:
        client.sendall(b"bye")
        assert read_all(client) == b"bye"


def test_last_words_survive_input_that_was_never_read() -> None:
    # Closing with unread input sends a reset, which would throw the answer away.
    with running(Echo()) as echo, echo.client() as client:
        client.sendall(b"bye")
        client.sendall(b"z" * 500_000)
        assert read_all(client).startswith(b"bye")


def test_a_finished_peer_that_does_not_go_is_cut_off_in_the_end() -> None:
    clock = FakeClock()
    echo = Echo(clock=clock)
    with echo.client() as client:
        client.sendall(b"bye")
        echo.turn_until(lambda: bool(echo.board.peers) and echo.board.peers[0].owner is None)
        assert echo.listener.connections == 1
        clock.at = Millis(clock.at + 10_000)
        echo.loop.wakeup.wake()
        echo.loop.turn()
        assert echo.listener.connections == 0


def test_an_exception_in_one_peer_ends_that_peer_only(caplog: pytest.LogCaptureFixture) -> None:
    with running(Echo()) as echo, echo.client() as bad, echo.client() as good:
        bad.sendall(b"raise")
        assert read_all(bad) == b"internal error"
        good.sendall(b"hello")
        assert read_exactly(good, 5) == b"hello"
    failed = next(one for one in caplog.records if one.getMessage() == "peer_failed")
    assert failed.exc_info is not None


def test_a_broken_engine_ends_the_loop() -> None:
    echo = Echo()
    with echo.client() as client:
        client.sendall(b"break")
        with pytest.raises(EngineBroken):
            echo.loop.run()
        assert read_all(client) == b""


def test_stop_says_so_to_every_peer_and_ends() -> None:
    with running(Echo()) as echo, echo.client() as one, echo.client() as other:
        for client in (one, other):
            client.sendall(b"hello")
            read_exactly(client, 5)
        echo.loop.call(echo.loop.stop)
        assert read_all(one) == b"forced"
        assert read_all(other) == b"forced"
        with pytest.raises(ConnectionRefusedError):
            echo.client()


def test_stop_waits_no_longer_than_its_grace() -> None:
    clock = FakeClock()
    echo = Echo(clock=clock, grace_ms=3_000)
    echo.board.waits_for_answers = True
    with echo.client():
        echo.turn_until(lambda: len(echo.board.peers) == 1)
        echo.loop.stop()
        echo.loop.wakeup.wake()
        assert echo.loop.turn()
        clock.at = Millis(clock.at + 3_000)
        echo.loop.wakeup.wake()
        assert not echo.loop.turn()
        assert not echo.loop.turn()


def test_a_frozen_clock_does_not_make_the_loop_spin() -> None:
    clock = FakeClock()
    echo = Echo(clock=clock)
    echo.board.deadline = Millis(clock.at + 1)
    for _ in range(STOOD_MS):
        assert echo.loop._wait_ms() == 1
        echo.loop.turn()  # Waits a millisecond, and finds that no time has passed.
    assert echo.loop._wait_ms() == FROZEN_MS
    clock.at = Millis(clock.at + 1)
    echo.loop.wakeup.wake()
    echo.loop.turn()
    assert echo.loop._wait_ms() == 0


def test_turning_without_a_wait_is_not_a_frozen_clock() -> None:
    clock = FakeClock()
    echo = Echo(clock=clock)
    for _ in range(100):
        echo.loop.wakeup.turn_again()
        echo.loop.turn()
    echo.board.deadline = Millis(clock.at + 5)
    assert echo.loop._wait_ms() == 5


def test_the_earliest_of_all_deadlines_ends_the_wait() -> None:
    clock = FakeClock()
    echo = Echo(clock=clock, grace_ms=300)
    loop = echo.loop
    assert loop._wait_ms() is None
    loop.garbage = Garbage(clock.at)
    loop.garbage.saw_traffic(clock.at)
    assert loop._wait_ms() == GAP_MS
    echo.listener.retry_at = Millis(clock.at + 500)
    assert loop._wait_ms() == 500
    echo.board.deadline = Millis(clock.at + 400)
    assert loop._wait_ms() == 400
    loop.stop()
    assert loop._wait_ms() == 0  # What stop had to say leaves first.
    assert loop._wait_ms() == 300


def test_what_is_closed_afterwards_is_closed_last_first() -> None:
    echo = Echo()
    closed: list[str] = []
    echo.loop.afterwards(lambda: closed.append("first"))
    echo.loop.afterwards(lambda: closed.append("second"))
    echo.close()
    echo.close()
    assert closed == ["second", "first"]
