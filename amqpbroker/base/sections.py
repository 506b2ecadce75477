"""The sections of a message [3.2], looked at as bytes. Must not know queues, links or what the facts decide.

A broker needs four things of a message: may it be stored, how durable and urgent is it, when does it expire, and where
does the part begin that nobody may change. `scan` finds them in one walk; `deliver` writes the rest anew around the
bare message, which stays byte-identical.

What is checked: sections are described values in the order header, delivery-annotations, message-annotations,
properties, application-properties, body, footer, each once; the body is data sections, or amqp-sequences, or one
amqp-value; each has the outer type of its section and ends inside the payload. The header is read field by field.
Annotations, properties and footer are walked value by value, through lists and maps down to codec.DEPTH_MAX: counts
and sizes must agree. Arrays, and all that is inside a body section, are taken by their outer size: they are carried as
they are, and no cost may depend on what is in a body.

Decided: a message without a body section is taken as it is, since clients send such ones (bug case 27); a payload of no
bytes is a fault; delivery-annotations before the header (case 29) are out of order, so a fault as well, and so are more
fields than a header or properties have. A section's descriptor may be a smallulong, a ulong or a symbol.

The functions here named `*_pure` are the reference. The twin, `_sections.pyx`, does the same with the same results;
it is used when it was built and AMQPBROKER_PURE_PYTHON is not 1.

Facts are shared: they hang on the header's bytes and the place of the annotations alone, which are the same for nearly
all messages of a producer. So a message costs no object of its own unless it names an absolute expiry time.
"""

from functools import lru_cache
from typing import Final

from amqpbroker.base import codec
from amqpbroker.base.ids import Millis
from amqpbroker.base.twins import PURE_WANTED

Payload = bytes | bytearray
"""A bytearray (put together from many frames) is not changed by anybody from here on."""

SHARED_MAX = 1_024
"""Different facts that are kept. A producer has a few; one that changes its ttl each time would else fill memory. When
they are full all are forgotten: simpler than ageing, and one more object per message for a while is all it costs."""

PRIORITY_DEFAULT = 4  # [3.2.1]
TTL_MAX = 0xFFFF_FFFF  # A uint of milliseconds.

HEADER = 0x70
DELIVERY_ANNOTATIONS = 0x71
MESSAGE_ANNOTATIONS = 0x72
PROPERTIES = 0x73
APPLICATION_PROPERTIES = 0x74
DATA = 0x75
AMQP_SEQUENCE = 0x76
AMQP_VALUE = 0x77
FOOTER = 0x78


class Facts:
    """What the broker knows of a message. Never changed after it is made, and shared between messages.

    With a fault all else is as in a message without header.
    """

    __slots__ = (
        "absolute_expiry",
        "annotations_end",
        "annotations_start",
        "bare",
        "durable",
        "fault",
        "header_end",
        "plain",
        "priority",
        "ttl",
    )

    def __init__(
        self,
        *,
        durable: bool = False,
        priority: int = PRIORITY_DEFAULT,
        ttl: int = 0,
        absolute_expiry: int = 0,
        plain: bool = True,
        header_end: int = 0,
        annotations_start: int = 0,
        annotations_end: int = 0,
        bare: int = 0,
        fault: str = "",
    ) -> None:
        self.durable = durable
        self.priority = priority  # As sent: 0 to 255.
        self.ttl = Millis(ttl)  # 0: none.
        self.absolute_expiry = Millis(absolute_expiry)  # 0: none.
        # First delivery as received: no ttl, delivery-count, delivery-annotations.
        self.plain = plain
        self.header_end = header_end  # 0 without a header.
        # Of the message-annotations section, with its descriptor.
        self.annotations_start = annotations_start
        self.annotations_end = annotations_end  # Equal to the start when there is none.
        self.bare = bare  # Where properties, application-properties, body and footer start.
        self.fault = fault  # Why it must be rejected with amqp:decode-error (B10.2), or "".

    def __repr__(self) -> str:
        return (
            "Facts(" + ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__) + ")"
        )


class _Fault(Exception):  # noqa: N818  # Never leaves this file.
    """Says what is malformed."""


def scan_pure(payload: Payload) -> Facts:
    """What the broker must know of this message; never raises, a malformed one gets facts with a fault."""
    try:
        return _usual(payload) or _scan(payload)
    except (_Fault, codec.DecodeError) as fault:
        return Facts(plain=False, fault=str(fault))
    except IndexError:
        return Facts(plain=False, fault=_CUT_OFF)


