# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""The compiled twin of frames.PureWalker: the same items for the same bytes, and no word of its own.

Read frames.py first: names, order and reasons are there. What differs is how it is done: fields are
read into a C array, and low channels and handles are found in a C array too. Every read is bounded
by the end of its list; PureWalker may read on and find itself beyond the end afterwards, which is
the same fault.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from libc.stdint cimport uint8_t, uint32_t, uint64_t

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

cdef enum:
    BULK = 0
    CONTROL = 1
    FLOW = 2
    LINK_FAULT = 3
    SESSION_FAULT = 4
    CONNECTION_FAULT = 5

cdef enum:
    OPEN = 0x10
    FLOW_FRAME = 0x13
    TRANSFER = 0x14
    DISPOSITION = 0x15
    END = 0x17
    CLOSE = 0x18

cdef enum:
    HEADER_SIZE = 8
    SIZE_SIZE = 4
    DOFF_MIN = 2
    PERFORMATIVE_SIZE_MIN = 4
    TAG_SIZE_MAX = 32
    RANGE_SIZE_MAX = 512
    FIELDS_MAX = 11
    LOW = 32  # Channels and handles below it are found without a dict; clients count from 0.

cdef enum:
    # What is thought of a frame; TELL: the item is in CompiledWalker.item.
    PASS = 0
    DROP = 1
    LATER = 2
    TELL = 3

cdef enum:
    # Kinds of values; OPAQUE: of a type that no field looked at here has.
    NULL_VALUE = 0
    UINT = 1
    FLAG = 2
    BINARY = 3
    UBYTE = 4
    OPAQUE = 5

cdef struct Value:
    int kind
    uint32_t number  # The uint, the flag, the ubyte, or the size of the binary.

NAMES = ("open", "begin", "attach", "flow", "transfer", "disposition", "detach", "end", "close")
cdef dict SYMBOLS = {f"amqp:{name}:list".encode(): code for code, name in enumerate(NAMES, OPEN)}


cdef inline uint32_t read_uint(const uint8_t* p) noexcept nogil:
    return (<uint32_t>p[0] << 24) | (<uint32_t>p[1] << 16) | (<uint32_t>p[2] << 8) | p[3]


cdef class _Link:
    cdef bint incoming, second, in_delivery, has_delivery_id, failed
    cdef uint32_t delivery_id
    cdef long long credit

    def __cinit__(self, bint incoming, bint second):
        self.incoming = incoming
        self.second = second


cdef class _Channel:
    cdef long long window, low_mark
    cdef dict links
    cdef bint swallowing
    cdef PyObject* low[LOW]  # Of `links`, which owns them; NULL: not attached.

    def __cinit__(self, long long window):
        self.reset(window)
        self.links = {}

    cdef void reset(self, long long window):
        self.window = window
        self.low_mark = (3 * window - 1) // 4

    cdef inline _Link link_of(self, uint32_t handle):
        if handle < LOW:
            return <_Link>self.low[handle] if self.low[handle] is not NULL else None
        return self.links.get(handle)


