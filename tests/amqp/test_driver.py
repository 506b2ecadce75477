"""Both drivers, joined in memory with a client made of Proton's Python objects, over input cut in three ways."""

import random
import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from proton import (
    Collector,
    Condition,
    Connection,
    Delivery,
    Endpoint,
    Receiver,
    Sender,
    Session,
    Transport,
    symbol,
)

from amqpbroker.amqp import driver as module
from amqpbroker.amqp.driver import (
    ABORTED,
    LINK_OPENED,
    MESSAGES,
    OUTCOMES,
    OVERSIZE,
    SESSION_OPENED,
    PureDriver,
    StaleSlot,
)

DRIVERS = [kind for kind in (PureDriver, module.CompiledDriver) if kind is not None]
HEADER = b"AMQP\x00\x01\x00\x00"

Cut = Callable[[bytes], Iterator[bytes]]
Record = tuple[Any, ...]


def whole(data: bytes) -> Iterator[bytes]:
    yield data


def byte_by_byte(data: bytes) -> Iterator[bytes]:
    for i in range(len(data)):
        yield data[i : i + 1]


def new_seed() -> int:
    seed = random.randrange(1 << 32)
    print("seed", seed)  # noqa: T201 - pytest shows it when the test fails
    return seed


class RandomCut:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def __call__(self, data: bytes) -> Iterator[bytes]:
        while data:
            size = self._random.choice([1, 3, 20, 200, 5_000, 60_000])
            yield data[:size]
            data = data[size:]


class Pair:
    """A driver and a client; `records` is what take() gave since the last pump()."""

    def __init__(
        self, kind: type[PureDriver], cut: Cut, *, frame: int = 65_536, client_frame: int = 0
    ) -> None:
        self.driver = kind(max_frame_size=frame, channel_max=100)
        self.cut = cut
        self.connection = Connection()
        self.connection.container = "client"
        self.transport = Transport()
        if client_frame:
            self.transport.max_frame_size = client_frame
        self.collector = Collector()
        self.connection.collect(self.collector)
        self.transport.bind(self.connection)
        self.connection.open()
        self.driver.open_connection()
        self.pump()

    def pump(self) -> list[Record]:
        """Move bytes both ways until none is left."""
        records: list[Record] = []
        moved = True
        while moved:
            moved = self.to_driver(records)
            moved = self.to_client(self.driver.pump()) or moved
            records += self.driver.take()
        return records

    def to_driver(self, records: list[Record]) -> bool:
        data = self.output()
        for piece in self.cut(data):
            self.driver.push(piece)
            records += self.driver.take()
        return bool(data)

    def output(self) -> bytes:
        """Everything that the client has to say now, taken out."""
        data = b""
        while (size := self.transport.pending()) > 0:
            data += self.transport.peek(size) or b""
            self.transport.pop(size)
        return data

    def to_client(self, data: bytes) -> bool:
        done = 0
        while done < len(data) and (room := self.transport.capacity()) > 0:
            self.transport.push(data[done : done + room])
            done += room
        while self.collector.peek():
            self.collector.pop()
        return bool(data)

    def session(self, *, capacity: int = 1 << 24) -> tuple[Session, int]:
        session = self.connection.session()
        session.open()
        ((tag, slot),) = self.pump()
        assert tag == SESSION_OPENED
        self.driver.open_session(slot, capacity)
        self.pump()
        return session, slot

    def producer(
        self, session: Session, *, limit: int = 0, credit: int = 100, name: str = "p"
    ) -> tuple[Sender, int]:
        link = session.sender(name)
        return link, self._attach(link, limit, credit)

    def consumer(
        self, session: Session, *, credit: int = 100, name: str = "c"
    ) -> tuple[Receiver, int]:
        link = session.receiver(name)
        slot = self._attach(link, 0, 0)
        link.flow(credit)
        self.pump()
        return link, slot

    def _attach(self, link: Sender | Receiver, limit: int, credit: int) -> int:
        link.open()
        ((tag, slot, _session, incoming),) = self.pump()
        assert tag == LINK_OPENED
        self.driver.open_link(slot, limit)
        assert incoming == link.is_sender
        if credit:
            self.driver.grant(slot, credit)
        self.pump()
        return int(slot)


@pytest.fixture(params=DRIVERS, ids=lambda kind: kind.__name__)
def kind(request: pytest.FixtureRequest) -> type[PureDriver]:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(params=["whole", "byte by byte", "random"])
def cut(request: pytest.FixtureRequest) -> Cut:
    if request.param == "whole":
        return whole
    if request.param == "byte by byte":
        return byte_by_byte
    return RandomCut(new_seed())


@pytest.fixture
def pair(kind: type[PureDriver], cut: Cut) -> Iterator[Pair]:
    pair = Pair(kind, cut)
    yield pair
    pair.driver.free()


def send(link: Sender, *payloads: bytes, settled: bool = False) -> list[Delivery]:
    deliveries = []
    for i, payload in enumerate(payloads):
        delivery = link.delivery(f"t{i}")
        if payload:
            link.send(payload)
        link.advance()
        if settled:
            delivery.settle()
        deliveries.append(delivery)
    return deliveries


def receive(link: Receiver) -> list[tuple[Delivery, bytes]]:
    """The next complete deliveries of a client's receiver, with payload."""
    got: list[tuple[Delivery, bytes]] = []
    while (delivery := link.current) is not None and not delivery.partial:
        payload = link.recv(delivery.pending) or b""
        link.advance()
        got.append((delivery, bytes(payload)))
    return got


def current(link: Receiver) -> Delivery:
    delivery = link.current
    assert delivery is not None
    return delivery


def messages(records: list[Record], link: int) -> list[tuple[int, bytes, bool]]:
    """(number, payload, settled) of each message, whatever the runs."""
    flat = []
    for record in records:
        if record[0] == MESSAGES and record[1] == link:
            flat += [(record[2] + i, bytes(p), record[4]) for i, p in enumerate(record[3])]
    return flat


