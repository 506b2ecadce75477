"""AMQP 1.0 as bytes for tests, right or wrong: an own encoder and decoder.

Independent of Proton and of amqpbroker, so that neither can be wrong in the same way. Building:

    frame("transfer", channel=1, handle=0, delivery_id=0, delivery_tag=b"t", payload=value("hello"))
    frame("open", container_id=None)                      # a mandatory field that is null
    frame("attach", name="l", handle=raw("56 00"))        # a field of a wrong type: bytes, verbatim
    frame("begin", list_size=3)                           # and wrong sizes, counts, descriptors

Reading: `decode_frame` gives a Frame with `name`, `channel`, `fields` by name and `payload`; every field of the
performative is there, None when absent. What is described and known becomes a Composite, a dict with a `kind`.
"""
# ruff: noqa: ANN401  # An AMQP value may be anything.

import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

AMQP_HEADER = b"AMQP\x00\x01\x00\x00"
SASL_HEADER = b"AMQP\x03\x01\x00\x00"


# --- Values: what Python's own types do not say ----------------------------------------------------------------


class Raw(bytes):
    """An encoded value, taken as it is."""


class Symbol(str):
    __slots__ = ()


class Typed(NamedTuple):
    """A value of the named primitive type: Typed("uint", 3)."""

    type: str
    value: Any


class Described(NamedTuple):
    """A value with a descriptor that is none of the known composites; descriptor: int or Symbol."""

    descriptor: Any
    value: Any


class Composite(dict[str, Any]):
    """A described list of a known kind, by field name: Composite("source", address="q")."""

    def __init__(self, kind: str, /, **fields: Any) -> None:
        super().__init__(fields)
        self.kind = kind

    def __eq__(self, other: object) -> bool:
        """Null and absent are the same."""
        return (
            isinstance(other, Composite) and other.kind == self.kind and _told(other) == _told(self)
        )

    __hash__ = None

    def __repr__(self) -> str:
        return f"{self.kind}({_spelt(self)})"


def raw(text: str) -> Raw:
    """The bytes that `text` spells in hexadecimal digits."""
    return Raw(bytes.fromhex(text))


# --- The composites of the specification, field by field -------------------------------------------------------

# "*": any value, by its Python type. "symbols": an array of symbols. A name of a composite: a dict of its fields.
_TERMINUS = "address:* durable:uint expiry_policy:symbol timeout:uint dynamic:boolean dynamic_node_properties:map"
_LAYOUTS = {
    "open": (
        0x10,
        "container_id:string hostname:string max_frame_size:uint channel_max:ushort idle_time_out:uint"
        " outgoing_locales:symbols incoming_locales:symbols offered_capabilities:symbols"
        " desired_capabilities:symbols properties:fields",
    ),
    "begin": (
        0x11,
        "remote_channel:ushort next_outgoing_id:uint incoming_window:uint outgoing_window:uint handle_max:uint"
        " offered_capabilities:symbols desired_capabilities:symbols properties:fields",
    ),
    "attach": (
        0x12,
        "name:string handle:uint role:boolean snd_settle_mode:ubyte rcv_settle_mode:ubyte source:source"
        " target:target unsettled:map incomplete_unsettled:boolean initial_delivery_count:uint"
        " max_message_size:ulong offered_capabilities:symbols desired_capabilities:symbols properties:fields",
    ),
    "flow": (
        0x13,
        "next_incoming_id:uint incoming_window:uint next_outgoing_id:uint outgoing_window:uint handle:uint"
        " delivery_count:uint link_credit:uint available:uint drain:boolean echo:boolean properties:fields",
    ),
    "transfer": (
        0x14,
        "handle:uint delivery_id:uint delivery_tag:binary message_format:uint settled:boolean more:boolean"
        " rcv_settle_mode:ubyte state:* resume:boolean aborted:boolean batchable:boolean",
    ),
    "disposition": (
        0x15,
        "role:boolean first:uint last:uint settled:boolean state:* batchable:boolean",
    ),
    "detach": (0x16, "handle:uint closed:boolean error:error"),
    "end": (0x17, "error:error"),
    "close": (0x18, "error:error"),
    "error": (0x1D, "condition:symbol description:string info:fields"),
    "received": (0x23, "section_number:uint section_offset:ulong"),
    "accepted": (0x24, ""),
    "rejected": (0x25, "error:error"),
    "released": (0x26, ""),
    "modified": (
        0x27,
        "delivery_failed:boolean undeliverable_here:boolean message_annotations:fields",
    ),
    "source": (
        0x28,
        _TERMINUS + " distribution_mode:symbol filter:fields default_outcome:* outcomes:symbols"
        " capabilities:symbols",
    ),
    "target": (0x29, _TERMINUS + " capabilities:symbols"),
    "coordinator": (0x30, "capabilities:symbols"),
    "declare": (0x31, "global_id:*"),
    "discharge": (0x32, "txn_id:binary fail:boolean"),
    "declared": (0x33, "txn_id:binary"),
    "transactional_state": (0x34, "txn_id:binary outcome:*"),
    "sasl_mechanisms": (0x40, "sasl_server_mechanisms:symbols"),
    "sasl_init": (0x41, "mechanism:symbol initial_response:binary hostname:string"),
    "sasl_challenge": (0x42, "challenge:binary"),
    "sasl_response": (0x43, "response:binary"),
    "sasl_outcome": (0x44, "code:ubyte additional_data:binary"),
    "header": (
        0x70,
        "durable:boolean priority:ubyte ttl:uint first_acquirer:boolean delivery_count:uint",
    ),
    "properties": (
        0x73,
        "message_id:* user_id:binary to:string subject:string reply_to:string correlation_id:*"
        " content_type:symbol content_encoding:symbol absolute_expiry_time:timestamp creation_time:timestamp"
        " group_id:string group_sequence:uint reply_to_group_id:string",
    ),
}


