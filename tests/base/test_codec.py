"""AMQP values: every encoding read, the shortest written, Proton in agreement, and no byte string too bad."""

import contextlib
import tracemalloc
import uuid

import proton
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from amqpbroker.base.codec import (
    DEPTH_MAX,
    UUID,
    ZERO_WIDTH_MAX,
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    DecodeError,
    Described,
    Float,
    Int,
    Long,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
    decode,
    encode,
    skip,
    symbols,
)

SIXTEEN = bytes(range(16))

# Every format code of [1.6], each with a value that shows sign, width and class.
READ: list[tuple[str, object]] = [
    ("00 53 10 45", Described(ULong(0x10), [])),
    ("00 a3 01 61 40", Described(Symbol("a"), None)),
    ("40", None),
    ("41", True),
    ("42", False),
    ("56 01", True),
    ("56 00", False),
    ("50 ff", UByte(255)),
    ("60 ff fe", UShort(65534)),
    ("70 ff ff ff fe", UInt(2**32 - 2)),
    ("52 ff", UInt(255)),
    ("43", UInt(0)),
    ("80 ff ff ff ff ff ff ff fe", ULong(2**64 - 2)),
    ("53 ff", ULong(255)),
    ("44", ULong(0)),
    ("51 80", Byte(-128)),
    ("61 80 00", Short(-32768)),
    ("71 80 00 00 00", Int(-(2**31))),
    ("54 ff", Int(-1)),
    ("81 80 00 00 00 00 00 00 00", Long(-(2**63))),
    ("55 ff", Long(-1)),
    ("72 3f c0 00 00", Float(1.5)),
    ("82 3f f8 00 00 00 00 00 00", 1.5),
    ("74 00 00 00 01", Decimal32(b"\0\0\0\1")),
    ("84 00 00 00 00 00 00 00 01", Decimal64(b"\0\0\0\0\0\0\0\1")),
    ("94" + SIXTEEN.hex(), Decimal128(SIXTEEN)),
    ("73 00 01 f6 00", Char("\U0001f600")),
    ("83 ff ff ff ff ff ff ff ff", Timestamp(-1)),
    ("98" + SIXTEEN.hex(), UUID(SIXTEEN)),
    ("a0 02 01 02", b"\1\2"),
    ("b0 00 00 00 02 01 02", b"\1\2"),
    ("a1 02 c3 a9", "é"),
    ("b1 00 00 00 02 c3 a9", "é"),
    ("a3 02 61 62", Symbol("ab")),
    ("b3 00 00 00 02 61 62", Symbol("ab")),
    ("45", []),
    ("c0 01 00", []),
    ("c0 03 02 40 42", [None, False]),
    ("d0 00 00 00 06 00 00 00 02 40 42", [None, False]),
    ("c1 01 00", {}),
    ("c1 05 02 a3 01 61 41", {Symbol("a"): True}),
    ("d1 00 00 00 08 00 00 00 02 a3 01 61 41", {Symbol("a"): True}),
    ("e0 04 02 50 ff 01", Array(0x50, [UByte(255), UByte(1)])),
    ("f0 00 00 00 07 00 00 00 02 50 ff 01", Array(0x50, [UByte(255), UByte(1)])),
    ("e0 07 01 00 53 25 c0 01 00", Array(0xC0, [[]], (ULong(0x25),))),
    ("e0 07 02 a3 01 61 02 62 63", Array(0xA3, [Symbol("a"), Symbol("bc")])),
    ("e0 02 03 40", Array(0x40, [None, None, None])),
    ("e0 02 00 a3", Array(0xA3, [])),
]


@pytest.mark.parametrize(("text", "expected"), READ)
def test_every_encoding_is_read_with_its_type(text: str, expected: object) -> None:
    data = bytes.fromhex(text)
    value, end = decode(data)
    assert value == expected
    assert type(value) is type(expected)
    assert end == len(data) == skip(data)
    for prefix, suffix in [(b"\0\1", b""), (b"", b"\x40"), (b"\x40", b"\xff")]:
        assert decode(prefix + data + suffix, len(prefix)) == (expected, len(prefix) + len(data))
        assert skip(prefix + data + suffix, len(prefix)) == len(prefix) + len(data)


