"""Messages of many frames, in and out: whole, too large, left half way, and what they cost (bug cases, B)."""

import subprocess
import sys
from pathlib import Path

import pytest

from amqpbroker.amqp.settings import PeerSettings
from amqpbroker.base.units import KIB, MIB
from amqpbroker.engine.settings import AddressSettings, BrokerSettings
from amqpbroker.testing import BrokerThread
from tests.amqp.memory import MemoryBroker
from tests.amqp.scenes import body, consumer, frames_of, producer, put, send, session
from tests.raw.client import RawClient, error
from tests.raw.frames import (
    Composite,
    Frame,
    header,
    message,
    message_annotations,
    modified,
    properties,
    value,
)

ROOT = Path(__file__).parents[2]


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker()


def narrow(broker: MemoryBroker, window: int, container: str = "narrow") -> RawClient:
    """A client of small frames with credit 1 on handle 0, whose window is `window` frames."""
    client = broker.client().opened(container_id=container, max_frame_size=512)
    client.begun(incoming_window=window).consumer("q", name="narrow").wait_for("attach")
    return client.credit(1, incoming_window=window)


def transfers(client: RawClient) -> list[Frame]:
    return [frame for frame in frames_of(client) if frame.name == "transfer"]


# --- frames


@pytest.mark.rule("B2.14", "B10.14")
@pytest.mark.parametrize("size", [512, 4321, 65_536, 1_000_000])
def test_no_frame_is_larger_than_the_peer_takes(broker: MemoryBroker, size: int) -> None:
    """Bug case 23."""
    payloads = [
        value("x" * 100),
        value("x" * 4_000),
        value("x" * 1_000_000),
        message_annotations({"x-opt-a": "a" * 9_000}) + value("x"),
        header(ttl=60_000) + value("x" * (size - 70)),
    ]
    put(broker, *payloads)
    client = broker.client().opened(max_frame_size=size).begun(incoming_window=1_000_000)
    client.consumer("q").wait_for("attach")
    client.credit(9, incoming_window=1_000_000)
    received = client.receive(5)
    assert [frame.payload for frame in received[:4]] == payloads[:4]
    assert received[4].payload.endswith(value("x" * (size - 70)))
    client.disposition(0, last=4, state="accepted")
    assert max(len(frame.whole) for frame in client.frames) <= size
    assert broker.queue("q").count() == 0


@pytest.mark.rule("B2.14", "B12")
def test_an_error_text_is_cut_so_that_its_frame_fits() -> None:
    """Bug case 23, its last words."""
    settings = AddressSettings(auto_create_addresses=False, auto_create_queues=False)
    broker = MemoryBroker(broker=BrokerSettings(address=settings))
    client = broker.client().opened(max_frame_size=512).begun()
    frames_of(client)
    for text in ("q" * 1_000, "ü" * 500):
        client.consumer(text, handle=0)
        client.wait_for("attach", source=None)
        assert client.expect("detach").error["description"].startswith(text[:100])
        client.detach(0)
    client.producer(None, handle=0).wait_for("flow")
    client.transfer(
        properties(to="q" * 1_000) + message(b"x"), delivery_tag=b"t" * 32, settled=False
    )
    answer = client.expect("disposition", state="rejected")
    assert answer.state["error"]["info"] == {"delivery-tag": b"t" * 32}
    assert max(len(frame.whole) for frame in client.frames) <= 512


@pytest.mark.rule("B3.5", "B4.12")
def test_a_window_that_is_smaller_than_a_message_opens_within_it() -> None:
    """Bug case 19."""
    settings = PeerSettings(container_id="b", max_frame_size=512, incoming_window_bytes=8 * 512)
    broker = MemoryBroker(settings)
    client = producer(broker)
    whole = value("x" * 100_000)
    pieces = [whole[at : at + 400] for at in range(0, len(whole), 400)]
    left = 0
    for number, piece in enumerate(pieces):
        if not left:
            flow = (
                client.frames[-1]
                if number == 0
                else client.wait_for("flow", next_incoming_id=number)
            )
            left = flow.incoming_window
            assert left == 8
        client.transfer(piece, more=number < len(pieces) - 1)
        left -= 1
        for flow in frames_of(client):
            if flow.name == "flow":
                assert flow.next_incoming_id == number + 1
                left = flow.incoming_window
    for _ in range(20):
        client.transfer(value("y" * 300))
    assert broker.queue("q").ready == 21


# --- too large


