"""The raw client, against Proton in memory and against bytes over a socket."""
# ruff: noqa: ANN401  # Proton's events are anything to a type checker.

import socket
from typing import Any

import proton
import pytest

from tests.raw.client import RawClient, anything, at_least, error, matches
from tests.raw.frames import (
    AMQP_HEADER,
    SASL_HEADER,
    Composite,
    accepted,
    data,
    decode_frame,
    decode_sections,
    empty_frame,
    frame,
    message,
    rejected,
)


class ProtonWire:
    """A Proton server in memory: it opens what is opened, grants credit, accepts, and keeps what it got."""

    def __init__(self) -> None:
        self.transport = proton.Transport(mode=proton.Transport.SERVER)
        self.connection = proton.Connection()
        self.collector = proton.Collector()
        self.connection.collect(self.collector)
        self.transport.bind(self.connection)
        self.got: list[bytes] = []
        self.sent = False

    def send(self, data: bytes) -> None:
        self.transport.push(data)
        while (event := self.collector.peek()) is not None:
            self.react(event)
            self.collector.pop()

    def react(self, event: Any) -> None:
        kind = event.type
        if kind == proton.Event.CONNECTION_REMOTE_OPEN:
            event.connection.container = "proton"
            event.connection.open()
        elif kind == proton.Event.SESSION_REMOTE_OPEN:
            event.session.open()
        elif kind == proton.Event.LINK_REMOTE_OPEN:
            event.link.source.copy(event.link.remote_source)
            event.link.target.copy(event.link.remote_target)
            event.link.open()
            if event.link.is_receiver:
                event.link.flow(10)
        elif kind == proton.Event.LINK_FLOW and event.link.is_sender and not self.sent:
            self.sent = True
            event.link.delivery("d")
            event.link.send(message(b"sent"))
            event.link.advance()
        elif kind == proton.Event.DELIVERY and event.link.is_receiver:
            delivery = event.delivery
            if delivery.readable and not delivery.partial:
                self.got.append(event.link.recv(delivery.pending))
                delivery.update(proton.Delivery.ACCEPTED)
                delivery.settle()
        elif kind == proton.Event.CONNECTION_REMOTE_CLOSE:
            event.connection.close()

    def recv(self, timeout: float) -> bytes | None:
        pending = self.transport.pending()
        if pending < 0:  # The end of the stream.
            return b""
        chunk = bytes(self.transport.peek(pending) or b"")
        self.transport.pop(len(chunk))
        return chunk or None

    def close(self) -> None:
        self.transport.unbind()


@pytest.fixture
def wire() -> ProtonWire:
    return ProtonWire()


@pytest.fixture
def client(wire: ProtonWire) -> RawClient:
    return RawClient(wire=wire, timeout=0.05)


def test_proton_understands_a_producer(client: RawClient, wire: ProtonWire) -> None:
    client.opened(sasl=False).begun().producer("q")
    client.expect("attach", name="link-0-0", role=True, target={"address": "q"})
    client.expect("flow", handle=0, link_credit=10)
    client.transfer(message(b"one"))
    client.expect("disposition", role=True, first=0, state="accepted", settled=True)
    client.transfer(b"tw", more=True).transfer(b"o")
    client.expect("disposition", first=1, settled=True)
    assert wire.got == [message(b"one"), b"two"]
    client.close().expect("close", error=None)
    client.expect_closed()


def test_proton_understands_a_consumer(client: RawClient) -> None:
    client.opened(sasl=False).begun(channel=3).consumer("q", channel=3, handle=7)
    client.expect("attach", role=False, source={"address": "q"}, handle=0, channel=0)
    client.credit(5, 7, channel=3)
    (delivery,) = client.receive()
    assert decode_sections(delivery.payload) == {"data": b"sent"}
    client.disposition(delivery.delivery_id, state="accepted", channel=3)
    client.detach(7, channel=3).end(3).expect_nothing(0.01)


def test_proton_refuses_what_is_wrong(client: RawClient) -> None:
    client.opened(sasl=False).begun()
    client.transfer(b"x", handle=9)
    client.expect("close", error=error("amqp:invalid-field", description=anything))