@pytest.mark.parametrize(("text", "expected"), READ)
def test_every_value_is_written_no_longer_than_it_was_read(text: str, expected: object) -> None:
    data = bytes.fromhex(text)
    written = encode(expected)
    assert len(written) <= len(data)
    assert decode(written) == (expected, len(written))


@pytest.mark.parametrize(("text", "expected"), READ)
def test_every_value_cut_off_anywhere_is_refused(text: str, expected: object) -> None:
    data = bytes.fromhex(text)
    for length in range(len(data)):
        with pytest.raises(DecodeError):
            decode(data[:length])
        with pytest.raises(DecodeError):
            skip(data[:length])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "cut off"),
        ("01", "unknown format code 0x01"),
        ("57 00", "unknown format code 0x57"),
        ("56 02", "boolean is 0 or 1"),
        ("73 00 11 00 00", "no Unicode character"),
        ("73 00 00 d8 00", "no Unicode character"),
        ("a1 02 ff ff", "not valid utf-8"),
        ("a1 03 ed a0 80", "not valid utf-8"),  # A surrogate.
        ("a3 02 c3 a9", "not valid ascii"),
        ("b0 ff ff ff ff 00", "cut off"),
        ("c0 00", "no room for its own count"),
        ("c0 00 00", "no room for its own count"),
        ("c0 01 01", "a list of 1 values in 0 bytes"),
        ("c0 02 02 40", "a list of 2 values in 1 bytes"),
        ("c0 03 01 40 40", "do not fill"),
        ("c0 04 01 a0 05 01 02 03 04 05", "do not fill"),
        ("c0 09 01 40", "beyond the end"),
        ("d0 00 00 00 04 ff ff ff ff", "a list of 4294967295 values"),
        ("d0 00 00 00 03 00 00 00 00", "no room for its own count"),
        ("d0 ff ff ff ff 00 00 00 00", "beyond the end"),
        ("c1 02 01 40", "key that has no value"),
        ("c1 05 04 41 40 41 40", "same key twice"),
        (
            "c1 07 04 50 01 40 52 01 40",
            "same key twice",
        ),
        ("c1 03 02 45 40", "a map key of type list"),
        ("c1 0b 02 82 3f f8 00 00 00 00 00 00 40", "a map key of type float"),
        ("c1 03 02 40 40", "a map key of type NoneType"),
        ("f0 00 00 00 05 80 00 00 00 40", "an array of 2147483648 elements without bytes"),
        ("f0 00 00 00 05 80 00 00 00 45", "an array of 2147483648 elements without bytes"),
        ("f0 00 00 00 05 ff ff ff ff 50", "an array of 4294967295 values"),
        ("e0 04 01 50 01 02", "do not fill"),
        ("e0 01 00", "cut off"),
        ("e0 03 01 07 00", "unknown format code 0x07"),
    ],
)
def test_malformed_bytes_are_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(DecodeError, match=reason) as caught:
        decode(bytes.fromhex(text))
    assert caught.value.description == str(caught.value)


def nested_list(depth: int) -> bytes:
    data = b"\x45"
    for _ in range(depth - 1):
        data = b"\xd0" + (len(data) + 4).to_bytes(4, "big") + b"\0\0\0\1" + data
    return data