class Layout(NamedTuple):
    kind: str
    code: int
    fields: dict[str, str]  # Name to type, in the order of the wire.


LAYOUTS = {
    kind: Layout(kind, code, dict(field.split(":") for field in fields.split()))
    for kind, (code, fields) in _LAYOUTS.items()
}
_BY_CODE = {layout.code: layout for layout in LAYOUTS.values()}
PERFORMATIVES = (
    "open",
    "begin",
    "attach",
    "flow",
    "transfer",
    "disposition",
    "detach",
    "end",
    "close",
)
SASL_FRAMES = ("sasl_mechanisms", "sasl_init", "sasl_challenge", "sasl_response", "sasl_outcome")
_SECTIONS = {
    0x71: "delivery_annotations",
    0x72: "message_annotations",
    0x74: "application_properties",
    0x75: "data",
    0x76: "sequence",
    0x77: "value",
    0x78: "footer",
}


# --- Encoding --------------------------------------------------------------------------------------------------


def encode(item: Any) -> bytes:
    """Any value by its Python type: int is long, str string, bytes binary, list list, dict map.

    Others by Symbol, Typed, Described, Composite; Raw is taken as it is.
    """
    if isinstance(item, Raw):
        return item
    if item is None:
        return b"\x40"
    if isinstance(item, Typed):
        return encode_as(item.type, item.value)
    if isinstance(item, Described):
        descriptor = item.descriptor
        code = encode_as("ulong", descriptor) if isinstance(descriptor, int) else encode(descriptor)
        return b"\x00" + code + encode(item.value)
    if isinstance(item, Composite):
        return composite(item.kind, item)
    for kind, name in _BY_PYTHON_TYPE:
        if isinstance(item, kind):
            return encode_as(name, item)
    raise TypeError(f"no AMQP type for {item!r}")


_BY_PYTHON_TYPE: tuple[tuple[type, str], ...] = (
    (bool, "boolean"),
    (int, "long"),
    (float, "double"),
    (Symbol, "symbol"),
    (str, "string"),
    (bytes, "binary"),
    (dict, "map"),
    (list, "list"),
)
_FIXED = {  # Type: constructor and struct format; the widest encoding.
    "ubyte": (0x50, ">B"),
    "byte": (0x51, ">b"),
    "ushort": (0x60, ">H"),
    "short": (0x61, ">h"),
    "uint": (0x70, ">I"),
    "int": (0x71, ">i"),
    "float": (0x72, ">f"),
    "char": (0x73, ">I"),
    "ulong": (0x80, ">Q"),
    "long": (0x81, ">q"),
    "double": (0x82, ">d"),
    "timestamp": (0x83, ">q"),
}
_SMALL = {  # Type: constructors of one byte and of zero bytes.
    "uint": (0x52, 0x43),
    "ulong": (0x53, 0x44),
    "int": (0x54, None),
    "long": (0x55, None),
}