def outcomes(records: list[Record], link: int) -> list[tuple[int, int, Any]]:
    """(code, tag, detail) of each outcome, whatever the runs."""
    return [
        (record[2], tag, record[4])
        for record in records
        if record[0] == OUTCOMES and record[1] == link
        for tag in record[3]
    ]


# --- Endpoints -------------------------------------------------------------------------------------------------------


def test_a_begin_and_an_attach_each_get_a_slot(pair: Pair) -> None:
    session = pair.connection.session()
    session.open()
    session.sender("p").open()
    session.receiver("c").open()
    records = pair.pump()
    slot = records[0][1]
    assert records == [
        (SESSION_OPENED, slot),
        (LINK_OPENED, records[1][1], slot, True),
        (LINK_OPENED, records[2][1], slot, False),
    ]
    assert len({slot, records[1][1], records[2][1]}) == 3


def test_endpoints_open_as_told(pair: Pair) -> None:
    session, _ = pair.session()
    link, _ = pair.producer(session, limit=12_345, credit=7)
    assert pair.connection.state & Endpoint.REMOTE_ACTIVE
    assert session.state & Endpoint.REMOTE_ACTIVE
    assert link.state & Endpoint.REMOTE_ACTIVE
    assert link.remote_max_message_size == 12_345
    assert link.credit == 7


def test_conditions_reach_the_peer_with_info(pair: Pair) -> None:
    session, slot = pair.session()
    link, link_slot = pair.producer(session)
    info = b"\xc1\x08\x02\xa3\x01k\xa1\x02vv"  # {symbol k: "vv"}
    pair.driver.close_link(link_slot, ("amqp:not-found", "no “q”", info), closed=True)
    pair.driver.close_session(slot, ("amqp:session:errant-link", "", b""))
    pair.driver.close_connection(("amqp:connection:forced", "bye", b""))
    pair.pump()
    assert link.remote_condition == Condition("amqp:not-found", "no “q”", {symbol("k"): "vv"})
    assert session.remote_condition == Condition("amqp:session:errant-link")
    assert pair.connection.remote_condition == Condition("amqp:connection:forced", "bye")


@pytest.mark.parametrize("closed", [True, False])
def test_a_link_is_closed_or_detached(pair: Pair, closed: bool) -> None:
    session, _ = pair.session()
    link, slot = pair.consumer(session)
    pair.driver.close_link(slot, None, closed=closed)
    seen = set()
    data = pair.driver.pump()
    pair.transport.push(data)
    while event := pair.collector.peek():
        seen.add(event.type.name)
        pair.collector.pop()
    assert ("PN_LINK_REMOTE_CLOSE" if closed else "PN_LINK_REMOTE_DETACH") in seen
    assert link.remote_condition is None


def test_what_was_asked_for_before_a_free_still_leaves(pair: Pair) -> None:
    session, slot = pair.session()
    link, link_slot = pair.consumer(session)
    pair.driver.send_run(link_slot, [1], [b"last"], True)
    pair.driver.close_link(link_slot, None, closed=True)
    pair.driver.free_link(link_slot)
    pair.driver.close_session(slot, None)
    pair.driver.free_session(slot)
    pair.pump()
    assert [p for _, p in receive(link)] == [b"last"]
    assert link.state & Endpoint.REMOTE_CLOSED
    assert session.state & Endpoint.REMOTE_CLOSED


def test_a_name_attached_again_gets_a_new_slot(pair: Pair) -> None:
    session, _ = pair.session()
    slots = set()
    for i in range(20):
        link, slot = pair.producer(session, name="same")
        send(link, b"x")
        assert messages(pair.pump(), slot) == [(0, b"x", False)]
        slots.add(slot)
        link.close()
        pair.pump()
        pair.driver.close_link(slot, None, closed=True)
        if i % 2:
            pair.pump()
        pair.driver.free_link(slot)
        pair.pump()
        link.free()
    assert len(slots) == 20


def test_garbage_is_an_error(kind: type[PureDriver]) -> None:
    driver = kind(max_frame_size=512, channel_max=1)
    assert driver.error() is None
    assert driver.push(HEADER)
    assert not driver.push(b"\x00\x00\x00\x05garbage")
    assert not driver.push(b"more")
    error = driver.error()
    assert error is not None
    assert error[0] == "amqp:connection:framing-error"
    assert driver.take() == []
    assert b"framing-error" in driver.pump()
    driver.free()


def test_nothing_is_taken_after_close(pair: Pair) -> None:
    pair.connection.close()
    data = pair.output()
    assert not all(pair.driver.push(piece) for piece in pair.cut(data))
    assert pair.driver.error() is None


def test_force_flow_sends_one_session_flow(pair: Pair) -> None:
    _, slot = pair.session(capacity=10 * 65_536)
    assert pair.driver.pump() == b""
    for _ in range(2):
        pair.driver.force_flow(slot)
        flow = pair.driver.pump()
        assert flow[8:11] == b"\x00\x53\x13"
        assert struct.unpack(">I", flow[:4])[0] == len(flow)
        assert pair.driver.pump() == b""


def test_the_incoming_window_is_the_capacity_in_frames(kind: type[PureDriver]) -> None:
    pair = Pair(kind, whole, frame=1024)
    session = pair.connection.session()
    session.open()
    ((_, slot),) = pair.pump()
    pair.driver.open_session(slot, 10 * 1024)
    begin = pair.driver.pump()
    assert begin[8:11] == b"\x00\x53\x11"
    assert b"\x52\x0a" in begin  # Incoming-window 10.
    pair.driver.free()


# --- Arrivals --------------------------------------------------------------------------------------------------------


