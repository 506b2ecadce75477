"""Credit, drains, echo and windows as a consumer sees them, and what stops a producer (A of the bug cases, B5)."""

import pytest

from amqpbroker.amqp.settings import PeerSettings
from tests.amqp.memory import MemoryBroker, MemoryWire
from tests.amqp.scenes import (
    SlowStore,
    body,
    consumer,
    delivered,
    drain,
    frames_of,
    producer,
    put,
    session,
)
from tests.raw.client import RawClient, error
from tests.raw.frames import frame, message, value, wide

LARGEST = 2**32 - 1


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker()


def fill(broker: MemoryBroker, count: int) -> None:
    put(broker, *(message(b"%d" % number) for number in range(count)))


# --- credit


@pytest.mark.rule("B5.9")
def test_nothing_is_sent_before_credit_and_never_more_than_it(broker: MemoryBroker) -> None:
    """Bug case 1."""
    fill(broker, 5)
    client = consumer(broker)
    client.expect_nothing()
    assert delivered(client.credit(2)) == [b"0", b"1"]
    client.expect_nothing()


@pytest.mark.rule("B5.9")
def test_credit_counts_from_the_consumers_delivery_count(broker: MemoryBroker) -> None:
    fill(broker, 9)
    client = consumer(broker, credit=3)
    assert len(delivered(client)) == 3
    assert not delivered(client.credit(3))  # It has not seen them yet: nothing new.
    assert delivered(client.credit(4)) == [b"3"]
    assert delivered(client.credit(2, delivery_count=4)) == [b"4", b"5"]


@pytest.mark.rule("B5.9")
def test_a_flow_without_a_delivery_count_comes_from_a_peer_that_saw_no_transfer(
    broker: MemoryBroker,
) -> None:
    fill(broker, 5)
    client = consumer(broker)
    with client.pipelined():  # The second is on its way before the first was answered.
        client.credit(2, delivery_count=None).credit(3, delivery_count=None)
    assert len(delivered(client)) == 3


@pytest.mark.rule("B5.9")
@pytest.mark.parametrize("credit", [2**31 - 1, 2**31, LARGEST])
def test_any_credit_is_credit(broker: MemoryBroker, credit: int) -> None:
    fill(broker, 3)
    client = consumer(broker, credit=credit)
    assert len(delivered(client)) == 3
    client.credit(credit, delivery_count=2, echo=True)  # It has seen two of the three.
    client.expect("flow", handle=0, delivery_count=3, link_credit=credit - 1)


@pytest.mark.rule("B5.12")
def test_credit_0_stops_and_what_was_sent_stands(broker: MemoryBroker) -> None:
    fill(broker, 2)
    client = consumer(broker, credit=5)
    assert delivered(client) == [b"0", b"1"]
    client.credit(0, delivery_count=2)
    fill(broker, 1)
    client.expect_nothing()
    client.disposition(0, last=1, state="accepted")
    assert broker.queue("q").count() == 1
    assert delivered(client.credit(1, delivery_count=2)) == [b"0"]


@pytest.mark.rule("B5.9")
def test_credit_may_be_lowered_below_what_is_on_its_way(broker: MemoryBroker) -> None:
    fill(broker, 5)
    client = consumer(broker, credit=5)
    assert len(delivered(client)) == 5
    client.credit(2)
    fill(broker, 1)
    client.expect_nothing()
    assert delivered(client.credit(1, delivery_count=5)) == [b"0"]


# --- drain


@pytest.mark.rule("B5.10", "B5.11")
def test_each_drain_is_answered_and_leaves_nothing_behind(broker: MemoryBroker) -> None:
    """Bug case 4."""
    client = consumer(broker)
    assert len(drain(client, 5)) == 1
    assert len(drain(client, 0, 5)) == 1
    assert len(drain(client, 0, 5)) == 1
    client.credit(1, delivery_count=5, drain=False)
    fill(broker, 2)
    assert delivered(client) == [b"0"]


@pytest.mark.rule("B5.10", "B5.11")
def test_a_drain_sends_what_there_is_and_then_its_answer(broker: MemoryBroker) -> None:
    fill(broker, 3)
    client = consumer(broker)
    frames = drain(client, 10)
    assert [body(frame) for frame in frames[:-1]] == [b"0", b"1", b"2"]
    fill(broker, 1)
    client.expect_nothing()
    assert len(drain(client, 1, 10)) == 2