def encode_as(type_name: str, item: Any) -> bytes:
    """`item` as `type_name`, in the shortest encoding; None is null and Raw is taken as it is."""
    if item is None or isinstance(item, (Raw, Typed, Described)) or type_name == "*":
        return encode(item)
    if type_name == "boolean":
        return b"\x41" if item else b"\x42"
    if type_name in _FIXED:
        return _encode_number(type_name, item)
    if type_name in ("binary", "string", "symbol"):
        content = item if isinstance(item, bytes) else item.encode()
        short = {"binary": 0xA0, "string": 0xA1, "symbol": 0xA3}[type_name]
        return variable(short, content)
    if type_name == "list":
        return list_of([encode(each) for each in item])
    if type_name in ("map", "fields"):
        pairs = [each for pair in item.items() for each in pair]
        if type_name == "fields":  # Keys are symbols [2.8.20].
            pairs[::2] = [Symbol(key) if isinstance(key, str) else key for key in pairs[::2]]
        return list_of([encode(each) for each in pairs], constructor=0xC1)
    if type_name == "symbols":
        items = [item] if isinstance(item, str) else item
        return array_of(0xB3, [struct.pack(">I", len(each)) + each.encode() for each in items])
    if type_name in LAYOUTS:
        return composite(item.kind if isinstance(item, Composite) else type_name, item)
    raise TypeError(f"no such type: {type_name}")


def _encode_number(type_name: str, item: float) -> bytes:
    constructor, layout = _FIXED[type_name]
    if type_name in _SMALL:
        one, zero = _SMALL[type_name]
        if item == 0 and zero is not None:
            return bytes((zero,))
        low, high = (0, 256) if zero is not None else (-128, 128)
        if low <= item < high:
            return bytes((one, int(item) % 256))
    return bytes((constructor,)) + struct.pack(layout, item)


def wide(type_name: str, item: Any) -> Raw:
    """`item` in the widest encoding of its type: 0x70 for a uint, 0xB0 for a binary."""
    if type_name == "boolean":
        return Raw(bytes((0x56, item)))
    if type_name in _FIXED:
        constructor, layout = _FIXED[type_name]
        return Raw(bytes((constructor,)) + struct.pack(layout, item))
    content = item if isinstance(item, bytes) else item.encode()
    long = {"binary": 0xB0, "string": 0xB1, "symbol": 0xB3}[type_name]
    return Raw(bytes((long,)) + struct.pack(">I", len(content)) + content)


def variable(short: int, content: bytes) -> bytes:
    """A value of variable width; `short` is the constructor for one byte of size."""
    if len(content) < 256:
        return bytes((short, len(content))) + content
    return bytes((short + 0x10,)) + struct.pack(">I", len(content)) + content


def list_of(
    items: Iterable[bytes],
    *,
    constructor: int = 0xC0,
    wide: bool = False,
    size: int | None = None,
    count: int | None = None,
) -> Raw:
    """A list (0xC1: a map) of encoded values; `size` and `count` replace the true ones."""
    values = list(items)
    content = b"".join(values)
    count = len(values) if count is None else count
    if constructor == 0xC0 and not values and not wide and size is None and count == 0:
        return Raw(b"\x45")
    if wide or len(content) > 254 or count > 255:
        size = len(content) + 4 if size is None else size
        return Raw(bytes((constructor + 0x10,)) + struct.pack(">II", size, count) + content)
    size = len(content) + 1 if size is None else size
    return Raw(bytes((constructor, size, count)) + content)


def array_of(element: int, items: Iterable[bytes]) -> Raw:
    """An array; the items are without their constructor `element`."""
    values = list(items)
    content = bytes((element,)) + b"".join(values)
    return Raw(b"\xf0" + struct.pack(">II", len(content) + 4, len(values)) + content)


def composite(
    kind: str,
    fields: Mapping[str, Any],
    *,
    descriptor: bytes | None = None,
    all_fields: bool = False,
    **sizes: Any,
) -> Raw:
    """A described list; fields that are missing at its end are left out unless `all_fields`.

    `descriptor` is encoded; `sizes` go to list_of.
    """
    layout = LAYOUTS[kind]
    unknown = set(fields) - set(layout.fields)
    if unknown:
        raise TypeError(f"{kind} has no field {sorted(unknown)}; it has {list(layout.fields)}")
    values = [encode_as(type_name, fields.get(name)) for name, type_name in layout.fields.items()]
    if not all_fields:
        told = [number for number, name in enumerate(layout.fields, 1) if name in fields]
        # A null that is asked for by name is written, the last one too.
        values = values[: max(told, default=0)]
    if descriptor is None:
        descriptor = bytes((0x53, layout.code))
    return Raw(b"\x00" + descriptor + list_of(values, **sizes))


def symbolic(name: str) -> bytes:
    """The descriptor of a performative as a symbol: "amqp:transfer:list"."""
    return variable(0xA3, f"amqp:{name}:list".encode())