def test_messages_are_numbered_in_order(pair: Pair) -> None:
    session, _ = pair.session()
    link, slot = pair.producer(session)
    send(link, b"", b"a", b"b" * 300)
    got = messages(pair.pump(), slot)
    send(link, b"c")
    got += messages(pair.pump(), slot)
    assert got == [(0, b"", False), (1, b"a", False), (2, b"b" * 300, False), (3, b"c", False)]
    assert [pair.driver.tag(slot, n) for n in range(4)] == [b"t0", b"t1", b"t2", b"t0"]


def test_a_run_is_one_record(kind: type[PureDriver]) -> None:
    pair = Pair(kind, whole)
    session, _ = pair.session()
    link, slot = pair.producer(session)
    other, other_slot = pair.producer(session, name="other")
    send(link, b"a", b"b")
    send(link, b"c", settled=True)
    send(link, b"d")
    send(other, b"e")
    send(link, b"f")
    assert pair.pump() == [
        (MESSAGES, slot, 0, [b"a", b"b"], False),
        (MESSAGES, slot, 2, [b"c"], True),
        (MESSAGES, slot, 3, [b"d"], False),
        (MESSAGES, other_slot, 0, [b"e"], False),
        (MESSAGES, slot, 4, [b"f"], False),
    ]
    pair.driver.free()


def test_presettled_messages_are_only_settled(pair: Pair) -> None:
    session, _ = pair.session()
    link, slot = pair.producer(session)
    send(link, b"a", b"b", settled=True)
    assert messages(pair.pump(), slot) == [(0, b"a", True), (1, b"b", True)]
    pair.driver.dispose(slot, 0, 2, 0x25, True, ("amqp:not-allowed", "", b""))
    assert pair.driver.pump() == b""
    with pytest.raises(StaleSlot):
        pair.driver.tag(slot, 0)


@pytest.mark.parametrize("settled", [True, False])
def test_large_messages_of_two_links_interleave(kind: type[PureDriver], settled: bool) -> None:
    seed = new_seed()
    pair = Pair(kind, RandomCut(seed), frame=4096)
    # A window of 16 frames: it reopens only because partial deliveries are read.
    session, _ = pair.session(capacity=16 * 4096)
    one, one_slot = pair.producer(session, name="one")
    two, two_slot = pair.producer(session, name="two")
    payloads = [random.Random(seed + i).randbytes(5 << 20) for i in range(2)]
    records: list[Record] = []
    deliveries = [one.delivery("a"), two.delivery("b")]
    for offset in range(0, 5 << 20, 1 << 19):
        for link, payload in zip((one, two), payloads, strict=True):
            link.stream(payload[offset : offset + (1 << 19)])
        records += pair.pump()
    for link, delivery in zip((one, two), deliveries, strict=True):
        if settled:
            delivery.settle()
        else:
            link.advance()
    records += pair.pump()
    assert messages(records, one_slot) == [(0, payloads[0], settled)]
    assert messages(records, two_slot) == [(0, payloads[1], settled)]
    send(one, b"next")
    assert messages(pair.pump(), one_slot) == [(1, b"next", False)]
    pair.driver.free()


def transfer(handle: int, number: int | None, payload: bytes, *, more: bool = False) -> bytes:
    """A raw transfer on channel 0, unsettled, with a one-byte tag."""
    first = (
        b"\x40\x40"
        if number is None
        else b"\x43\xa0\x01t"
        if number == 0
        else bytes([0x52, number]) + b"\xa0\x01t"
    )
    fields = bytes([0x52, handle]) + first + b"\x40\x42" + (b"\x41" if more else b"\x42")
    body = b"\x00\x53\x14\xc0" + bytes([len(fields) + 1, 6]) + fields + payload
    return struct.pack(">IBBH", len(body) + 8, 2, 0, 0) + body


def test_frames_without_payload_are_part_of_a_message(pair: Pair) -> None:
    session, _ = pair.session()
    _, slot = pair.producer(session)
    frames = [
        transfer(0, 0, b"", more=True),
        transfer(0, None, b"", more=True),
        transfer(0, None, b"ab", more=True),
    ]
    frames += [
        transfer(0, None, b"", more=True),
        transfer(0, None, b"c"),
        transfer(0, 1, b"", more=True),
    ]
    frames += [transfer(0, None, b"")]
    records: list[Record] = []
    for frame in frames:
        for piece in pair.cut(frame):
            assert pair.driver.push(piece)
            records += pair.driver.take()
    assert messages(records, slot) == [(0, b"abc", False), (1, b"", False)]


def test_aborted_messages_use_no_number(pair: Pair) -> None:
    session, _ = pair.session()
    link, slot = pair.producer(session)
    records = []
    for i in range(3):
        delivery = link.delivery(f"a{i}")
        link.send(b"half")
        records += pair.pump()
        delivery.abort()
        records += pair.pump()
    send(link, b"kept")
    records += pair.pump()
    assert sum(r[2] for r in records if r[:2] == (ABORTED, slot)) == 3
    assert messages(records, slot) == [(0, b"kept", False)]


def test_aborts_in_a_row_are_one_record(kind: type[PureDriver]) -> None:
    pair = Pair(kind, whole)
    session, _ = pair.session()
    _, slot = pair.producer(session)
    for number in range(2):
        fields = (
            b"\x43"
            + (b"\x43" if number == 0 else b"\x52\x01")
            + b"\xa0\x01t\x40\x42\x42\x40\x40\x42\x41"
        )
        body = b"\x00\x53\x14\xc0" + bytes([len(fields) + 1, 10]) + fields
        assert pair.driver.push(struct.pack(">IBBH", len(body) + 8, 2, 0, 0) + body)
    assert pair.driver.take() == [(ABORTED, slot, 2)]
    pair.driver.free()