def test_values_nest_as_deep_as_the_limit_and_no_deeper() -> None:
    decode(nested_list(DEPTH_MAX + 1))  # The empty list inside is a single byte, no level.
    with pytest.raises(DecodeError, match="more than 32 levels"):
        decode(nested_list(DEPTH_MAX + 2))
    decode(b"\x00\x40" * DEPTH_MAX + b"\x40")
    for endless in (
        b"\x00" * 10_000,
        b"\x00\x40" * 10_000 + b"\x40",
        b"\xe0\xff\x01\x00\x00" * 10_000,
    ):
        with pytest.raises(DecodeError):
            decode(endless)
    with pytest.raises(DecodeError, match="more than 32 levels"):
        skip(b"\x00" * 10_000)
    nested_array = b"\x50\x07"
    for _ in range(DEPTH_MAX + 1):
        nested_array = (
            b"\xf0" + (len(nested_array) + 4).to_bytes(4, "big") + b"\0\0\0\1" + nested_array
        )
    with pytest.raises(DecodeError, match="more than 32 levels"):
        decode(nested_array)


def test_an_array_of_nothing_holds_as_much_as_the_limit() -> None:
    data = b"\xe0\x02" + bytes([ZERO_WIDTH_MAX]) + b"\x45"
    value, _ = decode(data)
    assert isinstance(value, Array)
    assert value.items == [[]] * ZERO_WIDTH_MAX
    assert len({id(item) for item in value.items}) == ZERO_WIDTH_MAX