cdef class CompiledWalker:
    cdef dict channels
    cdef bytes data
    cdef bytearray partial
    cdef Py_ssize_t at, need
    cdef unsigned long long max_frame_size
    cdef bint dead
    cdef list low_channels
    cdef object item
    cdef PyObject* low[LOW]  # Of `channels`, which owns them; NULL: not begun.

    def __init__(self, unsigned long long max_frame_size):
        self.max_frame_size = max_frame_size
        self.channels = {}
        self.data = b""
        self.partial = bytearray()
        self.at = self.need = 0
        self.dead = False
        self.low_channels = []

    def feed(self, bytes data not None):
        if self.dead:
            return
        if self.partial:
            self.partial += data
            if len(self.partial) >= self.need:
                self.data = bytes(self.partial)
                self.at = 0
                self.partial = bytearray()
        elif self.at < PyBytes_GET_SIZE(self.data):
            self.data = self.data[self.at :] + data
            self.at = 0
        else:
            self.data = data
            self.at = 0

    def next(self):
        cdef bytes data = self.data
        cdef const uint8_t* p = <const uint8_t*>PyBytes_AS_STRING(data)
        cdef Py_ssize_t start = self.at, at = self.at, end = PyBytes_GET_SIZE(data), stop
        cdef uint32_t size
        cdef unsigned int doff, kind, channel
        cdef int verdict
        while end - at >= HEADER_SIZE:
            size = read_uint(p + at)
            doff = p[at + 4]
            kind = p[at + 5]
            channel = (<unsigned int>p[at + 6] << 8) | p[at + 7]
            stop = at + size
            if kind or doff < DOFF_MIN or 4 * doff > size or size > self.max_frame_size:
                self.item = self.bad_frame(size, doff, kind)
                verdict = TELL
            elif stop > end:
                break
            elif 4 * doff == size:
                verdict = DROP
            else:
                verdict = self.look(p, at, at + 4 * doff, stop, channel)
            if verdict == PASS:
                at = stop
            elif at > start:
                break
            elif verdict == DROP:
                self.at = start = at = stop
            else:
                return self.told(at, stop)
        self.at = at
        if at > start:
            if start == 0 and at == end:
                return BULK, data
            return BULK, PyBytes_FromStringAndSize(<char*>p + start, at - start)
        return self.keep_rest()

    def begin(self, channel, window):
        assert channel not in self.channels, f"channel {channel} was begun before"
        cdef _Channel session = _Channel(window)
        self.channels[channel] = session
        if 0 <= channel < LOW:
            self.low[<Py_ssize_t>channel] = <PyObject*>session

    def end(self, channel):
        del self.channels[channel]
        if 0 <= channel < LOW:
            self.low[<Py_ssize_t>channel] = NULL
        if channel in self.low_channels:
            self.low_channels.remove(channel)

    def window(self, channel):
        return (<_Channel?>self.channels[channel]).window

    def reset_window(self, channel, long long window):
        (<_Channel?>self.channels[channel]).reset(window)

    def take_low(self):
        cdef list low = self.low_channels
        if low:
            self.low_channels = []
        return low

    def swallow(self, channel):
        (<_Channel?>self.channels[channel]).swallowing = True

    def attach(self, channel, handle, *, bint incoming, bint second):
        cdef _Channel session = self.channels[channel]
        cdef _Link link = _Link(incoming, second)
        assert handle not in session.links, f"handle {handle} was attached before"
        session.links[handle] = link
        if 0 <= handle < LOW:
            session.low[<Py_ssize_t>handle] = <PyObject*>link

    def detach(self, channel, handle):
        cdef _Channel session = self.channels[channel]
        del session.links[handle]
        if 0 <= handle < LOW:
            session.low[<Py_ssize_t>handle] = NULL

    def grant(self, channel, handle, long long credit):
        (<_Link?>(<_Channel?>self.channels[channel]).links[handle]).credit += credit

    def credit(self, channel, handle):
        return (<_Link?>(<_Channel?>self.channels[channel]).links[handle]).credit

    def fail(self, channel, handle):
        (<_Link?>(<_Channel?>self.channels[channel]).links[handle]).failed = True

    cdef object told(self, Py_ssize_t at, Py_ssize_t stop):
        cdef tuple item = self.item
        self.item = None
        self.at = stop
        if item[0] == LINK_FAULT:
            self.at = at
            self.fail(item[1], item[2])
        elif item[0] == SESSION_FAULT:
            self.swallow(item[1])
        elif item[0] == CONNECTION_FAULT:
            self.dead = True
            self.data = b""
            self.at = 0
        return item

    cdef object keep_rest(self):
        cdef bytes rest
        cdef uint32_t size
        if self.at == PyBytes_GET_SIZE(self.data):
            self.data = b""
            self.at = 0
            return None
        rest = self.data[self.at :]
        self.data = b""
        self.at = 0
        if len(rest) < SIZE_SIZE:
            self.need = SIZE_SIZE
        else:
            size = read_uint(<const uint8_t*>PyBytes_AS_STRING(rest))
            if size < HEADER_SIZE or size > self.max_frame_size:
                self.item = self.bad_frame(size, DOFF_MIN, 0)
                return self.told(0, 0)
            self.need = size if len(rest) >= HEADER_SIZE else HEADER_SIZE
        self.partial += rest
        return None

    cdef inline _Channel channel_of(self, unsigned int channel):
        if channel < LOW:
            return <_Channel>self.low[channel] if self.low[channel] is not NULL else None
        return self.channels.get(channel)

    cdef int look(
        self, const uint8_t* p, Py_ssize_t at, Py_ssize_t first, Py_ssize_t stop,
        unsigned int channel,
    ) except -1:
        cdef Value values[FIELDS_MAX]
        cdef uint64_t code
        cdef Py_ssize_t after, start = 1, last = 0
        cdef uint32_t count = 0
        cdef _Channel session
        cdef object frame = None
        cdef int verdict
        if stop - first < PERFORMATIVE_SIZE_MIN or p[first]:
            return self.undecodable("a frame without a performative")
        if p[first + 1] == 0x53:
            code = p[first + 2]
            after = first + 3
        else:
            code = long_descriptor(p, first + 1, stop, &after)
        if not OPEN <= code <= CLOSE:
            return self.undecodable("an unknown performative")
        if p[after] == 0xC0 and after + 3 <= stop:
            start = after + 3
            last = after + 2 + p[after + 1]
            count = p[after + 2]
        elif p[after] == 0xD0 and after + 9 <= stop:
            start = after + 9
            last = after + 5 + <Py_ssize_t>read_uint(p + after + 1)
            count = read_uint(p + after + 5)
        elif p[after] == 0x45:
            start = last = after + 1
        if start > last or last > stop or (last < stop and code != TRANSFER):
            return self.undecodable(f"{NAMES[code - OPEN]}: not a list, or its size is wrong")
        session = self.channel_of(channel)
        if session is not None and session.swallowing and code not in (OPEN, END, CLOSE):
            return DROP
        if p[first + 1] == 0xA3 or p[first + 1] == 0xB3:
            if at > self.at:
                return LATER
            frame = written_anew(p, at, first, code, after, stop)
        if not read_values(p, start, last, count, values):
            return self.malformed(code)
        if code == TRANSFER:
            verdict = self.transfer(session, channel, values)
        elif code == DISPOSITION:
            verdict = self.disposition(session, channel, values, stop - at)
        else:
            if frame is None:
                frame = PyBytes_FromStringAndSize(<char*>p + at, stop - at)
            if code == FLOW_FRAME:
                return self.flow(session, channel, values, frame)
            return self.tell((CONTROL, code, channel, frame))
        if frame is not None and verdict == PASS:
            return self.tell((BULK, frame))
        return verdict

    cdef int transfer(
        self, _Channel session, unsigned int channel, const Value* values
    ) except -1:
        cdef bint id_told, first, settled, resume
        cdef uint32_t handle, delivery_id, message_format, mode
        cdef _Link link
        if session is None:
            return self.no_channel(channel)
        if (
            not is_kind(&values[1], UINT)
            or not is_kind(&values[2], BINARY)
            or not is_kind(&values[3], UINT)
            or not is_kind(&values[4], FLAG)
            or not is_kind(&values[5], FLAG)
            or not is_kind(&values[6], UBYTE)
            or not is_kind(&values[8], FLAG)
            or not is_kind(&values[9], FLAG)
        ):
            return self.malformed(TRANSFER)
        if values[0].kind != UINT:
            return self.missing(TRANSFER, "handle", values[0].kind)
        if session.window <= 0:
            return self.tell((
                SESSION_FAULT, channel, WINDOW_VIOLATION, "transfer beyond the session's window"
            ))
        handle = values[0].number
        link = session.link_of(handle)
        if link is None:
            return self.no_handle(channel, handle)
        if not link.failed:
            id_told = values[1].kind == UINT
            delivery_id = values[1].number
            first = not link.in_delivery
            if not link.incoming:
                return self.link_fault(
                    channel, handle, NOT_ALLOWED, "transfer on a link that receives"
                )
            if first:
                if link.credit <= 0:
                    return self.link_fault(
                        channel, handle, TRANSFER_LIMIT_EXCEEDED, "transfer beyond the link's credit"
                    )
                settled = values[4].number
                if values[2].kind != BINARY or values[2].number > TAG_SIZE_MAX or (
                    not values[2].number and not settled
                ):
                    return self.link_fault(channel, handle, INVALID_FIELD, tag_fault(&values[2]))
            elif id_told and link.has_delivery_id and delivery_id != link.delivery_id:
                return self.tell((
                    CONNECTION_FAULT, INVALID_FIELD,
                    f"transfer: delivery-id {delivery_id} within delivery {link.delivery_id}",
                ))
            message_format = values[3].number
            mode = values[6].number
            resume = values[8].number
            if message_format and first:
                return self.link_fault(
                    channel, handle, NOT_IMPLEMENTED, f"transfer: message-format {message_format}"
                )
            if message_format:
                return self.link_fault(
                    channel, handle, INVALID_FIELD,
                    f"transfer: message-format {message_format} within a delivery of 0",
                )
            if mode > 1 or (mode == 1 and not link.second):
                return self.link_fault(
                    channel, handle, INVALID_FIELD,
                    f"transfer: rcv-settle-mode {mode} is not the link's",
                )
            if resume:
                return self.link_fault(channel, handle, NOT_IMPLEMENTED, "transfer: resume")
            if first:
                link.credit -= 1
                link.has_delivery_id = id_told
                link.delivery_id = delivery_id
            link.in_delivery = values[5].number and not values[9].number
        session.window -= 1
        if session.window == session.low_mark:
            self.low_channels.append(channel)
        return PASS

    cdef int disposition(
        self, _Channel session, unsigned int channel, const Value* values, Py_ssize_t size
    ) except -1:
        cdef bint one
        if session is None:
            return self.no_channel(channel)
        if values[0].kind != FLAG:
            return self.missing(DISPOSITION, "role", values[0].kind)
        if values[1].kind != UINT:
            return self.missing(DISPOSITION, "first", values[1].kind)
        one = values[2].kind == NULL_VALUE or (
            values[2].kind == UINT and values[2].number == values[1].number
        )
        if size > RANGE_SIZE_MAX and not one:
            return self.tell((
                SESSION_FAULT, channel, RESOURCE_LIMIT_EXCEEDED,
                f"a disposition of several deliveries exceeds {RANGE_SIZE_MAX} bytes",
            ))
        return PASS

    cdef int flow(
        self, _Channel session, unsigned int channel, const Value* values, frame
    ) except -1:
        cdef int i
        if session is None:
            return self.no_channel(channel)
        for i in range(7):
            if not is_kind(&values[i], UINT):
                return self.malformed(FLOW_FRAME)
        if not is_kind(&values[8], FLAG) or not is_kind(&values[9], FLAG):
            return self.malformed(FLOW_FRAME)
        for i in range(1, 4):
            if values[i].kind != UINT:
                return self.missing(
                    FLOW_FRAME, ("incoming-window", "next-outgoing-id", "outgoing-window")[i - 1],
                    NULL_VALUE,
                )
        if values[4].kind == UINT and values[4].number not in session.links:
            return self.no_handle(channel, values[4].number)
        return self.tell((FLOW, channel, frame, (
            uint_or_none(&values[0]),
            values[1].number,
            values[2].number,
            values[3].number,
            uint_or_none(&values[4]),
            uint_or_none(&values[5]),
            uint_or_none(&values[6]),
            values[8].number == 1,
            values[9].number == 1,
            values[10].kind != NULL_VALUE,
        )))

    cdef int tell(self, tuple item) except -1:
        self.item = item
        return TELL

    cdef int link_fault(
        self, unsigned int channel, uint32_t handle, condition, description
    ) except -1:
        return self.tell((LINK_FAULT, channel, handle, condition, description))

    cdef int undecodable(self, text) except -1:
        return self.tell((CONNECTION_FAULT, DECODE_ERROR, text))

    cdef int malformed(self, int code) except -1:
        return self.undecodable(f"{NAMES[code - OPEN]}: a malformed field")

    cdef int missing(self, int code, field, int kind) except -1:
        if kind != NULL_VALUE:
            return self.malformed(code)
        return self.tell((
            CONNECTION_FAULT, INVALID_FIELD, f"{NAMES[code - OPEN]}: {field} is missing"
        ))

    cdef int no_channel(self, unsigned int channel) except -1:
        return self.tell((CONNECTION_FAULT, NOT_ALLOWED, f"no such channel: {channel}"))

    cdef int no_handle(self, unsigned int channel, uint32_t handle) except -1:
        return self.tell((SESSION_FAULT, channel, UNATTACHED_HANDLE, f"no such handle: {handle}"))

    cdef tuple bad_frame(self, uint32_t size, unsigned int doff, unsigned int kind):
        if size < HEADER_SIZE or size > self.max_frame_size:
            text = (
                f"a frame of {size} bytes; "
                f"from {<int>HEADER_SIZE} to {self.max_frame_size} are allowed"
            )
        elif kind:
            text = f"a frame of type {kind}"
        else:
            text = f"a data offset of {doff} in a frame of {size} bytes"
        return CONNECTION_FAULT, FRAMING_ERROR, text