@pytest.mark.parametrize("size", [11, 3_000])
def test_a_message_beyond_the_limit_is_reported_once_then_the_link_discards(
    kind: type[PureDriver], cut: Cut, size: int
) -> None:
    pair = Pair(kind, cut, frame=1024)
    session, _ = pair.session(capacity=8 * 1024)
    link, slot = pair.producer(session, limit=10)
    records = []
    send(link, b"0123456789")
    records += pair.pump()
    send(link, b"x" * size, b"small", b"y" * size)
    records += pair.pump()
    assert [r for r in records if r[0] == OVERSIZE] == [(OVERSIZE, slot)]
    assert messages(records, slot) == [(0, b"0123456789", False)]
    pair.driver.dispose(slot, 0, 1, 0x24, True, None)
    # The window is still whole: many times its size passes.
    for _ in range(30):
        send(link, b"z" * 2_000)
        assert pair.pump() == []
    assert pair.transport.pending() == 0
    pair.driver.free()


def test_discard_forgets_what_comes_and_keeps_what_came(pair: Pair) -> None:
    session, _ = pair.session()
    link, slot = pair.producer(session)
    (kept,) = send(link, b"kept")
    pair.pump()
    half = link.delivery("half")
    link.send(b"half")
    pair.pump()
    pair.driver.discard(slot)
    link.send(b"other half")
    link.advance()
    (gone,) = send(link, b"gone")
    aborted = link.delivery("aborted")
    link.send(b"aborted")
    pair.pump()
    aborted.abort()
    assert pair.pump() == []
    assert half.settled
    assert gone.settled
    assert not gone.remote_state
    assert not kept.settled
    pair.driver.dispose(slot, 0, 1, 0x24, True, None)
    pair.pump()
    assert kept.remote_state == Delivery.ACCEPTED


def test_transfers_on_a_freed_link_are_read_away(kind: type[PureDriver], cut: Cut) -> None:
    pair = Pair(kind, cut, frame=1024)
    session, _ = pair.session(capacity=8 * 1024)
    link, slot = pair.producer(session)
    other, other_slot = pair.producer(session, name="other")
    send(link, b"x" * 40_000)
    pair.pump()
    pair.driver.free_link(slot)
    send(link, b"y" * 40_000, b"y" * 40_000)
    assert pair.pump() == []
    send(other, b"z" * 20_000)
    assert messages(pair.pump(), other_slot) == [(0, b"z" * 20_000, False)]
    pair.driver.free()


# --- Dispositions ----------------------------------------------------------------------------------------------------


def test_ranges_are_disposed_of_in_any_order(pair: Pair) -> None:
    session, _ = pair.session()
    link, slot = pair.producer(session)
    deliveries = send(link, *[b"%d" % i for i in range(50)])
    pair.pump()
    for first, count, code in (
        (40, 10, 0x24),
        (0, 10, 0x26),
        (20, 20, 0x24),
        (11, 9, 0x27),
        (10, 1, 0x24),
    ):
        pair.driver.dispose(slot, first, count, code, True, None)
        if first != 20:
            pair.pump()
    pair.pump()
    assert all(d.settled for d in deliveries)
    states = [int(d.remote_state) for d in deliveries]
    assert states == [0x26] * 10 + [0x24] + [0x27] * 9 + [0x24] * 30


def test_the_ring_grows_with_what_is_not_disposed_of(kind: type[PureDriver]) -> None:
    pair = Pair(kind, whole)
    session, _ = pair.session()
    link, slot = pair.producer(session, credit=20_000)
    count = 5_000
    for _ in range(2):
        deliveries = send(link, *[b"%d" % i for i in range(count)])
        records = pair.pump()
        first = records[0][2]
        numbers = list(range(first, first + count))
        random.Random(7).shuffle(numbers)
        for number in numbers:
            assert pair.driver.tag(slot, number) == b"t%d" % (number - first)
            pair.driver.dispose(slot, number, 1, 0x24, True, None)
        pair.pump()
        assert all(d.settled for d in deliveries)
    pair.driver.free()


def test_a_rejection_carries_its_error(pair: Pair) -> None:
    session, _ = pair.session()
    link, slot = pair.producer(session)
    one, two = send(link, b"1", b"2")
    pair.pump()
    pair.driver.dispose(slot, 0, 1, 0x25, True, ("amqp:decode-error", "bad section", b""))
    pair.driver.dispose(slot, 1, 1, 0x25, True, ("x", "", b"\xc1\x05\x02\xa3\x01k\x43"))
    pair.pump()
    assert one.remote_state == two.remote_state == Delivery.REJECTED
    assert one.remote.condition == Condition("amqp:decode-error", "bad section")
    assert two.remote.condition == Condition("x", None, {symbol("k"): 0})


def test_a_pooled_delivery_keeps_no_error_of_its_former_life(pair: Pair) -> None:
    session, _ = pair.session()
    link, slot = pair.producer(session)
    for number in range(6):
        (delivery,) = send(link, b"1")
        pair.pump()
        error = ("amqp:decode-error", "bad", b"") if number % 2 == 0 else None
        pair.driver.dispose(slot, number, 1, 0x25, True, error)
        pair.pump()
        name = delivery.remote.condition.name if delivery.remote.condition else None
        assert name == (error[0] if error else None)
        delivery.settle()


def test_settled_without_a_state(pair: Pair) -> None:
    session, _ = pair.session()
    link, slot = pair.producer(session)
    (delivery,) = send(link, b"1")
    pair.pump()
    pair.driver.dispose(slot, 0, 1, 0, True, None)
    pair.pump()
    assert delivery.settled
    assert not delivery.remote_state


def test_a_second_mode_delivery_is_settled_when_the_peer_settles(pair: Pair) -> None:
    session, _ = pair.session()
    link, slot = pair.producer(session)
    one, two, three = send(link, b"1", b"2", b"3")
    pair.pump()
    pair.driver.dispose(slot, 0, 3, 0x24, False, None)
    assert pair.pump() == []
    assert [int(d.remote_state) for d in (one, two, three)] == [0x24] * 3
    assert [d.settled for d in (one, two, three)] == [False] * 3
    two.settle()
    assert pair.pump() == []
    with pytest.raises(StaleSlot):
        pair.driver.tag(slot, 1)
    assert pair.driver.tag(slot, 0) == b"t0"
    pair.driver.dispose(slot, 0, 1, 0x26, True, None)  # Settled by us after all.
    three.settle()
    pair.pump()
    assert one.settled
    for number in range(3):
        with pytest.raises(StaleSlot):
            pair.driver.tag(slot, number)


