"""Every check of the walkers, each stream whole, byte by byte and in random pieces, over both of them."""
# ruff: noqa: ANN401  # A field of a frame may be anything.

import importlib
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from amqpbroker.amqp import frames as walkers
from amqpbroker.amqp.frames import (
    BULK,
    CONNECTION_FAULT,
    CONTROL,
    FLOW,
    LINK_FAULT,
    SESSION_FAULT,
    Item,
    PureWalker,
)
from amqpbroker.base import errors
from tests.raw import frames
from tests.raw.frames import (
    accepted,
    decode_frame,
    empty_frame,
    frame,
    frame_of,
    modified,
    raw,
    symbolic,
    wide,
)

try:
    Compiled: Any = importlib.import_module("amqpbroker.amqp._frames").CompiledWalker
except ImportError:
    Compiled = None

without_twin = pytest.mark.skipif(Compiled is None, reason="the twin is not built")
WALKERS = [
    pytest.param(PureWalker, id="pure"),
    pytest.param(Compiled, id="compiled", marks=without_twin),
]

MAX_FRAME_SIZE = 1024
WINDOW = 100
SEEDS = range(5)

transfer = partial(frame, "transfer", channel=1, handle=0)
disposition = partial(frame, "disposition", channel=1)
flow = partial(
    frame,
    "flow",
    channel=1,
    next_incoming_id=0,
    incoming_window=5,
    next_outgoing_id=6,
    outgoing_window=7,
)


def first(delivery_id: Any = 0, tag: Any = b"t", **fields: Any) -> bytes:
    """A transfer as clients send it."""
    payload = fields.pop("payload", b"payload")
    defaults = {"message_format": 0, "settled": False, "more": False}
    fields = {"delivery_id": delivery_id, "delivery_tag": tag, **defaults, **fields}
    return transfer(payload=payload, **fields)


def later(**fields: Any) -> bytes:
    """What must be in a frame that continues a delivery, and no more."""
    return transfer(payload=b"more", **fields)


# --- Running: one tap, any pieces ------------------------------------------------------------------------------------


class Tap:
    """Tells a walker what its control frames mean, as the real tap does, and keeps the items."""

    def __init__(self, walker: PureWalker) -> None:
        self.walker = walker
        self.items: list[Item] = []

    def read(self, pieces: Iterable[bytes]) -> list[Item]:
        for piece in pieces:
            self.walker.feed(piece)
            while (item := self.walker.next()) is not None:
                self.items.append(item)
                if item[0] == CONTROL:
                    self.react(decode_frame(item[3]))
        return self.items

    def react(self, control: frames.Frame) -> None:
        walker, channel = self.walker, control.channel
        if control.name == "begin":
            walker.begin(channel, WINDOW)
        elif control.name == "attach":
            incoming, second = not control.role, control.rcv_settle_mode == 1
            walker.attach(channel, control.handle, incoming=incoming, second=second)
            if incoming:
                walker.grant(channel, control.handle, 10)
        elif control.name == "detach":
            walker.detach(channel, control.handle)
        elif control.name == "end":
            walker.end(channel)


def prepared(kind: Callable[[int], PureWalker]) -> PureWalker:
    """Channel 1 with incoming handles 0 and (in mode second) 2, and outgoing handle 1."""
    walker = kind(MAX_FRAME_SIZE)
    walker.begin(1, WINDOW)
    for handle, incoming, second in ((0, True, False), (1, False, False), (2, True, True)):
        walker.attach(1, handle, incoming=incoming, second=second)
        walker.grant(1, handle, 10)
    return walker


def pieces_of(stream: bytes) -> Iterable[tuple[str, list[bytes]]]:
    yield "whole", [stream]
    yield "byte by byte", [stream[at : at + 1] for at in range(len(stream))]
    for seed in SEEDS:
        chance = random.Random(seed)
        cuts = sorted(chance.choices(range(len(stream) + 1), k=chance.randint(1, 20)))
        ends = [*cuts, len(stream)]
        yield f"seed {seed}", [stream[a:b] for a, b in zip([0, *cuts], ends, strict=True)]


def joined(items: list[Item]) -> list[Any]:
    """The items with neighbouring bulks in one, without descriptions (which must be there)."""
    result: list[Any] = []
    for item in items:
        if item[0] == BULK and result and result[-1][0] == BULK:
            result[-1] = (BULK, result[-1][1] + item[1])
        elif item[0] >= LINK_FAULT:
            assert isinstance(item[-1], str)
            assert item[-1]
            result.append(item[:-1])
        else:
            result.append(item)
    return result