@pytest.mark.rule("B5.10")
def test_a_drain_that_uses_up_its_credit_is_answered_too(broker: MemoryBroker) -> None:
    fill(broker, 5)
    frames = drain(consumer(broker), 2)
    assert [body(frame) for frame in frames[:-1]] == [b"0", b"1"]


@pytest.mark.rule("B5.11")
def test_drains_in_one_write_are_answered_one_by_one(broker: MemoryBroker) -> None:
    client = consumer(broker)
    with client.pipelined():
        for _ in range(3):
            client.credit(7, drain=True)
    frames = frames_of(client)
    assert [(frame.name, frame.delivery_count, frame.drain) for frame in frames] == [
        ("flow", 7, True)
    ] * 3


@pytest.mark.rule("B5.10", "B13.10")
def test_no_drain_of_a_polling_consumer_is_lost_beside_a_busy_producer(
    broker: MemoryBroker,
) -> None:
    """Bug case 2."""
    client, source = consumer(broker), producer(broker)
    received: list[bytes] = []
    sent = count = 0
    while len(received) < 300:
        for _ in range(3):
            if sent < 300:
                source.transfer(message(b"%d" % sent), settled=True)
                sent += 1
        client.credit(1, delivery_count=count)
        early = [frame for frame in frames_of(client) if frame.name == "transfer"]
        received += [body(frame) for frame in early]
        frames = drain(client, 1 - len(early), count + len(early))
        received += [body(frame) for frame in frames[:-1]]
        count += 1
    assert received == [b"%d" % number for number in range(300)]


@pytest.mark.rule("B5.10")
def test_credit_after_a_drain_counts_again_each_time(broker: MemoryBroker) -> None:
    """Bug case 14."""
    client = consumer(broker)
    source = producer(broker)
    count = 0
    for _ in range(100):
        drain(client, 10, count)
        count += 10
        client.credit(10, delivery_count=count)
        for _ in range(3):
            source.transfer(message(b"x"), settled=True)
        assert len(delivered(client)) == 3
        count += 3


@pytest.mark.rule("B5.10", "B5.9")
@pytest.mark.parametrize("credit", [2**31 - 1, 2**31, LARGEST])
def test_the_delivery_count_may_pass_2_to_the_32_by_drains(
    broker: MemoryBroker, credit: int
) -> None:
    """Proton, left at its own count, would see no credit when the two are 2^32 apart."""
    fill(broker, 30)
    client = consumer(broker)
    count = 0
    for _ in range(5):
        assert len(drain(client, 3, count)) == 4
        count += 3
        client.credit(1, delivery_count=count)
        assert len(delivered(client)) == 1
        count += 1
    empty = session(broker).consumer("empty")
    empty.wait_for("attach")
    count = 0
    for _ in range(4):
        drain(empty, credit, count)
        count = (count + credit) % 2**32
    empty.credit(10, delivery_count=count)
    put(broker, *[message(b"x")] * 10, address="empty")
    assert len(delivered(empty)) == 10


@pytest.mark.rule("B5.10")
def test_a_drain_is_answered_after_the_delivery_in_progress(broker: MemoryBroker) -> None:
    """Bug case 16."""
    put(broker, value("x" * 3000), message(b"small"))
    client = broker.client().opened(max_frame_size=512).begun(incoming_window=2)
    client.consumer("q").wait_for("attach")
    client.credit(1, incoming_window=2)
    first = frames_of(client)
    assert [(frame.name, frame.more) for frame in first] == [("transfer", True)] * 2
    client.credit(1, incoming_window=0, next_incoming_id=2, drain=True)
    client.credit(1, incoming_window=0, next_incoming_id=2, drain=True)
    client.expect_nothing()
    client.flow(incoming_window=100, next_incoming_id=2)
    rest = frames_of(client)
    payload = b"".join(frame.payload for frame in first + rest if frame.name == "transfer")
    assert payload == value("x" * 3000)
    assert [frame.name for frame in rest[-3:]] == ["transfer", "flow", "flow"]
    assert {(f.delivery_count, f.link_credit, f.drain) for f in rest[-2:]} == {(1, 0, True)}
    client.credit(1, delivery_count=1, next_incoming_id=len(first + rest) - 2, incoming_window=9)
    assert delivered(client) == [b"small"]