def test_a_delivery_that_the_peer_settled_first_is_disposed_of_in_silence(pair: Pair) -> None:
    session, _ = pair.session()
    link, slot = pair.producer(session)
    for number, settle in enumerate((True, False)):
        (delivery,) = send(link, b"1")
        pair.pump()
        delivery.settle()
        assert pair.pump() == []
        pair.driver.dispose(slot, number, 1, 0x24, settle, None)
        assert pair.driver.pump() == b""
        with pytest.raises(StaleSlot):
            pair.driver.tag(slot, number)


# --- Sending ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settled", [True, False])
def test_a_run_is_sent_in_order(pair: Pair, settled: bool) -> None:
    session, _ = pair.session()
    link, slot = pair.consumer(session)
    tags = [1, 0x0102030405060708, (1 << 64) - 1, 0]
    payloads: list[Any] = [b"a", bytearray(b"b"), b"", b"d" * 9_000]
    pair.driver.send_run(slot, tags, payloads, settled)
    pair.pump()
    got = receive(link)
    assert [p for _, p in got] == [b"a", b"b", b"", b"d" * 9_000]
    assert all(d.settled == settled for d, _ in got)
    for delivery, tag in zip([d for d, _ in got], tags, strict=True):
        encoded = tag.to_bytes(8, "big")
        if max(encoded) < 0x80:  # The client's binding reads a tag as text.
            assert delivery.tag.encode() == encoded or b"\x00" in encoded


def test_a_run_needs_a_tag_for_each_payload(pair: Pair) -> None:
    session, _ = pair.session()
    _, slot = pair.consumer(session)
    with pytest.raises(ValueError, match="a tag for each"):
        pair.driver.send_run(slot, [1, 2], [b"a"], False)


@pytest.mark.parametrize("settled", [True, False])
def test_a_large_message_is_sent_in_parts(pair: Pair, settled: bool) -> None:
    session, _ = pair.session()
    link, slot = pair.consumer(session)
    pair.driver.send_begin(slot, 7)
    with pytest.raises(AssertionError):
        pair.driver.send_begin(slot, 8)
    with pytest.raises(AssertionError):
        pair.driver.send_run(slot, [8], [b""], False)
    for part in (b"one ", bytearray(b"two "), b""):
        pair.driver.send_part(slot, memoryview(part))
        pair.pump()
        assert current(link).partial
    pair.driver.send_part(slot, b"three")
    pair.driver.send_end(slot, settled)
    with pytest.raises(AssertionError):
        pair.driver.send_end(slot, settled)
    pair.driver.send_run(slot, [8], [b"next"], settled)
    pair.pump()
    (delivery, payload), (_, following) = receive(link)
    assert payload == b"one two three"
    assert following == b"next"
    assert delivery.settled == settled
    delivery.update(Delivery.ACCEPTED)
    delivery.settle()
    assert outcomes(pair.pump(), slot) == ([] if settled else [(0x24, 7, None)])


def test_a_delivery_in_progress_is_given_up(pair: Pair) -> None:
    session, _ = pair.session()
    link, slot = pair.consumer(session)
    with pytest.raises(AssertionError):
        pair.driver.send_abort(slot)
    pair.driver.send_begin(slot, 7)
    pair.driver.send_part(slot, b"never seen")
    pair.driver.send_abort(slot)
    pair.pump()
    assert link.current is None
    pair.driver.send_begin(slot, 8)
    pair.driver.send_part(slot, b"half")
    pair.pump()
    pair.driver.send_abort(slot)
    pair.driver.send_run(slot, [9], [b"next"], False)
    pair.pump()
    delivery = current(link)
    assert delivery.aborted
    delivery.settle()
    assert [p for _, p in receive(link)] == [b"next"]
    assert pair.pump() == []


@pytest.mark.parametrize("abort", [True, False])
def test_an_abort_holds_a_detach_back_while_the_window_is_shut(
    kind: type[PureDriver], abort: bool
) -> None:
    """What docs/seams.md says of send_abort; Proton waits with Detach for what is queued."""
    pair = Pair(kind, whole, client_frame=512)
    session = pair.connection.session()
    session.incoming_capacity = 1024
    session.open()
    ((_, session_slot),) = pair.pump()
    pair.driver.open_session(session_slot, 1 << 20)
    link, slot = pair.consumer(session)
    pair.driver.send_begin(slot, 7)
    pair.driver.send_part(slot, b"x" * 5_000)
    pair.pump()
    if abort:
        pair.driver.send_abort(slot)
    pair.driver.close_link(slot, None, closed=True)
    pair.pump()
    assert bool(link.state & Endpoint.REMOTE_CLOSED) != abort
    link.recv(5_000)
    pair.pump()
    assert link.state & Endpoint.REMOTE_CLOSED
    pair.driver.free()


def test_a_link_freed_half_way_aborts_the_delivery(pair: Pair) -> None:
    session, _ = pair.session()
    link, slot = pair.consumer(session)
    pair.driver.send_begin(slot, 7)
    pair.driver.send_part(slot, b"half")
    pair.pump()
    delivery = current(link)
    pair.driver.free_link(slot)
    pair.pump()
    assert delivery.aborted


def test_a_delivery_settled_half_way_is_aborted(pair: Pair) -> None:
    session, _ = pair.session()
    link, slot = pair.consumer(session)
    pair.driver.send_begin(slot, 7)
    pair.driver.send_part(slot, b"half")
    pair.pump()
    delivery = current(link)
    delivery.update(Delivery.RELEASED)
    pair.transport.pending()
    assert outcomes(pair.pump(), slot) == [(0x26, 7, None)]
    assert delivery.aborted
    pair.driver.send_part(slot, b"other half")
    pair.driver.send_end(slot, False)
    delivery.settle()
    pair.driver.send_run(slot, [8], [b"next"], False)
    assert pair.pump() == []
    assert [p for _, p in receive(link)] == [b"next"]


