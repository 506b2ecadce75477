"""Message sections: what is found, what is refused, what goes out; each over the pure module and its twin."""

import os
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace

import proton
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqpbroker.base import codec, sections
from amqpbroker.base.codec import Described, Symbol, Timestamp, UByte, UInt, ULong, encode
from amqpbroker.base.ids import Millis
from amqpbroker.base.sections import SHARED_MAX, Facts, Payload, merge

PURE = SimpleNamespace(
    scan=sections.scan_pure,
    scan_run=sections.scan_run_pure,
    deliver=sections.deliver_pure,
    to=sections.to_pure,
)
BOTH = [pytest.param(PURE, id="pure")]
if sections.COMPILED:
    BOTH.append(pytest.param(sections, id="twin"))

both = pytest.mark.parametrize("impl", BOTH)
needs_twin = pytest.mark.skipif(not sections.COMPILED, reason="the twin is not built")

(
    S_HEADER,
    S_DELIVERY,
    S_MESSAGE,
    S_PROPERTIES,
    S_APPLICATION,
    S_DATA,
    S_SEQUENCE,
    S_VALUE,
    S_FOOTER,
) = range(0x70, 0x79)
LONG_STRING = b"\xb1\x00\x00\x00\x01q"


def section(code: int, value: object) -> bytes:
    return encode(Described(ULong(code), value))


def raw(code: int, encoded: str | bytes) -> bytes:
    """A section whose value is given as bytes, or as hex."""
    return bytes((0, 0x53, code)) + (
        bytes.fromhex(encoded) if isinstance(encoded, str) else encoded
    )


HEADER = section(S_HEADER, [True, UByte(7), UInt(5000), True, UInt(3)])
DURABLE = section(S_HEADER, [True])
DELIVERY = section(S_DELIVERY, {Symbol("x"): 1})
MESSAGE = section(S_MESSAGE, {Symbol("x-opt-a"): 1, Symbol("x-opt-b"): [1, {Symbol("k"): None}]})
PROPERTIES = section(S_PROPERTIES, ["id", b"user", "there", "subject"])
APPLICATION = section(S_APPLICATION, {"a": 1, "b": "c"})
DATA = section(S_DATA, b"body")
SEQUENCE = section(S_SEQUENCE, [1, "two"])
VALUE = section(S_VALUE, {"any": [1]})
FOOTER = section(S_FOOTER, {Symbol("sum"): 1})

GOOD = {
    "data": DATA,
    "three data": DATA * 3,
    "two sequences": SEQUENCE * 2,
    "value": VALUE,
    "null value": raw(S_VALUE, "40"),
    "described value": raw(S_VALUE, "00 a3 01 61 45"),
    "empty data": raw(S_DATA, "a0 00"),
    "long data": raw(S_DATA, b"\xb0\x00\x00\x01\x00" + bytes(256)),
    "empty header": raw(S_HEADER, "45") + DATA,
    "header of nulls": raw(S_HEADER, "c0 06 05 40 40 40 40 40") + DATA,
    "header in long forms": raw(S_HEADER, "d0 00 00 00 10 00 00 00 05 56 01 50 04 70 00 00 00 09 56 00 43") + DATA,
    "no body": PROPERTIES,
    "header alone": DURABLE,
    "footer without body": FOOTER,
    "everything": HEADER + DELIVERY + MESSAGE + PROPERTIES + APPLICATION + DATA + DATA + FOOTER,
    "delivery-annotations alone": DELIVERY + DATA,
    "message-annotations alone": MESSAGE + DATA,
    "header and annotations": DURABLE + MESSAGE + VALUE,
    "empty annotations": raw(S_MESSAGE, "c1 01 00") + VALUE,
    "ulong descriptor": bytes.fromhex("00 80 00 00 00 00 00 00 00 75 a0 01 78"),
    "symbol descriptors": encode(Described(Symbol("amqp:header:list"), [True, UByte(9)]))
    + encode(Described(Symbol("amqp:amqp-value:*"), "x")),
    "long symbol descriptor": b"\x00\xb3\x00\x00\x00\x10amqp:data:binary\xa0\x01x",
    "array in annotations": section(S_MESSAGE, {Symbol("a"): codec.symbols(("b", "c"))}) + DATA,
    "array of nulls": raw(S_VALUE, "f0 00 00 00 05 80 00 00 00 40"),  # Carried as it is.
    "false count inside the body": raw(S_VALUE, "c0 02 09 40"),  # Carried as it is.
    "properties in full": section(S_PROPERTIES, ["i", b"u", "t", "s", "r", 1, None, None, None, None, "g", 1, "r"]),
    "proton": proton.Message(body={"a": 1}, id=5, address="q", durable=True, ttl=1.5, properties={"a": b"b"}).encode(),
}  # fmt: skip