@pytest.fixture(params=WALKERS)
def kind(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def walk(kind: Any) -> Callable[..., list[Any]]:
    def run(*parts: bytes, prepare: Callable[[PureWalker], object] = lambda _: None) -> list[Any]:
        """What a stream gives, the same in all pieces."""
        results = {}
        for name, pieces in pieces_of(b"".join(parts)):
            walker = prepared(kind)
            prepare(walker)
            results[name] = joined(Tap(walker).read(pieces))
        whole = results.pop("whole")
        for name, result in results.items():
            assert result == whole, name
        return whole

    return run


Walk = Callable[..., list[Any]]


# --- The frame ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "good"),
    [
        (frame_of(b"", size=7), False),
        (frame_of(b"", size=0), False),
        (frame_of(b"x" * 8, doff=1), False),
        (frame_of(b"x" * 8, doff=5), False),
        (frame_of(b"x" * 8, doff=255), False),
        (frame_of(b"x" * MAX_FRAME_SIZE), False),
        (frame_of(b"", size=2**32 - 1), False),
        (first(kind=1), False),
        (frames.frame("sasl_init", mechanism="PLAIN"), False),
        (b"AMQP\x00\x01\x00\x00", False),
        (first(payload=b"x" * (MAX_FRAME_SIZE - len(first(payload=b"")))), True),
        (first(extended=b"extended"), True),
        (frame_of(b"", doff=2), True),
    ],
)
def test_frame_header(walk: Walk, bad: bytes, good: bool) -> None:
    result = walk(first(5), bad, first(7))
    if good:
        between = b"" if len(bad) == 8 else bad
        assert result == [(BULK, first(5) + between + first(7))]
    else:
        assert result == [(BULK, first(5)), (CONNECTION_FAULT, errors.FRAMING_ERROR)]


def test_a_wrong_size_is_told_before_the_frame_is_there(kind: Any) -> None:
    for start in (b"\0\0\0\7", b"\0\0\0\0", b"\x7f\0\0\0"):
        walker = prepared(kind)
        assert joined(Tap(walker).read([start])) == [(CONNECTION_FAULT, errors.FRAMING_ERROR)]


def test_at_most_one_incomplete_frame_is_kept(kind: Any) -> None:
    walker = prepared(kind)
    tap = Tap(walker)
    assert tap.read([first(n) for n in range(9)] + [first(9)[:-1]])
    tap.items.clear()
    assert tap.read([first(9)[-1:]]) == [(BULK, first(9))]


def test_what_was_fed_and_not_asked_for_is_not_lost(kind: Any) -> None:
    walker = prepared(kind)
    whole = first(0) + first(1) + flow() + first(2)
    for at in range(0, len(whole), 7):
        walker.feed(whole[at : at + 7])
    items = []
    while (item := walker.next()) is not None:
        items.append(item)
        walker.feed(b"")
    assert [item[0] for item in items] == [BULK, FLOW, BULK]


def test_a_run_that_was_fed_whole_is_not_copied(kind: Any) -> None:
    walker = prepared(kind)
    run = first(0) + disposition(role=True, first=0) + first(1)
    walker.feed(run)
    item = walker.next()
    assert item is not None
    assert item[1] is run
    assert walker.next() is None


def test_empty_frames_are_left_out(walk: Walk) -> None:
    stream = empty_frame(), first(0), empty_frame(9), empty_frame(), first(1), empty_frame()
    assert walk(*stream) == [(BULK, first(0) + first(1))]
    assert walk(empty_frame()) == []


# --- The performative --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        "01",
        "00 53 14",
        "53 14 45 40",
        "00 53 0f 45",
        "00 53 19 45",
        "00 53 40 45",  # SASL in an AMQP frame.
        "00 44 45 00",
        "00 80 00 00 00 00 00 00 00 19 45",
        "00 80 00 00 00 01 00 00 00 10 45",
        "00 80 00 00 00 00 00 00",
        "00 80 00 00 00 00 00 00 00 10",
        "00 70 00 00 00 10 45",
        "00 a3 03 61 62 63 45",
        "00 a3 ff 61 62 63 45",
        "00 b3 00 00 00",
        "00 b3 ff ff ff ff 45",
        "00 53 10 40",
        "00 53 10 c1 01 00",
        "00 53 10 c0",
        "00 53 10 c0 00",
        "00 53 10 c0 00 00",
        "00 53 10 c0 02 01",
        "00 53 10 c0 01 00 40",  # A payload that only transfers have.
        "00 53 10 c0 01 01",
        "00 53 10 c0 02 00 40",
        "00 53 10 c0 02 02 40",
        "00 53 10 c0 03 01 40 40",
        "00 53 10 d0 00 00 00 03 00 00 00 00",
        "00 53 10 d0 00 00 00 04 00 00 00 01",
        "00 53 10 d0 00 00 00",
        "00 53 10 d0 ff ff ff ff ff ff ff ff 40",
        "00 53 10 c0 03 01 a1 05",
        "00 53 10 c0 06 01 b1 00 00 00 09",
        "00 53 10 c0 03 01 b1 00",
        "00 53 10 c0 02 01 a0",
        "00 53 10 c0 04 03 43 43 a0",  # The usual transfer up to its tag.
        "00 53 10 c0 02 01 70",
        "00 53 10 c0 02 01 52",
        "00 53 10 c0 02 01 56",
        "00 53 10 c0 03 01 56 02",
        "00 53 10 c0 02 01 3f",
        "00 53 10 c0 02 01 46",
        "00 53 10 c0 02 01 ff",
        "00 53 10 c0 03 01 00 40",
        "00 53 10 c0 04 01 00 00 00",
    ],
)
def test_a_performative_that_cannot_be_read(walk: Walk, body: str) -> None:
    fault = [(BULK, first(0)), (CONNECTION_FAULT, errors.DECODE_ERROR)]
    assert walk(first(0), frame_of(raw(body)), first(1)) == fault
    for code in ("14", "15", "13"):
        if "00 53 10" in body and not body.endswith("01 00 40"):
            assert walk(first(0), frame_of(raw(body.replace("10", code, 1)), channel=1)) == fault