def test_much_output_is_pumped_at_once(kind: type[PureDriver]) -> None:
    pair = Pair(kind, whole)
    session, _ = pair.session()
    link, slot = pair.consumer(session, credit=3_000)
    payload = bytes(range(256)) * 40
    pair.driver.send_run(slot, list(range(2_000)), [payload] * 2_000, True)
    data = pair.driver.pump()
    assert len(data) > 20_000_000
    pair.to_client(data)
    assert [p for _, p in receive(link)] == [payload] * 2_000
    pair.driver.free()


# --- Outcomes --------------------------------------------------------------------------------------------------------


def answer(delivery: Delivery, code: int, settle: bool = True) -> None:
    delivery.update(code)
    if settle:
        delivery.settle()


@pytest.mark.parametrize("settle", [True, False])
def test_each_outcome_is_reported_once_and_settled(pair: Pair, settle: bool) -> None:
    session, _ = pair.session()
    link, slot = pair.consumer(session)
    pair.driver.send_run(slot, [10, 11, 12, 13, 14], [b"x"] * 5, False)
    pair.pump()
    accepted, rejected, bare, released, modified = [d for d, _ in receive(link)]
    answer(accepted, Delivery.ACCEPTED, settle)
    rejected.local.condition = Condition("app:bad", "no “good”")
    answer(rejected, Delivery.REJECTED, settle)
    answer(bare, Delivery.REJECTED, settle)
    answer(released, Delivery.RELEASED, settle)
    modified.local.failed = True
    modified.local.undeliverable = True
    modified.local.annotations = {symbol("k"): 1}
    answer(modified, Delivery.MODIFIED, settle)
    annotations = b"\xd1\x00\x00\x00\x09\x00\x00\x00\x02\xa3\x01k\x55\x01"
    assert sorted(outcomes(pair.pump(), slot), key=lambda o: o[1]) == [
        (0x24, 10, None),
        (0x25, 11, ("app:bad", "no “good”")),
        (0x25, 12, ("", "")),
        (0x26, 13, None),
        (0x27, 14, (True, True, annotations)),
    ]
    if not settle:
        for delivery in (accepted, rejected, bare, released, modified):
            assert delivery.settled  # Our answer: a consumer in settle mode second waits for it.
            assert delivery.remote_state == delivery.local_state
        assert modified.remote.failed
        assert modified.remote.undeliverable
    assert pair.pump() == []


def test_outcomes_of_a_kind_are_one_record(kind: type[PureDriver]) -> None:
    pair = Pair(kind, whole)
    session, _ = pair.session()
    link, slot = pair.consumer(session)
    other, other_slot = pair.consumer(session, name="other")
    pair.driver.send_run(slot, [1, 2, 3, 4, 5], [b"x"] * 5, False)
    pair.driver.send_run(other_slot, [1], [b"x"], False)
    pair.pump()
    got = [d for d, _ in receive(link)]
    (first,) = [d for d, _ in receive(other)]
    for delivery, code in zip(got, [Delivery.ACCEPTED] * 2 + [Delivery.RELEASED] * 2, strict=False):
        answer(delivery, code)
    answer(first, Delivery.RELEASED)
    answer(got[4], Delivery.ACCEPTED)
    records = pair.pump()
    assert [(r[0], r[1], r[2], sorted(r[3]), r[4]) for r in records] == [
        (OUTCOMES, slot, 0x24, [1, 2], None),
        (OUTCOMES, slot, 0x26, [3, 4], None),
        (OUTCOMES, other_slot, 0x26, [1], None),
        (OUTCOMES, slot, 0x24, [5], None),
    ]
    pair.driver.free()


def test_settled_without_a_state_is_code_0(pair: Pair) -> None:
    session, _ = pair.session()
    link, slot = pair.consumer(session)
    pair.driver.send_run(slot, [1, 2], [b"x", b"y"], False)
    pair.pump()
    one, two = [d for d, _ in receive(link)]
    one.settle()
    answer(two, Delivery.RECEIVED, settle=False)
    assert outcomes(pair.pump(), slot) == [(0, 1, None)]
    two.settle()
    assert outcomes(pair.pump(), slot) == [(0, 2, None)]


def test_an_outcome_said_twice_counts_once(pair: Pair) -> None:
    session, _ = pair.session()
    link, slot = pair.consumer(session)
    pair.driver.send_run(slot, [1, 2], [b"x", b"y"], False)
    pair.pump()
    one, two = [d for d, _ in receive(link)]
    data = b""
    for delivery, code in (
        (one, Delivery.ACCEPTED),
        (two, Delivery.ACCEPTED),
        (one, Delivery.RELEASED),
    ):
        answer(delivery, code, settle=False)
        data += pair.output()
    assert pair.driver.push(data)  # Both events of the first are in the collector at once.
    records = pair.driver.take()
    assert sorted(tag for _, tag, _ in outcomes(records, slot)) == [1, 2]
    assert pair.pump() == []


def test_an_unknown_state_is_reported_by_its_code(pair: Pair) -> None:
    session, _ = pair.session()
    link, slot = pair.consumer(session)
    pair.driver.send_run(slot, [1], [b"x"], False)
    pair.pump()
    receive(link)
    state = b"\x00\x53\x34\xc0\x05\x01\xa0\x02tx"  # transactional-state, txn-id "tx".
    fields = b"\x41\x43\x43\x42" + state
    body = b"\x00\x53\x15\xc0" + bytes([len(fields) + 1, 5]) + fields
    for piece in pair.cut(struct.pack(">IBBH", len(body) + 8, 2, 0, 0) + body):
        assert pair.driver.push(piece)
    assert pair.driver.take() == [(OUTCOMES, slot, 0x34, [1], None)]
    assert b"\x00\x53\x34\xd0\x00\x00\x00\x08\x00\x00\x00\x01\xa0\x02tx" in pair.driver.pump()