BAD = {
    "no bytes": b"",
    "not described": b"\x40",
    "half a descriptor": b"\x00",
    "descriptor alone": b"\x00\x53\x75",
    "other descriptor": raw(0x79, "40"),
    "performative": raw(0x14, "45"),
    "large ulong descriptor": bytes.fromhex("00 80 00 00 00 01 00 00 00 75 a0 01 78"),
    "cut ulong descriptor": bytes.fromhex("00 80 00 00 00 00"),
    "unknown symbol": b"\x00\xa3\x01x\x40",
    "string descriptor": b"\x00\xa1\x10amqp:data:binary\xa0\x00",
    "cut symbol": b"\x00\xa3\x10amqp",
    "delivery-annotations before header": DELIVERY + DURABLE + DATA,
    "message-annotations before delivery-annotations": MESSAGE + DELIVERY + DATA,
    "header twice": DURABLE + DURABLE + DATA,
    "properties twice": PROPERTIES + PROPERTIES + DATA,
    "body before properties": DATA + PROPERTIES,
    "two values": VALUE + VALUE,
    "data and value": DATA + VALUE,
    "data and sequence": DATA + SEQUENCE,
    "two footers": DATA + FOOTER + FOOTER,
    "body after footer": FOOTER + DATA,
    "trailing bytes": DATA + b"\x00",
    "trailing value": DATA + b"\x40",
    "header is a map": raw(S_HEADER, "c1 01 00"),
    "properties are a map": raw(S_PROPERTIES, "c1 01 00"),
    "annotations are a list": raw(S_MESSAGE, "45"),
    "application-properties are null": raw(S_APPLICATION, "40"),
    "data is a string": raw(S_DATA, "a1 00"),
    "data is null": raw(S_DATA, "40"),
    "sequence is a map": raw(S_SEQUENCE, "c1 01 00"),
    "footer is a string": raw(S_FOOTER, "a1 00"),
    "cut data": raw(S_DATA, "a0 05 01"),
    "cut long data": raw(S_DATA, "b0 ff ff ff ff 01"),
    "cut size": raw(S_DATA, "b0 00 00"),
    "cut value": raw(S_VALUE, "80 00"),
    "unknown code": raw(S_VALUE, "57 00"),
    "priority is a uint": raw(S_HEADER, "c0 04 02 40 52 04"),
    "durable is a number": raw(S_HEADER, "c0 03 01 50 01"),
    "durable is two": raw(S_HEADER, "c0 03 01 56 02"),
    "ttl is a ulong": raw(S_HEADER, "c0 05 03 40 40 53 04"),
    "first-acquirer is a number": raw(S_HEADER, "c0 06 04 40 40 40 50 01"),
    "delivery-count is an int": raw(S_HEADER, "c0 07 05 40 40 40 40 54 01"),
    "header of six": raw(S_HEADER, "c0 07 06 40 40 40 40 40 40"),
    "properties of fourteen": raw(S_PROPERTIES, b"\xc0\x0f\x0e" + b"\x40" * 14),
    "count above size": raw(S_PROPERTIES, "c0 02 02 40"),
    "count below size": raw(S_PROPERTIES, "c0 03 01 40 40"),
    "count beyond all": raw(S_PROPERTIES, "d0 00 00 00 04 ff ff ff ff"),
    "size without count": raw(S_PROPERTIES, "c0 00"),
    "long size without count": raw(S_PROPERTIES, "d0 00 00 00 03 00 00 00 00"),
    "size beyond the end": raw(S_PROPERTIES, "c0 7f 01 40"),
    "long size beyond the end": raw(S_PROPERTIES, "d0 ff ff ff ff 00 00 00 00"),
    "field beyond the list": raw(S_PROPERTIES, "c0 03 01 a1 05") + DATA,
    "odd map": raw(S_APPLICATION, "c1 02 01 40"),
    "count disagrees deep inside": raw(S_MESSAGE, "c1 09 02 a3 01 61 c0 03 01 40 40"),
    "unknown code in annotations": raw(S_MESSAGE, "c1 05 02 a3 01 61 57"),
    "expiry is a long": section(S_PROPERTIES, [None] * 8 + [5]),
    "cut expiry": raw(S_PROPERTIES, b"\xc0\x0b\x09" + b"\x40" * 8 + b"\x83\x00"),
    "descriptors without end": raw(S_VALUE, b"\x00" * 10_000),
    "descriptors without end in annotations": raw(S_MESSAGE, b"\xc1\xff\x02" + b"\x00" * 254),
}


