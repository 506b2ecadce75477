"""Peers that stall, trickle, vanish or never speak, over real sockets: everyone else is served, and memory is bounded.

What needs no socket is in tests/amqp/test_faults.py and test_peer.py. (Of wire.py and loop.py.)
"""

import os
import re
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from amqpbroker.amqp.settings import PeerSettings
from amqpbroker.engine.settings import BrokerSettings
from amqpbroker.runtime.settings import ListenerSettings, ServeSettings
from amqpbroker.runtime.thread import BrokerThread
from tests.amqp.bystander import Bystander
from tests.raw.client import RawClient, SocketWire, error
from tests.raw.frames import AMQP_HEADER, SASL_HEADER, frame, message
from tests.runtime.loops import PATIENCE_S
from tests.runtime.test_serve import PROGRAM, ROOT

PAGE = os.sysconf("SC_PAGE_SIZE")
MIB = 1024 * 1024
BUFFER = PeerSettings(container_id="b").outgoing_buffer


@contextmanager
def running(**settings: int) -> Iterator[BrokerThread]:
    peer = PeerSettings(container_id="hostile")._replace(**settings)  # type: ignore[arg-type]
    listener = ListenerSettings(name="amqp", bind="127.0.0.1:0", peer=peer)
    with BrokerThread(
        ServeSettings((listener,), BrokerSettings(), shutdown_grace_ms=100)
    ) as broker:
        yield broker