def scan_run_pure(payloads: list[bytes]) -> list[Facts]:
    """`scan` of each, in order."""
    return [scan_pure(payload) for payload in payloads]


def deliver_pure(
    payload: Payload, facts: Facts, *, failures: int, ttl: Millis | None, annotations: bytes
) -> bytes:
    """The message as a consumer gets it when it cannot go out as it came.

    The header says durable and priority as sent, `ttl` (time left; None: none), `failures` as delivery-count and not
    the first acquirer; it is left out when all that is the default. Delivery-annotations are gone. `annotations`, an
    encoded map or nothing, is merged into the message-annotations, its values win; values that stay keep their bytes.
    It comes from a consumer: what is not a well-formed map changes nothing. The bare message is byte-identical.
    """
    head = _header(facts.durable, facts.priority, ttl, failures)
    start, end = facts.annotations_start, facts.annotations_end
    view = memoryview(payload)
    if not annotations:
        return b"".join((head, view[start:end], view[facts.bare :]))
    return b"".join((head, merge(payload[start:end], annotations), view[facts.bare :]))


def to_pure(payload: Payload, facts: Facts) -> str | None:
    """properties.to when there is one and it is a string; the payload must have been scanned without a fault."""
    if facts.bare >= len(payload):
        return None
    code, at = _descriptor(payload, facts.bare)
    if code != PROPERTIES:
        return None
    first, count, _ = _open(payload, at)
    if count <= _TO:
        return None
    at = _pass(payload, first, _TO, 1)
    if payload[at] == 0xA1:
        text = payload[at + 2 : at + 2 + payload[at + 1]]
    elif payload[at] == 0xB1:
        text = payload[at + 5 : at + 5 + int.from_bytes(payload[at + 1 : at + 5], "big")]
    else:
        return None
    try:
        return text.decode()
    except UnicodeDecodeError:
        return None


def merge(section: Payload, annotations: bytes) -> bytes:
    """A message-annotations section (or b"") with the encoded map's values added, which win over equal keys."""
    section = bytes(section)
    try:
        added = _pairs(annotations, 0)
        pairs = _pairs(section, _descriptor(section, 0)[1]) if section else {}
    except (_Fault, IndexError):
        return section
    if not added:
        return section
    pairs.update(added)
    encoded = [part for pair in pairs.values() for part in pair]
    return b"\x00\x53\x72" + codec.encode_map(encoded)


# --- one walk ---------------------------------------------------------------------------------------------------------

_CUT_OFF = "a section is cut off"
_TOO_DEEP = f"more than {codec.DEPTH_MAX} levels of values inside each other"
_TO = 2  # Field numbers of properties [3.2.4].
_ABSOLUTE_EXPIRY = 8
_HEADER_FIELDS = 5
_PROPERTIES_FIELDS = 13

_LIST = frozenset({0x45, 0xC0, 0xD0})
_MAP = frozenset({0xC1, 0xD1})
_BINARY = frozenset({0xA0, 0xB0})

_SECTIONS: Final = {
    # code: rank in the order, outer type as format codes (None: any)
    HEADER: (1, _LIST),
    DELIVERY_ANNOTATIONS: (2, _MAP),
    MESSAGE_ANNOTATIONS: (3, _MAP),
    PROPERTIES: (4, _LIST),
    APPLICATION_PROPERTIES: (5, _MAP),
    DATA: (6, _BINARY),
    AMQP_SEQUENCE: (6, _LIST),
    AMQP_VALUE: (6, None),
    FOOTER: (7, _MAP),
}

_NAMES: Final = {
    b"amqp:header:list": HEADER,
    b"amqp:delivery-annotations:map": DELIVERY_ANNOTATIONS,
    b"amqp:message-annotations:map": MESSAGE_ANNOTATIONS,
    b"amqp:properties:list": PROPERTIES,
    b"amqp:application-properties:map": APPLICATION_PROPERTIES,
    b"amqp:data:binary": DATA,
    b"amqp:amqp-sequence:list": AMQP_SEQUENCE,
    b"amqp:amqp-value:*": AMQP_VALUE,
    b"amqp:footer:map": FOOTER,
}

