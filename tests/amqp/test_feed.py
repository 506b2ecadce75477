"""What goes out to the consumers of one connection, by turns and within its buffer."""

from amqpbroker.amqp.feed import RUN_MAX
from amqpbroker.amqp.settings import PeerSettings
from tests.amqp.memory import MemoryBroker, MemoryWire
from tests.raw.client import RawClient
from tests.raw.frames import Frame, message

BUFFER = 32 * 1024
SETTINGS = PeerSettings(container_id="broker", outgoing_buffer=BUFFER, idle_timeout_ms=0)


def put(broker: MemoryBroker, address: str, count: int, size: int) -> None:
    client = broker.client().opened(container_id="put").begun().producer(address)
    client.wait_for("flow", link_credit=1000)
    payload = message(b"m" * size)
    for start in range(0, count, 500):
        with client.pipelined():
            for _ in range(min(500, count - start)):
                for at in range(0, len(payload), 60_000):
                    client.transfer(payload[at : at + 60_000], more=at + 60_000 < len(payload))
        client.wait_for("disposition", state="accepted")
        client.frames.clear()
        client.transcript.clear()
    client.close().wait_for("close")


def consumer(broker: MemoryBroker, *addresses: str, size: int = 2**32 - 1) -> RawClient:
    """A client with a consumer of each address and no bounds of its own."""
    client = broker.client().opened(max_frame_size=size).begun(incoming_window=2**31)
    for handle, address in enumerate(addresses):
        client.consumer(address, handle=handle, snd_settle_mode=1)
        client.wait_for("attach", role=False)
    return client


def wire_of(client: RawClient) -> MemoryWire:
    assert isinstance(client.wire, MemoryWire)
    return client.wire


def all_of(client: RawClient) -> list[Frame]:
    frames = []
    while (read := client.read_frame(0)) is not None:
        frames.append(read)
    return frames


def test_links_with_large_messages_take_turns_frame_by_frame() -> None:
    broker = MemoryBroker(SETTINGS)
    put(broker, "a", 1, 20_000)
    put(broker, "b", 1, 20_000)
    client = consumer(broker, "a", "b", size=1_024)
    client.credit(1, handle=0, incoming_window=0).credit(1, handle=1, incoming_window=0)
    client.flow(incoming_window=2**31, next_incoming_id=None)
    handles = [read.handle for read in all_of(client) if read.name == "transfer"]
    assert handles[:10] == [0, 1] * 5
    assert sorted(handles) == [0] * (len(handles) // 2) + [1] * (len(handles) // 2)


def test_a_message_larger_than_the_buffer_goes_out_as_the_buffer_empties() -> None:
    broker = MemoryBroker(SETTINGS)
    put(broker, "q", 1, 10 * BUFFER)
    client = consumer(broker, "q", size=4_096)
    wire = wire_of(client)
    wire.is_stalled = True
    client.credit(1, incoming_window=2**31)
    for _ in range(5):
        broker.turn()
        assert BUFFER <= wire.peer.outbox.size < BUFFER + 4_096
    wire.is_stalled = False
    (delivery,) = client.receive()
    assert delivery.payload == message(b"m" * 10 * BUFFER)


def test_a_stalled_reader_is_sent_a_bufferful_and_goes_on_where_it_stopped() -> None:
    broker = MemoryBroker(SETTINGS)
    put(broker, "q", 2_000, 100)
    client = consumer(broker, "q")
    wire = wire_of(client)
    wire.is_stalled = True
    client.credit(2_000, incoming_window=2**31)
    for _ in range(5):
        broker.turn()
    assert BUFFER / 2 < wire.peer.outbox.size < 2 * BUFFER
    left = broker.queue("q").ready
    assert left > 1_500
    wire.is_stalled = False
    assert len(client.receive(2_000)) == 2_000


def test_a_long_run_keeps_its_order() -> None:
    broker = MemoryBroker(PeerSettings(container_id="broker"))
    count = 3 * RUN_MAX + 7
    client = broker.client().opened().begun().producer("q")
    client.wait_for("flow", link_credit=1000)
    for number in range(count):
        client.transfer(message(b"%d" % number), settled=True)
    reader = consumer(broker, "q")
    reader.credit(count, incoming_window=2**31)
    assert [read.payload for read in reader.receive(count)] == [
        message(b"%d" % number) for number in range(count)
    ]


def test_a_link_that_waits_is_forgotten_with_its_connection() -> None:
    broker = MemoryBroker(SETTINGS)
    put(broker, "q", 2, 10_000)
    client = consumer(broker, "q", size=512)
    client.credit(1, incoming_window=1)
    assert [read.name for read in all_of(client)] == ["transfer"]
    client.close().wait_for("close")
    again = consumer(broker, "q")
    again.credit(2, incoming_window=2**31)
    assert len(again.receive(1)) == 1  # The other was sent settled: half of it is all there is.
    assert all_of(again) == []