@pytest.mark.parametrize("name", ["open", "begin", "attach", "detach", "end", "close"])
@pytest.mark.parametrize("extended", [b"", b"four"])
def test_control_frames_are_cut_out(kind: Any, name: str, extended: bytes) -> None:
    fields: dict[str, Any] = {
        "attach": {"name": "l" * 300, "source": {"address": "q"}, "properties": {"a": [1, {}]}}
    }
    control = frame(name, channel=7, extended=extended, **fields.get(name, {}))
    for _, pieces in pieces_of(first(0) + control + control + first(1)):
        walker = prepared(kind)
        items: list[Item] = []
        for piece in pieces:
            walker.feed(piece)
            while (item := walker.next()) is not None:
                items.append(item)
        cut = (CONTROL, frames.LAYOUTS[name].code, 7, control)
        assert joined(items) == [(BULK, first(0)), cut, cut, (BULK, first(1))]


def test_values_of_all_widths_are_passed_over(kind: Any) -> None:
    odd = [
        *("40", "41", "42", "43", "44", "45"),
        *("50 01", "51 01", "52 01", "53 01", "54 01", "55 01", "56 01", "60 0102", "61 0102"),
        *(f"7{n} 01020304" for n in range(5)),
        *(f"8{n} 0102030405060708" for n in range(5)),
        *(f"9{n}" + "01" * 16 for n in (4, 8)),
        *("a0 01 61", "a1 01 61", "a3 01 61", "c0 01 00", "c1 01 00", "e0 02 00 40"),
        *(f"{n} 00 00 00 01 61" for n in ("b0", "b1", "b3")),
        *(f"{n} 00 00 00 04 00 00 00 00" for n in ("d0", "d1", "f0")),
        "00 53 24 45",
        "00 00 53 01 53 02 00 a3 01 61 40",
    ]
    values = frames.list_of([raw(each) for each in odd])
    control = frame_of(b"\x00\x53\x18" + values, channel=0)
    walker = prepared(kind)
    walker.feed(control)
    assert walker.next() == (CONTROL, 0x18, 0, control)


@pytest.mark.parametrize(
    "descriptor",
    [
        lambda name: b"\x80" + frames.LAYOUTS[name].code.to_bytes(8, "big"),
        symbolic,
        lambda name: wide("symbol", f"amqp:{name}:list"),
    ],
    ids=["ulong", "symbol", "long symbol"],
)
@pytest.mark.parametrize("list_wide", [False, True])
def test_other_descriptors_mean_the_same(
    walk: Walk, descriptor: Callable[[str], bytes], list_wide: bool
) -> None:
    """Proton reads codes only: a frame that is named by a symbol is written anew with the code."""
    transferred = {
        "delivery_id": 0,
        "delivery_tag": b"t",
        "payload": b"payload",
        "extended": b"four",
    }
    controlled = {"extended": b"four"}
    fields = {"first": 0, "role": True}
    flowed = {"incoming_window": 1, "next_outgoing_id": 2, "outgoing_window": 3, "all_fields": True}

    def stream(named: bool) -> list[bytes]:
        def build(name: str, **told: Any) -> bytes:
            told |= {"descriptor": descriptor(name)} if named else {}
            return frame(name, channel=1, list_wide=list_wide, **told)

        return [
            build("disposition", **fields),
            build("transfer", handle=0, **transferred),
            build("flow", **flowed),
            build("end", **controlled),
        ]

    disposed, sent, flowing, ended = stream(named=descriptor("end")[0] == 0x80)
    read = (None, 1, 2, 3, None, None, None, False, False, False)
    result = walk(first(9, handle=2), *stream(named=True))
    assert result == [
        (BULK, first(9, handle=2) + disposed + sent),
        (FLOW, 1, flowing, read),
        (CONTROL, 0x17, 1, ended),
    ]