@pytest.mark.rule("B4.15", "B12")
def test_a_message_above_the_limit_ends_its_link_alone() -> None:
    """Bug case 24."""
    broker = MemoryBroker(PeerSettings(container_id="b", max_message_size=1_000_000))
    client = session(broker)
    assert client.producer("q").wait_for("attach").max_message_size == 1_000_000
    client.producer("other").wait_for("flow", handle=1)
    send(client, value("x" * 900_000)).wait_for("disposition", state="accepted")
    client.transfer(b"\x00" * 60_000, more=True)
    for _ in range(30):  # And no end.
        client.transfer(b"\x00" * 60_000, more=True)
    detach = client.wait_for("detach", error=error("amqp:link:message-size-exceeded"))
    assert "1000000" in detach.error["description"]
    for _ in range(30):
        client.transfer(b"\x00" * 60_000, more=True)
    client.transfer(message(b"x"), 1).wait_for("disposition", state="accepted")
    client.detach(0).producer("q", handle=0).wait_for("flow", handle=0)
    client.transfer(message(b"y")).wait_for("disposition", state="accepted")
    assert (broker.queue("q").ready, broker.queue("other").ready) == (2, 1)


@pytest.mark.rule("B4.15")
@pytest.mark.parametrize("settled", [False, True])
def test_the_limit_itself_is_allowed(settled: bool) -> None:
    whole = value("x" * 5_000)
    broker = MemoryBroker(PeerSettings(container_id="b", max_message_size=len(whole)))
    client = producer(broker)
    client.transfer(whole[:3_000], more=True, settled=settled).transfer(whole[3_000:])
    client.transfer(whole, settled=settled)
    frames_of(client)
    client.transfer(whole + b"\x40", settled=settled)
    client.wait_for("detach", error=error("amqp:link:message-size-exceeded"))
    assert broker.queue("q").ready == 2


def partial_bytes(client: RawClient) -> int:
    """What the broker keeps of the client's unfinished messages."""
    return int(client.wire.peer._amqp.driver.partial_bytes)  # type: ignore[attr-defined]


def test_unfinished_messages_of_a_connection_end_the_link_that_is_too_much() -> None:
    limits = PeerSettings(container_id="b", max_message_size=1_000_000, incoming_bytes_max=500_000)
    broker = MemoryBroker(limits)
    client = session(broker)
    for handle in range(20):
        client.producer(f"q{handle}").wait_for("flow", handle=handle)
    client.begun(channel=1)
    client.producer("far", channel=1).wait_for("flow", channel=1)
    for handle in range(19):
        client.transfer(b"\x00" * 50_000, handle, more=True)
    client.transfer(b"\x00" * 50_001, 19, more=True)  # The bound is the larger of the two.
    detach = client.wait_for("detach", error=error("amqp:resource-limit-exceeded"))
    assert detach.handle == 19
    assert "1000000 bytes" in detach.error["description"]
    assert partial_bytes(client) == 950_000
    for _ in range(30):  # What goes on coming on it counts no more.
        client.transfer(b"\x00" * 60_000, 19, more=True)
    assert partial_bytes(client) == 950_000
    client.transfer(message(b"x"), channel=1).wait_for("disposition", state="accepted", channel=1)
    for handle in range(18):
        client.transfer(handle=handle, aborted=True)
    assert partial_bytes(client) == 50_000
    client.detach(18).wait_for("detach", handle=18, error=None)
    assert partial_bytes(client) == 0
    client.detach(19).producer("q19", handle=19).wait_for("flow", link_credit=1000)
    send(client, value("y" * 900_000), 19).wait_for("disposition", state="accepted")
    other = producer(broker, "q19")
    send(other, value("z")).wait_for("disposition", state="accepted")
    assert (broker.queue("q19").ready, broker.queue("far").ready) == (2, 1)


def test_without_a_limit_on_messages_there_is_none_on_unfinished_ones() -> None:
    broker = MemoryBroker(
        PeerSettings(container_id="b", max_message_size=0, incoming_bytes_max=1_000)
    )
    send(producer(broker), value("x" * 900_000)).wait_for("disposition", state="accepted")


# --- left half way


@pytest.mark.rule("B13.3", "B4.13")
@pytest.mark.parametrize("closed", [True, False])
def test_a_producer_that_detaches_within_a_delivery_leaves_nothing(
    broker: MemoryBroker, closed: bool
) -> None:
    client = producer(broker)
    client.transfer(b"\x00" * 9_000, more=True).detach(0, closed=closed)
    client.wait_for("detach", error=None)
    client.producer("q", handle=0).wait_for("flow", handle=0)
    client.transfer(message(b"x")).wait_for("disposition", state="accepted")
    assert broker.queue("q").ready == 1