@pytest.mark.parametrize(
    "unit",
    [
        b"\xe0\x02" + bytes([ZERO_WIDTH_MAX]) + b"\x45",
        b"\x45",
        b"\x40",
        b"\xc1\x01\x00",
        b"\x00\x40\x40",
        b"\xa0\x00",
    ],
)
def test_memory_per_byte_is_bounded_for_the_cheapest_values(unit: bytes) -> None:
    count = 65_536 // len(unit)
    body = unit * count
    data = b"\xd0" + (len(body) + 4).to_bytes(4, "big") + count.to_bytes(4, "big") + body
    tracemalloc.start()
    decode(data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 250 * len(data)


def test_a_bytearray_is_read_as_bytes_are() -> None:
    assert decode(bytearray(b"\xa0\x01x")) == (b"x", 3)
    assert type(decode(bytearray(b"\xa0\x01x"))[0]) is bytes
    assert skip(bytearray(b"\xa0\x01x")) == 3


def test_plain_python_values_have_a_natural_type() -> None:
    assert encode(1) == b"\x55\x01"
    assert encode(1.5)[0] == 0x82
    assert encode("a") == b"\xa1\x01a"
    assert encode(bytearray(b"a")) == b"\xa0\x01a"
    assert encode({"a": [True, None]}) == bytes.fromhex(
        "c1 07 02 a1 01 61 c0 03 02 41 40".replace("07", "09")
    )


def test_compounds_take_the_long_form_from_256_on() -> None:
    assert encode([b"x" * 250])[0] == 0xC0
    assert encode([b"x" * 252])[:2] == b"\xc0\xff"
    assert encode([b"x" * 253])[0] == 0xD0
    assert encode([None] * 254)[0] == 0xC0
    assert encode([None] * 255)[0] == 0xD0
    assert encode(b"x" * 255)[0] == 0xA0
    assert encode(b"x" * 256)[0] == 0xB0


@pytest.mark.parametrize(
    "value",
    [
        UByte(256),
        UByte(-1),
        UShort(65536),
        UInt(-1),
        UInt(2**32),
        ULong(-1),
        ULong(2**64),
        Byte(128),
        Short(2**15),
        Int(2**31),
        Long(2**63),
        2**63,
        Timestamp(2**63),
        Float(1e300),
        Symbol("é"),
        UUID(b"x"),
        Decimal32(b""),
        Array(0xA3, [Symbol("x" * 256)]),
        Array(0x50, [UByte(256)]),
        Array(0xC0, [[b"x" * 300]]),
    ],
)
def test_a_value_that_does_not_fit_its_type_is_not_written(value: object) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # Python's own for text, ours for numbers.
        encode(value)


def test_what_has_no_amqp_type_is_not_written() -> None:
    with pytest.raises(TypeError, match="object has no AMQP type"):
        encode([object()])


def test_a_subclass_is_written_as_what_it_comes_from() -> None:
    class Code(ULong):
        __slots__ = ()

    assert encode(Code(0x24)) == b"\x53\x24"


def test_an_array_keeps_its_element_constructor() -> None:
    for text in [
        "e0 04 02 50 ff 01",
        "e0 08 01 b3 00 00 00 02 61 62",
        "e0 0b 01 d0 00 00 00 05 00 00 00 01 40",
        "e0 04 02 56 01 00",
        "e0 07 01 00 53 25 c0 01 00",
        "e0 06 01 e0 03 01 50 07",
        "e0 03 01 52 07",
        "e0 0a 01 80 00 00 00 00 00 00 00 07",
    ]:
        data = bytes.fromhex(text)
        value, end = decode(data)
        assert end == len(data)
        assert encode(value) == data


def test_an_array_of_lists_may_hold_an_empty_one() -> None:
    value = Array(0xC0, [[], [None]])
    assert decode(encode(value))[0] == value
    value = Array(0xD0, [[], [None]])
    assert decode(encode(value))[0] == value


def test_symbols_makes_an_array_in_the_form_that_fits() -> None:
    assert symbols(("a", "b")) == Array(0xA3, [Symbol("a"), Symbol("b")])
    assert decode(encode(symbols(["a", "x" * 256])))[0] == Array(
        0xB3, [Symbol("a"), Symbol("x" * 256)]
    )


def test_a_uuid_reads_as_people_write_it() -> None:
    assert str(UUID(SIXTEEN)) == str(uuid.UUID(bytes=SIXTEEN))


# --- Proton as the second opinion -------------------------------------------------------------------------------------

PROTON: list[tuple[object, object]] = [
    (None, None),
    (True, True),
    (UByte(200), proton.ubyte(200)),
    (UShort(1000), proton.ushort(1000)),
    (UInt(0), proton.uint(0)),
    (UInt(7), proton.uint(7)),
    (UInt(70_000), proton.uint(70_000)),
    (ULong(0), proton.ulong(0)),
    (ULong(7), proton.ulong(7)),
    (ULong(2**63), proton.ulong(2**63)),
    (Byte(-5), proton.byte(-5)),
    (Short(-500), proton.short(-500)),
    (Int(-5), proton.int32(-5)),
    (Int(-70_000), proton.int32(-70_000)),
    (Long(-5), -5),
    (Long(2**40), 2**40),
    (Timestamp(1_700_000_000_000), proton.timestamp(1_700_000_000_000)),
    (Float(1.5), proton.float32(1.5)),
    (2.5, 2.5),
    (Char("é"), proton.char("é")),
    (b"\0\1", b"\0\1"),
    ("text é", "text é"),
    ("x" * 300, "x" * 300),
    (Symbol("sym"), proton.symbol("sym")),
    (UUID(SIXTEEN), uuid.UUID(bytes=SIXTEEN)),
    ([1, [None, "a"], {}], [1, [None, "a"], {}]),
    (
        {Symbol("a"): [UInt(1)], Symbol("b"): None},
        {proton.symbol("a"): [proton.uint(1)], proton.symbol("b"): None},
    ),
    (Described(ULong(0x24), []), proton.Described(proton.ulong(0x24), [])),
    (symbols(("a", "bc")), proton.Array(proton.UNDESCRIBED, proton.Data.SYMBOL, "a", "bc")),  # type: ignore[arg-type]  # Its stub forgot it.
]


@pytest.mark.parametrize(("ours", "theirs"), PROTON)
def test_proton_reads_what_is_written_and_writes_what_is_read(ours: object, theirs: object) -> None:
    data = proton.Data()
    assert data.decode(encode(ours)) == len(encode(ours))
    data.rewind()
    data.next()
    assert data.get_object() == theirs
    data = proton.Data()
    data.put_object(theirs)
    value, end = decode(data.encode())
    assert end == len(data.encode())
    assert type(value) is type(ours)
    if not isinstance(ours, Array):  # Proton writes arrays of symbols in their long form.
        assert value == ours
    else:
        assert isinstance(value, Array)
        assert value.items == ours.items


# --- properties -------------------------------------------------------------------------------------------------------


def numbers(kind: type[int], bits: int, *, signed: bool) -> st.SearchStrategy[object]:
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    return st.one_of(st.integers(low, high), st.integers(max(low, -130), min(high, 258))).map(kind)


ASCII = st.text(st.characters(max_codepoint=127), max_size=8)
UNICODE = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
KEYS = st.one_of(
    UNICODE,
    ASCII.map(Symbol),
    st.binary(max_size=8),
    numbers(ULong, 64, signed=False),
    st.binary(min_size=16, max_size=16).map(UUID),
)
SINGLE = st.one_of(
    st.none(),
    st.booleans(),
    numbers(UByte, 8, signed=False),
    numbers(UShort, 16, signed=False),
    numbers(UInt, 32, signed=False),
    numbers(Byte, 8, signed=True),
    numbers(Short, 16, signed=True),
    numbers(Int, 32, signed=True),
    numbers(Long, 64, signed=True),
    numbers(Timestamp, 64, signed=True),
    st.floats(allow_nan=False),
    st.floats(allow_nan=False, width=32).map(Float),
    st.characters(exclude_categories=["Cs"]).map(Char),
    st.binary(max_size=300),
    st.binary(min_size=4, max_size=4).map(Decimal32),
    st.binary(min_size=8, max_size=8).map(Decimal64),
    st.binary(min_size=16, max_size=16).map(Decimal128),
    KEYS,
)
ARRAYS = st.one_of(
    st.lists(ASCII.map(Symbol)).map(lambda items: Array(0xA3, list(items))),
    st.lists(UNICODE).map(lambda items: Array(0xB1, list(items))),
    st.lists(numbers(UInt, 32, signed=False)).map(lambda items: Array(0x70, items)),
    st.lists(st.binary(max_size=3), max_size=9).map(
        lambda items: Array(0xA0, list(items), (ULong(7),))
    ),
)
VALUES = st.recursive(
    SINGLE | ARRAYS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=40),
        st.dictionaries(KEYS, inner, max_size=8),
        st.builds(Described, KEYS, inner),
        st.lists(st.lists(inner, max_size=3), max_size=3).map(
            lambda items: Array(0xD0, list(items))
        ),
    ),
    max_leaves=20,
)