# --- Transfers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "stream",
    [
        [first(0), first(1), first(2)],
        [first(0, more=True), later(more=True), later(more=True), later()],
        [first(0, more=True), later(delivery_id=0, delivery_tag=b"t", message_format=0)],
        [first(2**32 - 1), first(0), first(wide("uint", 1))],
        [first(2**32 - 1, more=True), later(delivery_id=2**32 - 1)],
        [first(handle=wide("uint", 0)), first(handle=raw("52 00")), first(handle=raw("43"))],
        [first(handle=wide("uint", 2)), first(handle=raw("52 02"))],
        [first(tag=b"", settled=True), first(tag=b"x" * 32), first(tag=wide("binary", b"x"))],
        [first(tag=wide("binary", b""), settled=wide("boolean", item=True))],
        [first(settled=None, more=None, message_format=None)],
        [first(rcv_settle_mode=0), first(handle=2, rcv_settle_mode=1), first(resume=False)],
        [first(0, more=True), first(1, handle=2, more=True), later(), later(handle=2)],
        [first(0, more=True), later(aborted=True, more=True), first(1)],
        [first(0, aborted=True), first(1, more=wide("boolean", item=True)), later(), first(2)],
        [first(0, state=accepted(), all_fields=True, batchable=True, payload=b"")],
        [first(0, more=True, payload=b""), later(settled=True), first(1)],
        [first(0, list_wide=True), first(1, extended=b"fourfour")],
        [first(0, state=raw("c0 02 01 40")), first(0, batchable=raw("a1 01 61"))],
        [transfer(delivery_id=0, delivery_tag=b"t", payload=b"x"), first(None)],
        [
            frame_of(
                b"\0\x53\x14" + frames.list_of([b"\x43", b"\x43", b"\xa0\x01t"] + [b"\x40"] * 300),
                channel=1,
            )
        ],
    ],
)
def test_what_clients_send_passes(walk: Walk, stream: list[bytes]) -> None:
    assert walk(*stream) == [(BULK, b"".join(stream))]


LINK_FAULTS = [
    ("outgoing", [first(handle=1)], 1, errors.NOT_ALLOWED),
    ("no tag", [first(tag=None)], 0, errors.INVALID_FIELD),
    ("no tag, settled", [first(tag=None, settled=True)], 0, errors.INVALID_FIELD),
    ("empty tag", [first(tag=b"")], 0, errors.INVALID_FIELD),
    ("long tag", [first(tag=b"x" * 33)], 0, errors.INVALID_FIELD),
    ("format", [first(message_format=1)], 0, errors.NOT_IMPLEMENTED),
    ("format, later", [first(more=True), later(message_format=2)], 0, errors.INVALID_FIELD),
    ("mode", [first(rcv_settle_mode=1)], 0, errors.INVALID_FIELD),
    ("mode, later", [first(more=True), later(rcv_settle_mode=1)], 0, errors.INVALID_FIELD),
    ("no mode", [first(handle=2, rcv_settle_mode=2)], 2, errors.INVALID_FIELD),
    ("resume", [first(resume=True)], 0, errors.NOT_IMPLEMENTED),
    ("resume, later", [first(more=True), later(resume=True)], 0, errors.NOT_IMPLEMENTED),
]


@pytest.mark.parametrize(
    ("stream", "handle", "condition"),
    [case[1:] for case in LINK_FAULTS],
    ids=[c[0] for c in LINK_FAULTS],
)
def test_a_link_fault_is_told_before_its_transfer(
    walk: Walk, stream: list[bytes], handle: int, condition: str
) -> None:
    """The link is checked no more, and nothing else is touched."""
    good = first(6, handle=0 if handle else 2)
    bad = first(7, handle=handle, tag=None, message_format=9, resume=True)
    *before, faulty = stream
    assert walk(good, *before, faulty, bad, good) == [
        (BULK, good + b"".join(before)),
        (LINK_FAULT, 1, handle, condition),
        (BULK, faulty + bad + good),
    ]
    alone = walk(*stream)
    assert alone[-2:] == [(LINK_FAULT, 1, handle, condition), (BULK, faulty)]


def test_credit_is_taken_at_the_first_transfer_of_a_delivery(kind: Any) -> None:
    walker = prepared(kind)
    tap = Tap(walker)
    tap.read([first(0, more=True)])
    assert walker.credit(1, 0) == 9
    tap.read([later(more=True), later()])
    assert walker.credit(1, 0) == 9
    tap.read([first(1, more=True), later(aborted=True), first(2, settled=True)])
    assert walker.credit(1, 0) == 7
    walker.grant(1, 0, -6)
    assert walker.credit(1, 0) == 1
    tap.items.clear()
    assert joined(tap.read([first(3), first(4)])) == [
        (BULK, first(3)),
        (LINK_FAULT, 1, 0, errors.TRANSFER_LIMIT_EXCEEDED),
        (BULK, first(4)),
    ]
    assert walker.credit(1, 0) == 0


def test_no_credit_is_a_link_fault(walk: Walk) -> None:
    stream = [first(n) for n in range(11)]
    assert walk(*stream) == [
        (BULK, b"".join(stream[:10])),
        (LINK_FAULT, 1, 0, errors.TRANSFER_LIMIT_EXCEEDED),
        (BULK, stream[10]),
    ]

    def negative(walker: PureWalker) -> None:
        walker.grant(1, 0, -11)

    assert walk(first(0), prepare=negative)[0] == (LINK_FAULT, 1, 0, errors.TRANSFER_LIMIT_EXCEEDED)


def test_a_continuation_needs_no_credit(walk: Walk) -> None:
    stream = [first(0, more=True), later()]

    def one(walker: PureWalker) -> None:
        walker.grant(1, 0, -9)

    assert walk(*stream, prepare=one) == [(BULK, b"".join(stream))]