def test_deep_annotations_are_handed_on_as_they_came(pair: Pair) -> None:
    """Proton's codec does not recurse: 5,000 levels are no deeper for the C stack than one."""
    session, _ = pair.session()
    link, slot = pair.consumer(session)
    pair.driver.send_run(slot, [1], [b"x"], False)
    pair.pump()
    receive(link)
    deep = b"\x45"
    for _ in range(5_000):
        deep = b"\xd0" + struct.pack(">II", len(deep) + 4, 1) + deep
    annotations = b"\xd1" + struct.pack(">II", len(deep) + 7, 2) + b"\xa3\x01k" + deep
    state = b"\x41\x42" + annotations
    fields = b"\x41\x43\x43\x42\x00\x53\x27\xd0" + struct.pack(">II", len(state) + 4, 3) + state
    body = b"\x00\x53\x15\xd0" + struct.pack(">II", len(fields) + 4, 5) + fields
    assert pair.driver.push(struct.pack(">IBBH", len(body) + 8, 2, 0, 0) + body)
    ((_, _, code, _, (failed, elsewhere, got)),) = pair.driver.take()
    assert (code, failed, elsewhere) == (0x27, True, False)
    assert got == annotations


def test_outcomes_of_settled_deliveries_are_not_reported(pair: Pair) -> None:
    session, _ = pair.session()
    link, slot = pair.consumer(session)
    pair.driver.send_run(slot, [1], [b"x"], True)
    pair.pump()
    ((delivery, _),) = receive(link)
    answer(delivery, Delivery.ACCEPTED)
    assert pair.pump() == []


# --- Drain -----------------------------------------------------------------------------------------------------------


def test_a_producer_is_drained(pair: Pair) -> None:
    session, _ = pair.session()
    link, slot = pair.producer(session, credit=10)
    send(link, b"1", b"2")
    pair.pump()
    pair.driver.drain(slot)
    pair.pump()
    link.drained()
    pair.pump()
    assert pair.driver.drained(slot) == 8
    assert pair.driver.drained(slot) == 0
    pair.driver.grant(slot, 3)
    pair.pump()
    assert link.credit == 3


def test_a_consumer_is_given_its_drain_back(pair: Pair) -> None:
    session, _ = pair.session()
    link, slot = pair.consumer(session, credit=0)
    link.drain(5)
    pair.pump()
    pair.driver.send_run(slot, [1], [b"x"], False)
    pair.driver.give_back(slot)
    pair.pump()
    assert [p for _, p in receive(link)] == [b"x"]
    assert link.credit == 0
    assert not link.draining()


# --- Slots -----------------------------------------------------------------------------------------------------------

Call = Callable[[PureDriver, int], object]

SESSION_CALLS: dict[str, Call] = {
    "open_session": lambda d, s: d.open_session(s, 1 << 20),
    "close_session": lambda d, s: d.close_session(s, None),
    "free_session": lambda d, s: d.free_session(s),
    "force_flow": lambda d, s: d.force_flow(s),
}
LINK_CALLS: dict[str, Call] = {
    "open_link": lambda d, s: d.open_link(s, 0),
    "close_link": lambda d, s: d.close_link(s, None, closed=True),
    "discard": lambda d, s: d.discard(s),
    "free_link": lambda d, s: d.free_link(s),
    "grant": lambda d, s: d.grant(s, 1),
    "drain": lambda d, s: d.drain(s),
    "drained": lambda d, s: d.drained(s),
    "dispose": lambda d, s: d.dispose(s, 0, 1, 0x24, True, None),
    "dispose nothing": lambda d, s: d.dispose(s, 0, 0, 0x24, True, None),
    "tag": lambda d, s: d.tag(s, 0),
    "send_run": lambda d, s: d.send_run(s, [1], [b""], False),
    "send_begin": lambda d, s: d.send_begin(s, 1),
    "send_part": lambda d, s: d.send_part(s, b""),
    "send_end": lambda d, s: d.send_end(s, False),
    "send_abort": lambda d, s: d.send_abort(s),
    "give_back": lambda d, s: d.give_back(s),
}
DRIVER_CALLS: dict[str, Call] = {
    "push": lambda d, s: d.push(b"x"),
    "pump": lambda d, s: d.pump(),
    "take": lambda d, s: d.take(),
    "error": lambda d, s: d.error(),
    "open_connection": lambda d, s: d.open_connection(),
    "close_connection": lambda d, s: d.close_connection(None),
}


def filled(kind: type[PureDriver]) -> tuple[Pair, int, list[int]]:
    """A pair with a session and two links, messages and outcomes under way."""
    pair = Pair(kind, whole)
    session, slot = pair.session()
    producer, producer_slot = pair.producer(session)
    _, consumer_slot = pair.consumer(session)
    send(producer, b"1", b"2")
    pair.driver.send_run(consumer_slot, [1, 2], [b"x", b"y"], False)
    pair.pump()
    return pair, slot, [producer_slot, consumer_slot]


@pytest.mark.parametrize("name", LINK_CALLS)
@pytest.mark.parametrize("end", ["link", "session", "driver"])
def test_a_freed_link_is_stale(kind: type[PureDriver], name: str, end: str) -> None:
    pair, session, links = filled(kind)
    if end == "link":
        for link in links:
            pair.driver.free_link(link)
    elif end == "session":
        pair.driver.free_session(session)
    else:
        pair.driver.free()
    for link in [*links, 0, -1, 1 << 40]:
        with pytest.raises(StaleSlot):
            LINK_CALLS[name](pair.driver, link)
    pair.driver.free()


