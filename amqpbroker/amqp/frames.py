"""Frames of one connection: bytes in, items out, with the checks that Proton does not make.

Proton lets some violations through and answers others with the wrong frame: it closes the
connection where an End or a Detach is due. So every frame is looked at before Proton sees it.
Control frames are cut out one by one, for the tap to decode and for the application to react
before the next one is looked at; runs of transfers and dispositions stay in one piece, so that the
data plane keeps its speed.

Two walkers do the same: `PureWalker` below is the reference, `_frames.CompiledWalker` its compiled
twin. `Walker` is the twin where it was built, unless AMQPBROKER_PURE_PYTHON=1. The tests run over
both and compare them on damaged input.

Must not know Proton, nor what becomes of an item. The table of checks is docs/seams.md section 4.
"""

import re
import struct
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, cast

from amqpbroker.amqp.codes import (
    CLOSE,
    DISPOSITION,
    END,
    OPEN,
    TRANSFER,
)
from amqpbroker.amqp.codes import FLOW as FLOW_FRAME
from amqpbroker.base.errors import (
    DECODE_ERROR,
    FRAMING_ERROR,
    INVALID_FIELD,
    NOT_ALLOWED,
    NOT_IMPLEMENTED,
    RESOURCE_LIMIT_EXCEEDED,
    TRANSFER_LIMIT_EXCEEDED,
    UNATTACHED_HANDLE,
    WINDOW_VIOLATION,
)
from amqpbroker.base.twins import PURE_WANTED

# Tags of items: what stands first in each tuple that `next` returns.
BULK: Final = 0
CONTROL: Final = 1
FLOW: Final = 2
LINK_FAULT: Final = 3
SESSION_FAULT: Final = 4
CONNECTION_FAULT: Final = 5

HEADER_SIZE = 8  # Bytes of a frame header without extension [2.3.1].
SIZE_SIZE = 4  # Bytes of its first field.
DOFF_MIN = 2
PERFORMATIVE_SIZE_MIN = 4  # 0x00 0x53 code 0x45.
TAG_SIZE_MAX = 32  # Bytes of a delivery-tag [2.8.7].
# Bytes of a disposition's frame when it is about more than one delivery. Proton decodes the state anew for each: a
# full frame of small annotations takes 2.5 ms of CPU, one of this size 0.04 ms, and a range spans thousands. Every
# peer has to take frames of 512 bytes [2.7.1], so nobody counts on more.
RANGE_SIZE_MAX = 512

_NAMES = ("open", "begin", "attach", "flow", "transfer", "disposition", "detach", "end", "close")
_SYMBOLS = {f"amqp:{name}:list".encode(): code for code, name in enumerate(_NAMES, OPEN)}
# What a swallowed channel lets through: its End, and what is said about the whole connection.
_NOT_SWALLOWED = frozenset((OPEN, END, CLOSE))

_read_header = struct.Struct(">IBBH").unpack_from
_read_uint = struct.Struct(">I").unpack_from
_read_size_count = struct.Struct(">II").unpack_from

# Constructors [1.6] that are named below.
_UBYTE, _SMALL_UINT, _SMALL_ULONG, _BOOLEAN, _UINT, _ULONG = 0x50, 0x52, 0x53, 0x56, 0x70, 0x80
_BINARY_8, _SYMBOL_8, _BINARY_32, _SYMBOL_32 = 0xA0, 0xA3, 0xB0, 0xB3
_LIST_0, _LIST_8, _LIST_32 = 0x45, 0xC0, 0xD0
_SYMBOLIC = frozenset((_SYMBOL_8, _SYMBOL_32))