def test_a_link_that_failed_is_counted_but_not_checked(kind: Any) -> None:
    walker = prepared(kind)
    walker.fail(1, 0)
    tap = Tap(walker)
    stream = [
        first(0, tag=None),
        later(resume=True),
        first(5, more=True),
        first(6),
        later(message_format=3),
    ]
    assert joined(tap.read(stream)) == [(BULK, b"".join(stream))]
    assert (walker.window(1), walker.credit(1, 0)) == (WINDOW - 5, 10)
    walker.detach(1, 0)
    walker.attach(1, 0, incoming=True, second=False)
    assert joined(tap.read([first(7)]))[-2:] == [
        (LINK_FAULT, 1, 0, errors.TRANSFER_LIMIT_EXCEEDED),
        (BULK, first(7)),
    ]


def test_a_link_failed_between_run_and_fault_is_not_told_again(kind: Any) -> None:
    walker = prepared(kind)
    walker.feed(first(0) + first(1, tag=None) + first(2))
    assert walker.next() == (BULK, first(0))
    walker.fail(1, 0)
    assert walker.next() == (BULK, first(1, tag=None) + first(2))
    assert walker.window(1) == WINDOW - 3


@pytest.mark.parametrize(
    "faulty",
    [
        first(handle=None),
        frame("transfer", channel=1),
        frame("transfer", channel=1, delivery_id=0, delivery_tag=b"t"),
    ],
)
def test_a_transfer_without_a_handle_is_a_connection_fault(walk: Walk, faulty: bytes) -> None:
    fault = [(BULK, first(0)), (CONNECTION_FAULT, errors.INVALID_FIELD)]
    assert walk(first(0), faulty, first(1)) == fault


@pytest.mark.parametrize(
    "field", ["handle", "delivery_id", "delivery_tag", "message_format", "settled", "more"]
)
@pytest.mark.parametrize(
    "wrong", ["44", "45", "50 00", "53 00", "60 00 00", "a1 01 61", "00 53 24 45"]
)
def test_a_field_of_a_wrong_type_is_a_connection_fault(walk: Walk, field: str, wrong: str) -> None:
    fields: dict[str, Any] = {"handle": 0, "delivery_id": 0, "delivery_tag": b"t"}
    fields[field] = raw(wrong)
    assert walk(transfer(**fields)) == [(CONNECTION_FAULT, errors.DECODE_ERROR)]


@pytest.mark.parametrize(
    "fields",
    [
        {"handle": raw("41")},
        {"delivery_id": raw("56 00")},
        {"delivery_tag": raw("43")},
        {"message_format": raw("42")},
        {"settled": raw("43")},
        {"more": raw("52 01")},
        {"rcv_settle_mode": raw("43")},
        {"rcv_settle_mode": raw("41")},
        {"resume": raw("43")},
        {"aborted": raw("50 01")},
    ],
)
def test_types_that_look_alike_are_told_apart(walk: Walk, fields: dict[str, Any]) -> None:
    assert walk(transfer(**fields)) == [(CONNECTION_FAULT, errors.DECODE_ERROR)]


def test_deliveries_of_one_link_do_not_interleave(walk: Walk) -> None:
    stream = [first(0, more=True), first(1)]
    assert walk(*stream) == [(BULK, stream[0]), (CONNECTION_FAULT, errors.INVALID_FIELD)]
    # Without its first id there is nothing to compare; Proton refuses it.
    unnamed = [first(None, more=True), later(delivery_id=1)]
    assert walk(*unnamed) == [(BULK, b"".join(unnamed))]


def test_an_unknown_handle_ends_the_session(walk: Walk) -> None:
    elsewhere, end = frame("begin", channel=4), frame("end", channel=1)
    assert walk(first(0), first(1, handle=9), first(2), flow(), elsewhere, end) == [
        (BULK, first(0)),
        (SESSION_FAULT, 1, errors.UNATTACHED_HANDLE),
        (CONTROL, 0x11, 4, elsewhere),
        (CONTROL, 0x17, 1, end),
    ]


# --- The session's window ----------------------------------------------------------------------------------------


def test_each_transfer_frame_takes_from_the_window(kind: Any) -> None:
    walker = prepared(kind)
    stream = [
        first(0, more=True),
        later(more=True),
        later(aborted=True),
        first(1),
        first(2, tag=None),
    ]
    Tap(walker).read([*stream, disposition(role=True, first=0), flow(), empty_frame(1)])
    assert walker.window(1) == WINDOW - 5
    walker.reset_window(1, 7)
    assert walker.window(1) == 7


def test_a_transfer_beyond_the_window_ends_the_session(walk: Walk) -> None:
    def narrow(walker: PureWalker) -> None:
        walker.reset_window(1, 2)

    end = frame("end", channel=1)
    stream = [first(0), disposition(role=True, first=0), first(1), first(2), first(3), flow(), end]
    fault = (SESSION_FAULT, 1, errors.WINDOW_VIOLATION)

    def failed(walker: PureWalker) -> None:
        narrow(walker)
        walker.fail(1, 0)

    for shut in (narrow, failed):
        result = walk(*stream, prepare=shut)
        assert result == [(BULK, b"".join(stream[:3])), fault, (CONTROL, 0x17, 1, end)]