def same(one: object, other: object) -> bool:
    """Equal, and of the same types all the way down."""
    if type(one) is not type(other) or one != other:
        return False
    if isinstance(one, list) and isinstance(other, list):
        return all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return same(list(one), list(other)) and same(list(one.values()), list(other.values()))
    if isinstance(one, Described) and isinstance(other, Described):
        return same(one.value, other.value) and same(one.descriptor, other.descriptor)
    if isinstance(one, Array) and isinstance(other, Array):
        return same(one.items, other.items)
    return True


@given(VALUES, st.binary(max_size=3))
def test_what_is_written_is_read_back(value: object, behind: bytes) -> None:
    data = encode(value)
    read, end = decode(data + behind)
    assert end == len(data) == skip(data + behind)
    assert same(read, value)
    assert encode(read) == data


@given(st.binary(max_size=80))
@example(b"\xc1\x05\x04\x41\x40\x50\x01")
def test_any_bytes_give_a_value_or_a_decode_error(data: bytes) -> None:
    try:
        value, end = decode(data)
    except DecodeError:
        return
    assert end <= len(data)
    assert skip(data) == end
    read, _ = decode(encode(value))
    assert encode(read) == encode(value)


@given(VALUES, st.data())
def test_mutated_values_give_a_value_or_a_decode_error(value: object, data: st.DataObject) -> None:
    mutated = bytearray(encode(value))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(mutated) - 1))
        mutated[at] = data.draw(
            st.sampled_from([0, 1, 0x40, 0x45, 0x7F, 0xC0, 0xC1, 0xD0, 0xE0, 0xF0, 0xFF])
        )
    with contextlib.suppress(DecodeError):
        decode(mutated)
    with contextlib.suppress(DecodeError):
        assert skip(mutated) <= len(mutated)