_SIZE8, _SIZE32, _NESTED8, _NESTED32, _OTHER = -1, -2, -3, -4, -5


def _form(code: int) -> int:
    """How far the next value is: its whole length with the format code, or where its size is found."""
    if code == 0 or code not in codec.KNOWN_CODES:
        return _OTHER
    family = code >> 4
    if family in codec.FIXED_WIDTHS:
        return 1 + codec.FIXED_WIDTHS[family]
    if family in (0xC, 0xD):
        return _NESTED8 if family == 0xC else _NESTED32
    return _SIZE32 if family & 1 else _SIZE8


_FORMS: Final = tuple(_form(code) for code in range(256))

_shared: dict[object, Facts] = {}
"""By header bytes, or by (header bytes, start, end) of the message-annotations."""

_headers: dict[bytes, tuple[bool, int, int, int]] = {}
"""What `_read_header` found, by the bytes of the section."""

_SHORTEST_USUAL = 13  # A header without a field, and the head of a large data section.
_SHORTEST_HEADER = 6  # Descriptor, format code, size, count; below it there is nothing to look up.


def _scan(payload: Payload) -> Facts:
    size = len(payload)
    if not size:
        raise _Fault("a message of no bytes")
    offset = header_end = start = end = _known_header(payload) if size > _SHORTEST_HEADER else 0
    expiry = 0
    rank_before, code_before = (1, HEADER) if header_end else (0, 0)
    while offset < size:
        if payload[offset] == 0 and payload[offset + 1] == 0x53:
            code = payload[offset + 2]
            at = offset + 3
        else:
            code, at = _descriptor(payload, offset)
        if code not in _SECTIONS:
            raise _Fault("no section of a message has this descriptor")
        rank, forms = _SECTIONS[code]
        if rank <= rank_before and (rank != 6 or code != code_before or code == AMQP_VALUE):
            raise _Fault(f"section {code:#x} after section {code_before:#x}")
        form = payload[at]
        if forms is not None and form not in forms:
            raise _Fault(f"section {code:#x} with a value of format code {form:#x}")
        begun = offset
        if rank == 6:
            offset = at + 2 + payload[at + 1] if form == 0xA0 else _end(payload, at, 0)
        elif code == PROPERTIES:
            offset, expiry = _properties(payload, at)
        else:
            offset = _end_inside(payload, at, 0)
        if offset > size:
            raise _Fault(_CUT_OFF)
        if rank < 4:
            end = offset
            if code == HEADER:
                header_end = start = offset
            else:  # Delivery-annotations are nobody's: the part that counts starts behind them.
                start = begun if code == MESSAGE_ANNOTATIONS else offset
        rank_before, code_before = rank, code
    return _facts(bytes(payload[:header_end]), start, end, expiry)


def _usual(payload: Payload) -> Facts | None:
    """Facts of a message that is a header seen before and one data section; nothing else of it need be walked."""
    size = len(payload)
    if size < _SHORTEST_USUAL:
        return None
    end = 5 + payload[4]
    if payload[3] != 0xC0 or payload[end : end + 3] != b"\x00\x53\x75" or size < end + 8:
        return None
    if payload[end + 3] == 0xB0:
        last = end + 8 + int.from_bytes(payload[end + 4 : end + 8], "big")
    elif payload[end + 3] == 0xA0:
        last = end + 5 + payload[end + 4]
    else:
        return None
    return _shared.get(bytes(payload[:end])) if last == size else None


def _known_header(payload: Payload) -> int:
    """Where the header ends if one of the same bytes was read before, else 0. It need not be walked again."""
    if payload[3] != 0xC0:
        return 0
    end = 5 + payload[4]
    return end if bytes(payload[:end]) in _headers else 0


def _facts(header: bytes, start: int, end: int, expiry: int) -> Facts:
    """Shared facts, or ones of its own for a message with an absolute expiry time."""
    key: object = header if end == len(header) else (header, start, end)
    facts = None if expiry else _shared.get(key)
    if facts is not None:
        return facts
    known = _headers.get(header)
    if known is None:
        known = _headers[header] = _read_header(header)
    durable, priority, ttl, count = known
    facts = Facts(
        durable=durable,
        priority=priority,
        ttl=ttl,
        absolute_expiry=expiry,
        plain=not ttl and not count and start == len(header),
        header_end=len(header),
        annotations_start=start,
        annotations_end=end,
        bare=end,
    )
    if not expiry:
        _shared[key] = facts
    if len(_shared) > SHARED_MAX or len(_headers) > SHARED_MAX:
        _shared.clear()
        _headers.clear()
    return facts