def shown(facts: Facts) -> dict[str, object]:
    return {name: getattr(facts, name) for name in Facts.__slots__}


@both
@pytest.mark.parametrize("name", GOOD)
def test_a_valid_message_has_no_fault_and_ends_where_it_ends(
    impl: SimpleNamespace, name: str
) -> None:
    for payload in (GOOD[name], bytearray(GOOD[name])):
        facts = impl.scan(payload)
        assert facts.fault == ""
        assert (
            0 <= facts.header_end <= facts.annotations_start <= facts.annotations_end == facts.bare
        )
        assert facts.bare <= len(payload)


@both
@pytest.mark.parametrize("name", BAD)
def test_a_malformed_message_has_a_fault(impl: SimpleNamespace, name: str) -> None:
    facts = impl.scan(BAD[name])
    assert facts.fault
    assert not facts.plain
    assert shown(facts) == shown(Facts(plain=False, fault=facts.fault))


@both
@pytest.mark.parametrize("name", GOOD)
def test_a_message_cut_inside_a_section_has_a_fault(impl: SimpleNamespace, name: str) -> None:
    payload = GOOD[name]
    ends = {0}
    while max(ends) < len(payload):
        ends.add(codec.skip(payload, max(ends)))
    for length in range(len(payload)):
        whole = length in ends and length > 0
        assert bool(impl.scan(payload[:length]).fault) != whole


@both
def test_the_header_is_read_field_by_field(impl: SimpleNamespace) -> None:
    facts = impl.scan(HEADER + DATA)
    assert (facts.durable, facts.priority, facts.ttl, facts.plain) == (True, 7, 5000, False)
    facts = impl.scan(DATA)
    assert shown(facts) == shown(Facts())
    facts = impl.scan(DURABLE + DATA)
    assert (facts.durable, facts.priority, facts.ttl, facts.plain) == (True, 4, 0, True)
    assert type(facts.durable) is bool
    assert type(facts.priority) is int
    facts = impl.scan(GOOD["header in long forms"])
    assert (facts.durable, facts.priority, facts.ttl) == (True, 4, 9)
    facts = impl.scan(GOOD["symbol descriptors"])
    assert (facts.durable, facts.priority) == (True, 9)
    facts = impl.scan(section(S_HEADER, [None, UByte(255), UInt(2**32 - 1)]) + DATA)
    assert (facts.durable, facts.priority, facts.ttl) == (False, 255, 2**32 - 1)


@both
@pytest.mark.parametrize(
    ("head", "plain"),
    [
        (b"", True),
        (DURABLE, True),
        (section(S_HEADER, [True, None, UInt(0)]), True),
        (section(S_HEADER, [True, None, None, True, UInt(0)]), True),
        (MESSAGE, True),
        (DURABLE + MESSAGE, True),
        (section(S_HEADER, [None, None, UInt(1)]), False),
        (section(S_HEADER, [None, None, None, None, UInt(1)]), False),
        (DELIVERY, False),
        (DURABLE + DELIVERY + MESSAGE, False),
    ],
)
def test_only_what_needs_no_change_may_go_out_as_received(
    impl: SimpleNamespace, head: bytes, plain: bool
) -> None:
    assert impl.scan(head + DATA).plain is plain