def test_a_window_below_three_quarters_is_told_once(kind: Any) -> None:
    for window, low in ((100, 26), (8, 3), (3, 1), (2, 1), (1, 1), (4, 2)):
        walker = prepared(kind)
        walker.grant(1, 0, 90)
        walker.reset_window(1, window)
        tap = Tap(walker)
        tap.read([first(n) for n in range(low - 1)])
        assert walker.take_low() == [], window
        assert 4 * walker.window(1) >= 3 * window
        tap.read([first(low)])
        assert 4 * walker.window(1) < 3 * window
        assert walker.take_low() == [1], window
        assert walker.take_low() == []
        tap.read([first(n) for n in range(window - low)])
        assert walker.take_low() == []
        walker.reset_window(1, 1)
        tap.read([first(0)])
        walker.end(1)
        assert walker.take_low() == []


# --- Dispositions ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "condition"),
    [
        ({"role": True, "first": 0}, None),
        (
            {
                "role": False,
                "first": wide("uint", 7),
                "last": 9,
                "settled": True,
                "state": accepted(),
            },
            None,
        ),
        (
            {
                "role": wide("boolean", item=True),
                "first": 0,
                "state": raw("00 80 0000000000000034 45"),
            },
            None,
        ),
        ({}, errors.INVALID_FIELD),
        ({"first": 0}, errors.INVALID_FIELD),
        ({"role": True}, errors.INVALID_FIELD),
        ({"role": True, "first": None, "last": 1}, errors.INVALID_FIELD),
        ({"role": raw("43"), "first": 0}, errors.DECODE_ERROR),
        ({"role": True, "first": raw("42")}, errors.DECODE_ERROR),
        ({"role": True, "first": 0, "count": 3}, errors.DECODE_ERROR),
    ],
)
def test_disposition(walk: Walk, fields: dict[str, Any], condition: str | None) -> None:
    result = walk(first(0), disposition(**fields), first(1))
    if condition is None:
        assert result == [(BULK, first(0) + disposition(**fields) + first(1))]
    else:
        assert result == [(BULK, first(0)), (CONNECTION_FAULT, condition)]


@pytest.mark.parametrize("last", [None, 0, 1, 2**32 - 1, True, 1.5])
def test_a_large_disposition_is_about_one_delivery(walk: Walk, last: Any) -> None:
    """Proton decodes its state anew for each delivery of the range."""

    def padded(size: int) -> bytes:
        state = modified(message_annotations={"k": "v" * size})
        return disposition(role=True, first=0, last=last, state=state)

    fits = 512 - len(padded(400)) + 400
    fitting, large = padded(fits), padded(fits + 1)
    assert len(large) == 513
    assert walk(first(0), fitting, first(1)) == [(BULK, first(0) + fitting + first(1))]
    if last in (None, 0):
        assert walk(first(0), large, first(1)) == [(BULK, first(0) + large + first(1))]
    else:
        fault = (SESSION_FAULT, 1, errors.RESOURCE_LIMIT_EXCEEDED)
        assert walk(first(0), large, first(1)) == [(BULK, first(0)), fault]


# --- Flows -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "read"),
    [
        ({}, (0, 5, 6, 7, None, None, None, False, False, False)),
        ({"next_incoming_id": None}, (None, 5, 6, 7, None, None, None, False, False, False)),
        (
            {
                "handle": 0,
                "delivery_count": 2**32 - 1,
                "link_credit": wide("uint", 1),
                "drain": True,
            },
            (0, 5, 6, 7, 0, 2**32 - 1, 1, True, False, False),
        ),
        (
            {"handle": 1, "echo": wide("boolean", item=True)},
            (0, 5, 6, 7, 1, None, None, False, True, False),
        ),
        ({"properties": {"txn-id": b"x"}}, (0, 5, 6, 7, None, None, None, False, False, True)),
        (
            {"available": raw("52 07"), "all_fields": True},
            (0, 5, 6, 7, None, None, None, False, False, False),
        ),
    ],
)
def test_a_flow_is_read(walk: Walk, fields: dict[str, Any], read: tuple[Any, ...]) -> None:
    result = walk(first(0), flow(**fields), first(1))
    assert result == [(BULK, first(0)), (FLOW, 1, flow(**fields), read), (BULK, first(1))]


@pytest.mark.parametrize("field", ["incoming_window", "next_outgoing_id", "outgoing_window"])
def test_a_flow_without_a_mandatory_field_is_a_connection_fault(walk: Walk, field: str) -> None:
    null: dict[str, Any] = {field: None}
    wrong: dict[str, Any] = {field: raw("41")}
    assert walk(flow(**null)) == [(CONNECTION_FAULT, errors.INVALID_FIELD)]
    assert walk(flow(**wrong)) == [(CONNECTION_FAULT, errors.DECODE_ERROR)]


@pytest.mark.parametrize(
    "fields",
    [
        {"next_incoming_id": raw("44")},
        {"handle": raw("50 00")},
        {"delivery_count": raw("42")},
        {"link_credit": raw("a0 00")},
        {"drain": raw("43")},
        {"echo": raw("a1 00")},
    ],
)
def test_a_flow_with_a_field_of_a_wrong_type_is_a_connection_fault(
    walk: Walk, fields: dict[str, Any]
) -> None:
    assert walk(flow(**fields)) == [(CONNECTION_FAULT, errors.DECODE_ERROR)]