def frame_of(
    body: bytes,
    *,
    channel: int = 0,
    kind: int = 0,
    size: int | None = None,
    doff: int | None = None,
    extended: bytes = b"",
) -> bytes:
    """A frame with any body; `size` and `doff` replace the true ones, `extended` follows the header."""
    size = 8 + len(extended) + len(body) if size is None else size
    doff = 2 + len(extended) // 4 if doff is None else doff
    return struct.pack(">IBBH", size, doff, kind, channel) + extended + body


def frame(
    name: str,
    /,
    *,
    channel: int = 0,
    payload: bytes = b"",
    kind: int | None = None,
    size: int | None = None,
    doff: int | None = None,
    extended: bytes = b"",
    descriptor: bytes | None = None,
    list_size: int | None = None,
    count: int | None = None,
    list_wide: bool = False,
    all_fields: bool = False,
    **fields: Any,
) -> bytes:
    """A frame with the performative `name`; a field that is not named is absent."""
    body = composite(
        name,
        fields,
        descriptor=descriptor,
        all_fields=all_fields,
        size=list_size,
        count=count,
        wide=list_wide,
    )
    kind = int(name in SASL_FRAMES) if kind is None else kind
    return frame_of(
        body + payload, channel=channel, kind=kind, size=size, doff=doff, extended=extended
    )


def empty_frame(channel: int = 0) -> bytes:
    return frame_of(b"", channel=channel)


# --- Message sections ------------------------------------------------------------------------------------------


def header(**fields: Any) -> bytes:
    return composite("header", fields)


def properties(**fields: Any) -> bytes:
    return composite("properties", fields)


def delivery_annotations(fields: Mapping[str, Any]) -> bytes:
    return b"\x00\x53\x71" + encode_as("fields", fields)


def message_annotations(fields: Mapping[str, Any]) -> bytes:
    return b"\x00\x53\x72" + encode_as("fields", fields)


def application_properties(fields: Mapping[str, Any]) -> bytes:
    return b"\x00\x53\x74" + encode_as("map", fields)


def data(content: bytes) -> bytes:
    return b"\x00\x53\x75" + variable(0xA0, content)


def value(item: Any) -> bytes:
    return b"\x00\x53\x77" + encode(item)


def message(body: bytes | str = b"", **header_fields: Any) -> bytes:
    """A message: a header when there are fields for it, then data (bytes) or a value (str)."""
    first = header(**header_fields) if header_fields else b""
    return first + (data(body) if isinstance(body, bytes) else value(body))


# --- Outcomes --------------------------------------------------------------------------------------------------


def accepted() -> Composite:
    return Composite("accepted")


def released() -> Composite:
    return Composite("released")


def rejected(condition: str | None = None, description: str | None = None) -> Composite:
    if condition is None:
        return Composite("rejected")
    error = Composite("error", condition=condition, description=description)
    return Composite("rejected", error=error)


def modified(**fields: Any) -> Composite:
    return Composite("modified", **fields)


# --- Decoding --------------------------------------------------------------------------------------------------


class Undecodable(ValueError):  # noqa: N818  # It is what it says.
    """These bytes are not AMQP."""


class Frame(NamedTuple):
    """One frame as it was read; `name` is "empty" for an empty one, "header" for a protocol header."""

    name: str
    channel: int
    fields: Composite
    payload: bytes
    whole: bytes

    def __getattr__(self, name: str) -> Any:
        """A field: frame.delivery_id."""
        try:
            return self.fields[name]
        except KeyError:
            raise AttributeError(f"{self.name} has no field {name}") from None

    def __str__(self) -> str:
        text = f"{self.name} ch={self.channel} {_spelt(self.fields)}".rstrip()
        return f"{text} +{len(self.payload)} bytes" if self.payload else text


def decode(source: bytes, at: int = 0) -> tuple[Any, int]:
    """The value at `at` and where it ends."""
    try:
        return _decode(source, at)
    except (IndexError, struct.error, UnicodeDecodeError, RecursionError, TypeError) as error:
        raise Undecodable(f"{error} in {source[at:].hex(' ')}") from None


def decode_all(source: bytes) -> Iterator[Any]:
    """The values that follow each other: the sections of a message."""
    at = 0
    while at < len(source):
        item, at = decode(source, at)
        yield item


def decode_sections(payload: bytes) -> dict[str, Any]:
    """The sections of a message by name: header and properties are Composites, data is bytes.

    Several of one name are a list.
    """
    sections: dict[str, Any] = {}
    for item in decode_all(payload):
        if isinstance(item, Composite):
            name, content = item.kind, item
        else:
            name, content = _SECTIONS.get(item.descriptor, str(item.descriptor)), item.value
        if name in sections:
            before = sections[name]
            sections[name] = [*before, content] if isinstance(before, list) else [before, content]
        else:
            sections[name] = content
    return sections