@both
@pytest.mark.parametrize("header", [b"", DURABLE])
@pytest.mark.parametrize("delivery", [b"", DELIVERY])
@pytest.mark.parametrize("message", [b"", MESSAGE])
def test_the_places_of_the_sections_are_found(
    impl: SimpleNamespace, header: bytes, delivery: bytes, message: bytes
) -> None:
    facts = impl.scan(header + delivery + message + PROPERTIES + DATA)
    assert facts.header_end == len(header)
    assert facts.annotations_start == len(header + delivery)
    assert facts.annotations_end == facts.bare == len(header + delivery + message)


@both
@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ([None] * 8 + [Timestamp(1_700_000_000_000)], 1_700_000_000_000),
        ([None] * 8 + [Timestamp(5), Timestamp(6), "group"], 5),
        (["a", None, "b"] + [None] * 5 + [None, Timestamp(6)], 0),
        ([None] * 8 + [Timestamp(0)], 0),
        ([None] * 8 + [Timestamp(-1)], 0),
        ([None] * 8 + [Timestamp(2**63 - 1)], 2**63 - 1),
        ([None] * 8 + [Timestamp(-(2**63))], 0),
        ([None] * 8, 0),
    ],
)
def test_the_absolute_expiry_time_is_read(
    impl: SimpleNamespace, fields: list[object], expected: int
) -> None:
    facts = impl.scan(DURABLE + MESSAGE + section(S_PROPERTIES, fields) + DATA)
    assert (facts.absolute_expiry, facts.fault) == (expected, "")
    assert (facts.durable, facts.annotations_start, facts.bare) == (
        True,
        len(DURABLE),
        len(DURABLE + MESSAGE),
    )


@both
def test_messages_with_equal_headers_share_their_facts(impl: SimpleNamespace) -> None:
    assert impl.scan(DATA) is impl.scan(VALUE)
    assert impl.scan(DURABLE + DATA) is impl.scan(bytearray(DURABLE + PROPERTIES + VALUE))
    assert impl.scan(DURABLE + MESSAGE + DATA) is impl.scan(DURABLE + MESSAGE + VALUE)
    assert impl.scan(DURABLE + DATA) is not impl.scan(DURABLE + MESSAGE + DATA)
    assert impl.scan(DURABLE + DATA) is not impl.scan(HEADER + DATA)
    expiring = section(S_PROPERTIES, [None] * 8 + [Timestamp(5)])
    assert impl.scan(DURABLE + expiring) is not impl.scan(DURABLE + expiring)
    assert impl.scan(DURABLE + DATA).absolute_expiry == 0


@both
def test_headers_that_all_differ_do_not_fill_memory(impl: SimpleNamespace) -> None:
    for ttl in range(3 * SHARED_MAX):
        payload = section(S_HEADER, [None, None, UInt(ttl)]) + DATA
        assert impl.scan(payload).ttl == ttl
        assert len(sections._shared) <= SHARED_MAX + 1
        assert len(sections._headers) <= SHARED_MAX + 1


@both
def test_a_run_is_scanned_in_order(impl: SimpleNamespace) -> None:
    payloads = [GOOD["everything"], b"", DATA, DURABLE + DATA, bytes(1)]
    found = impl.scan_run(payloads)
    assert [shown(facts) for facts in found] == [shown(impl.scan(payload)) for payload in payloads]
    assert impl.scan_run([]) == []


@both
def test_values_nest_as_deep_as_the_limit_and_no_deeper(impl: SimpleNamespace) -> None:
    def nested(depth: int) -> bytes:
        value: object = 1
        for _ in range(depth - 1):
            value = [value]
        return section(S_MESSAGE, {Symbol("a"): value})

    assert not impl.scan(nested(codec.DEPTH_MAX)).fault
    assert "32 levels" in impl.scan(nested(codec.DEPTH_MAX + 1)).fault


# --- deliver ----------------------------------------------------------------------------------------------------------