@pytest.mark.rule("B5.10")
def test_a_drain_that_is_withdrawn_within_a_delivery_is_not_answered(broker: MemoryBroker) -> None:
    put(broker, value("x" * 3000), message(b"a"), message(b"b"))
    client = broker.client().opened(max_frame_size=512).begun(incoming_window=2)
    client.consumer("q").wait_for("attach")
    client.credit(1, incoming_window=2)
    client.credit(1, incoming_window=0, next_incoming_id=2, drain=True)
    client.credit(2, incoming_window=0, next_incoming_id=2, drain=False)
    assert len(frames_of(client)) == 2
    client.flow(incoming_window=100, next_incoming_id=2)
    frames = frames_of(client)
    assert {frame.name for frame in frames} == {"transfer"}
    assert len([frame for frame in frames if not frame.more]) == 2
    assert body(frames[-1]) == b"a"


@pytest.mark.rule("B5.10", "B5.18")
def test_a_drain_waits_for_the_session_window_to_take_what_there_is(broker: MemoryBroker) -> None:
    fill(broker, 5)
    client = session(broker, incoming_window=2).consumer("q")
    client.wait_for("attach")
    client.credit(10, incoming_window=2, drain=True)
    assert delivered(client) == [b"0", b"1"]
    frames = []
    for seen in (2, 4):
        client.flow(incoming_window=2, next_incoming_id=seen)
        frames += frames_of(client)
    assert [frame.name for frame in frames] == ["transfer"] * 3 + ["flow"]
    assert (frames[-1].delivery_count, frames[-1].link_credit) == (10, 0)


@pytest.mark.rule("B5.10")
def test_a_drain_on_a_link_that_is_detached_in_the_same_write_hurts_nobody(
    broker: MemoryBroker,
) -> None:
    client = consumer(broker)
    with client.pipelined():
        client.credit(5, drain=True).detach(0).consumer("q", handle=0).credit(1)
    client.wait_for("detach", error=None)
    client.wait_for("attach")
    fill(broker, 1)
    assert delivered(client) == [b"0"]


# --- echo


@pytest.mark.rule("B3.6")
def test_an_echo_brings_back_the_state_of_what_it_names(broker: MemoryBroker) -> None:
    """Bug case 5."""
    fill(broker, 2)
    client = consumer(broker, credit=5)
    assert len(delivered(client)) == 2
    client.flow(echo=True)
    answer = client.expect("flow", handle=None, next_outgoing_id=2, next_incoming_id=0)
    assert not answer.echo
    client.credit(5, echo=True)
    answer = client.expect("flow", handle=0, delivery_count=2, link_credit=3)
    assert not answer.drain
    assert not answer.echo
    client.flow(echo=False).expect_nothing()


@pytest.mark.rule("B3.6")
def test_a_producers_echo_is_answered_with_its_credit(broker: MemoryBroker) -> None:
    client = producer(broker)
    client.flow(handle=0, delivery_count=0, link_credit=1000, echo=True)
    client.expect("flow", handle=0, delivery_count=0, link_credit=1000)
    client.expect_nothing()


@pytest.mark.rule("B3.6", "B5.10")
def test_an_echo_with_a_drain_is_answered_once(broker: MemoryBroker) -> None:
    client = consumer(broker)
    client.credit(5, drain=True, echo=True).expect("flow", handle=0, link_credit=0, drain=True)
    client.expect_nothing()


# --- the session's window


@pytest.mark.rule("B5.18", "B3.5")
def test_no_more_frames_are_sent_than_the_window_takes(broker: MemoryBroker) -> None:
    """Bug case 6."""
    fill(broker, 10)
    client = session(broker, incoming_window=3).consumer("q")
    client.wait_for("attach")
    client.credit(100, incoming_window=3)
    assert delivered(client) == [b"0", b"1", b"2"]
    client.flow(next_incoming_id=3, incoming_window=4)
    assert delivered(client) == [b"3", b"4", b"5", b"6"]
    client.flow(next_incoming_id=5, incoming_window=3)  # Two are on their way: one more.
    assert delivered(client) == [b"7"]
    client.flow(next_incoming_id=13, incoming_window=3)
    client.wait_for("end", error=error("amqp:session:window-violation"))


@pytest.mark.rule("B5.18")
def test_the_credit_of_a_consumer_is_not_used_by_what_its_window_keeps_back(
    broker: MemoryBroker,
) -> None:
    fill(broker, 5)
    client = session(broker, incoming_window=1).consumer("q")
    client.wait_for("attach")
    client.credit(5, incoming_window=1, echo=True)
    assert len([frame for frame in frames_of(client) if frame.name == "transfer"]) == 1
    client.credit(5, incoming_window=0, next_incoming_id=1, echo=True)
    client.wait_for("flow", handle=0, delivery_count=1, link_credit=4)
    other = consumer(broker, credit=9)
    assert delivered(other) == [b"1", b"2", b"3", b"4"]


