"""AMQP 1.0 values as bytes and back [part 1, sections 1.2 to 1.6]. Must not know frames or messages.

Reading accepts every encoding of the specification and keeps the type: a uint comes back as `UInt`, a symbol as
`Symbol`, an array with its element constructor, a described value as `Described`. Writing takes the shortest encoding
of the same type, so that a value which was read and is written again means the same to every peer, if not always in
the same bytes. Types with a natural Python one come back as that: null, boolean, string (str), binary (bytes),
double (float), list, map (dict).

Whoever sends bytes here may be hostile. Reading costs time and memory linear in the bytes it is given, whatever sizes
and counts they claim, and ends in a value or in `DecodeError`, in nothing else. The reasons:

- Each element of a list or map takes a byte or more, and reading never goes back, so a false count runs into the end
  of the data. Only in arrays can an element take no byte: those have a bound of their own.
- A compound value must end exactly where its size says. What a value inside took beyond that is found there, so the
  readers of single values look at the end of all the data only: by struct.error and IndexError, or by `decode` itself.
- Map keys are of the types whose hash nobody can aim: see `_KEYS`.
"""

import struct
from collections.abc import Callable
from typing import Final

DEPTH_MAX = 32
"""Levels of list, map, array or described value inside each other. Real messages have three or four; Python's own
stack ends near a thousand, a level here takes two of it."""

ZERO_WIDTH_MAX = 8
"""Elements of an array that take no bytes (nulls, empty lists): 4 bytes can announce any number. Nobody sends them on
purpose; with 8, a byte costs less than 250 in memory, three times the empty list that costs one byte on its own."""


class DecodeError(ValueError):
    """The bytes are not what AMQP 1.0 allows there; the text says what is wrong."""

    @property
    def description(self) -> str:
        """The text alone, for an error's description on the wire."""
        return str(self)


# The numbers compare and count as ints; their class is the wire type. The range is checked by `encode` only.


class UByte(int):
    """0 to 255."""

    __slots__ = ()


class UShort(int):
    """0 to 65535."""

    __slots__ = ()


class UInt(int):
    """0 to 2^32 - 1."""

    __slots__ = ()


class ULong(int):
    """0 to 2^64 - 1."""

    __slots__ = ()


class Byte(int):
    """-128 to 127."""

    __slots__ = ()


class Short(int):
    """16 bits with a sign."""

    __slots__ = ()


class Int(int):
    """32 bits with a sign."""

    __slots__ = ()


class Long(int):
    """64 bits with a sign. A plain int is written as this one, as Proton does."""

    __slots__ = ()


class Timestamp(int):
    """Milliseconds since 1970-01-01 UTC, 64 bits with a sign."""

    __slots__ = ()


class Float(float):
    """32 bits; a plain float is a double. The payload of a NaN is not kept."""

    __slots__ = ()


class Char(str):
    """One Unicode character."""

    __slots__ = ()


class Symbol(str):
    """ASCII only; equal to the str of the same text."""

    __slots__ = ()


class Decimal32(bytes):
    """Four bytes of IEEE 754 decimal, never looked into."""

    __slots__ = ()


class Decimal64(bytes):
    """Eight bytes of IEEE 754 decimal, never looked into."""

    __slots__ = ()


class Decimal128(bytes):
    """Sixteen bytes of IEEE 754 decimal, never looked into."""

    __slots__ = ()


class UUID(bytes):
    """Sixteen bytes; the text is the usual form with hyphens.

    Not the standard library's class: its hash is the number modulo 2^61 - 1, so that a map with chosen keys in one
    frame would keep the process busy for seconds.
    """

    __slots__ = ()

    def __str__(self) -> str:
        digits = self.hex()
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


Binary = bytes


class Described:
    """A value with its descriptor: a ULong or Symbol in practice, any value by the specification."""

    __slots__ = ("descriptor", "value")
    __hash__ = None  # type: ignore[assignment]  # It holds lists and maps; nobody needs it as a key.

    def __init__(self, descriptor: object, value: object) -> None:
        self.descriptor = descriptor
        self.value = value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Described):
            return NotImplemented
        return self.descriptor == other.descriptor and self.value == other.value

    def __repr__(self) -> str:
        return f"Described({self.descriptor!r}, {self.value!r})"