def decode_frame(source: bytes) -> Frame:
    """One whole frame, or one protocol header."""
    if source[:4] == b"AMQP" and len(source) == 8:
        names = ("protocol", "major", "minor", "revision")
        fields = Composite("header", **dict(zip(names, source[4:8], strict=True)))
        return Frame("header", 0, fields, b"", source)
    if len(source) < 8:
        raise Undecodable(f"no frame: {len(source)} bytes")
    size, doff, _, channel = struct.unpack_from(">IBBH", source)
    if size != len(source) or not 8 <= 4 * doff <= size:
        raise Undecodable(
            f"a frame of {len(source)} bytes says {size}, with {doff} words of header"
        )
    if 4 * doff == size:
        return Frame("empty", channel, Composite("empty"), b"", source)
    performative, end = decode(source, 4 * doff)
    if not isinstance(performative, Composite):
        raise Undecodable(f"not a performative: {performative!r}")
    return Frame(performative.kind, channel, performative, source[end:], source)


_DECODE_FIXED = {
    0x51: ">b",
    0x60: ">H",
    0x61: ">h",
    0x70: ">I",
    0x71: ">i",
    0x72: ">f",
    0x73: ">I",
    0x80: ">Q",
    0x81: ">q",
    0x82: ">d",
    0x83: ">q",
    0x50: ">B",
    0x52: ">B",
    0x53: ">B",
    0x54: ">b",
    0x55: ">b",
    0x56: ">?",
}
_DECODE_EMPTY: dict[int, Any] = {0x40: None, 0x41: True, 0x42: False, 0x43: 0, 0x44: 0}


def _decode(source: bytes, at: int) -> tuple[Any, int]:
    if source[at] != 0:
        return _decode_as(source[at], source, at + 1)
    descriptor, at = _decode(source, at + 1)
    item, at = _decode(source, at)
    layout = _BY_CODE.get(descriptor) if isinstance(descriptor, int) else None
    if layout is None or not isinstance(item, list):
        return Described(descriptor, item), at
    if len(item) > len(layout.fields):
        raise Undecodable(f"{layout.kind} with {len(item)} fields")
    item += [None] * (len(layout.fields) - len(item))
    return Composite(layout.kind, **dict(zip(layout.fields, item, strict=True))), at


def _decode_as(constructor: int, source: bytes, at: int) -> tuple[Any, int]:
    """The value whose constructor was read already: an array has one for all."""
    if constructor in _DECODE_EMPTY:
        return _DECODE_EMPTY[constructor], at
    if constructor == 0x45:
        return [], at
    if constructor in _DECODE_FIXED:
        layout = _DECODE_FIXED[constructor]
        return struct.unpack_from(layout, source, at)[0], at + struct.calcsize(layout)
    if constructor == 0x98:
        return Described("uuid", _cut(source, at, 16)), at + 16
    width = 1 if constructor & 0x10 == 0 else 4
    size = int.from_bytes(_cut(source, at, width), "big")
    at += width
    content = _cut(source, at, size)
    end = at + size
    kind = constructor & 0xEF
    if kind == 0xA0:
        return content, end
    if kind in (0xA1, 0xA3):
        return (content.decode() if kind == 0xA1 else Symbol(content.decode())), end
    if kind not in (0xC0, 0xC1, 0xE0):
        raise Undecodable(f"unknown constructor 0x{constructor:02x}")
    count = int.from_bytes(_cut(content, 0, width), "big")
    return _decode_compound(kind, content, width, count), end


def _decode_compound(kind: int, content: bytes, at: int, count: int) -> Any:
    items = []
    element = None
    if kind == 0xE0:
        element, at = content[at], at + 1
    if count > len(content) + 1_000:  # Arrays of nothing have values without bytes.
        raise Undecodable(f"{count} values in {len(content)} bytes")
    for _ in range(count):
        item, at = _decode(content, at) if element is None else _decode_as(element, content, at)
        items.append(item)
    if at != len(content):
        raise Undecodable(f"{count} values end at {at} of {len(content)} bytes")
    if kind != 0xC1:
        return items
    if count % 2:
        raise Undecodable("a map with an odd number of values")
    return dict(zip(items[::2], items[1::2], strict=True))


def _cut(source: bytes, at: int, size: int) -> bytes:
    content = source[at : at + size]
    if len(content) != size:
        raise Undecodable(f"{size} bytes wanted, {len(content)} are left")
    return content


def _told(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: item for name, item in fields.items() if item is not None}


def _spelt(fields: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={item!r}" for name, item in _told(fields).items())