def test_all_can_go_out_in_one_write(client: RawClient) -> None:
    with client.pipelined():
        client.header().open().begin().empty()
    client.expect_header().expect("open", container_id="proton")
    client.expect("begin", remote_channel=0, incoming_window=at_least(1))


def test_handles_tags_and_delivery_ids_are_counted() -> None:
    sent: list[bytes] = []

    class Sink(ProtonWire):
        def send(self, data: bytes) -> None:
            sent.append(data)

    client = RawClient(wire=Sink())
    client.attach().attach(channel=1).attach(handle=5).attach()
    client.transfer(b"a").transfer(b"b", more=True).transfer(b"c").transfer(b"d", 5)
    client.transfer(b"e", delivery_id=2**32 - 1).transfer(b"f", delivery_tag=None, handle=None)
    client.transfer(b"g", more=True).transfer(b"h", aborted=True, more=True).transfer(b"i")
    handles = [line for line in client.transcript if "attach" in line]
    assert [word for line in handles for word in line.split() if word.startswith("handle=")] == [
        "handle=0",
        "handle=0",
        "handle=5",
        "handle=6",
    ]
    told = [
        (item.get("handle"), item.get("delivery_id"), item.get("delivery_tag"))
        for item in (decoded(piece) for piece in sent[4:])
    ]
    assert told == [
        (0, 0, b"0"),
        (0, 1, b"1"),
        (0, None, None),
        (5, 2, b"0"),
        (0, 2**32 - 1, b"2"),
        (None, 0, None),
        (0, 1, b"3"),
        (0, None, None),
        (0, 2, b"4"),
    ]


def decoded(piece: bytes) -> Composite:
    return decode_frame(piece).fields


def test_a_failure_shows_all_that_happened(client: RawClient) -> None:
    client.opened(sasl=False).begin()
    with pytest.raises(AssertionError) as failure:
        client.expect("begin", remote_channel=4)
    text = str(failure.value)
    assert "expected begin remote_channel=4: remote_channel is 0" in text
    assert "-> open ch=0 container_id='raw'" in text
    assert "<- open ch=0 container_id='proton'" in text
    with pytest.raises(AssertionError, match="expected end, nothing came"):
        client.expect("end", timeout=0.01)
    with pytest.raises(AssertionError, match="stays open"):
        client.expect_closed(timeout=0.01)
    client.begin(1)
    with pytest.raises(TypeError, match="no field"):
        client.expect("begin", nothing=1)


def test_what_is_wanted_is_compared_with_care() -> None:
    state = rejected("amqp:not-found", "gone")
    assert matches(state, "rejected")
    assert matches(state, rejected("amqp:not-found", "gone"))
    assert matches(state, {"error": {"condition": "amqp:not-found"}})
    assert not matches(state, {"error": {"condition": "amqp:not-allowed"}})
    assert not matches(state, accepted())
    assert not matches(state, None)
    assert not matches(0, wanted=False)
    assert not matches(None, anything)
    assert matches(None, None)


@pytest.fixture
def server() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0))


def test_frames_come_over_a_socket_in_any_pieces(server: socket.socket) -> None:
    with server, RawClient(*server.getsockname()) as client:
        peer, _ = server.accept()
        mechanisms = frame("sasl_mechanisms", sasl_server_mechanisms="ANONYMOUS")
        peer.sendall(SASL_HEADER + mechanisms + frame("sasl_outcome", code=0))
        client.sasl_anonymous()
        peer.sendall(AMQP_HEADER + empty_frame() + frame("open", container_id="c")[:5])
        client.expect_header()
        assert client.peek(0.01) is not None
        client.expect("empty")
        assert client.read_frame(0.01) is None
        peer.sendall(frame("open", container_id="c")[5:] + frame("transfer", payload=data(b"x")))
        client.expect("open", container_id="c")
        client.wait_for("transfer", payload=data(b"x"))
        client.expect_nothing(0.01)
        peer.close()
        client.expect_closed()
        with pytest.raises(AssertionError, match="the stream was closed"):
            client.expect("close")


def test_a_bad_frame_of_the_peer_fails_the_test(server: socket.socket) -> None:
    with server, RawClient(*server.getsockname()) as client:
        peer, _ = server.accept()
        with peer:
            peer.sendall(frame("open", count=3))
            with pytest.raises(AssertionError, match="index out of range"):
                client.read_frame()
