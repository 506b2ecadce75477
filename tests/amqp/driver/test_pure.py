"""Messages in, dispositions, messages out and outcomes, over both data paths."""

import random
from typing import Any

import pytest
from proton import Delivery, Endpoint, Sender

from amqpbroker.amqp.driver import ABORTED, CROWDED, OVERSIZE, PureDriver, StaleSlot
from tests.amqp.driver.pair import (
    Cut,
    Pair,
    RandomCut,
    Record,
    answer,
    current,
    messages,
    new_seed,
    outcomes,
    receive,
    send,
    transfer,
    whole,
)


def test_messages_are_numbered_in_order(pair: Pair) -> None:
    session, _ = pair.session()
    link, slot = pair.producer(session)
    send(link, b"", b"a", b"b" * 300)
    got = messages(pair.pump(), slot)
    send(link, b"c")
    got += messages(pair.pump(), slot)
    assert got == [(0, b"", False), (1, b"a", False), (2, b"b" * 300, False), (3, b"c", False)]
    assert [pair.driver.tag(slot, n) for n in range(4)] == [b"t0", b"t1", b"t2", b"t0"]


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


def test_outcomes_of_settled_deliveries_are_not_reported(pair: Pair) -> None:
    session, _ = pair.session()
    link, slot = pair.consumer(session)
    pair.driver.send_run(slot, [1], [b"x"], True)
    pair.pump()
    ((delivery, _),) = receive(link)
    answer(delivery, Delivery.ACCEPTED)
    assert pair.pump() == []


# --- Bounds


def held(pair: Pair) -> int:
    return sum(link.filled for link in pair.driver.links.values())


def part(link: Sender, size: int) -> None:
    """A frame or more of a delivery that goes on."""
    if link.current is None:
        link.delivery("t")
    link.send(b"p" * size)


def test_unfinished_messages_of_a_connection_are_bounded_together(
    kind: type[PureDriver], cut: Cut
) -> None:
    pair = Pair(kind, cut, frame=4_096, partial_bytes_max=100_000)
    session, _ = pair.session()
    links = [pair.producer(session, name=name) for name in "abc"]
    (one, one_slot), (two, two_slot), (three, three_slot) = links
    for link in (one, two):
        part(link, 40_000)
    assert pair.pump() == []
    part(three, 40_000)
    assert pair.pump() == [(CROWDED, three_slot)]  # Once, and what it had is forgotten.
    assert pair.driver.partial_bytes == held(pair) == 80_000
    part(three, 300_000)
    assert pair.pump() == []
    part(two, 20_000)
    assert pair.pump() == []
    assert pair.driver.partial_bytes == held(pair) == 100_000
    three.advance()
    send(three, b"nobody reads this")
    one.advance()
    two.advance()
    records = pair.pump()
    assert messages(records, one_slot) == [(0, b"p" * 40_000, False)]
    assert messages(records, two_slot) == [(0, b"p" * 60_000, False)]
    assert messages(records, three_slot) == []
    assert pair.driver.partial_bytes == held(pair) == 0
    part(one, 100_000)  # The others are none the worse: the bound itself is allowed.
    assert pair.pump() == []
    one.advance()
    assert messages(pair.pump(), one_slot) == [(1, b"p" * 100_000, False)]
    pair.driver.free()


def test_a_message_that_is_whole_at_once_is_not_unfinished(kind: type[PureDriver]) -> None:
    pair = Pair(kind, whole, partial_bytes_max=1_000)
    session, _ = pair.session()
    link, slot = pair.producer(session)
    send(link, b"x" * 2_000)
    assert messages(pair.pump(), slot) == [(0, b"x" * 2_000, False)]
    pair.driver.free()


@pytest.mark.parametrize(
    "end", ["finish", "abort", "discard", "oversize", "free_link", "free_session", "free"]
)
def test_whatever_ends_a_delivery_gives_its_bytes_back(
    kind: type[PureDriver], cut: Cut, end: str
) -> None:
    pair = Pair(kind, cut, frame=1_024, partial_bytes_max=10_000)
    session, session_slot = pair.session()
    other, _ = pair.session()
    kept, kept_slot = pair.producer(other, name="kept")
    link, slot = pair.producer(session, limit=8_000)
    part(kept, 2_000)
    part(link, 6_000)
    pair.pump()
    assert pair.driver.partial_bytes == held(pair) == 8_000
    left = 2_000
    if end == "finish":
        link.advance()
        assert messages(pair.pump(), slot) == [(0, b"p" * 6_000, False)]
    elif end == "abort":
        current(link).abort()
        assert pair.pump() == [(ABORTED, slot, 1)]
    elif end == "discard":
        pair.driver.discard(slot)
    elif end == "oversize":
        part(link, 2_001)
        assert pair.pump() == [(OVERSIZE, slot)]
    elif end == "free_link":
        pair.driver.free_link(slot)
    elif end == "free_session":
        pair.driver.free_session(session_slot)
    else:
        pair.driver.free()
        left = 0
    assert pair.driver.partial_bytes == held(pair) == left
    if left:
        kept.advance()
        assert messages(pair.pump(), kept_slot) == [(0, b"p" * 2_000, False)]
        assert pair.driver.partial_bytes == 0
    pair.driver.free()


def test_one_delivery_that_waits_does_not_make_the_ring_grow(kind: type[PureDriver]) -> None:
    """A store that hangs over one message, while others come and are disposed of."""
    pair = Pair(kind, whole)
    session, _ = pair.session(capacity=1 << 27)
    link, slot = pair.producer(session, credit=1_000)
    sent = 0
    waiting: list[int] = []
    for i in range(60):
        send(link, *[b"x"] * 500, settled=False)
        pair.pump()
        first = sent + (i % 3 == 0)  # One of three runs leaves its first message behind.
        waiting += range(sent, first)
        sent += 500
        pair.driver.dispose(slot, first, sent - first, 0x24, True, None)
        pair.driver.grant(slot, 500)
        pair.pump()
    assert getattr(pair.driver.links[slot], "ring_size", 0) <= 1_024
    with pytest.raises(StaleSlot):
        pair.driver.dispose(slot, 1, 1, 0x24, True, None)
    for number in waiting[::2] + waiting[1::2]:
        assert pair.driver.tag(slot, number) == b"t0"
        pair.driver.dispose(slot, number, 1, 0x24, True, None)
        with pytest.raises(StaleSlot):
            pair.driver.tag(slot, number)
    pair.pump()
    pair.driver.free()


def test_stragglers_end_with_their_link(kind: type[PureDriver]) -> None:
    pair = Pair(kind, whole)
    session, _ = pair.session(capacity=1 << 27)
    link, slot = pair.producer(session, credit=5_000)
    for i in range(4):
        send(link, *[b"x"] * 1_000)
        pair.pump()
        pair.driver.dispose(slot, 1_000 * i + 1, 999, 0x24, True, None)
    assert pair.driver.tag(slot, 0) == b"t0"
    pair.driver.free_link(slot)
    with pytest.raises(StaleSlot):
        pair.driver.tag(slot, 0)
    pair.driver.free()