@pytest.mark.rule("B5.18", "B3.5")
@pytest.mark.parametrize("window", [1, 2, 3])
def test_large_messages_pass_a_window_of_a_few_frames(broker: MemoryBroker, window: int) -> None:
    payloads = [value("x" * size) for size in (1, 440, 441, 2000, 3, 900)]
    put(broker, *payloads)
    client = broker.client().opened(max_frame_size=512).begun(incoming_window=window)
    client.consumer("q").wait_for("attach")
    client.credit(10, incoming_window=window)
    received = [b""]
    seen = 0
    while len(received) <= len(payloads):
        transfers = [frame for frame in frames_of(client) if frame.name == "transfer"]
        assert len(transfers) == window or len(received) == len(payloads)
        for each in transfers:
            received[-1] += each.payload
            if not each.more:
                received.append(b"")
        seen += len(transfers)
        client.flow(next_incoming_id=seen, incoming_window=window)
    assert received == [*payloads, b""]
    client.expect_nothing()


@pytest.mark.rule("B5.18", "B4.12")
def test_large_messages_of_two_links_go_out_frame_by_frame_in_turn(broker: MemoryBroker) -> None:
    put(broker, value("a" * 2000), address="a")
    put(broker, value("b" * 2000), address="b")
    client = broker.client().opened(max_frame_size=512).begun()
    client.consumer("a").consumer("b").wait_for("attach", handle=1)
    with client.pipelined():
        client.credit(1, 0).credit(1, 1)
    assert [frame.handle for frame in frames_of(client)] == [0, 1] * 5


@pytest.mark.rule("B5.18", "B5.9")
def test_70000_messages_pass_one_session_either_way(broker: MemoryBroker) -> None:
    """Bug case 8: 2^16 is no limit. Frames are made and counted by hand, since they are many."""
    payload = message(b"x")
    first = frame(
        "transfer", handle=0, delivery_id=wide("uint", 0), delivery_tag=b"1234", payload=payload
    )
    at = first.index(b"\x70\0\0\0\0") + 1
    client = producer(broker)
    broker.turn = lambda: _turn_without_check(broker)  # type: ignore[method-assign]  # O(n) each.
    for start in range(0, 70_000, 700):
        numbers = (number.to_bytes(4, "big") for number in range(start, start + 700))
        client.wire.send(b"".join(first[:at] + number + first[at + 4 :] for number in numbers))
        answers = frames_of(client)
        assert [f.last for f in answers if f.name == "disposition"] == [start + 699]
    other = session(broker, incoming_window=2**31 - 1).consumer("q")
    other.wait_for("attach")
    other.credit(70_000, incoming_window=2**31 - 1)
    received = b""
    while chunk := other.wire.recv(0):
        received += chunk
    assert received.count(payload) == 70_000


def _turn_without_check(broker: MemoryBroker) -> None:
    broker.switchboard.end_turn(broker.now)
    broker.switchboard.take_dirty()


# --- what stops a producer


def slow(store: SlowStore, *, credit: int = 1000, bytes_max: int = 1000) -> MemoryBroker:
    return MemoryBroker(
        PeerSettings(
            container_id="broker",
            incoming_bytes_max=bytes_max,
            credit=credit,
            credit_low=credit // 3,
        ),
        store=store,
    )


def wire_of(client: RawClient) -> MemoryWire:
    assert isinstance(client.wire, MemoryWire)
    return client.wire


@pytest.mark.rule("B4.9", "B4.8")
def test_an_answer_waits_for_the_store_and_credit_for_the_answer() -> None:
    """Bug case 15."""
    store = SlowStore()
    broker = slow(store, credit=10)
    client = producer(broker)
    for _ in range(10):
        client.transfer(message(b"x", durable=True))
    client.expect_nothing()  # Neither answer nor credit.
    store.finish(4)
    four = frames_of(client)
    assert [(f.first, f.last) for f in four if f.name == "disposition"] == [(0, 3)]
    flows = [(f.delivery_count, f.link_credit) for f in four if f.name == "flow"]
    assert flows == [(10, 4)]
    store.finish()
    client.wait_for("disposition", first=4, last=9, state="accepted")


@pytest.mark.rule("B4.8")
def test_reading_stops_at_the_bound_and_goes_on_when_the_store_has_caught_up() -> None:
    store = SlowStore()
    broker = slow(store)
    client = producer(broker)
    payload = message(b"x" * 300, durable=True)
    for _ in range(10):
        client.transfer(payload)
    assert not wire_of(client).peer.wants_input
    assert broker.queue("q").storing == 4  # The fourth passes the bound.
    client.expect_nothing()
    for _ in range(10):
        store.finish(1)
        client.wait_for("disposition", state="accepted")
    assert wire_of(client).peer.wants_input
    assert broker.queue("q").ready == 10