def delivered(
    impl: SimpleNamespace,
    payload: Payload,
    failures: int = 0,
    ttl: int | None = None,
    annotations: bytes = b"",
) -> bytes:
    made = impl.deliver(
        payload, impl.scan(payload), failures=failures, ttl=ttl, annotations=annotations
    )
    assert type(made) is bytes
    return made


@both
@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_the_bare_message_goes_out_as_it_came(
    impl: SimpleNamespace, kind: Callable[[bytes], Payload]
) -> None:
    for name in GOOD:
        payload = kind(GOOD[name])
        facts = impl.scan(payload)
        for annotations in (b"", encode({Symbol("x"): 1})):
            made = impl.deliver(payload, facts, failures=1, ttl=None, annotations=annotations)
            again = impl.scan(made)
            assert again.fault == ""
            assert made[again.bare :] == payload[facts.bare :]


@both
@pytest.mark.parametrize(
    ("payload", "failures", "ttl", "header"),
    [
        (DATA, 0, None, b""),
        (DATA, 1, None, section(S_HEADER, [None, None, None, None, UInt(1)])),
        (DATA, 300, None, section(S_HEADER, [None, None, None, None, UInt(300)])),
        (DURABLE + DATA, 0, None, section(S_HEADER, [True])),
        (HEADER + DATA, 0, None, section(S_HEADER, [True, UByte(7)])),
        (HEADER + DATA, 0, 4000, section(S_HEADER, [True, UByte(7), UInt(4000)])),
        (HEADER + DATA, 2, 4, section(S_HEADER, [True, UByte(7), UInt(4), None, UInt(2)])),
        (DATA, 0, 0, section(S_HEADER, [None, None, UInt(1)])),
        (DATA, 0, -5, section(S_HEADER, [None, None, UInt(1)])),
        (DATA, 0, 2**40, section(S_HEADER, [None, None, UInt(2**32 - 1)])),
        (section(S_HEADER, [None, UByte(0)]) + DATA, 0, None, section(S_HEADER, [None, UByte(0)])),
        (section(S_HEADER, [False, UByte(4)]) + DATA, 0, None, b""),
    ],
)
def test_the_header_is_written_anew(
    impl: SimpleNamespace, payload: bytes, failures: int, ttl: int | None, header: bytes
) -> None:
    assert delivered(impl, payload, failures, ttl) == header + DATA


@both
def test_delivery_annotations_are_dropped_and_message_annotations_kept(
    impl: SimpleNamespace,
) -> None:
    assert delivered(impl, GOOD["everything"]).startswith(
        section(S_HEADER, [True, UByte(7)]) + MESSAGE + PROPERTIES
    )
    assert delivered(impl, DELIVERY + DATA) == DATA
    assert delivered(impl, DELIVERY + MESSAGE + DATA) == MESSAGE + DATA


@both
def test_annotations_are_merged_and_the_later_wins(impl: SimpleNamespace) -> None:
    added = encode({Symbol("x-opt-b"): "new", ULong(5): None})
    expected = section(S_MESSAGE, {Symbol("x-opt-a"): 1, Symbol("x-opt-b"): "new", ULong(5): None})
    assert delivered(impl, DURABLE + MESSAGE + DATA, annotations=added) == DURABLE + expected + DATA
    assert delivered(impl, DATA, annotations=added) == raw(S_MESSAGE, added) + DATA
    assert delivered(impl, DELIVERY + DATA, annotations=added) == raw(S_MESSAGE, added) + DATA


def test_untouched_values_keep_their_encoding_and_keys_are_compared_as_values() -> None:
    kept = b"\xa3\x01k\xb1\x00\x00\x00\x01v"  # A string in its long form.
    replaced = b"\xb3\x00\x00\x00\x01r\x41"  # A key in its long form.
    odd = b"\xa3\x01\xff\x42"  # Not ASCII: equal to itself only.
    existing = raw(
        S_MESSAGE, b"\xc1" + bytes([len(kept + replaced + odd) + 1, 6]) + kept + replaced + odd
    )
    merged = merge(existing, encode({Symbol("r"): False}))
    assert merged == raw(S_MESSAGE, b"\xc1\x12\x06" + kept + b"\xa3\x01r\x42" + odd)
    assert merge(existing, b"\xc1\x05\x02\xa3\x01\xff\x41").endswith(b"\xa3\x01\xff\x41")
    assert merge(
        b"\x00\xa3\x1camqp:message-annotations:map" + encode({}), encode({Symbol("a"): 1})
    ) == raw(S_MESSAGE, encode({Symbol("a"): 1}))