cdef inline bint is_kind(const Value* value, int kind) noexcept nogil:
    return value.kind == kind or value.kind == NULL_VALUE


cdef object uint_or_none(const Value* value):
    return value.number if value.kind == UINT else None


cdef object tag_fault(const Value* tag):
    if tag.kind != BINARY:
        return "transfer: delivery-tag is missing"
    if tag.number:
        return (
            f"transfer: a delivery-tag of {tag.number} bytes; "
            f"up to {<int>TAG_SIZE_MAX} are allowed"
        )
    return "transfer: an empty delivery-tag on an unsettled delivery"


cdef bint read_values(
    const uint8_t* p, Py_ssize_t at, Py_ssize_t last, uint32_t count, Value* values
) noexcept nogil:
    """Read `count` values from `at` on, which must end at `last`; False when they do not."""
    cdef Value value
    cdef uint32_t i
    cdef uint8_t constructor
    for i in range(count):
        if at >= last:
            return False
        constructor = p[at]
        value.number = 0
        if constructor == 0x40:
            value.kind = NULL_VALUE
            at += 1
        elif constructor == 0x41 or constructor == 0x42:
            value.kind = FLAG
            value.number = constructor == 0x41
            at += 1
        elif constructor == 0x43:
            value.kind = UINT
            at += 1
        elif constructor == 0x52:
            if last - at < 2:
                return False
            value.kind = UINT
            value.number = p[at + 1]
            at += 2
        elif constructor == 0x70:
            if last - at < 5:
                return False
            value.kind = UINT
            value.number = read_uint(p + at + 1)
            at += 5
        elif constructor == 0xA0:
            if last - at < 2:
                return False
            value.kind = BINARY
            value.number = p[at + 1]
            at += 2 + <Py_ssize_t>value.number
        elif constructor == 0xB0:
            if last - at < 5:
                return False
            value.kind = BINARY
            value.number = read_uint(p + at + 1)
            at += 5 + <Py_ssize_t>value.number
        elif constructor == 0x50 or constructor == 0x56:
            if last - at < 2:
                return False
            value.kind = UBYTE if constructor == 0x50 else FLAG
            value.number = p[at + 1]
            if value.kind == FLAG and value.number > 1:
                return False
            at += 2
        else:
            value.kind = OPAQUE
            at = end_of_value(p, at, last)
            if at < 0:
                return False
        if i < FIELDS_MAX:
            values[i] = value
    value.kind = NULL_VALUE
    value.number = 0
    for i in range(count, <uint32_t>FIELDS_MAX):
        values[i] = value
    return at == last