def test_a_flow_for_an_unknown_handle_ends_the_session(walk: Walk) -> None:
    assert walk(first(0), flow(handle=9), first(1), flow(), disposition(role=True, first=0)) == [
        (BULK, first(0)),
        (SESSION_FAULT, 1, errors.UNATTACHED_HANDLE),
    ]


# --- Channels and handles ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("channel", [0, 2, 300])
def test_frames_on_a_channel_that_was_not_begun(walk: Walk, channel: int) -> None:
    for lost in (
        first(channel=channel),
        flow(channel=channel),
        disposition(channel=channel, role=True, first=0),
    ):
        fault = (CONNECTION_FAULT, errors.NOT_ALLOWED)
        assert walk(first(0), lost, first(1)) == [(BULK, first(0)), fault]


@pytest.mark.parametrize("channel", [0, 5, 31, 32, 65535])
@pytest.mark.parametrize("handle", [0, 5, 31, 32, 2**32 - 1])
def test_channels_and_handles_are_used_again(walk: Walk, channel: int, handle: int) -> None:
    begin = frame(
        "begin", channel=channel, next_outgoing_id=0, incoming_window=1, outgoing_window=1
    )
    attach = frame("attach", channel=channel, name="l", handle=handle, role=False)
    detach = frame("detach", channel=channel, handle=handle, closed=True)
    end = frame("end", channel=channel)
    sent = first(0, channel=channel, handle=handle, more=True)
    finished = first(0, channel=channel, handle=handle)

    def shown(control: bytes) -> tuple[int, int, int, bytes]:
        return CONTROL, control[10], channel, control

    controls = [begin, attach, sent, detach, attach, finished, end, begin, attach, sent]
    assert walk(*controls) == [
        (BULK, each) if each in (sent, finished) else shown(each) for each in controls
    ]
    gone = (SESSION_FAULT, channel, errors.UNATTACHED_HANDLE)
    assert walk(begin, attach, detach, sent)[-1] == gone
    assert walk(begin, attach, end, sent)[-1] == (CONNECTION_FAULT, errors.NOT_ALLOWED)
    assert walk(begin, attach, end, begin, sent)[-1] == gone


def test_a_swallowed_channel_lets_only_its_end_through(walk: Walk) -> None:
    """And the frames of the connection, which may come on any channel: clients close on channel 0."""

    def swallow(walker: PureWalker) -> None:
        walker.swallow(1)
        walker.begin(2, WINDOW)

    end, close = frame("end", channel=1), frame("close", channel=1)
    dropped = [
        first(0),
        flow(),
        flow(handle=99),
        disposition(),
        transfer(handle=raw("41")),
        frame("begin", channel=1),
        frame("attach", channel=1),
        frame("detach", channel=1, handle=9),
        first(descriptor=symbolic("transfer")),
    ]
    other = disposition(channel=2, role=True, first=0)
    assert walk(*dropped, other, *dropped, end, close, prepare=swallow) == [
        (BULK, other),
        (CONTROL, 0x17, 1, end),
        (CONTROL, 0x18, 1, close),
    ]


def test_nothing_follows_a_connection_fault(kind: Any) -> None:
    walker = prepared(kind)
    walker.feed(frame_of(b"x") + first(0))
    assert [walker.next() for _ in range(3)][1:] == [None, None]
    walker.feed(first(0))
    assert walker.next() is None


def test_what_was_not_begun_or_attached_is_a_key_error(kind: Any) -> None:
    walker = prepared(kind)
    for call in (
        lambda: walker.end(9),
        lambda: walker.window(9),
        lambda: walker.reset_window(9, 1),
        lambda: walker.swallow(9),
        lambda: walker.attach(9, 0, incoming=True, second=False),
        lambda: walker.detach(1, 9),
        lambda: walker.grant(1, 9, 1),
        lambda: walker.credit(1, 9),
        lambda: walker.fail(1, 9),
    ):
        with pytest.raises(KeyError):
            call()
    with pytest.raises(AssertionError):
        walker.begin(1, 1)
    with pytest.raises(AssertionError):
        walker.attach(1, 0, incoming=True, second=False)


# --- The two against each other --------------------------------------------------------------------------------------