@pytest.mark.parametrize(
    "annotations",
    [
        "40",
        "45",
        "c1 01 00",
        "c1 02 01 40",
        "c1 05 02 a3 01 61",
        "c1 05 02 a3 01 61 40 40",
        "c1",
        "a1 05",
        "ff",
    ],
)
def test_annotations_that_are_no_map_change_nothing(annotations: str) -> None:
    assert merge(MESSAGE, bytes.fromhex(annotations)) == MESSAGE
    assert merge(b"", bytes.fromhex(annotations)) == b""


def test_many_annotations_make_a_long_map() -> None:
    many: dict[object, object] = {Symbol(f"x-{number}"): "v" * 10 for number in range(200)}
    assert merge(MESSAGE, encode(many))[3] == 0xD1


# --- to ---------------------------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (PROPERTIES + DATA, "there"),
        (HEADER + DELIVERY + MESSAGE + PROPERTIES, "there"),
        (raw(S_PROPERTIES, b"\xc0\x09\x03\x40\x40" + LONG_STRING) + DATA, "q"),
        (section(S_PROPERTIES, [ULong(1), b"u" * 300, "é"]), "é"),
        (section(S_PROPERTIES, [Described(ULong(1), []), [1], "x"]), "x"),
        (encode(Described(Symbol("amqp:properties:list"), [None, None, "x"])), "x"),
        (section(S_PROPERTIES, [None, None, ""]), ""),
        (section(S_PROPERTIES, [None, None, None, "s"]), None),
        (section(S_PROPERTIES, ["a", b"b"]), None),
        (section(S_PROPERTIES, []), None),
        (section(S_PROPERTIES, [None, None, Symbol("x")]), None),
        (raw(S_PROPERTIES, "c0 06 03 40 40 a1 01 ff"), None),
        (APPLICATION + DATA, None),
        (DATA, None),
        (DURABLE, None),
    ],
)
def test_the_address_is_read_when_it_is_a_string(
    impl: SimpleNamespace, payload: bytes, expected: str | None
) -> None:
    for kind in (bytes, bytearray):
        facts = impl.scan(payload)
        assert not facts.fault
        assert impl.to(kind(payload), facts) == expected


# --- the twin ---------------------------------------------------------------------------------------------------------

BODY = st.sampled_from([b"", DATA, DATA * 2, SEQUENCE, VALUE, raw(S_VALUE, "40")])
SCALARS = st.sampled_from(
    [None, True, 0, 300, "s", "x" * 300, b"b", Symbol("y"), UInt(1), [1, [2]], {"k": None}]
)
HEADERS = st.tuples(
    st.sampled_from([None, True, False]),
    st.sampled_from([None, UByte(0), UByte(4), UByte(200)]),
    st.sampled_from([None, UInt(0), UInt(9), UInt(70_000)]),
    st.sampled_from([None, True]),
    st.sampled_from([None, UInt(0), UInt(2)]),
).map(lambda fields: section(S_HEADER, list(fields)))
MAPS = st.dictionaries(st.sampled_from([Symbol("a"), Symbol("b"), ULong(1)]), SCALARS, max_size=3)
FIELDS = st.tuples(
    st.lists(SCALARS, max_size=8),
    st.sampled_from([None, Timestamp(7), Timestamp(-7)]),
    st.lists(SCALARS, max_size=4),
).map(
    lambda parts: section(
        S_PROPERTIES, [*parts[0], parts[1], *parts[2]] if len(parts[0]) == 8 else parts[0]
    )
)
MESSAGES = st.tuples(
    st.just(b"") | HEADERS,
    st.just(b"") | MAPS.map(lambda value: section(S_DELIVERY, value)),
    st.just(b"") | MAPS.map(lambda value: section(S_MESSAGE, value)),
    st.just(b"") | FIELDS,
    st.just(b"") | MAPS.map(lambda value: section(S_APPLICATION, value)),
    BODY,
    st.sampled_from([b"", FOOTER]),
).map(b"".join)
OCTETS = st.one_of(
    st.integers(0, 255),
    st.sampled_from(
        [
            0,
            0x40,
            0x43,
            0x45,
            0x50,
            0x53,
            0x56,
            0x70,
            0x75,
            0x80,
            0x83,
            0xA0,
            0xB0,
            0xC0,
            0xC1,
            0xD0,
            0xE0,
        ]
    ),
)


