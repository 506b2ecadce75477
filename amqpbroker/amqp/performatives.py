"""The performatives of AMQP 1.0 as objects: part 2 [2.7], part 3 termini and outcomes, part 5 SASL [5.3.3].

Must not know connections or Proton. Each class is its own table: one line per field in wire order, with the wire
type and the default; a field without a default is mandatory. `decode_performative` and `encode_performative` read
nothing but that table.

A default is what the specification says an absent field means, and None where it says nothing. Null and absent are
the same on the wire [1.4]. What was sent is never mixed up with what was not where it matters: no source (None) and
a source without address, no delivery-tag (None) and an empty one.

Ints that were read are of their wire class (base.codec.UInt, ...); ints to be written may be plain.
"""

from collections.abc import Callable
from typing import Any, ClassVar, Final, NamedTuple, TypeVar, dataclass_transform

from amqpbroker.amqp.codes import (
    ACCEPTED,
    AMQP_FRAME,
    ATTACH,
    BEGIN,
    CLOSE,
    COORDINATOR,
    DETACH,
    DISPOSITION,
    END,
    ERROR,
    FLOW,
    MODIFIED,
    OPEN,
    RECEIVED,
    REJECTED,
    RELEASED,
    SASL_CHALLENGE,
    SASL_INIT,
    SASL_MECHANISMS,
    SASL_OUTCOME,
    SASL_RESPONSE,
    SOURCE,
    TARGET,
    TRANSFER,
)
from amqpbroker.base import codec
from amqpbroker.base.codec import Array, DecodeError, Described, Symbol, UByte, UInt, ULong, UShort

SETTLE_SETTLED = 1  # snd-settle-mode [2.8.2]; 0 is unsettled.
SETTLE_MIXED = 2
SETTLE_FIRST = 0  # rcv-settle-mode [2.8.3]
SETTLE_SECOND = 1


class MissingField(DecodeError):  # noqa: N818  # It names what is missing.
    """A mandatory field is absent or null."""

    def __init__(self, name: str, performative: str = "") -> None:
        super().__init__(f"{performative or 'performative'}: {name} is mandatory")
        self.name = name
        self.performative = performative


class Field(NamedTuple):
    """One field of a composite type, as the class says it."""

    name: str  # With hyphens, as in the specification.
    attribute: str
    kind: str  # A key of _KINDS.
    mandatory: bool
    default: object  # None for a mandatory one.
    multiple: bool


