"""A broker process under clients that break off, over real sockets. (Of loop.py.)"""

import socket
import struct
from pathlib import Path
from random import Random

import pytest

from tests.raw.client import RawClient
from tests.raw.frames import AMQP_HEADER, Composite, decode_sections, frame, message
from tests.runtime.test_serve import Served, served

CONSUMER = b"".join(
    (
        AMQP_HEADER,
        frame("open", container_id="ghost"),
        frame("begin", next_outgoing_id=0, incoming_window=2048, outgoing_window=2048),
        frame(
            "attach",
            name="l",
            handle=0,
            role=True,
            source=Composite("source", address="q"),
            target=Composite("target"),
        ),
        frame(
            "flow",
            next_incoming_id=0,
            incoming_window=2048,
            next_outgoing_id=0,
            outgoing_window=2048,
            handle=0,
            delivery_count=0,
            link_credit=10,
        ),
    )
)


def port_of(broker: Served) -> int:
    return int(broker.wait_for(r"listener_up .*port=(\d+)")[1])


def descriptors(broker: Served) -> int:
    return sum(1 for _ in Path(f"/proc/{broker.process.pid}/fd").iterdir())


def break_off(port: int, data: bytes) -> None:
    """Connect, write, reset."""
    sock = socket.create_connection(("127.0.0.1", port))
    sock.sendall(data)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="descriptors are counted in /proc")
def test_connections_that_break_off_in_an_attach_leave_no_consumer_and_no_descriptor() -> None:
    """Bug case 108."""
    random = Random(108)
    with served() as broker:
        port = port_of(broker)
        with RawClient(port=port) as client:
            client.opened(container_id="producer").begun().producer("q")
            client.wait_for("flow", handle=0)
            with client.pipelined():
                for number in range(500):
                    client.transfer(message(b"%d" % number), settled=True)
            client.close().wait_for("close")
        before = descriptors(broker)
        for number in range(200):
            whole = number % 2 == 0
            break_off(port, CONSUMER if whole else CONSUMER[: random.randrange(len(CONSUMER))])
        with RawClient(port=port) as client:
            client.opened(container_id="consumer").begun().consumer("q")
            client.credit(500)
            bodies = [decode_sections(read.payload)["data"] for read in client.receive(500)]
            client.close().wait_for("close")
        assert sorted(map(int, bodies)) == list(range(500))
        assert descriptors(broker) <= before + 1  # The last one may still be closing.