@st.composite
def mutations(draw: st.DrawFn) -> bytes:
    """A valid message with a few bytes changed, cut out or put in."""
    payload = bytearray(draw(MESSAGES))
    for _ in range(draw(st.integers(0, 3))):
        if not payload:
            break
        at = draw(st.integers(0, len(payload) - 1))
        verb = draw(st.sampled_from(["set", "set", "set", "cut", "insert", "end"]))
        if verb == "set":
            payload[at] = draw(OCTETS)
        elif verb == "cut":
            del payload[at]
        elif verb == "insert":
            payload.insert(at, draw(OCTETS))
        else:
            del payload[at:]
    return bytes(payload)


def agree(payload: bytes, failures: int, ttl: int | None, annotations: bytes) -> None:
    pure, twin = sections.scan_pure(payload), sections.scan(payload)
    if pure.fault or twin.fault:
        assert bool(pure.fault) == bool(twin.fault), (pure, twin)
        return
    assert shown(pure) == shown(twin)
    left = Millis(ttl) if ttl is not None else None
    assert sections.deliver(
        payload, twin, failures=failures, ttl=left, annotations=annotations
    ) == sections.deliver_pure(payload, pure, failures=failures, ttl=left, annotations=annotations)
    assert sections.to(payload, twin) == sections.to_pure(payload, pure)


@needs_twin
@given(
    mutations(),
    st.sampled_from([0, 1, 255, 256, 2**32 - 1]),
    st.sampled_from([None, 0, 1, 255, 256, 2**32]),
    st.sampled_from([b"", encode({Symbol("a"): 1}), b"\x40"]),
)
def test_the_twin_agrees_with_the_reference(
    payload: bytes, failures: int, ttl: int | None, annotations: bytes
) -> None:
    agree(payload, failures, ttl, annotations)


@needs_twin
@given(st.binary(max_size=40))
def test_the_twin_agrees_on_any_bytes(payload: bytes) -> None:
    agree(payload, 0, None, b"")
    agree(b"\x00\x53\x73" + payload, 0, None, b"")
    agree(b"\x00\x53\x70\xc0" + payload, 0, None, b"")


@needs_twin
def test_the_twin_agrees_on_every_format_code_everywhere() -> None:
    for code in range(256):
        for form in range(256):
            agree(bytes((0, 0x53, code, form)) + bytes(12), 1, None, b"")
            agree(raw(S_MESSAGE, bytes((0xC1, 16, 2, code, form)) + bytes(13)), 1, None, b"")
            agree(
                raw(S_PROPERTIES, bytes((0xC0, 14, 3, 0x40, code, form)) + bytes(10)), 1, None, b""
            )


@needs_twin
def test_the_twin_refuses_what_is_no_payload() -> None:
    with pytest.raises(TypeError, match="bytes or bytearray"):
        sections.scan("text")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="not the facts of this payload"):
        sections.deliver(DATA, Facts(bare=10_000), failures=0, ttl=None, annotations=b"")
    with pytest.raises(ValueError, match="not a uint"):
        sections.deliver(DATA, Facts(), failures=-1, ttl=None, annotations=b"")


def test_the_pure_module_is_used_when_asked_for() -> None:
    program = (
        "from amqpbroker.base import sections;"
        "assert not sections.COMPILED; assert sections.scan is sections.scan_pure;"
        "assert sections.to is sections.to_pure; assert sections.deliver is sections.deliver_pure"
    )
    environment = {**os.environ, "AMQPBROKER_PURE_PYTHON": "1"}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)