@pytest.mark.parametrize("name", SESSION_CALLS)
@pytest.mark.parametrize("end", ["session", "driver"])
def test_a_freed_session_is_stale(kind: type[PureDriver], name: str, end: str) -> None:
    pair, session, links = filled(kind)
    if end == "session":
        pair.driver.free_session(session)
    else:
        pair.driver.free()
    for slot in (session, links[0], 0):
        with pytest.raises(StaleSlot):
            SESSION_CALLS[name](pair.driver, slot)
    pair.driver.free()


def test_a_session_freed_before_its_links_were_taken_takes_them_along(
    kind: type[PureDriver],
) -> None:
    pair = Pair(kind, whole)
    session, slot = pair.session()
    other, other_slot = pair.session()
    _, consumer_slot = pair.consumer(other)
    pair.driver.send_run(consumer_slot, [1], [b"x"], False)
    pair.pump()
    session.sender("lost").open()
    pair.driver.push(pair.output())
    pair.driver.free_session(slot)
    session.sender("late").open()
    other.sender("kept").open()
    pair.driver.push(pair.output())
    ((tag, _, of, _),) = pair.driver.take()
    assert (tag, of) == (LINK_OPENED, other_slot)
    assert pair.driver.take() == []
    pair.driver.close_connection(None)
    session.close()
    pair.pump()
    pair.driver.free()


@pytest.mark.parametrize("name", DRIVER_CALLS)
def test_a_freed_driver_is_stale(kind: type[PureDriver], name: str) -> None:
    pair, _, _ = filled(kind)
    pair.driver.free()
    pair.driver.free()
    with pytest.raises(StaleSlot):
        DRIVER_CALLS[name](pair.driver, 0)


def test_a_number_is_stale_once_disposed_of(pair: Pair) -> None:
    session, _ = pair.session()
    link, slot = pair.producer(session)
    send(link, b"1", b"2", b"3")
    pair.pump()
    pair.driver.dispose(slot, 1, 1, 0x24, True, None)
    for first, count in ((1, 1), (3, 1), (-1, 1), (2, 2)):
        with pytest.raises(StaleSlot):
            pair.driver.dispose(slot, first, count, 0x24, True, None)
    for number in (1, 3, -1, 1 << 40):
        with pytest.raises(StaleSlot):
            pair.driver.tag(slot, number)
    assert pair.driver.tag(slot, 0) == b"t0"


def test_a_link_used_the_other_way_is_a_bug(pair: Pair) -> None:
    session, _ = pair.session()
    _, incoming = pair.producer(session)
    _, outgoing = pair.consumer(session)
    for name in ("grant", "drain", "drained", "dispose", "tag", "discard"):
        with pytest.raises(AssertionError, match="other way"):
            LINK_CALLS[name](pair.driver, outgoing)
    for name in ("send_run", "send_begin", "send_part", "send_end", "send_abort", "give_back"):
        with pytest.raises(AssertionError, match="other way"):
            LINK_CALLS[name](pair.driver, incoming)
    with pytest.raises(AssertionError, match="revoked"):
        pair.driver.grant(incoming, -1)


def test_a_connection_closes_with_everything_in_flight(pair: Pair) -> None:
    session, slot = pair.session()
    producer, producer_slot = pair.producer(session)
    consumer, consumer_slot = pair.consumer(session)
    send(producer, b"1", b"2")
    half = producer.delivery("half")
    producer.send(b"half")
    pair.driver.send_run(consumer_slot, [1, 2, 3], [b"x", b"y", b"z"], False)
    pair.pump()
    got = [d for d, _ in receive(consumer)]
    answer(got[0], Delivery.ACCEPTED)
    answer(got[1], Delivery.MODIFIED, settle=False)
    pair.driver.send_begin(consumer_slot, 4)
    pair.driver.send_part(consumer_slot, b"half")
    pair.driver.dispose(producer_slot, 1, 1, 0x24, False, None)
    pair.connection.close()
    records = pair.pump()
    assert sorted(tag for _, tag, _ in outcomes(records, consumer_slot)) == [1, 2]
    # The engine may still answer what came before the end.
    pair.driver.dispose(producer_slot, 0, 1, 0x24, True, None)
    pair.driver.send_part(consumer_slot, b"half")
    pair.driver.send_end(consumer_slot, False)
    pair.driver.close_session(slot, None)
    pair.driver.close_connection(None)
    pair.pump()
    assert pair.connection.state & Endpoint.REMOTE_CLOSED
    assert half is not None


@pytest.mark.skipif(module.CompiledDriver is None, reason="the twin is not built")
def test_the_twin_has_the_same_numbers() -> None:
    """The twin's tags are constants of its own: each record kind is compared here, built by both."""

    def script(kind: type[PureDriver]) -> list[Record]:
        pair = Pair(kind, whole, frame=1024)
        session, _ = pair.session()
        producer, _ = pair.producer(session, limit=100)
        consumer, consumer_slot = pair.consumer(session)
        records: list[Record] = []
        send(producer, b"1")
        records += pair.pump()
        delivery = producer.delivery("x")
        producer.send(b"2")
        records += pair.pump()
        delivery.abort()
        records += pair.pump()
        send(producer, b"3" * 101)
        pair.driver.send_run(consumer_slot, list(range(6)), [b""] * 6, False)
        records += pair.pump()
        states = [
            Delivery.ACCEPTED,
            Delivery.RELEASED,
            Delivery.REJECTED,
            Delivery.MODIFIED,
            Delivery.RECEIVED,
            Delivery.ACCEPTED,
        ]
        for (got, _), state in zip(receive(consumer), states, strict=True):
            got.local.annotations = {symbol("a"): [1, 2, {"x": 1.5}]}
            answer(got, state)
            records += pair.pump()
        pair.driver.free()
        return records

    pure = script(PureDriver)
    assert module.CompiledDriver is not None
    assert script(module.CompiledDriver) == pure
    assert {record[0] for record in pure} == {MESSAGES, ABORTED, OVERSIZE, OUTCOMES}