class Array:
    """Values of one type. `code` is the element constructor's format code, kept as it was read.

    `descriptors` are those of a described element type, outermost first; the items stand without them.
    """

    __slots__ = ("code", "descriptors", "items")
    __hash__ = None  # type: ignore[assignment]  # As for Described.

    def __init__(
        self, code: int, items: list[object], descriptors: tuple[object, ...] = ()
    ) -> None:
        self.code = code
        self.items = items
        self.descriptors = descriptors

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Array):
            return NotImplemented
        return (self.code, self.descriptors, self.items) == (
            other.code,
            other.descriptors,
            other.items,
        )

    def __repr__(self) -> str:
        return f"Array({self.code:#04x}, {self.items!r}, {self.descriptors!r})"


def symbols(names: "tuple[str, ...] | list[str]") -> Array:
    """An array of symbols, in the short form when every name fits."""
    return Array(
        0xA3 if all(len(name) < 256 for name in names) else 0xB3, [Symbol(name) for name in names]
    )


# --- reading ----------------------------------------------------------------------------------------------------------


def decode(data: bytes | bytearray, offset: int = 0) -> tuple[object, int]:
    """Read the value at `offset`; also return the offset after it.

    Raises DecodeError. A bytearray is copied whole first: no loop over a large one.
    """
    if type(data) is not bytes:
        data = bytes(data)
    try:
        value, end = _READERS[data[offset]](data, offset + 1, 0)
    except (struct.error, IndexError):
        raise DecodeError("the value is cut off") from None
    except UnicodeDecodeError as error:
        raise DecodeError(f"not valid {error.encoding}: {error.reason}") from None
    if end > len(data):
        raise DecodeError("the value is cut off")
    return value, end


def skip(data: bytes | bytearray, offset: int = 0) -> int:
    """The offset after the value at `offset`, by its own size alone: what is inside is not looked at.

    Raises DecodeError when it does not end inside the data.
    """
    end = _skip(data, offset, 0)
    if end > len(data):
        raise DecodeError("the value is cut off")
    return end


def _skip(data: bytes | bytearray, offset: int, depth: int) -> int:
    if depth > DEPTH_MAX:
        raise DecodeError(_TOO_DEEP)
    if offset >= len(data):
        raise DecodeError("the value is cut off")
    code = data[offset]
    if code == 0:
        return _skip(data, _skip(data, offset + 1, depth + 1), depth + 1)
    if code not in KNOWN_CODES:
        raise DecodeError(f"unknown format code {code:#04x} at byte {offset}")
    width = FIXED_WIDTHS.get(code >> 4)
    if width is not None:
        return offset + 1 + width
    if (code >> 4) & 1:  # 0xB_, 0xD_, 0xF_: the size takes four bytes; 0xA_, 0xC_, 0xE_: one.
        return offset + 5 + int.from_bytes(data[offset + 1 : offset + 5], "big")
    return offset + 2 + data[offset + 1] if offset + 1 < len(data) else len(data) + 1


_TOO_DEEP = f"more than {DEPTH_MAX} levels of values inside each other"

FIXED_WIDTHS: Final = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}
"""Bytes of data by the upper half of a format code [1.2]; the others carry a size."""

_Reader = Callable[[bytes, int, int], tuple[object, int]]
"""(data, offset after the format code, depth) -> (value, offset after it, perhaps beyond the data)."""

_uint16 = struct.Struct(">H").unpack_from
_uint32 = struct.Struct(">I").unpack_from
_uint64 = struct.Struct(">Q").unpack_from
_int8 = struct.Struct(">b").unpack_from
_int16 = struct.Struct(">h").unpack_from
_int32 = struct.Struct(">i").unpack_from
_int64 = struct.Struct(">q").unpack_from
_float32 = struct.Struct(">f").unpack_from
_float64 = struct.Struct(">d").unpack_from


def _constant(value: object) -> _Reader:
    def read(_data: bytes, offset: int, _depth: int) -> tuple[object, int]:
        return value, offset

    return read


def _read_empty_list(_data: bytes, offset: int, _depth: int) -> tuple[object, int]:
    return [], offset


def _number(
    make: Callable[..., object], unpack: Callable[..., tuple[object, ...]], width: int
) -> _Reader:
    def read(data: bytes, offset: int, _depth: int) -> tuple[object, int]:
        return make(unpack(data, offset)[0]), offset + width

    return read