class Performative:
    """What all composite types have: who they are and what their fields are."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]  # Its fields change, and some are maps.

    CODE: ClassVar[int]
    NAME: ClassVar[str]
    FIELDS: ClassVar[tuple[Field, ...]]

    def __init__(self, **values: object) -> None:
        for _, attribute, _, mandatory, default, _ in self.FIELDS:
            if mandatory and attribute not in values:
                raise TypeError(f"{type(self).__name__}: {attribute} is missing")
            setattr(self, attribute, values.pop(attribute, default))
        if values:
            raise TypeError(f"{type(self).__name__} has no {', '.join(values)}")

    def __eq__(self, other: object) -> bool:
        return self._values() == other._values() if type(other) is type(self) else NotImplemented

    def __repr__(self) -> str:
        said = (f"{field.attribute}={getattr(self, field.attribute)!r}" for field in self.FIELDS)
        return f"{type(self).__name__}({', '.join(said)})"

    def _values(self) -> list[object]:
        return [getattr(self, field.attribute) for field in self.FIELDS]


_Composite = TypeVar("_Composite", bound=Performative)


class _Line(NamedTuple):
    """One line of a class: a field as `wire` has it."""

    kind: str
    default: object


_MANDATORY: Final = object()


def wire(kind: str, *, default: Any = _MANDATORY) -> Any:  # noqa: ANN401  # It stands for a value of any type.
    """A field of this wire type; mandatory when there is no default."""
    return _Line(kind, default)


@dataclass_transform(kw_only_default=True, field_specifiers=(wire,))
def _composite(code: int, name: str) -> Callable[[type[_Composite]], type[_Composite]]:
    """Make a slots class of the table, and list it under its code and its symbolic descriptor.

    As @dataclass(slots=True, kw_only=True) would: but that compiles three methods per class, half of this import.
    """

    def make(plain: type[_Composite]) -> type[_Composite]:
        body = {key: value for key, value in vars(plain).items() if key not in _NOT_COPIED}
        lines = {key: body.pop(key) for key in list(body) if isinstance(body[key], _Line)}
        body |= {"__slots__": tuple(lines), "CODE": code, "NAME": name}
        body["FIELDS"] = tuple(
            Field(
                name=attribute.replace("_", "-"),
                attribute=attribute,
                kind=line.kind,
                mandatory=line.default is _MANDATORY,
                default=None if line.default is _MANDATORY else line.default,
                multiple=line.kind == "symbols",
            )
            for attribute, line in lines.items()
        )
        cls: type[_Composite] = type(plain.__name__, plain.__bases__, body)
        _CLASSES[code] = _CLASSES[f"amqp:{name}:list"] = cls
        return cls

    return make


_NOT_COPIED = frozenset({"__dict__", "__weakref__"})  # A slots class has neither.

_CLASSES: Final[dict[object, type[Performative]]] = {}
"""By descriptor: a ULong is found by its number, a Symbol by its text."""

Fields = dict[Any, Any]
"""A map with symbol keys [1.5, fields]. Any, since a dict of object takes no dict of Symbol."""


# --- termini, outcomes, errors: parts of a performative ---------------------------------------------------------------


@_composite(ERROR, "error")
class Error(Performative):
    """Why something ended or was refused [2.8.14]."""

    condition: str = wire("symbol")
    description: str | None = wire("string", default=None)
    info: Fields | None = wire("fields", default=None)


@_composite(RECEIVED, "received")
class Received(Performative):
    """How far an unsettled delivery came [3.4.1]."""

    section_number: int = wire("uint")
    section_offset: int = wire("ulong")


@_composite(ACCEPTED, "accepted")
class Accepted(Performative):
    """[3.4.2]."""


@_composite(REJECTED, "rejected")
class Rejected(Performative):
    """[3.4.3]."""

    error: Error | None = wire("error", default=None)


@_composite(RELEASED, "released")
class Released(Performative):
    """[3.4.4]."""


@_composite(MODIFIED, "modified")
class Modified(Performative):
    """[3.4.5]; the specification gives no defaults, absent means not."""

    delivery_failed: bool | None = wire("boolean", default=None)
    undeliverable_here: bool | None = wire("boolean", default=None)
    message_annotations: Fields | None = wire("fields", default=None)


DeliveryState = Received | Accepted | Rejected | Released | Modified | Described
"""A state the broker does not know (a transaction's) stays a described value."""


@_composite(SOURCE, "source")
class Source(Performative):
    """[3.5.3]; the values of `filter` are left as they are, mostly Described."""

    address: object = wire("any", default=None)
    durable: int = wire("uint", default=0)
    expiry_policy: str = wire("symbol", default="session-end")
    timeout: int = wire("uint", default=0)  # Seconds.
    dynamic: bool = wire("boolean", default=False)
    dynamic_node_properties: Fields | None = wire("fields", default=None)
    distribution_mode: str | None = wire("symbol", default=None)
    filter: Fields | None = wire("fields", default=None)
    default_outcome: DeliveryState | None = wire("state", default=None)
    outcomes: tuple[str, ...] = wire("symbols", default=())
    capabilities: tuple[str, ...] = wire("symbols", default=())


@_composite(TARGET, "target")
class Target(Performative):
    """[3.5.4]."""

    address: object = wire("any", default=None)
    durable: int = wire("uint", default=0)
    expiry_policy: str = wire("symbol", default="session-end")
    timeout: int = wire("uint", default=0)  # Seconds.
    dynamic: bool = wire("boolean", default=False)
    dynamic_node_properties: Fields | None = wire("fields", default=None)
    capabilities: tuple[str, ...] = wire("symbols", default=())


@_composite(COORDINATOR, "coordinator")
class Coordinator(Performative):
    """The target of a link that controls transactions [4.5.1]."""

    capabilities: tuple[str, ...] = wire("symbols", default=())


# --- performatives ----------------------------------------------------------------------------------------------------


@_composite(OPEN, "open")
class Open(Performative):
    """[2.7.1]."""

    container_id: str = wire("string")
    hostname: str | None = wire("string", default=None)
    max_frame_size: int = wire("uint", default=4294967295)
    channel_max: int = wire("ushort", default=65535)
    idle_time_out: int | None = wire("uint", default=None)  # Milliseconds.
    outgoing_locales: tuple[str, ...] = wire("symbols", default=())
    incoming_locales: tuple[str, ...] = wire("symbols", default=())
    offered_capabilities: tuple[str, ...] = wire("symbols", default=())
    desired_capabilities: tuple[str, ...] = wire("symbols", default=())
    properties: Fields | None = wire("fields", default=None)


@_composite(BEGIN, "begin")
class Begin(Performative):
    """[2.7.2]."""

    remote_channel: int | None = wire("ushort", default=None)
    next_outgoing_id: int = wire("uint")
    incoming_window: int = wire("uint")
    outgoing_window: int = wire("uint")
    handle_max: int = wire("uint", default=4294967295)
    offered_capabilities: tuple[str, ...] = wire("symbols", default=())
    desired_capabilities: tuple[str, ...] = wire("symbols", default=())
    properties: Fields | None = wire("fields", default=None)


@_composite(ATTACH, "attach")
class Attach(Performative):
    """[2.7.3]."""

    name: str = wire("string")
    handle: int = wire("uint")
    role: bool = wire("boolean")
    snd_settle_mode: int = wire("ubyte", default=SETTLE_MIXED)
    rcv_settle_mode: int = wire("ubyte", default=SETTLE_FIRST)
    source: Source | None = wire("source", default=None)
    target: Target | Coordinator | None = wire("target", default=None)
    unsettled: Fields | None = wire("map", default=None)  # Delivery-tag to state.
    incomplete_unsettled: bool = wire("boolean", default=False)
    initial_delivery_count: int | None = wire("uint", default=None)
    max_message_size: int | None = wire("ulong", default=None)
    offered_capabilities: tuple[str, ...] = wire("symbols", default=())
    desired_capabilities: tuple[str, ...] = wire("symbols", default=())
    properties: Fields | None = wire("fields", default=None)


@_composite(FLOW, "flow")
class Flow(Performative):
    """[2.7.4]."""

    next_incoming_id: int | None = wire("uint", default=None)
    incoming_window: int = wire("uint")
    next_outgoing_id: int = wire("uint")
    outgoing_window: int = wire("uint")
    handle: int | None = wire("uint", default=None)
    delivery_count: int | None = wire("uint", default=None)
    link_credit: int | None = wire("uint", default=None)
    available: int | None = wire("uint", default=None)
    drain: bool = wire("boolean", default=False)
    echo: bool = wire("boolean", default=False)
    properties: Fields | None = wire("fields", default=None)


@_composite(TRANSFER, "transfer")
class Transfer(Performative):
    """[2.7.5]; `settled` has no default: on a later frame of a delivery absent means as before."""

    handle: int = wire("uint")
    delivery_id: int | None = wire("uint", default=None)
    delivery_tag: bytes | None = wire("binary", default=None)
    message_format: int | None = wire("uint", default=None)
    settled: bool | None = wire("boolean", default=None)
    more: bool = wire("boolean", default=False)
    rcv_settle_mode: int | None = wire("ubyte", default=None)
    state: DeliveryState | None = wire("state", default=None)
    resume: bool = wire("boolean", default=False)
    aborted: bool = wire("boolean", default=False)
    batchable: bool = wire("boolean", default=False)


@_composite(DISPOSITION, "disposition")
class Disposition(Performative):
    """[2.7.6]; `last` absent means the same as `first`."""

    role: bool = wire("boolean")
    first: int = wire("uint")
    last: int | None = wire("uint", default=None)
    settled: bool = wire("boolean", default=False)
    state: DeliveryState | None = wire("state", default=None)
    batchable: bool = wire("boolean", default=False)


@_composite(DETACH, "detach")
class Detach(Performative):
    """[2.7.7]."""

    handle: int = wire("uint")
    closed: bool = wire("boolean", default=False)
    error: Error | None = wire("error", default=None)


@_composite(END, "end")
class End(Performative):
    """[2.7.8]."""

    error: Error | None = wire("error", default=None)


@_composite(CLOSE, "close")
class Close(Performative):
    """[2.7.9]."""

    error: Error | None = wire("error", default=None)


@_composite(SASL_MECHANISMS, "sasl-mechanisms")
class SaslMechanisms(Performative):
    """[5.3.3.1]."""

    sasl_server_mechanisms: tuple[str, ...] = wire("symbols")


@_composite(SASL_INIT, "sasl-init")
class SaslInit(Performative):
    """[5.3.3.2]; an empty initial response is not an absent one."""

    mechanism: str = wire("symbol")
    initial_response: bytes | None = wire("binary", default=None)
    hostname: str | None = wire("string", default=None)


@_composite(SASL_CHALLENGE, "sasl-challenge")
class SaslChallenge(Performative):
    """[5.3.3.3]."""

    challenge: bytes = wire("binary")


@_composite(SASL_RESPONSE, "sasl-response")
class SaslResponse(Performative):
    """[5.3.3.4]."""

    response: bytes = wire("binary")


@_composite(SASL_OUTCOME, "sasl-outcome")
class SaslOutcome(Performative):
    """[5.3.3.6]; code 0 is ok, 1 failed authentication, 2 to 4 system errors."""

    code: int = wire("ubyte")
    additional_data: bytes | None = wire("binary", default=None)


FRAME_BODIES: Final = frozenset(
    {*range(OPEN, CLOSE + 1), *range(SASL_MECHANISMS, SASL_OUTCOME + 1)}
)
"""Codes of what may stand alone in a frame."""


# --- reading ----------------------------------------------------------------------------------------------------------


def decode_performative(body: bytes, offset: int = 0) -> tuple[Performative, int]:
    """Read the performative at `offset` of a frame body; also return where the payload starts.

    Raises MissingField for a mandatory field that is absent or null, DecodeError for all else that is wrong:
    undecodable bytes, an unknown descriptor, a field of another type, more fields than there are.
    """
    value, end = codec.decode(body, offset)
    if not isinstance(value, Described):
        raise DecodeError("a frame body starts with a described list")
    cls = _class_of(value)
    if cls is None or cls.CODE not in FRAME_BODIES:
        raise DecodeError(f"no performative has the descriptor {value.descriptor!r}")
    return _build(cls, value.value), end


def _class_of(value: Described) -> type[Performative] | None:
    descriptor = value.descriptor
    return _CLASSES.get(descriptor) if type(descriptor) in (ULong, Symbol) else None


def _build(cls: type[Performative], values: object) -> Performative:
    if type(values) is not list:
        raise DecodeError(f"{cls.NAME}: not a list")
    table = cls.FIELDS
    if len(values) > len(table):
        raise DecodeError(f"{cls.NAME}: {len(values)} fields, there are {len(table)}")
    made = cls.__new__(cls)
    for (name, attribute, kind, mandatory, default, _), value in zip(table, values, strict=False):
        if value is None:
            if mandatory:
                raise MissingField(name, cls.NAME)
            setattr(made, attribute, default)
            continue
        expected, convert, _ = _KINDS[kind]
        if expected is not None and type(value) is not expected:
            was = type(value).__name__.lower()
            raise DecodeError(f"{cls.NAME}: {name} must be of type {kind}, not {was}")
        if convert is not None:
            try:
                value = convert(value)
            except _WrongType as error:
                raise DecodeError(f"{cls.NAME}: {name} {error}") from None
        setattr(made, attribute, value)
    for name, attribute, _, mandatory, default, _ in table[len(values) :]:
        if mandatory:
            raise MissingField(name, cls.NAME)
        setattr(made, attribute, default)
    return made


class _WrongType(Exception):  # noqa: N818  # Never leaves this file.
    """The rest of a sentence that starts with the field's name."""


def _to_symbols(value: object) -> tuple[object, ...]:
    """A field that may be multiple: one value stands for an array of one [1.4]."""
    if type(value) is Symbol:
        return (value,)
    if type(value) is Array and value.code in (0xA3, 0xB3) and not value.descriptors:
        return tuple(value.items)
    raise _WrongType("is not one symbol or an array of them")


def _to_fields(value: object) -> object:
    """Keys must be symbols [1.5]; strings are let through, as clients send them and they harm nobody."""
    for key in value:  # type: ignore[attr-defined]  # Its type was checked: a dict.
        if not isinstance(key, str):
            raise _WrongType(f"has a key of type {type(key).__name__.lower()}")
    return value


def _to_one_of(*codes: int) -> Callable[[object], object]:
    def convert(value: object) -> object:
        assert isinstance(value, Described)
        cls = _class_of(value)
        if cls is None or cls.CODE not in codes:
            raise _WrongType(f"cannot be what {value.descriptor!r} describes")
        return _build(cls, value.value)

    return convert


def _to_state(value: object) -> object:
    assert isinstance(value, Described)
    cls = _class_of(value)
    if cls is None or not RECEIVED <= cls.CODE <= MODIFIED:
        return value
    return _build(cls, value.value)


# --- writing ----------------------------------------------------------------------------------------------------------


def encode_performative(performative: Performative) -> bytes:
    """The performative as a described list, nulls at its end left out.

    Fields with a value are written even when it is the default: not every client fills in the defaults.
    Raises ValueError when a mandatory field is None.
    """
    encoded: list[bytes] = []
    for name, attribute, kind, mandatory, _, _ in performative.FIELDS:
        value = getattr(performative, attribute)
        if value is None or (value == () and not mandatory):
            if mandatory:
                raise ValueError(f"{performative.NAME}: {name} is mandatory")
            encoded.append(b"\x40")
        else:
            encoded.append(_KINDS[kind][2](value))
    while encoded and encoded[-1] == b"\x40":
        encoded.pop()
    return b"\x00\x53" + bytes((performative.CODE,)) + codec.encode_list(encoded)


def frame(channel: int, body: bytes, frame_type: int = AMQP_FRAME) -> bytes:
    """One frame without extended header [2.3]; SASL frames have channel 0."""
    return b"".join(
        (
            (len(body) + 8).to_bytes(4, "big"),
            b"\x02",
            frame_type.to_bytes(1, "big"),
            channel.to_bytes(2, "big"),
            body,
        )
    )


EMPTY_FRAME: Final = frame(0, b"")
"""Says only that we are alive [2.4.5]."""


def _write_symbols(value: tuple[str, ...]) -> bytes:
    """Always an array, even of one: what Proton and the JVM brokers write, so what every client was tested with."""
    return codec.encode(codec.symbols(value))


def _write_composite(value: Performative | Described) -> bytes:
    return codec.encode(value) if isinstance(value, Described) else encode_performative(value)


_Kind = tuple[type | None, Callable[[object], object] | None, Callable[[Any], bytes]]

_KINDS: Final[dict[str, _Kind]] = {
    # wire type: the exact class when read (None: any), what makes a field of it, how it is written
    "any": (None, None, codec.encode),
    "boolean": (bool, None, codec.writer_of(bool)),
    "ubyte": (UByte, None, codec.writer_of(UByte)),
    "ushort": (UShort, None, codec.writer_of(UShort)),
    "uint": (UInt, None, codec.writer_of(UInt)),
    "ulong": (ULong, None, codec.writer_of(ULong)),
    "string": (str, None, codec.writer_of(str)),
    "symbol": (Symbol, None, codec.writer_of(Symbol)),
    "binary": (bytes, None, codec.encode),
    "map": (dict, None, codec.encode),
    "fields": (dict, _to_fields, codec.encode),
    "symbols": (None, _to_symbols, _write_symbols),
    "error": (Described, _to_one_of(ERROR), _write_composite),
    "source": (Described, _to_one_of(SOURCE), _write_composite),
    "target": (Described, _to_one_of(TARGET, COORDINATOR), _write_composite),
    "state": (Described, _to_state, _write_composite),
}