def recorded() -> list[bytes]:
    """Frames as clients send them, and each kind of wrong ones."""
    begin: dict[str, Any] = {"next_outgoing_id": 0, "incoming_window": 9, "outgoing_window": 9}
    source = {"address": "q", "outcomes": ["amqp:accepted:list"], "capabilities": ["queue"]}
    good = [
        frame("open", container_id="c", max_frame_size=512, channel_max=9),
        frame("begin", channel=1, **begin),
        frame("begin", channel=300, **begin),
        *(
            frame(
                "attach", channel=1, name=f"l{n}", handle=n, role=n == 1, source=source, target={}
            )
            for n in (0, 1, 40)
        ),
        frame("attach", channel=1, name="s", handle=2, role=False, rcv_settle_mode=1),
        first(0),
        first(1, more=True, payload=b"x" * 200),
        later(more=True),
        later(aborted=True),
        later(),
        first(3, handle=2, rcv_settle_mode=1),
        first(4, handle=40, settled=True, tag=b""),
        first(5, descriptor=symbolic("transfer")),
        first(6, channel=300),
        disposition(role=True, first=0, last=4, settled=True, state=accepted()),
        flow(),
        flow(handle=1, link_credit=100, delivery_count=0, drain=True),
        flow(echo=True, properties={"txn-id": b"x"}),
        empty_frame(),
        frame("detach", channel=1, handle=0, closed=True),
        frame("end", channel=1),
        frame("end", channel=300),
        frame("close"),
    ]
    bad = [
        first(7, tag=None),
        first(8, handle=9),
        first(9, handle=1),
        first(10, message_format=1),
        first(11, resume=True),
        first(12, count=3),
        first(13, list_size=9),
        first(handle=None),
        flow(handle=77),
        flow(outgoing_window=None),
        disposition(first=1),
        frame("begin", size=7),
    ]
    return [*good, *good, *good, *good, *bad]  # Most of a stream is good, else it ends soon.


RECORDED = recorded()
DAMAGE = st.tuples(
    st.sampled_from(["set", "set", "set", "flip", "delete", "insert"]),
    st.integers(0, 2**16),
    st.sampled_from(
        [0, 1, 0x14, 0x40, 0x41, 0x43, 0x45, 0x52, 0x53, 0x56, 0x70, 0xA0, 0xC0, 0xD0, 0xFF]
    ),
)


def damaged(stream: bytes, damage: list[tuple[str, int, int]]) -> bytes:
    result = bytearray(stream)
    for verb, where, byte in damage:
        at = where % len(result) if result else 0
        if verb == "insert":
            result.insert(at, byte)
        elif result and verb == "delete":
            del result[at]
        elif result:
            result[at] = byte if verb == "set" else result[at] ^ (1 << byte % 8)
    return bytes(result)


class CarefulTap(Tap):
    """Of damaged control frames, what a tap would take."""

    def react(self, control: frames.Frame) -> None:
        try:
            super().react(control)
        except (KeyError, AssertionError, TypeError, OverflowError):
            self.items.append((CONNECTION_FAULT, "tap", "refused"))


def outcome_of(kind: Any, pieces: list[bytes]) -> Any:
    walker = kind(MAX_FRAME_SIZE)
    walker.begin(1, WINDOW)
    walker.attach(1, 0, incoming=True, second=False)
    walker.grant(1, 0, 3)
    tap = CarefulTap(walker)
    try:
        tap.read(pieces)
    except frames.Undecodable as error:
        return tap.items, str(error)
    state = []
    for channel in (1, 300):
        try:
            state.append(walker.window(channel))
            state += [walker.credit(channel, handle) for handle in (0, 1, 2, 40)]
        except KeyError as error:
            state.append(str(error))
    return tap.items, state, walker.take_low(), walker.next()


@without_twin
@given(
    st.lists(st.sampled_from(RECORDED), min_size=1, max_size=30),
    st.lists(DAMAGE, max_size=4),
    st.integers(0, 2**32),
)
@example([first(0), first(1), first(2, tag=None)], [], 3)
def test_the_twin_says_what_the_pure_walker_says(
    stream: list[bytes], damage: list[tuple[str, int, int]], seed: int
) -> None:
    """Item for item, description for description, and with the same state afterwards."""
    whole = damaged(b"".join(stream), damage)
    chance = random.Random(seed)
    cuts = sorted(chance.choices(range(len(whole) + 1), k=chance.randint(0, 12)))
    pieces = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    assert outcome_of(Compiled, pieces) == outcome_of(PureWalker, pieces)


@without_twin
@given(st.sampled_from(RECORDED), st.lists(DAMAGE, max_size=3), st.binary(max_size=20))
def test_the_twin_reads_damaged_performatives_alike(
    one: bytes, damage: list[tuple[str, int, int]], rest: bytes
) -> None:
    """Sizes of the frame stay right, so that the damage is inside; what follows must not matter."""
    body = damaged(one[8:], damage)
    whole = frame_of(body, channel=one[7]) + first(3) + rest
    assert outcome_of(Compiled, [whole]) == outcome_of(PureWalker, [whole])


@without_twin
@given(st.binary(max_size=80))
def test_the_twin_reads_noise_alike(noise: bytes) -> None:
    outcomes = [outcome_of(kind, [frame_of(noise, channel=1)]) for kind in (Compiled, PureWalker)]
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("wanted", ["0", "1"])
def test_the_environment_chooses_the_pure_walker(wanted: str) -> None:
    script = "from amqpbroker.amqp import frames; print(frames.COMPILED, frames.Walker.__name__)"
    environment = {**os.environ, "AMQPBROKER_PURE_PYTHON": wanted}
    shown = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    compiled = wanted == "0" and Compiled is not None
    name = "CompiledWalker" if compiled else "PureWalker"
    assert shown.stdout.split() == [str(compiled), name]
    assert walkers.COMPILED is (walkers.Walker is not PureWalker)