cdef Py_ssize_t end_of_value(const uint8_t* p, Py_ssize_t at, Py_ssize_t last) noexcept nogil:
    """Where the value at `at` ends; -1 when it cannot be told or lies beyond `last`."""
    cdef Py_ssize_t wanted = 1
    cdef uint8_t constructor
    while wanted:
        if at >= last:
            return -1
        constructor = p[at]
        at += 1
        if constructor == 0:
            wanted += 1
            continue
        wanted -= 1
        if 0x40 <= constructor <= 0x45:
            pass
        elif 0x50 <= constructor <= 0x56:
            at += 1
        elif 0x60 <= constructor <= 0x61:
            at += 2
        elif 0x70 <= constructor <= 0x74:
            at += 4
        elif 0x80 <= constructor <= 0x84:
            at += 8
        elif constructor == 0x94 or constructor == 0x98:
            at += 16
        elif constructor in (0xA0, 0xA1, 0xA3, 0xC0, 0xC1, 0xE0):
            if last - at < 1:
                return -1
            at += 1 + <Py_ssize_t>p[at]
        elif constructor in (0xB0, 0xB1, 0xB3, 0xD0, 0xD1, 0xF0):
            if last - at < 4:
                return -1
            at += 4 + <Py_ssize_t>read_uint(p + at)
        else:
            return -1
    return at