def _descriptor(payload: Payload, offset: int) -> tuple[int, int]:
    """The code of the section at `offset`, and where its value starts."""
    if payload[offset] != 0:
        raise _Fault("a section is a described value")
    form = payload[offset + 1]
    if form == 0x53:
        return payload[offset + 2], offset + 3
    if form == 0x80:
        end = offset + 10
        code = int.from_bytes(payload[offset + 2 : end], "big")
    elif form in (0xA3, 0xB3):
        end = _end(payload, offset + 1, 0)
        name = bytes(payload[offset + (3 if form == 0xA3 else 6) : end])
        code = _NAMES.get(name, 0)
    else:
        raise _Fault("a section's descriptor is neither a ulong nor a symbol")
    if end >= len(payload):
        raise _Fault(_CUT_OFF)
    if code not in _SECTIONS:
        raise _Fault("no section of a message has this descriptor")
    return code, end


def _end(payload: Payload, at: int, depth: int) -> int:
    """Where the value at `at` ends by its own size; perhaps beyond the payload."""
    form = _FORMS[payload[at]]
    if form > 0:
        return at + form
    if form in (_SIZE8, _NESTED8):
        return at + 2 + payload[at + 1]
    if form in (_SIZE32, _NESTED32):
        return at + 5 + int.from_bytes(payload[at + 1 : at + 5], "big")
    if payload[at] != 0:
        raise _Fault(f"unknown format code {payload[at]:#x}")
    if depth >= codec.DEPTH_MAX:
        raise _Fault(_TOO_DEEP)
    return _end(payload, _end(payload, at + 1, depth + 1), depth + 1)


def _end_inside(payload: Payload, at: int, depth: int) -> int:
    """As `_end`, but lists and maps must hold what they say, all the way down."""
    code = payload[at]
    form = _FORMS[code]
    if form in (_NESTED8, _NESTED32):
        if depth >= codec.DEPTH_MAX:
            raise _Fault(_TOO_DEEP)
        first, count, end = _open(payload, at)
        if code in _MAP and count % 2:
            raise _Fault("a map with a key that has no value")
        if _pass(payload, first, count, depth + 1) != end:
            raise _Fault("values do not fill the size of their list or map")
        return end
    if code != 0:
        return _end(payload, at, depth)
    if depth >= codec.DEPTH_MAX:
        raise _Fault(_TOO_DEEP)
    return _end_inside(payload, _end_inside(payload, at + 1, depth + 1), depth + 1)


def _open(payload: Payload, at: int) -> tuple[int, int, int]:
    """(first value, count, end) of the list or map at `at`; none of them is beyond the payload."""
    form = _FORMS[payload[at]]
    if form == _NESTED8:
        first, count, end = at + 3, payload[at + 2], at + 2 + payload[at + 1]
    elif form == _NESTED32:
        first = at + 9
        end = at + 5 + int.from_bytes(payload[at + 1 : at + 5], "big")
        count = int.from_bytes(payload[at + 5 : first], "big")
    else:  # The empty list.
        first, count, end = at + 1, 0, at + 1
    if end > len(payload):
        raise _Fault(_CUT_OFF)
    if count > end - first:  # Also when the size has no room for its count.
        raise _Fault(f"{count} values in {end - first} bytes")
    return first, count, end


def _pass(payload: Payload, offset: int, count: int, depth: int) -> int:
    """Where `count` values from `offset` on end."""
    forms = _FORMS
    for _ in range(count):
        form = forms[payload[offset]]
        if form > 0:
            offset += form
        elif form == _SIZE8:
            offset += 2 + payload[offset + 1]
        else:
            offset = _end_inside(payload, offset, depth)
    return offset