def _small(make: Callable[[int], object]) -> _Reader:
    def read(data: bytes, offset: int, _depth: int) -> tuple[object, int]:
        return make(data[offset]), offset + 1

    return read


def _raw(make: Callable[[bytes], object], width: int) -> _Reader:
    def read(data: bytes, offset: int, _depth: int) -> tuple[object, int]:
        end = offset + width
        return make(data[offset:end]), end

    return read


def _read_boolean(data: bytes, offset: int, _depth: int) -> tuple[object, int]:
    octet = data[offset]
    if octet > 1:
        raise DecodeError(f"a boolean is 0 or 1, not {octet}")
    return octet == 1, offset + 1


def _read_char(data: bytes, offset: int, _depth: int) -> tuple[object, int]:
    point = _uint32(data, offset)[0]
    if point > 0x10FFFF or 0xD800 <= point <= 0xDFFF:  # chr() takes surrogates, no encoder does.
        raise DecodeError(f"{point:#x} is no Unicode character")
    return Char(chr(point)), offset + 4


def _variable(make: Callable[[bytes], object]) -> tuple[_Reader, _Reader]:
    def read8(data: bytes, offset: int, _depth: int) -> tuple[object, int]:
        end = offset + 1 + data[offset]
        return make(data[offset + 1 : end]), end

    def read32(data: bytes, offset: int, _depth: int) -> tuple[object, int]:
        end = offset + 4 + _uint32(data, offset)[0]
        return make(data[offset + 4 : end]), end

    return read8, read32


def _string(data: bytes) -> str:
    return str(data, "utf-8")


def _symbol(data: bytes) -> Symbol:
    return Symbol(data, "ascii")


def _binary(data: bytes) -> bytes:
    return data


_Items = Callable[[bytes, int, int, int, int], object]
"""(data, first, end, count, depth inside) -> the compound value of `count` elements that fill first to end."""


def _compound(items: _Items) -> tuple[_Reader, _Reader]:
    def read8(data: bytes, offset: int, depth: int) -> tuple[object, int]:
        end = offset + 1 + data[offset]
        _check_compound(data, offset + 2, end, depth)
        return items(data, offset + 2, end, data[offset + 1], depth + 1), end

    def read32(data: bytes, offset: int, depth: int) -> tuple[object, int]:
        end = offset + 4 + _uint32(data, offset)[0]
        _check_compound(data, offset + 8, end, depth)
        return items(data, offset + 8, end, _uint32(data, offset + 4)[0], depth + 1), end

    return read8, read32


def _check_compound(data: bytes, first: int, end: int, depth: int) -> None:
    if depth >= DEPTH_MAX:
        raise DecodeError(_TOO_DEEP)
    if end > len(data):
        raise DecodeError("a size goes beyond the end of the data")
    if first > end:
        raise DecodeError("a size leaves no room for its own count")


def _read_list(data: bytes, first: int, end: int, count: int, depth: int) -> object:
    if count > end - first:
        raise DecodeError(f"a list of {count} values in {end - first} bytes")
    readers = _READERS
    offset = first
    values: list[object] = []
    for _ in range(count):
        code = data[offset]
        if code == 0x40:  # Most fields of most performatives.
            values.append(None)
            offset += 1
        else:
            value, offset = readers[code](data, offset + 1, depth)
            values.append(value)
    if offset != end:
        raise DecodeError("a list's values do not fill its size")
    return values