@pytest.mark.rule("B13.3", "D-11")
@pytest.mark.parametrize("window", [2, 9])
@pytest.mark.parametrize("closed", [True, False])
def test_a_consumer_that_detaches_within_a_delivery_is_answered_and_the_entry_stays(
    broker: MemoryBroker, closed: bool, window: int
) -> None:
    put(broker, value("x" * 4_000), message(b"small"))  # 9 frames and 1.
    client = narrow(broker, window)
    seen = len(transfers(client))
    assert seen == window
    client.detach(0, closed=closed)
    client.wait_for("detach", error=None)
    client.consumer("q", handle=0).wait_for("attach")
    client.credit(2, next_incoming_id=seen, incoming_window=50)
    assert [body(frame) for frame in client.receive(2)] == ["x" * 4_000, b"small"]


@pytest.mark.rule("B13.1", "B5.15")
@pytest.mark.parametrize("window", [2, 8])
def test_a_detach_of_ours_does_not_wait_for_the_end_of_a_delivery(
    broker: MemoryBroker, window: int
) -> None:
    put(broker, value("x" * 4_000))
    client = narrow(broker, window)
    assert len(transfers(client)) == window
    client.begin(1)
    thief = session(broker, "narrow").consumer("q", name="narrow")
    thief.wait_for("attach")
    client.wait_for("detach", error=error("amqp:link:stolen"))
    client.detach(0).flow(next_incoming_id=window, incoming_window=50)
    client.consumer("q", name="other", handle=0).wait_for("attach")
    thief.close().wait_for("close")
    client.credit(1, next_incoming_id=window, incoming_window=50)
    assert [body(frame) for frame in client.receive()] == ["x" * 4_000]


@pytest.mark.rule("B8.1", "B5.18")
@pytest.mark.parametrize("state", [Composite("accepted"), modified(undeliverable_here=True)])
@pytest.mark.parametrize("window", [2, 5])
def test_a_delivery_that_is_settled_half_way_ends_there_and_the_window_stays_right(
    broker: MemoryBroker, window: int, state: Composite
) -> None:
    put(broker, value("x" * 4_000), *[message(b"%d" % number) for number in range(20)])
    client = narrow(broker, window)
    assert len(transfers(client)) == window
    client.disposition(0, state=state)
    client.credit(20, delivery_count=1, next_incoming_id=window, incoming_window=window)
    seen = window
    bodies: list[object] = []
    while len(bodies) < 19:
        frames = transfers(client)
        assert len(frames) == window or len(bodies) + len(frames) > 18
        assert not any(frame.more for frame in frames)
        bodies += [body(frame) for frame in frames if not frame.aborted]
        assert sum(1 for frame in frames if frame.aborted) == (seen == window)
        seen += len(frames)
        client.flow(next_incoming_id=seen, incoming_window=window)
    assert bodies == [b"%d" % number for number in range(len(bodies))]
    assert broker.queue("q").count() == 20 + (state.kind == "modified")


@pytest.mark.rule("B8.1", "B5.10")
def test_a_drain_behind_a_delivery_that_is_settled_half_way_is_answered(
    broker: MemoryBroker,
) -> None:
    put(broker, value("x" * 4_000))
    client = narrow(broker, 2)
    assert len(transfers(client)) == 2
    client.credit(3, next_incoming_id=2, incoming_window=0, drain=True)
    client.disposition(0, state="accepted")
    client.flow(next_incoming_id=2, incoming_window=5)
    client.wait_for("flow", handle=0, link_credit=0, delivery_count=3, drain=True)


@pytest.mark.rule("B8.13")
def test_a_received_state_within_a_delivery_changes_nothing(broker: MemoryBroker) -> None:
    put(broker, value("x" * 4_000))
    client = narrow(broker, 2)
    first = transfers(client)
    received = Composite("received", section_number=0, section_offset=800)
    client.disposition(0, state=received, settled=False)
    client.flow(next_incoming_id=2, incoming_window=50)
    payload = b"".join(frame.payload for frame in first + transfers(client))
    assert payload == value("x" * 4_000)
    client.disposition(0, state="accepted")
    assert broker.queue("q").count() == 0


@pytest.mark.rule("B5.4", "B8.10")
@pytest.mark.parametrize(
    "source", [{"address": "q"}, {"address": "q", "distribution_mode": "copy"}]
)
def test_a_large_message_that_is_sent_settled_says_so(
    broker: MemoryBroker, source: dict[str, object]
) -> None:
    put(broker, value("x" * 4_000), value("y" * 4_000))
    client = broker.client().opened(max_frame_size=512).begun()
    client.consumer("q", source=source, snd_settle_mode=1).wait_for("attach")
    client.credit(2)
    frames = transfers(client)
    assert len(frames) == 18
    assert frames[8].settled
    assert frames[17].settled
    assert not any(frame.more for frame in (frames[8], frames[17]))