@pytest.mark.rule("B4.8")
@pytest.mark.parametrize("rcv", [0, 1])
@pytest.mark.parametrize("settled", [True, False])
def test_what_is_stored_is_not_counted_any_more_however_it_is_answered(
    rcv: int, settled: bool
) -> None:
    store = SlowStore()
    client = producer(slow(store), rcv_settle_mode=rcv)
    for _ in range(20):
        client.transfer(message(b"x" * 300, durable=True), settled=settled)
        client.transfer(message(b"x" * 300), settled=settled)
        client.transfer(b"malformed" * 30, settled=False)
        store.finish()
        frames_of(client)
    assert wire_of(client).peer.wants_input


@pytest.mark.rule("B4.8", "B4.16")
@pytest.mark.parametrize("how", ["detach", "end", "forced", "fault"])
def test_reading_goes_on_after_a_link_ended_with_bytes_that_wait_for_the_store(how: str) -> None:
    store = SlowStore()
    broker = slow(store)
    client = session(broker)
    client.producer("q").producer(None)
    client.wait_for("flow", handle=1)
    large = message(b"x" * 2000, durable=True)
    with client.pipelined():  # One read: the bound is looked at after it.
        client.transfer(large)
        if how == "detach":
            client.detach(0)
        elif how == "end":
            client.end()
        elif how == "forced":
            client.transfer(large, 1, settled=True)  # No address to route by.
        else:
            client.transfer(large, resume=True)
    assert not wire_of(client).peer.wants_input
    if how != "end":
        client.begin(1)
        client.producer("q2", channel=1)
    store.finish()
    frames = frames_of(client)
    assert wire_of(client).peer.wants_input
    assert broker.queue("q").ready == 1
    if how != "end":
        assert [f.name for f in frames if f.name in ("begin", "attach")] == ["begin", "attach"]


@pytest.mark.rule("B4.8")
def test_links_that_come_and_go_do_not_get_around_the_bound() -> None:
    store = SlowStore()
    broker = slow(store, bytes_max=10_000)
    client = session(broker)
    for number in range(50):
        client.producer("q", handle=0)
        client.transfer(message(b"x" * 1000, durable=True), delivery_id=number)
        client.detach(0)
    assert broker.queue("q").bytes < 12_000
    for _ in range(50):
        store.finish()
        frames_of(client)
    assert broker.queue("q").ready == 50
    assert wire_of(client).peer.wants_input


@pytest.mark.rule("B4.8")
def test_transient_messages_never_wait_for_the_store() -> None:
    client = producer(slow(SlowStore()))
    for _ in range(20):
        client.transfer(message(b"x" * 300)).expect("disposition", state="accepted")


@pytest.mark.rule("B2.17")
def test_a_peer_that_is_not_read_is_not_idle() -> None:
    store = SlowStore()
    broker = slow(store)
    client = producer(broker)
    client.transfer(message(b"x" * 2000, durable=True))
    for _ in range(10):
        broker.advance(30_000)
    store.finish()
    client.wait_for("disposition", state="accepted")


@pytest.mark.rule("B4.8")
def test_each_listener_grants_its_own_credit() -> None:
    broker = MemoryBroker(PeerSettings(container_id="broker", credit=7, credit_low=2))
    broker.client().opened().begun().producer("q").wait_for("flow", link_credit=7)
    broker.settings = PeerSettings(container_id="broker", credit=90, credit_low=2)
    broker.client().opened().begun().producer("q").wait_for("flow", link_credit=90)


def test_frames_that_a_detached_link_did_not_use_go_to_its_neighbours() -> None:
    broker = MemoryBroker()
    producer = broker.client().opened().begun().producer("large").producer("small")
    producer.transfer(message(b"x" * 3_000)).wait_for("disposition")
    client = broker.client().opened(max_frame_size=512).begun(incoming_window=1)
    client.consumer("large").consumer("small")
    client.wait_for("attach", source={"address": "small"})
    client.credit(1, handle=1, incoming_window=1)
    with (
        client.pipelined()
    ):  # The drain is served at once, and its link gone before a frame is out.
        client.credit(1, handle=0, incoming_window=1, drain=True).detach(0)
    producer.transfer(message(b"y"), handle=1)
    assert client.wait_for("transfer", handle=1).payload == message(b"y")