def _properties(payload: Payload, at: int) -> tuple[int, int]:
    """Where the properties end, and the absolute expiry time, 0 without."""
    first, count, end = _open(payload, at)
    if count > _PROPERTIES_FIELDS:
        raise _Fault(f"properties of {count} fields, there are {_PROPERTIES_FIELDS}")
    expiry = 0
    if count <= _ABSOLUTE_EXPIRY:
        offset = _pass(payload, first, count, 1)
    else:
        offset = _pass(payload, first, _ABSOLUTE_EXPIRY, 1)
        if payload[offset] == 0x83:
            if offset + 9 > end:
                raise _Fault(_CUT_OFF)
            expiry = max(0, int.from_bytes(payload[offset + 1 : offset + 9], "big", signed=True))
        elif payload[offset] != 0x40:
            raise _Fault("properties: absolute-expiry-time is not a timestamp")
        offset = _pass(payload, offset, count - _ABSOLUTE_EXPIRY, 1)
    if offset != end:
        raise _Fault("properties: the fields do not fill the size")
    return end, expiry


# --- the header -------------------------------------------------------------------------------------------------------


def _read_header(section: bytes) -> tuple[bool, int, int, int]:
    """durable, priority, ttl and delivery-count of a whole header section, or their defaults for b""."""
    if not section:
        return False, PRIORITY_DEFAULT, 0, 0
    values, _ = codec.decode(section, _descriptor(section, 0)[1])
    assert isinstance(values, list)
    if len(values) > _HEADER_FIELDS:
        raise _Fault(f"a header of {len(values)} fields, there are {_HEADER_FIELDS}")
    values += [None] * (_HEADER_FIELDS - len(values))
    for value, (name, kind) in zip(values, _HEADER_KINDS, strict=True):
        if value is not None and type(value) is not kind:
            raise _Fault(f"header: {name} is not a {kind.__name__.lower()}")
    durable, priority, ttl, _, count = values
    return (
        bool(durable),
        PRIORITY_DEFAULT if priority is None else int(priority),
        int(ttl or 0),
        int(count or 0),
    )


_HEADER_KINDS: Final[tuple[tuple[str, type], ...]] = (
    ("durable", bool),
    ("priority", codec.UByte),
    ("ttl", codec.UInt),
    ("first-acquirer", bool),
    ("delivery-count", codec.UInt),
)


@lru_cache(maxsize=SHARED_MAX)
def _header(durable: bool, priority: int, ttl: int | None, failures: int) -> bytes:  # noqa: FBT001  # Fields.
    """A header section, or b"" when it would say nothing. 0 as time left would read as no ttl: at least 1."""
    encoded = [
        b"\x41" if durable else b"\x40",
        b"\x40" if priority == PRIORITY_DEFAULT else codec.encode(codec.UByte(priority)),
        b"\x40" if ttl is None else codec.encode(codec.UInt(min(max(ttl, 1), TTL_MAX))),
        b"\x40",
        codec.encode(codec.UInt(failures)) if failures else b"\x40",
    ]
    while encoded and encoded[-1] == b"\x40":
        encoded.pop()
    return b"\x00\x53\x70" + codec.encode_list(encoded) if encoded else b""


def _pairs(payload: bytes, at: int) -> dict[bytes, tuple[bytes, bytes]]:
    """The keys and values of the map at `at` as encoded, by key in its shortest encoding: a sym32 is a sym8."""
    if payload[at] not in _MAP:
        raise _Fault("not a map")
    first, count, end = _open(payload, at)
    if _end_inside(payload, at, 0) != end or end != len(payload):
        raise _Fault("not a map alone")
    pairs: dict[bytes, tuple[bytes, bytes]] = {}
    for _ in range(count // 2):
        middle = _end_inside(payload, first, 1)
        last = _end_inside(payload, middle, 1)
        key = payload[first:middle]
        pairs[_canonical(key)] = key, payload[middle:last]
        first = last
    return pairs


def _canonical(key: bytes) -> bytes:
    try:
        return codec.encode(codec.decode(key)[0])
    except ValueError:  # A symbol outside ASCII, say: equal to itself only.
        return key


# --- which one is used ------------------------------------------------------------------------------------------------

COMPILED = False
"""Whether the twin is in use."""

scan = scan_pure
scan_run = scan_run_pure
deliver = deliver_pure
to = to_pure

if not PURE_WANTED:
    try:
        from amqpbroker.base import _sections
    except ImportError:
        pass
    else:
        _sections.bind(Facts, merge)
        COMPILED = True
        scan = _sections.scan
        scan_run = _sections.scan_run
        deliver = _sections.deliver
        to = _sections.to