class NarrowWire(SocketWire):
    """A socket that takes little at a time, so that a stall is felt at once."""

    def __init__(self, port: int) -> None:
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        self.socket.settimeout(PATIENCE_S)
        self.socket.connect(("127.0.0.1", port))

    def reset(self) -> None:
        """Vanish without a FIN."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


OPENED: list[RawClient] = []


@pytest.fixture(autouse=True)
def _close_clients() -> Iterator[None]:
    yield
    while OPENED:
        OPENED.pop().wire.close()


def client(port: int, wire: SocketWire | None = None) -> RawClient:
    """A client that is closed after its test."""
    OPENED.append(RawClient("127.0.0.1", port, wire=wire, timeout=PATIENCE_S))
    return OPENED[-1]


def bystander(port: int) -> Bystander:
    return Bystander(lambda: client(port))


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def fill(port: int, queue: str, count: int, payload: bytes) -> None:
    """Put `count` messages on a queue, as fast as window and credit allow."""
    with client(port) as sender:
        sender.opened(container_id="fill").begun().producer(queue).wait_for(
            "flow", link_credit=1000
        )
        for start in range(0, count, 250):
            many = min(250, count - start)
            sender.wire.send(
                b"".join(
                    frame(
                        "transfer",
                        handle=0,
                        delivery_id=number,
                        delivery_tag=b"t",
                        settled=number != start + many - 1,
                        payload=payload,
                    )
                    for number in range(start, start + many)
                )
            )
            sender.wait_for("disposition", state="accepted")
            sender.frames.clear()
            sender.transcript.clear()
        sender.close().wait_for("close")


# --- slow -----------------------------------------------------------------------------------------


def test_a_reader_that_trickles_gets_its_message_and_holds_up_nobody() -> None:
    with running() as broker:
        other = bystander(broker.port)
        fill(broker.port, "q", 40, message(b"m" * 50_000))
        wire = NarrowWire(broker.port)
        slow = client(broker.port, wire).opened(max_frame_size=4_096).begun(incoming_window=2**31)
        slow.consumer("q", snd_settle_mode=1).credit(40, incoming_window=2**31)
        got = b""
        for _ in range(50):
            got += wire.socket.recv(500)
            other.look()
        for delivery in slow_rest(slow, got):
            assert delivery == message(b"m" * 50_000)


def slow_rest(slow: RawClient, got: bytes) -> Iterator[bytes]:
    slow._input += got
    for _ in range(40):
        (delivery,) = slow.receive()
        yield delivery.payload


def test_writers_of_single_bytes_are_served_as_they_write() -> None:
    whole = b"".join(
        [
            AMQP_HEADER,
            frame("open", container_id="slow"),
            frame("begin", next_outgoing_id=0, incoming_window=9, outgoing_window=9),
            frame("close"),
        ]
    )
    with running() as broker:
        other = bystander(broker.port)
        slow = [client(broker.port) for _ in range(30)]
        for at in range(len(whole)):
            for each in slow:
                each.wire.send(whole[at : at + 1])
            if at % 10 == 0:
                other.look()
        for each in slow:
            each.wait_for("close", error=None)


# --- half open, lost, silent ----------------------------------------------------------------------


def test_a_peer_that_ends_its_writing_half_is_gone_and_its_leases_are_back() -> None:
    with running() as broker:
        fill(broker.port, "q", 3, message(b"x"))
        half = client(broker.port)
        half.opened().begun().consumer("q").credit(3)
        assert len(half.receive(3)) == 3
        assert isinstance(half.wire, SocketWire)
        half.wire.socket.shutdown(socket.SHUT_WR)
        other = client(broker.port).opened(container_id="other").begun().consumer("q")
        assert len(other.credit(3).receive(3)) == 3
        assert half.wire.recv(PATIENCE_S) == b""


def test_connections_that_drop_while_they_attach_leave_no_consumer() -> None:
    # Bug case 108.
    with running() as broker:
        fill(broker.port, "q", 1_000, message(b"x"))
        script = b"".join(
            [
                AMQP_HEADER,
                frame("open", container_id="drops"),
                frame("begin", next_outgoing_id=0, incoming_window=99, outgoing_window=99),
                frame("attach", name="l", handle=0, role=True, source={"address": "q"}, target={}),
                frame(
                    "flow",
                    handle=0,
                    delivery_count=0,
                    link_credit=10,
                    next_incoming_id=0,
                    incoming_window=99,
                    next_outgoing_id=0,
                    outgoing_window=99,
                ),
            ]
        )
        for number in range(100):
            wire = NarrowWire(broker.port)
            wire.send(script[: len(script) * (number + 1) // 100])
            if number % 2:
                wire.recv(0.01)
            wire.reset()
        other = client(broker.port).opened(container_id="other").begun(incoming_window=2**31)
        other.consumer("q", snd_settle_mode=1).credit(2_000, incoming_window=2**31)
        assert len(other.receive(1_000)) == 1_000
        other.close().wait_for("close")


def test_sockets_that_never_say_a_byte_are_closed_in_time_and_stop_nobody() -> None:
    with running(handshake_timeout_ms=700) as broker:
        mute = [
            socket.create_connection(("127.0.0.1", broker.port), PATIENCE_S) for _ in range(300)
        ]
        other = bystander(broker.port).look()
        for each in mute:
            assert each.recv(1) == b""
            each.close()
        other.look()


def test_a_silent_peer_is_told_and_then_closed() -> None:
    with running(idle_timeout_ms=600) as broker:
        silent = client(broker.port).opened().begun()
        text = "local-idle-timeout expired"
        silent.wait_for("close", error=error("amqp:resource-limit-exceeded", description=text))


# --- many -----------------------------------------------------------------------------------------

LINUX = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="measures by /proc")


def memory_of(process: int) -> int:
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * PAGE


def descriptors_of(process: int) -> int:
    return len(os.listdir(f"/proc/{process}/fd"))  # noqa: PTH208  Counted, not looked at.


@pytest.fixture
def process(tmp_path: Path) -> Iterator[tuple[int, int]]:
    """A broker of its own process: its number and its port. Its log goes to a file: a full pipe would stop it."""
    log = tmp_path / "log"
    program = [sys.executable, "-c", PROGRAM, "127.0.0.1:0", "100"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with log.open("w") as errors:
        broker = subprocess.Popen(program, cwd=ROOT, env=environment, stderr=errors)
    try:
        until(lambda: "broker_started" in log.read_text())
        port = re.search(r"listener_up .*\bport=(\d+)", log.read_text())
        assert port is not None
        yield broker.pid, int(port[1])
    finally:
        broker.kill()
        broker.wait()


BEFORE_LOGIN = {
    "a trickle": SASL_HEADER + b"\0\0\x40\0\2\1\0\0" + b"\0" * 8_000,
    "a size of 2^31": SASL_HEADER + b"\x80\0\0\0\2\1\0\0",
    "a count of 2^32 - 1": SASL_HEADER
    + b"\0\0\0\x16\2\1\0\0\0\x53\x41\xd0\0\0\0\4\xff\xff\xff\xff\0\0",
    "nothing after the header": SASL_HEADER,
}


@LINUX
@pytest.mark.rule("B1.12")
def test_a_thousand_peers_that_have_not_logged_in_take_little_memory(
    process: tuple[int, int],
) -> None:
    # Bug case 163.
    number, port = process
    other = bystander(port).look()
    before, files = memory_of(number), descriptors_of(number)
    with ExitStack() as stack:
        for turn in range(800):
            wire = stack.enter_context(socket.create_connection(("127.0.0.1", port), PATIENCE_S))
            wire.sendall(list(BEFORE_LOGIN.values())[turn % len(BEFORE_LOGIN)])
        other.look()
        assert memory_of(number) - before < 24 * MIB
        client(port).opened(container_id="legit").close().wait_for("close")
    until(lambda: descriptors_of(number) <= files + 1)
    other.look()


@LINUX
def test_connections_that_come_and_go_leave_memory_and_descriptors_where_they_were(
    process: tuple[int, int],
) -> None:
    number, port = process
    faults = [b"\xff" * 20, frame("begin"), frame("close"), frame("detach", handle=4), b""]

    def churn(count: int) -> None:
        for turn in range(count):
            wire = NarrowWire(port)
            wire.send(
                AMQP_HEADER
                + frame("open", container_id="churn")
                + frame("begin", next_outgoing_id=0, incoming_window=9, outgoing_window=9)
                + frame(
                    "attach", name="l", handle=0, role=False, source={}, target={"address": "q"}
                )
                + faults[turn % len(faults)]
            )
            wire.reset() if turn % 3 else wire.close()

    other = bystander(port).look()
    churn(300)
    other.look()
    before, files = memory_of(number), descriptors_of(number)
    churn(1_000)
    other.look()
    until(lambda: descriptors_of(number) <= files)
    assert (memory_of(number) - before) / MIB < 4


# --- stalled --------------------------------------------------------------------------------------


STALLED = 4
DELIVERY_BYTES = 1_000
KERNEL_BYTES = 6 * MIB  # net.ipv4.tcp_wmem's largest, and what the reader's side takes.


def stall(port: int, name: str, settled: int) -> RawClient:
    """A consumer that gives a million credit and reads nothing."""
    one = client(port, NarrowWire(port)).opened(container_id=name).begun(incoming_window=2**31)
    return one.consumer("q", snd_settle_mode=settled).credit(1_000_000, incoming_window=2**31)


@LINUX
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("count", "size", "settled"),
    [
        pytest.param(5_000, 10_000, 0, id="5,000 of 10 kB, unsettled"),
        pytest.param(200_000, 100, 1, id="200,000 of 100 B, settled"),
        pytest.param(1_000_000, 100, 1, id="1,000,000 of 100 B, settled", marks=pytest.mark.slow),
        pytest.param(1_000_000, 100, 0, id="1,000,000 of 100 B, unsettled", marks=pytest.mark.slow),
    ],
)
def test_a_stalled_consumer_of_a_long_queue_costs_its_outgoing_buffer_and_no_more(
    process: tuple[int, int], count: int, size: int, settled: int
) -> None:
    number, port = process
    fill(port, "q", count, message(b"p" * size))
    other = bystander(port).look()
    stalled = stall(port, "first", settled)  # Buffers that all connections share are made now.
    for _ in range(20):
        other.look()
    before = memory_of(number)
    for each in range(STALLED):
        stalled = stall(port, f"stalled-{each}", settled)
    for _ in range(20):
        other.look()
    grown = (memory_of(number) - before) // STALLED
    # What waits is framed, so a little more than its payload is counted as.
    bound = 1.5 * BUFFER
    if not settled:
        # Until a delivery is settled Proton keeps its buffer, of up to twice its size, and we its lease: what the
        # kernel has taken costs that too.
        bound += KERNEL_BYTES * (2 + DELIVERY_BYTES / size)
    print(f"grown {grown:,} bytes, bound {bound:,.0f}")  # noqa: T201  Shown by -s.
    assert grown < bound
    # Another consumer of the queue does not wait for it,
    quick = client(port).opened(container_id="quick").begun(incoming_window=2**31)
    quick.consumer("q", snd_settle_mode=1).credit(1_000, incoming_window=2**31)
    assert len(quick.receive(1_000)) == 1_000
    # and when it reads again, it goes on.
    assert len(stalled.receive(1_000)) == 1_000
    other.look()


@LINUX
def test_a_peer_that_writes_and_never_reads_is_stopped(process: tuple[int, int]) -> None:
    number, port = process
    other = bystander(port).look()
    before = memory_of(number)
    wire = NarrowWire(port)
    deaf = client(port, wire).opened().begun()
    echo = frame(
        "flow",
        next_incoming_id=0,
        incoming_window=9,
        next_outgoing_id=0,
        outgoing_window=9,
        echo=True,
    )
    wire.socket.settimeout(0.5)
    with pytest.raises(TimeoutError):
        wire.socket.sendall(echo * 4_000_000)  # 140 MB; the kernel's buffers are some MB.
    other.look()
    assert memory_of(number) - before < 2 * BUFFER + 4 * MIB
    assert deaf.frames
    wire.reset()