cdef uint64_t long_descriptor(
    const uint8_t* p, Py_ssize_t at, Py_ssize_t stop, Py_ssize_t* after
):
    """The code that a ulong of 8 bytes or a symbol means; 0 for none. `after`: where it ends."""
    cdef Py_ssize_t name
    if p[at] == 0x80:
        after[0] = at + 9
        if after[0] >= stop:
            return 0
        return (<uint64_t>read_uint(p + at + 1) << 32) | read_uint(p + at + 5)
    if p[at] == 0xA3:
        name = at + 2
        after[0] = name + p[at + 1]
    elif p[at] == 0xB3 and at + 5 < stop:
        name = at + 5
        after[0] = name + <Py_ssize_t>read_uint(p + at + 1)
    else:
        return 0
    if after[0] >= stop:
        return 0
    return SYMBOLS.get(PyBytes_FromStringAndSize(<char*>p + name, after[0] - name), 0)


cdef bytes written_anew(
    const uint8_t* p, Py_ssize_t at, Py_ssize_t first, uint64_t code, Py_ssize_t after,
    Py_ssize_t stop,
):
    cdef bytes rest = (
        (<char*>p)[at + SIZE_SIZE : first] + bytes((0, 0x53, code)) + (<char*>p)[after:stop]
    )
    return (len(rest) + <int>SIZE_SIZE).to_bytes(SIZE_SIZE, "big") + rest
