"""Frames in, frames out: the whole broker but its sockets, against a client that shares no code with it."""

import pytest

from tests.amqp.cuts import CUTS, Cut
from tests.amqp.memory import SETTINGS, MemoryBroker
from tests.raw.client import RawClient
from tests.raw.frames import AMQP_HEADER, message


@pytest.fixture(params=CUTS)
def client(request: pytest.FixtureRequest) -> RawClient:
    return MemoryBroker().client(request.param)


def test_a_message_goes_in_and_comes_out_as_it_was(client: RawClient) -> None:
    client.opened().begun()
    client.producer("q").wait_for("attach", role=True, target={"address": "q"})
    client.wait_for("flow", link_credit=1000)
    client.transfer(message(b"hello")).expect(
        "disposition", role=True, first=0, settled=True, state="accepted"
    )
    client.consumer("q").expect("attach", role=False, source={"address": "q"})
    client.credit(10, handle=1)
    (delivery,) = client.receive()
    assert delivery.payload == message(b"hello")
    assert delivery.delivery_tag == (1).to_bytes(8, "big")
    client.disposition(0, state="accepted")
    client.close().expect("close", error=None)
    client.expect_closed()


@pytest.mark.rule("B1.10", "B13.9")
@pytest.mark.parametrize("cut", CUTS)
def test_everything_may_be_written_before_the_first_answer(
    cut: Cut,
) -> None:
    broker = MemoryBroker()
    client = broker.client(cut)
    with client.pipelined():
        client.send(AMQP_HEADER).open().begin().producer("q").consumer("q").credit(5, handle=1)
        client.transfer(message(b"a"), settled=True).transfer(message(b"b"), settled=True)
    client.expect("open")
    client.expect("begin")
    names = []
    while (frame := client.read_frame(0)) is not None:
        names.append(frame.name)
    assert names.count("attach") == 2
    assert names.count("transfer") == 2
    assert broker.queue("q").stats.added == 2


@pytest.mark.rule("B13.3")
@pytest.mark.parametrize("closed", [True, False])
def test_a_detach_is_mirrored(client: RawClient, closed: bool) -> None:
    client.opened().begun().producer("q").wait_for("flow", link_credit=1000)
    client.detach(0, closed=closed)
    assert client.expect("detach").closed is (True if closed else None)
    client.producer("q", handle=0).wait_for("attach")  # Handle and name are free again (B3.4).


@pytest.mark.rule("B2.19")
def test_a_close_is_answered_at_once_whatever_is_open(client: RawClient) -> None:
    client.opened().begun().producer("q").consumer("q").credit(5, handle=1)
    client.close().wait_for("close", error=None)
    client.expect_closed()


@pytest.mark.rule("B1.12")
def test_a_peer_that_does_not_open_is_dropped() -> None:
    broker = MemoryBroker()
    client = broker.client()
    client.send(AMQP_HEADER).expect_header()
    broker.advance(SETTINGS.handshake_timeout_ms)
    client.expect_closed()
    assert not broker.switchboard.peers


@pytest.mark.rule("B2.17", "D-33")
def test_a_silent_peer_is_closed_and_its_leases_count() -> None:
    broker = MemoryBroker()
    client = broker.client().opened().begun()
    client.producer("q").wait_for("flow", link_credit=1000)
    client.transfer(message(b"x")).wait_for("disposition")
    client.consumer("q", handle=1).credit(1, handle=1).receive()
    broker.advance(SETTINGS.idle_timeout_ms)
    close = client.wait_for("close")
    assert close.error["condition"] == "amqp:resource-limit-exceeded"
    assert "local-idle-timeout expired" in close.error["description"]
    other = broker.client().opened().begun()
    other.consumer("q").credit(1)
    (again,) = other.receive()
    assert b"x" in again.payload
    assert again.payload != message(b"x")  # The header says that it failed once.


@pytest.mark.rule("B2.16")
def test_a_quiet_broker_sends_a_frame_within_half_of_the_peers_time() -> None:
    broker = MemoryBroker()
    client = broker.client().opened(idle_time_out=10_000)
    broker.advance(4_999)
    assert client.read_frame(0) is None
    broker.advance(1)
    frame = client.read_frame(0)
    assert frame is not None
    assert frame.name == "empty"