@pytest.mark.rule("B3.4", "B13.3")
def test_an_end_within_a_delivery_gives_it_back(broker: MemoryBroker) -> None:
    put(broker, value("x" * 4_000))
    client = narrow(broker, 2)
    assert len(transfers(client)) == 2
    client.end().wait_for("end", error=None)
    assert [len(body(frame)) for frame in consumer(broker, credit=1).receive()] == [4_000]
    client.begun(0, incoming_window=50).consumer("other", handle=0).wait_for("attach")


# --- what it costs


@pytest.mark.rule("B10.14")
def test_a_slow_reader_of_large_messages_holds_no_more_than_its_buffer(
    broker: MemoryBroker,
) -> None:
    put(broker, *[value("x" * 3 * MIB)] * 3)
    client = session(broker, incoming_window=2**31 - 1).consumer("q")
    client.wait_for("attach")
    peer = client.wire.peer  # type: ignore[attr-defined]
    client.wire.is_stalled = True  # type: ignore[attr-defined]
    client.credit(3, incoming_window=2**31 - 1)
    for _ in range(10):
        broker.turn()
        assert peer.outbox.size <= broker.settings.outgoing_buffer + 64 * KIB
    client.wire.is_stalled = False  # type: ignore[attr-defined]
    assert [len(frame.payload) for frame in client.receive(3)] == [len(value("x" * 3 * MIB))] * 3


MEASURE = """
import resource, sys, threading
from amqpbroker.testing import BrokerThread
with BrokerThread() as broker:
    print(broker.port, flush=True)
    for line in sys.stdin:
        with open("/proc/self/status") as status:
            peak = next(line for line in status if line.startswith("VmHWM")).split()[1]
        print(peak, flush=True)
"""


@pytest.mark.rule("B10.14")
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
def test_100_mib_pass_and_cost_their_size_not_copies_of_it() -> None:
    size = 100 * MIB - 100
    with subprocess.Popen(
        [sys.executable, "-c", MEASURE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def ask() -> int:
            assert process.stdin is not None
            assert process.stdout is not None
            print(file=process.stdin, flush=True)
            return int(process.stdout.readline()) * KIB

        port = int(process.stdout.readline())
        before = ask()
        with RawClient("127.0.0.1", port, timeout=30) as client:
            client.opened().begun(incoming_window=100_000).producer("q")
            client.wait_for("flow", handle=0)
            block = bytes(range(256)) * 240
            first = b"\x00\x53\x75\xb0" + size.to_bytes(4, "big")
            client.transfer(first, more=True)
            for at in range(0, size, len(block)):
                client.transfer(block[: size - at], more=at + len(block) < size)
                if at % (100 * len(block)) == 0:
                    client.transcript.clear()
            client.wait_for("disposition", state="accepted")
            stored = ask()
            client.consumer("q", handle=1).wait_for("attach")
            client.credit(1, handle=1, incoming_window=100_000)
            got = 0
            more = True
            while more:
                frame = client.wait_for("transfer")
                got += len(frame.payload)
                more = bool(frame.more)
                client.frames.clear()
                client.transcript.clear()
            assert got == size + 8
            sent = ask()
        process.stdin.close()
    print(f"peak {before >> 20}, stored {stored >> 20}, sent {sent >> 20} MiB")  # noqa: T201
    assert stored - before < 1.7 * size  # A buffer that grows by half.
    assert sent - before < 1.7 * size


@pytest.mark.rule("B10.14", "B5.10")
def test_polling_consumers_and_producers_of_10_mib_messages() -> None:
    """Bug case 16, over sockets."""
    with BrokerThread() as broker:
        count, size = 4, 10 * MIB
        with RawClient("127.0.0.1", broker.port, timeout=30) as source:
            source.opened().begun().producer("q").wait_for("flow", handle=0)
            for number in range(count):
                send(source, value(str(number) * size)).wait_for("disposition")
                source.transcript.clear()
        with RawClient("127.0.0.1", broker.port, timeout=30) as client:
            client.opened().begun(incoming_window=2**31 - 1).consumer("q").wait_for("attach")
            for number in range(count):
                client.credit(1, delivery_count=number, drain=True, incoming_window=2**31 - 1)
                (delivery,) = client.receive()
                assert delivery.payload == value(str(number) * size)
                client.expect("flow", handle=0, delivery_count=number + 1, link_credit=0)
                client.disposition(number, state="accepted")
            client.close().wait_for("close", error=None)