# A transfer up to the constructor of its tag: list8, handle and delivery-id as uints …
_usual_transfer = re.compile(
    rb"\x00\x53\x14\xc0..(?:\x43|\x52.|\x70....)(?:\x43|\x52.|\x70....)\xa0", re.DOTALL
).match
# … and what follows the tag: message-format 0, then perhaps settled, then perhaps that there is no more.
# By these bytes, the count of the list's fields.
_USUAL_REST = {
    b"\x43" + settled + more: 4 + len(settled) + len(more)
    for settled in (b"", b"\x40", b"\x41", b"\x42")
    for more in (b"", b"\x40", b"\x42")
    if settled or not more
}

# Verdicts on a frame that nobody is told of.
_PASS = 0
_DROP = 1
_LATER = 2  # Looked at again when what came before it is out.


class _Ubyte(NamedTuple):
    value: int


class _Opaque(NamedTuple):
    """A value of a type that no field looked at here has."""

    constructor: int


_Value = int | bytes | _Ubyte | _Opaque | None

# By constructor, 0x40 to 0x45: null, true, false, uint 0, ulong 0, the empty list.
_SIMPLE: tuple[_Value, ...] = (None, True, False, 0, _Opaque(0x44), _Opaque(0x45))
# Bytes that follow a constructor of fixed width; of the others, bytes of the size that follows.
_FIXED = {
    **dict.fromkeys(range(0x40, 0x46), 0),
    **dict.fromkeys(range(0x50, 0x57), 1),
    **dict.fromkeys(range(0x60, 0x62), 2),
    **dict.fromkeys(range(0x70, 0x75), 4),
    **dict.fromkeys(range(0x80, 0x85), 8),
    **dict.fromkeys((0x94, 0x98), 16),
}
_SIZED = {
    **dict.fromkeys((0xA0, 0xA1, 0xA3, 0xC0, 0xC1, 0xE0), 1),
    **dict.fromkeys((0xB0, 0xB1, 0xB3, 0xD0, 0xD1, 0xF0), 4),
}
_FIELDS_MAX = 11  # Of those performatives whose fields are read here; transfer and flow have 11.
_ABSENT = [None] * _FIELDS_MAX  # An absent field means null [1.4].

# next_incoming_id, incoming_window, next_outgoing_id, outgoing_window, handle, delivery_count,
# link_credit, drain, echo, has_properties [2.7.4].
FlowFields = tuple[int | None, int, int, int, int | None, int | None, int | None, bool, bool, bool]
Item = (
    tuple[Literal[0], bytes]
    | tuple[Literal[1], int, int, bytes]
    | tuple[Literal[2], int, bytes, FlowFields]
    | tuple[Literal[3], int, int, str, str]
    | tuple[Literal[4], int, str, str]
    | tuple[Literal[5], str, str]
)