def _read_map(data: bytes, first: int, end: int, count: int, depth: int) -> object:
    if count > end - first:
        raise DecodeError(f"a map of {count} keys and values in {end - first} bytes")
    if count % 2:
        raise DecodeError("a map with a key that has no value")
    readers = _READERS
    offset = first
    pairs: dict[object, object] = {}
    for _ in range(count // 2):
        key, offset = readers[data[offset]](data, offset + 1, depth)
        if type(key) not in _KEYS:
            raise DecodeError(f"a map key of type {type(key).__name__}")
        pairs[key], offset = readers[data[offset]](data, offset + 1, depth)
    if offset != end:
        raise DecodeError("a map's keys and values do not fill its size")
    if len(pairs) != count // 2:
        raise DecodeError("a map with the same key twice")
    return pairs


_KEYS: Final = frozenset(
    {
        str,
        Symbol,
        Char,
        bytes,
        UUID,
        bool,
        UByte,
        UShort,
        UInt,
        ULong,
        Byte,
        Short,
        Int,
        Long,
        Timestamp,
    }
)
"""What can be hashed, and by a hash that nobody can aim. The maps that the broker reads have symbols or numbers."""


def _read_array(data: bytes, first: int, end: int, count: int, depth: int) -> object:
    offset = first
    descriptors: list[object] = []
    while (code := data[offset]) == 0:
        if depth + len(descriptors) >= DEPTH_MAX:
            raise DecodeError(_TOO_DEEP)
        descriptor, offset = _READERS[data[offset + 1]](data, offset + 2, depth)
        descriptors.append(descriptor)
    read = _READERS[code]
    offset += 1
    depth += len(descriptors)
    if code >> 4 == 0x4:
        if count > ZERO_WIDTH_MAX:
            raise DecodeError(
                f"an array of {count} elements without bytes, {ZERO_WIDTH_MAX} are allowed"
            )
    elif count > end - offset:
        raise DecodeError(f"an array of {count} values in {end - offset} bytes")
    values: list[object] = []
    for _ in range(count):
        value, offset = read(data, offset, depth)
        values.append(value)
    if offset != end:
        raise DecodeError("an array's values do not fill its size")
    return Array(code, values, tuple(descriptors))


def _read_described(data: bytes, offset: int, depth: int) -> tuple[object, int]:
    if depth >= DEPTH_MAX:
        raise DecodeError(_TOO_DEEP)
    descriptor, offset = _READERS[data[offset]](data, offset + 1, depth + 1)
    value, offset = _READERS[data[offset]](data, offset + 1, depth + 1)
    return Described(descriptor, value), offset


def _unknown(code: int) -> _Reader:
    def read(_data: bytes, offset: int, _depth: int) -> tuple[object, int]:
        raise DecodeError(f"unknown format code {code:#04x} before byte {offset}")

    return read


_string8, _string32 = _variable(_string)
_symbol8, _symbol32 = _variable(_symbol)
_binary8, _binary32 = _variable(_binary)
_list8, _list32 = _compound(_read_list)
_map8, _map32 = _compound(_read_map)
_array8, _array32 = _compound(_read_array)

_BY_CODE: Final[dict[int, _Reader]] = {
    0x00: _read_described,
    0x40: _constant(None),
    0x41: _constant(True),  # noqa: FBT003  # The value is what is read, not a switch.
    0x42: _constant(False),  # noqa: FBT003
    0x43: _constant(UInt(0)),
    0x44: _constant(ULong(0)),
    0x45: _read_empty_list,
    0x50: _small(UByte),
    0x51: _number(Byte, _int8, 1),
    0x52: _small(UInt),
    0x53: _small(ULong),
    0x54: _number(Int, _int8, 1),
    0x55: _number(Long, _int8, 1),
    0x56: _read_boolean,
    0x60: _number(UShort, _uint16, 2),
    0x61: _number(Short, _int16, 2),
    0x70: _number(UInt, _uint32, 4),
    0x71: _number(Int, _int32, 4),
    0x72: _number(Float, _float32, 4),
    0x73: _read_char,
    0x74: _raw(Decimal32, 4),
    0x80: _number(ULong, _uint64, 8),
    0x81: _number(Long, _int64, 8),
    0x82: _number(float, _float64, 8),
    0x83: _number(Timestamp, _int64, 8),
    0x84: _raw(Decimal64, 8),
    0x94: _raw(Decimal128, 16),
    0x98: _raw(UUID, 16),
    0xA0: _binary8,
    0xA1: _string8,
    0xA3: _symbol8,
    0xB0: _binary32,
    0xB1: _string32,
    0xB3: _symbol32,
    0xC0: _list8,
    0xC1: _map8,
    0xD0: _list32,
    0xD1: _map32,
    0xE0: _array8,
    0xF0: _array32,
}

KNOWN_CODES: Final = frozenset(_BY_CODE)
"""Every format code of AMQP 1.0, and 0 for a descriptor."""

_READERS: Final = tuple(_BY_CODE.get(code) or _unknown(code) for code in range(256))


# --- writing ----------------------------------------------------------------------------------------------------------

_pack8 = struct.Struct(">BB").pack
_pack_signed8 = struct.Struct(">Bb").pack
_pack16 = struct.Struct(">BH").pack
_pack_signed16 = struct.Struct(">Bh").pack
_pack32 = struct.Struct(">BI").pack
_pack_signed32 = struct.Struct(">Bi").pack
_pack64 = struct.Struct(">BQ").pack
_pack_signed64 = struct.Struct(">Bq").pack
_pack_float32 = struct.Struct(">Bf").pack
_pack_float64 = struct.Struct(">Bd").pack
_pack_sizes = struct.Struct(">BII").pack


def encode(value: object) -> bytes:
    """The shortest encoding of the value in its own type; a plain int is a long, a plain float a double.

    Raises ValueError when the number does not fit its type, TypeError when the type has no AMQP form.
    """
    return _writer(value)(value)


def encode_list(encoded: list[bytes]) -> bytes:
    """A list of values that are encoded already."""
    if not encoded:
        return b"\x45"
    return _sized(0xC0, len(encoded), b"".join(encoded))


def encode_map(encoded: list[bytes]) -> bytes:
    """A map of keys and values, in turn, that are encoded already."""
    return _sized(0xC1, len(encoded), b"".join(encoded))


def writer_of(kind: type) -> Callable[..., bytes]:
    """What writes a value as this type, whatever its own class: a plain int as UInt, a str as Symbol."""
    return _WRITERS[kind]


def _writer(value: object) -> Callable[..., bytes]:
    writer = _WRITERS.get(type(value))
    if writer is None:  # Subclasses, such as an IntEnum, are written as what they come from.
        for kind in type(value).__mro__:
            if kind in _WRITERS:
                return _WRITERS[kind]
        raise TypeError(f"{type(value).__name__} has no AMQP type")
    return writer


def _sized(code8: int, count: int, body: bytes) -> bytes:
    """A compound value: the size counts the count too, which is as wide as the size."""
    if count < 256 and len(body) < 255:
        return bytes((code8, len(body) + 1, count)) + body
    return _pack_sizes(code8 + 0x10, len(body) + 4, count) + body


def _write_null(_value: None) -> bytes:
    return b"\x40"


def _write_boolean(value: bool) -> bytes:  # noqa: FBT001  # The value, not a switch.
    return b"\x41" if value else b"\x42"


def _fixed(code: int, pack: Callable[..., bytes]) -> Callable[[object], bytes]:
    def write(value: object) -> bytes:
        try:
            return pack(code, value)
        except (struct.error, OverflowError) as error:
            raise ValueError(f"{value!r} does not fit format code {code:#04x}: {error}") from None

    return write


_write_uint32 = _fixed(0x70, _pack32)
_write_ulong64 = _fixed(0x80, _pack64)
_write_int32 = _fixed(0x71, _pack_signed32)
_write_long64 = _fixed(0x81, _pack_signed64)


def _write_uint(value: int) -> bytes:
    if 0 < value < 256:
        return bytes((0x52, value))
    return _write_uint32(value) if value else b"\x43"


def _write_ulong(value: int) -> bytes:
    if 0 < value < 256:
        return bytes((0x53, value))
    return _write_ulong64(value) if value else b"\x44"


def _write_int(value: int) -> bytes:
    return _pack_signed8(0x54, value) if -128 <= value < 128 else _write_int32(value)


def _write_long(value: int) -> bytes:
    return _pack_signed8(0x55, value) if -128 <= value < 128 else _write_long64(value)


def _write_char(value: str) -> bytes:
    return _pack32(0x73, ord(value))


def _write_variable(code8: int, body: bytes) -> bytes:
    if len(body) < 256:
        return bytes((code8, len(body))) + body
    return _pack32(code8 + 0x10, len(body)) + body


def _write_string(value: str) -> bytes:
    return _write_variable(0xA1, value.encode())


def _write_symbol(value: str) -> bytes:
    return _write_variable(0xA3, value.encode("ascii"))


def _write_binary(value: bytes) -> bytes:
    return _write_variable(0xA0, value)


def _write_list(value: list[object]) -> bytes:
    return encode_list([encode(item) for item in value])


def _write_map(value: dict[object, object]) -> bytes:
    return encode_map([encode(part) for pair in value.items() for part in pair])


def _write_described(value: Described) -> bytes:
    return b"\x00" + encode(value.descriptor) + encode(value.value)


def _write_array(value: Array) -> bytes:
    constructor = b"".join(b"\x00" + encode(descriptor) for descriptor in value.descriptors)
    elements = b"".join([_element(value.code, item) for item in value.items])
    return _sized(0xE0, len(value.items), constructor + bytes((value.code,)) + elements)


def _element(code: int, value: object) -> bytes:
    """The value in exactly this encoding, without the format code that all elements share."""
    family = code >> 4
    if family == 0x4:
        return b""
    if family in FIXED_WIDTHS:
        return _ELEMENTS[code](value)[1:]
    body = encode(value)
    head = _HEADS[body[0]]
    if family in (0xA, 0xB):  # Binary, string, symbol: a size before the octets.
        return _length(len(body) - head, 1 if family == 0xA else 4) + body[head:]
    if body[0] == 0x45:  # An array of lists has no short form for an empty one.
        body, head, count = b"", 0, 0
    else:
        count = body[2] if head == 3 else int.from_bytes(body[5:9], "big")
    width = 4 if family & 1 else 1
    return _length(len(body) - head + width, width) + _length(count, width) + body[head:]


def _length(value: int, width: int) -> bytes:
    try:
        return value.to_bytes(width, "big")
    except OverflowError:
        raise ValueError(
            f"{value} does not fit the {width} bytes of the array's element type"
        ) from None


_HEADS: Final = {0x45: 1, 0xA0: 2, 0xA1: 2, 0xA3: 2, 0xB0: 5, 0xB1: 5, 0xB3: 5} | {
    code: 3 if code < 0xD0 or code == 0xE0 else 9 for code in (0xC0, 0xC1, 0xD0, 0xD1, 0xE0, 0xF0)
}
"""Bytes before the contents of a value with a size: format code, size and, for compound ones, count."""


def _write_octet_boolean(value: bool) -> bytes:  # noqa: FBT001  # The value, not a switch.
    return b"\x56\x01" if value else b"\x56\x00"


def _prefix(code: int) -> Callable[[bytes], bytes]:
    def write(value: bytes) -> bytes:
        if len(value) != FIXED_WIDTHS[code >> 4]:
            raise ValueError(f"{len(value)} bytes do not fit format code {code:#04x}")
        return bytes((code,)) + value

    return write


_ELEMENTS: Final[dict[int, Callable[..., bytes]]] = {
    0x50: _fixed(0x50, _pack8),
    0x51: _fixed(0x51, _pack_signed8),
    0x52: _fixed(0x52, _pack8),
    0x53: _fixed(0x53, _pack8),
    0x54: _fixed(0x54, _pack_signed8),
    0x55: _fixed(0x55, _pack_signed8),
    0x56: _write_octet_boolean,
    0x60: _fixed(0x60, _pack16),
    0x61: _fixed(0x61, _pack_signed16),
    0x70: _write_uint32,
    0x71: _write_int32,
    0x72: _fixed(0x72, _pack_float32),
    0x73: _write_char,
    0x74: _prefix(0x74),
    0x80: _write_ulong64,
    0x81: _write_long64,
    0x82: _fixed(0x82, _pack_float64),
    0x83: _fixed(0x83, _pack_signed64),
    0x84: _prefix(0x84),
    0x94: _prefix(0x94),
    0x98: _prefix(0x98),
}
"""Writers by exact format code, for the elements of an array."""

_WRITERS: Final[dict[type, Callable[..., bytes]]] = {
    type(None): _write_null,
    bool: _write_boolean,
    UByte: _ELEMENTS[0x50],
    UShort: _ELEMENTS[0x60],
    UInt: _write_uint,
    ULong: _write_ulong,
    Byte: _ELEMENTS[0x51],
    Short: _ELEMENTS[0x61],
    Int: _write_int,
    Long: _write_long,
    int: _write_long,
    Timestamp: _ELEMENTS[0x83],
    Float: _ELEMENTS[0x72],
    float: _ELEMENTS[0x82],
    Char: _write_char,
    str: _write_string,
    Symbol: _write_symbol,
    bytes: _write_binary,
    bytearray: _write_binary,
    Decimal32: _ELEMENTS[0x74],
    Decimal64: _ELEMENTS[0x84],
    Decimal128: _ELEMENTS[0x94],
    UUID: _ELEMENTS[0x98],
    list: _write_list,
    dict: _write_map,
    Described: _write_described,
    Array: _write_array,
}