class PureWalker:
    """Cuts what a peer sends into items; is told about channels, handles, windows and credit.

    Call `next` until it returns None after each `feed`, and act on each item before asking for the
    next: a check is made against the state at that time, so that pipelined frames find the handles
    attached by the frames before them. To name a channel or handle that was not begun or attached
    is a KeyError: the caller's table and this one are the same table.
    """

    __slots__ = (
        "_at",
        "_channels",
        "_data",
        "_dead",
        "_low",
        "_max_frame_size",
        "_need",
        "_partial",
    )

    def __init__(self, max_frame_size: int) -> None:
        self._max_frame_size = max_frame_size
        self._channels: dict[int, _Channel] = {}
        self._data = b""  # What was fed and not yet handed out, from _at on.
        self._at = 0
        self._partial = bytearray()  # The start of one frame; _data is used up then.
        self._need = 0  # Bytes that _partial must have before it is looked at again.
        self._dead = False  # A CONNECTION_FAULT was told.
        self._low: list[int] = []  # Channels whose window became low since the last take_low.

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the stream; at most one incomplete frame of them is kept."""
        if self._dead:
            return
        if self._partial:
            # Appended without a look, so that a frame that trickles in costs each byte once.
            self._partial += data
            if len(self._partial) >= self._need:
                self._data, self._at = bytes(self._partial), 0
                self._partial = bytearray()
        elif self._at < len(self._data):
            self._data, self._at = self._data[self._at :] + data, 0
        else:
            self._data, self._at = data, 0

    def next(self) -> Item | None:
        """The next item; None when no whole frame is left, and for ever after a CONNECTION_FAULT.

        A run of good frames goes out before the frame that ends it, which is then looked at anew,
        since the application may have changed the state meanwhile: so a look changes nothing unless
        the frame passes.
        """
        data, start, size_max = self._data, self._at, self._max_frame_size
        at, end = start, len(data)
        while end - at >= HEADER_SIZE:
            size, doff, kind, channel = _read_header(data, at)
            stop = at + size
            if kind or doff < DOFF_MIN or 4 * doff > size or size > size_max:
                verdict: Item | int = _bad_frame(size, doff, kind, size_max)
            elif stop > end:
                break
            elif doff == DOFF_MIN and self._passes(at + HEADER_SIZE, stop, channel):
                at = stop
                continue
            elif 4 * doff == size:
                verdict = _DROP  # An empty frame: its bytes count for the idle time-out, no more.
            else:
                verdict = self._look(at, at + 4 * doff, stop, channel)
            if verdict == _PASS:
                at = stop
            elif at > start:
                break
            elif verdict == _DROP:
                self._at = start = at = stop
            else:
                assert isinstance(verdict, tuple)
                return self._told(verdict, at, stop)
        self._at = at
        if at > start:
            return BULK, data if start == 0 and at == end else data[start:at]
        return self._keep_rest()

    def begin(self, channel: int, window: int) -> None:
        """Know `channel`, which was not known; it may bring `window` transfer frames."""
        assert channel not in self._channels, f"channel {channel} was begun before"
        self._channels[channel] = _Channel(window, self._low)

    def end(self, channel: int) -> None:
        """Forget `channel` and its handles."""
        del self._channels[channel]
        if channel in self._low:
            self._low.remove(channel)

    def window(self, channel: int) -> int:
        """How many more transfer frames `channel` may bring."""
        return self._channels[channel].window

    def reset_window(self, channel: int, window: int) -> None:
        """Let `channel` bring `window` transfer frames from now on."""
        self._channels[channel].reset(window)

    def take_low(self) -> list[int]:
        """The channels whose window has fallen below three quarters since it was set, once each."""
        low = self._low[:]
        self._low.clear()
        return low

    def swallow(self, channel: int) -> None:
        """Drop every frame on `channel` but End, and but Open and Close: they are not its own."""
        self._channels[channel].swallowing = True

    def attach(self, channel: int, handle: int, *, incoming: bool, second: bool) -> None:
        """Know `handle`, which was not known, without credit; `second` is its rcv-settle-mode."""
        links = self._channels[channel].links
        assert handle not in links, f"handle {handle} was attached before"
        links[handle] = _Link(incoming=incoming, second=second)

    def detach(self, channel: int, handle: int) -> None:
        """Forget `handle`."""
        del self._channels[channel].links[handle]

    def grant(self, channel: int, handle: int, credit: int) -> None:
        """Let `handle` start `credit` more deliveries; negative: given back by a drain."""
        self._channels[channel].links[handle].credit += credit

    def credit(self, channel: int, handle: int) -> int:
        """How many more deliveries `handle` may start."""
        return self._channels[channel].links[handle].credit

    def fail(self, channel: int, handle: int) -> None:
        """Count the transfers of `handle` in the window but check them no more, until detach."""
        self._channels[channel].links[handle].failed = True

    def _told(self, item: Item, at: int, stop: int) -> Item:
        """`item`, once its change is made here; it is about the frame from `at` to `stop`."""
        self._at = stop
        if item[0] == LINK_FAULT:
            # The frame stays: it is fed all the same, since Proton must see every delivery-id.
            self._at = at
            self.fail(item[1], item[2])
        elif item[0] == SESSION_FAULT:
            self.swallow(item[1])
        elif item[0] == CONNECTION_FAULT:
            self._dead = True
            self._data, self._at = b"", 0
        return item

    def _keep_rest(self) -> Item | None:
        """Put the incomplete frame aside; a CONNECTION_FAULT when its size is wrong already."""
        rest = self._data[self._at :]
        self._data, self._at = b"", 0
        if rest:
            size = int.from_bytes(rest[:SIZE_SIZE], "big")
            if len(rest) < SIZE_SIZE:
                self._need = SIZE_SIZE
            elif not HEADER_SIZE <= size <= self._max_frame_size:
                return self._told(_bad_frame(size, DOFF_MIN, 0, self._max_frame_size), 0, 0)
            else:
                self._need = size if len(rest) >= HEADER_SIZE else HEADER_SIZE
            self._partial += rest
        return None

    def _passes(self, first: int, stop: int, channel: int) -> bool:
        """Whether this is the usual transfer, a whole delivery with nothing special, and in order.

        Nearly every frame is; whatever it is not sure of is left to `_look`, which costs three times as much.
        """
        data = self._data
        head = _usual_transfer(data, first, stop)
        session = self._channels.get(channel)
        if head is None or session is None or head.end() == stop:
            return False
        tag = head.end()
        last = first + 5 + data[first + 4]
        rest = data[tag + 1 + data[tag] : last]
        if (
            _USUAL_REST.get(rest) != data[first + 5]
            or not 0 < data[tag] <= TAG_SIZE_MAX
            or last > stop
        ):
            return False
        handle = 0
        if data[first + 6] == _SMALL_UINT:
            handle = data[first + 7]
        elif data[first + 6] == _UINT:
            handle = _read_uint(data, first + 7)[0]
        link = session.links.get(handle)
        if (
            link is None
            or link.in_delivery
            or link.failed
            or link.credit <= 0
            or not link.incoming
            or session.window <= 0
            or session.swallowing
        ):
            return False
        link.credit -= 1
        session.window -= 1
        if session.window == session.low_mark:
            session.low.append(channel)
        return True

    def _look(self, at: int, first: int, stop: int, channel: int) -> Item | int:
        """Check the frame from `at` to `stop`, whose performative starts at `first`."""
        data = self._data
        if stop - first < PERFORMATIVE_SIZE_MIN or data[first]:
            return _undecodable("a frame without a performative")
        if data[first + 1] == _SMALL_ULONG:
            code, after = data[first + 2], first + 3
        else:
            code, after = _long_descriptor(data, first + 1, stop)
        if not OPEN <= code <= CLOSE:
            return _undecodable("an unknown performative")
        start, last, count = _list(data, after)
        if start > last or last > stop or (last < stop and code != TRANSFER):
            return _undecodable(f"{_NAMES[code - OPEN]}: not a list, or its size is wrong")
        session = self._channels.get(channel)
        if session is not None and session.swallowing and code not in _NOT_SWALLOWED:
            return _DROP
        frame = b""
        if data[first + 1] in _SYMBOLIC:
            if at > self._at:
                return _LATER  # It is written anew, so it goes out by itself.
            frame = _written_anew(data[at:stop], first - at, code, after - at)
        try:
            values = _values(data, start, last, count)
            if code == TRANSFER:
                verdict = _transfer(session, channel, values)
            elif code == DISPOSITION:
                verdict = _disposition(session, channel, values, stop - at)
            elif code == FLOW_FRAME:
                return _flow(session, channel, values, frame or data[at:stop])
            else:
                return CONTROL, code, channel, frame or data[at:stop]
        except (_MalformedError, IndexError, struct.error):
            return _undecodable(f"{_NAMES[code - OPEN]}: a malformed field")
        return (BULK, frame) if frame and verdict == _PASS else verdict


class _MalformedError(Exception):
    """A field cannot be read, or is not of the type that the specification gives it."""


class _Link:
    """What is known of one handle."""

    __slots__ = ("credit", "delivery_id", "failed", "in_delivery", "incoming", "second")

    def __init__(self, *, incoming: bool, second: bool) -> None:
        self.incoming = incoming
        self.second = second  # rcv-settle-mode second is in force.
        self.credit = 0  # Deliveries that it may start.
        self.in_delivery = False  # The last transfer said more=true.
        self.delivery_id: int | None = None  # Of the delivery in progress; None: not told.
        self.failed = False


class _Channel:
    """What is known of one session."""

    __slots__ = ("links", "low", "low_mark", "swallowing", "window")

    def __init__(self, window: int, low: list[int]) -> None:
        self.reset(window)
        self.low = low  # The walker's: where a channel that becomes low is put.
        self.links: dict[int, _Link] = {}
        self.swallowing = False

    def reset(self, window: int) -> None:
        self.window = window  # Transfer frames that it may bring.
        self.low_mark = (3 * window - 1) // 4  # The first below three quarters.


# Calls cost more than branches, and the order of the checks is the point: they stay in one list.
def _transfer(  # noqa: C901
    session: _Channel | None, channel: int, values: list[_Value]
) -> Item | int:
    """Check one transfer [2.7.5]; count it if it passes."""
    if session is None:
        return _no_channel(channel)
    values += _ABSENT
    handle, delivery_id, tag, message_format, settled, more, mode, _, resume, aborted = values[:10]
    if (
        (type(delivery_id) is not int and delivery_id is not None)
        or (type(tag) is not bytes and tag is not None)
        or (type(message_format) is not int and message_format is not None)
        or (type(settled) is not bool and settled is not None)
        or (type(more) is not bool and more is not None)
        or (type(mode) is not _Ubyte and mode is not None)
        or (type(resume) is not bool and resume is not None)
        or (type(aborted) is not bool and aborted is not None)
    ):
        raise _MalformedError
    if type(handle) is not int:
        return _missing("transfer", "handle", handle)
    if session.window <= 0:
        return SESSION_FAULT, channel, WINDOW_VIOLATION, "transfer beyond the session's window"
    link = session.links.get(handle)
    if link is None:
        return _no_handle(channel, handle)
    if not link.failed:
        first = not link.in_delivery
        if not link.incoming:
            return LINK_FAULT, channel, handle, NOT_ALLOWED, "transfer on a link that receives"
        if first:
            if link.credit <= 0:
                text = "transfer beyond the link's credit"
                return LINK_FAULT, channel, handle, TRANSFER_LIMIT_EXCEEDED, text
            if tag is None or (not tag and not settled) or len(tag) > TAG_SIZE_MAX:
                return LINK_FAULT, channel, handle, INVALID_FIELD, _tag_fault(tag)
        elif delivery_id not in (link.delivery_id, None) and link.delivery_id is not None:
            text = f"transfer: delivery-id {delivery_id} within delivery {link.delivery_id}"
            return CONNECTION_FAULT, INVALID_FIELD, text
        if message_format or mode or resume:
            fault = _refused(link, message_format, mode, first=first, resume=resume is True)
            if fault is not None:
                return LINK_FAULT, channel, handle, *fault
        if first:
            link.credit -= 1
            link.delivery_id = delivery_id
        link.in_delivery = more is True and not aborted
    session.window -= 1
    if session.window == session.low_mark:
        session.low.append(channel)
    return _PASS


def _refused(
    link: _Link, message_format: int | None, mode: _Ubyte | None, *, first: bool, resume: bool
) -> tuple[str, str] | None:
    """Why a transfer that says more than the usual is refused, if it is."""
    if message_format and first:
        return NOT_IMPLEMENTED, f"transfer: message-format {message_format}"
    if message_format:
        return INVALID_FIELD, f"transfer: message-format {message_format} within a delivery of 0"
    if mode is not None and (mode.value > 1 or (mode.value == 1 and not link.second)):
        return INVALID_FIELD, f"transfer: rcv-settle-mode {mode.value} is not the link's"
    if resume:
        return NOT_IMPLEMENTED, "transfer: resume"
    return None


def _disposition(
    session: _Channel | None, channel: int, values: list[_Value], size: int
) -> Item | int:
    """Check one disposition [2.7.6]."""
    if session is None:
        return _no_channel(channel)
    values += _ABSENT
    role, first, last = values[:3]
    if type(role) is not bool:
        return _missing("disposition", "role", role)
    if type(first) is not int:
        return _missing("disposition", "first", first)
    one = last is None or (type(last) is int and last == first)
    if size > RANGE_SIZE_MAX and not one:
        text = f"a disposition of several deliveries exceeds {RANGE_SIZE_MAX} bytes"
        return SESSION_FAULT, channel, RESOURCE_LIMIT_EXCEEDED, text
    return _PASS


def _flow(session: _Channel | None, channel: int, values: list[_Value], frame: bytes) -> Item:
    """Check one flow [2.7.4] and read it."""
    if session is None:
        return _no_channel(channel)
    values += _ABSENT
    uints = [_uint(value) for value in values[:7]]
    drain, echo = _flag(values[8]), _flag(values[9])
    next_incoming_id, incoming_window, next_outgoing_id, outgoing_window, handle, count, credit = (
        uints
    )
    if incoming_window is None:
        return _missing("flow", "incoming-window", None)
    if next_outgoing_id is None:
        return _missing("flow", "next-outgoing-id", None)
    if outgoing_window is None:
        return _missing("flow", "outgoing-window", None)
    if handle is not None and handle not in session.links:
        return _no_handle(channel, handle)
    own = next_incoming_id, incoming_window, next_outgoing_id, outgoing_window
    return FLOW, channel, frame, (*own, handle, count, credit, drain, echo, values[10] is not None)


def _uint(value: _Value) -> int | None:
    if value is None or type(value) is int:
        return value
    raise _MalformedError


def _flag(value: _Value) -> bool:
    if value is None or type(value) is bool:
        return value is True
    raise _MalformedError


def _values(data: bytes, at: int, last: int, count: int) -> list[_Value]:
    """The `count` values from `at` on, which must end at `last`.

    Raises _MalformedError, IndexError or struct.error when they do not.
    """
    values: list[_Value] = []
    for _ in range(count):
        constructor = data[at]
        if 0x40 <= constructor <= _LIST_0:
            values.append(_SIMPLE[constructor - 0x40])
            at += 1
        elif constructor == _SMALL_UINT:
            values.append(data[at + 1])
            at += 2
        elif constructor == _UINT:
            values.append(_read_uint(data, at + 1)[0])
            at += 5
        elif constructor == _BINARY_8:
            end = at + 2 + data[at + 1]
            values.append(data[at + 2 : end])
            at = end
        else:
            end = _after(data, at)
            values.append(_unusual(data, at, end))
            at = end
    if at != last:
        raise _MalformedError
    return values


def _unusual(data: bytes, at: int, end: int) -> _Value:
    """A value that few transfers have, from `at` to `end`."""
    constructor = data[at]
    if constructor == _BOOLEAN:
        if data[at + 1] > 1:
            raise _MalformedError
        return data[at + 1] == 1
    if constructor == _UBYTE:
        return _Ubyte(data[at + 1])
    if constructor == _BINARY_32:
        return data[at + 5 : end]
    return _Opaque(constructor)


def _after(data: bytes, at: int) -> int:
    """Where the value at `at` ends."""
    wanted = 1  # Without recursion: a descriptor may be described, to any depth [1.2].
    while wanted:
        constructor = data[at]
        at += 1
        if constructor == 0:
            wanted += 1  # A descriptor and a value in place of one value.
        elif constructor in _FIXED:
            at += _FIXED[constructor]
            wanted -= 1
        elif _SIZED.get(constructor) == 1:
            at += 1 + data[at]
            wanted -= 1
        elif constructor in _SIZED:
            at += 4 + _read_uint(data, at)[0]
            wanted -= 1
        else:
            raise _MalformedError
    return at


def _long_descriptor(data: bytes, at: int, stop: int) -> tuple[int, int]:
    """The code that a ulong of 8 bytes or a symbol means and where it ends; (0, 0) for none."""
    constructor = data[at]
    if constructor == _ULONG:
        code, after = int.from_bytes(data[at + 1 : at + 9], "big"), at + 9
    elif constructor == _SYMBOL_8:
        after = at + 2 + data[at + 1]
        code = _SYMBOLS.get(data[at + 2 : after], 0)
    elif constructor == _SYMBOL_32:
        after = at + 5 + int.from_bytes(data[at + 1 : at + 5], "big")
        code = _SYMBOLS.get(data[at + 5 : after], 0)
    else:
        return 0, 0
    return (code, after) if after < stop else (0, 0)


def _list(data: bytes, at: int) -> tuple[int, int, int]:
    """First value, end and count of the list at `at`; the end lies first when there is none."""
    constructor = data[at]
    if constructor == _LIST_8 and at + 3 <= len(data):
        return at + 3, at + 2 + data[at + 1], data[at + 2]
    if constructor == _LIST_32 and at + 9 <= len(data):
        size, count = _read_size_count(data, at + 1)
        return at + 9, at + 5 + size, count
    if constructor == _LIST_0:
        return at + 1, at + 1, 0
    return 1, 0, 0


def _written_anew(frame: bytes, first: int, code: int, after: int) -> bytes:
    """`frame` with a small ulong for its symbol: Proton drops the other in silence, an Open too."""
    rest = frame[4:first] + bytes((0, _SMALL_ULONG, code)) + frame[after:]
    return (len(rest) + SIZE_SIZE).to_bytes(SIZE_SIZE, "big") + rest


def _bad_frame(size: int, doff: int, kind: int, size_max: int) -> Item:
    if not HEADER_SIZE <= size <= size_max:
        text = f"a frame of {size} bytes; from {HEADER_SIZE} to {size_max} are allowed"
    elif kind:
        text = f"a frame of type {kind}"
    else:
        text = f"a data offset of {doff} in a frame of {size} bytes"
    return CONNECTION_FAULT, FRAMING_ERROR, text


def _undecodable(text: str) -> Item:
    return CONNECTION_FAULT, DECODE_ERROR, text


def _missing(name: str, field: str, value: _Value) -> Item:
    """A mandatory field that is null; it is malformed if it is something else."""
    if value is not None:
        raise _MalformedError
    return CONNECTION_FAULT, INVALID_FIELD, f"{name}: {field} is missing"


def _no_channel(channel: int) -> Item:
    return CONNECTION_FAULT, NOT_ALLOWED, f"no such channel: {channel}"


def _no_handle(channel: int, handle: int) -> Item:
    return SESSION_FAULT, channel, UNATTACHED_HANDLE, f"no such handle: {handle}"


def _tag_fault(tag: bytes | None) -> str:
    if tag is None:
        return "transfer: delivery-tag is missing"
    if tag:
        return f"transfer: a delivery-tag of {len(tag)} bytes; up to {TAG_SIZE_MAX} are allowed"
    return "transfer: an empty delivery-tag on an unsettled delivery"


def _choose() -> type[PureWalker]:
    """The compiled twin, unless it is not there or not wanted."""
    if PURE_WANTED:
        return PureWalker
    try:
        from amqpbroker.amqp._frames import CompiledWalker
    except ImportError:
        return PureWalker
    return cast("type[PureWalker]", CompiledWalker)


if TYPE_CHECKING:
    Walker = PureWalker
else:
    Walker = _choose()

COMPILED = Walker is not PureWalker
