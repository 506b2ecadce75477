# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The twin of sections.py: the same walk over the same bytes, in C. What it finds and why is said there.

Every offset is checked against the end before a byte is read. A C function that walks returns the offset after what it
walked, or -1 with the reason in `_why`; the interpreter lock is held throughout, so one `_why` is enough.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_Check, PyByteArray_GET_SIZE
from cpython.bytes cimport (
    PyBytes_AS_STRING,
    PyBytes_Check,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from cpython.dict cimport PyDict_GetItem
from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.string cimport memcmp, memcpy

ctypedef const unsigned char* Bytes

cdef enum:
    # As in sections.py and codec.py; tests/base/test_sections.py compares the two on both sides of each bound.
    SHARED_MAX = 1024
    DEPTH_MAX = 32
    PRIORITY_DEFAULT = 4
    HEADER = 0x70
    DELIVERY_ANNOTATIONS = 0x71
    MESSAGE_ANNOTATIONS = 0x72
    PROPERTIES = 0x73
    APPLICATION_PROPERTIES = 0x74
    DATA = 0x75
    AMQP_SEQUENCE = 0x76
    AMQP_VALUE = 0x77
    FOOTER = 0x78
    HEADER_FIELDS = 5
    PROPERTIES_FIELDS = 13
    TO = 2
    ABSOLUTE_EXPIRY = 8
    SIZE8 = -1
    SIZE32 = -2
    NESTED8 = -3
    NESTED32 = -4
    OTHER = -5

cdef object Facts = None
cdef object _merge = None
cdef dict _shared = {}

# The facts found last and what they hang on: the next message of a run nearly always has the same.
cdef bytes _last_header = None
cdef Py_ssize_t _last_start = -1
cdef Py_ssize_t _last_end = -1
cdef object _last_facts = None

cdef const char* _why = b""
cdef const char* CUT_OFF = b"a section is cut off"
cdef const char* TOO_DEEP = b"more than 32 levels of values inside each other"

cdef int[256] _forms
cdef int[9] _ranks
_ranks[:] = [1, 2, 3, 4, 5, 6, 6, 6, 7]  # By section code - HEADER: the order they stand in.

cdef object _names = {
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


def bind(facts, merge):
    """Take the class of facts and the merging of annotations from sections.py: one of each for both."""
    global Facts, _merge
    Facts = facts
    _merge = merge


def scan(payload):
    """As sections.scan_pure."""
    return _scan(payload)


def scan_run(list payloads):
    """As sections.scan_run_pure."""
    cdef Py_ssize_t count = len(payloads)
    cdef Py_ssize_t i
    cdef object facts
    cdef list found = PyList_New(count)
    for i in range(count):
        facts = _scan(payloads[i])
        Py_INCREF(facts)
        PyList_SET_ITEM(found, i, facts)
    return found


def deliver(payload, facts, *, long long failures, ttl, bytes annotations):
    """As sections.deliver_pure."""
    cdef Bytes data
    cdef Py_ssize_t size
    cdef Py_ssize_t start = facts.annotations_start
    cdef Py_ssize_t end = facts.annotations_end
    cdef Py_ssize_t bare = facts.bare
    cdef unsigned char head[32]
    cdef Py_ssize_t head_size
    cdef bytes merged = None
    cdef Bytes middle
    cdef Py_ssize_t middle_size
    cdef bytes made
    cdef char* out
    _view(payload, &data, &size)
    if not 0 <= start <= end <= bare <= size:
        raise ValueError("these are not the facts of this payload")
    head_size = _write_header(head, facts.durable, facts.priority, ttl, failures)
    if annotations:
        merged = _merge(payload[start:end], annotations)
        middle = <Bytes>PyBytes_AS_STRING(merged)
        middle_size = PyBytes_GET_SIZE(merged)
    else:
        middle = data + start
        middle_size = end - start
    made = PyBytes_FromStringAndSize(NULL, head_size + middle_size + size - bare)
    out = PyBytes_AS_STRING(made)
    memcpy(out, head, head_size)
    memcpy(out + head_size, middle, middle_size)
    memcpy(out + head_size + middle_size, data + bare, size - bare)
    return made


def to(payload, facts):
    """As sections.to_pure."""
    cdef Bytes data
    cdef Py_ssize_t size
    cdef Py_ssize_t at = facts.bare
    cdef Py_ssize_t first, count, end
    cdef int code
    _view(payload, &data, &size)
    if at < 0 or at >= size:
        return None
    at = _descriptor(data, size, at, &code)
    if at < 0 or code != PROPERTIES or _open(data, size, at, &first, &count, &end) < 0 or count <= TO:
        return None
    at = _pass(data, size, first, TO, 1)
    if at < 0 or at >= size:
        return None
    end = _end(data, size, at, 0)
    if end < 0 or end > size:
        return None
    if data[at] == 0xA1:
        at += 2
    elif data[at] == 0xB1:
        at += 5
    else:
        return None
    try:
        return PyUnicode_DecodeUTF8(<const char*>data + at, end - at, NULL)
    except UnicodeDecodeError:
        return None


# --- one walk -------------------------------------------------------------------------------------------------------


cdef int _view(object payload, Bytes* data, Py_ssize_t* size) except -1:
    if PyBytes_Check(payload):
        data[0] = <Bytes>PyBytes_AS_STRING(payload)
        size[0] = PyBytes_GET_SIZE(payload)
    elif PyByteArray_Check(payload):
        data[0] = <Bytes>PyByteArray_AS_STRING(payload)
        size[0] = PyByteArray_GET_SIZE(payload)
    else:
        raise TypeError(f"a payload is bytes or bytearray, not {type(payload).__name__}")
    return 0


cdef object _scan(object payload):
    cdef Bytes data
    cdef Py_ssize_t size
    cdef Py_ssize_t offset = 0, begun, at
    cdef Py_ssize_t header_end = 0, start = 0, end = 0
    cdef long long expiry = 0
    cdef int code, rank, code_before = 0, rank_before = 0
    _view(payload, &data, &size)
    if size == 0:
        return _malformed(b"a message of no bytes")
    while offset < size:
        if offset + 2 < size and data[offset] == 0 and data[offset + 1] == 0x53:
            code = data[offset + 2]
            at = offset + 3
            if code < HEADER or code > FOOTER:
                return _malformed(b"no section of a message has this descriptor")
        else:
            at = _descriptor(data, size, offset, &code)
            if at < 0:
                return _malformed(_why)
        if at >= size:
            return _malformed(CUT_OFF)
        rank = _ranks[code - HEADER]
        if rank <= rank_before and (rank != 6 or code != code_before or code == AMQP_VALUE):
            return Facts(plain=False, fault=f"section {code:#x} after section {code_before:#x}")
        if not _fits(code, data[at]):
            return Facts(plain=False, fault=f"section {code:#x} with a value of format code {data[at]:#x}")
        begun = offset
        if rank == 6:
            offset = _end(data, size, at, 0)
        elif code == PROPERTIES:
            offset = _properties(data, size, at, &expiry)
        else:
            offset = _end_inside(data, size, at, 0)
        if offset < 0:
            return _malformed(_why)
        if offset > size:
            return _malformed(CUT_OFF)
        if rank < 4:
            end = offset
            if code == HEADER:
                header_end = start = offset
            elif code == MESSAGE_ANNOTATIONS:
                start = begun
            else:
                start = offset
        rank_before = rank
        code_before = code
    return _facts(data, header_end, start, end, expiry)


cdef object _malformed(const char* why):
    return Facts(plain=False, fault=why.decode("ascii"))


cdef bint _fits(int code, int form):
    """Whether a section may have a value of this format code."""
    if code == DATA:
        return form == 0xA0 or form == 0xB0
    if code == AMQP_VALUE:
        return True
    if code == HEADER or code == PROPERTIES or code == AMQP_SEQUENCE:
        return form == 0x45 or form == 0xC0 or form == 0xD0
    return form == 0xC1 or form == 0xD1


cdef object _facts(Bytes data, Py_ssize_t header_end, Py_ssize_t start, Py_ssize_t end, long long expiry):
    global _last_header, _last_start, _last_end, _last_facts
    cdef bytes header
    cdef object key, facts
    cdef PyObject* known
    cdef bint durable
    cdef int priority
    cdef long long ttl, count
    if (
        expiry == 0
        and start == _last_start
        and end == _last_end
        and _last_header is not None
        and header_end == PyBytes_GET_SIZE(_last_header)
        and memcmp(data, PyBytes_AS_STRING(_last_header), header_end) == 0
    ):
        return _last_facts
    header = PyBytes_FromStringAndSize(<const char*>data, header_end)
    key = header if end == header_end else (header, start, end)
    if expiry == 0:
        known = PyDict_GetItem(_shared, key)
        if known is not NULL:
            facts = <object>known
            _last_header, _last_start, _last_end, _last_facts = header, start, end, facts
            return facts
    durable = False
    priority = PRIORITY_DEFAULT
    ttl = count = 0
    if header_end and not _read_header(data, header_end, &durable, &priority, &ttl, &count):
        return _malformed(_why)
    facts = Facts.__new__(Facts)
    facts.durable = durable
    facts.priority = priority
    facts.ttl = ttl
    facts.absolute_expiry = expiry
    facts.plain = ttl == 0 and count == 0 and start == header_end
    facts.header_end = header_end
    facts.annotations_start = start
    facts.annotations_end = end
    facts.bare = end
    facts.fault = ""
    if expiry == 0:
        if len(_shared) >= SHARED_MAX:
            _shared.clear()
        _shared[key] = facts
        _last_header, _last_start, _last_end, _last_facts = header, start, end, facts
    return facts


cdef Py_ssize_t _fault(const char* why):
    global _why
    _why = why
    return -1


cdef inline Py_ssize_t _uint32(Bytes data):
    return (<Py_ssize_t>data[0] << 24) | (data[1] << 16) | (data[2] << 8) | data[3]


cdef Py_ssize_t _descriptor(Bytes data, Py_ssize_t size, Py_ssize_t offset, int* code):
    """Where the value of the section at `offset` starts, inside the payload; its code in `code`."""
    cdef Py_ssize_t end
    cdef int i
    if data[offset] != 0:
        return _fault(b"a section is a described value")
    if offset + 2 >= size:
        return _fault(CUT_OFF)
    if data[offset + 1] == 0x53:
        code[0] = data[offset + 2]
        end = offset + 3
    elif data[offset + 1] == 0x80:
        end = offset + 10
        if end >= size:
            return _fault(CUT_OFF)
        for i in range(7):
            if data[offset + 2 + i] != 0:
                return _fault(b"no section of a message has this descriptor")
        code[0] = data[offset + 9]
    elif data[offset + 1] == 0xA3 or data[offset + 1] == 0xB3:
        end = _end(data, size, offset + 1, 0)
        if end < 0:
            return -1
        if end >= size:
            return _fault(CUT_OFF)
        i = 3 if data[offset + 1] == 0xA3 else 6
        code[0] = _names.get(
            PyBytes_FromStringAndSize(<const char*>data + offset + i, end - offset - i), 0
        )
    else:
        return _fault(b"a section's descriptor is neither a ulong nor a symbol")
    if end >= size:
        return _fault(CUT_OFF)
    if code[0] < HEADER or code[0] > FOOTER:
        return _fault(b"no section of a message has this descriptor")
    return end


cdef Py_ssize_t _end(Bytes data, Py_ssize_t size, Py_ssize_t at, int depth):
    """Where the value at `at` ends by its own size; perhaps beyond the payload."""
    cdef int form
    if at >= size:
        return _fault(CUT_OFF)
    form = _forms[data[at]]
    if form > 0:
        return at + form
    if form == SIZE8 or form == NESTED8:
        return at + 2 + data[at + 1] if at + 1 < size else _fault(CUT_OFF)
    if form == SIZE32 or form == NESTED32:
        return at + 5 + _uint32(data + at + 1) if at + 4 < size else _fault(CUT_OFF)
    if data[at] != 0:
        return _fault(b"unknown format code")
    if depth >= DEPTH_MAX:
        return _fault(TOO_DEEP)
    at = _end(data, size, at + 1, depth + 1)
    return at if at < 0 else _end(data, size, at, depth + 1)


cdef Py_ssize_t _end_inside(Bytes data, Py_ssize_t size, Py_ssize_t at, int depth):
    """As `_end`, but lists and maps must hold what they say, all the way down."""
    cdef Py_ssize_t first, count, end
    cdef int form
    if at >= size:
        return _fault(CUT_OFF)
    form = _forms[data[at]]
    if form == NESTED8 or form == NESTED32:
        if depth >= DEPTH_MAX:
            return _fault(TOO_DEEP)
        if _open(data, size, at, &first, &count, &end) < 0:
            return -1
        if count % 2 and (data[at] == 0xC1 or data[at] == 0xD1):
            return _fault(b"a map with a key that has no value")
        first = _pass(data, size, first, count, depth + 1)
        if first < 0:
            return -1
        return end if first == end else _fault(b"values do not fill the size of their list or map")
    if data[at] != 0:
        return _end(data, size, at, depth)
    if depth >= DEPTH_MAX:
        return _fault(TOO_DEEP)
    at = _end_inside(data, size, at + 1, depth + 1)
    return at if at < 0 else _end_inside(data, size, at, depth + 1)


cdef Py_ssize_t _open(
    Bytes data, Py_ssize_t size, Py_ssize_t at, Py_ssize_t* first, Py_ssize_t* count, Py_ssize_t* end
):
    """What the list or map at `at` says of itself; none of it is beyond the payload."""
    cdef int form
    if at >= size:
        return _fault(CUT_OFF)
    form = _forms[data[at]]
    if form == NESTED8:
        if at + 2 >= size:
            return _fault(CUT_OFF)
        first[0] = at + 3
        count[0] = data[at + 2]
        end[0] = at + 2 + data[at + 1]
    elif form == NESTED32:
        if at + 8 >= size:
            return _fault(CUT_OFF)
        first[0] = at + 9
        count[0] = _uint32(data + at + 5)
        end[0] = at + 5 + _uint32(data + at + 1)
    else:  # The empty list.
        first[0] = end[0] = at + 1
        count[0] = 0
    if end[0] > size:
        return _fault(CUT_OFF)
    if count[0] > end[0] - first[0]:  # Also when the size has no room for its count.
        return _fault(b"more values than bytes")
    return 0


cdef Py_ssize_t _pass(Bytes data, Py_ssize_t size, Py_ssize_t offset, Py_ssize_t count, int depth):
    """Where `count` values from `offset` on end."""
    cdef Py_ssize_t i
    cdef int form
    for i in range(count):
        if offset >= size:
            return _fault(CUT_OFF)
        form = _forms[data[offset]]
        if form > 0:
            offset += form
        elif form == SIZE8 and offset + 1 < size:
            offset += 2 + data[offset + 1]
        else:
            offset = _end_inside(data, size, offset, depth)
            if offset < 0:
                return -1
    return offset


cdef Py_ssize_t _properties(Bytes data, Py_ssize_t size, Py_ssize_t at, long long* expiry):
    """Where the properties end; the absolute expiry time in `expiry`, left alone without."""
    cdef Py_ssize_t first, count, end, offset
    cdef int i
    cdef unsigned long long millis = 0
    if _open(data, size, at, &first, &count, &end) < 0:
        return -1
    if count > PROPERTIES_FIELDS:
        return _fault(b"properties of more than 13 fields")
    if count <= ABSOLUTE_EXPIRY:
        offset = _pass(data, size, first, count, 1)
    else:
        offset = _pass(data, size, first, ABSOLUTE_EXPIRY, 1)
        if offset < 0:
            return -1
        if offset >= size:
            return _fault(CUT_OFF)
        if data[offset] == 0x83:
            if offset + 9 > end:
                return _fault(CUT_OFF)
            for i in range(1, 9):
                millis = (millis << 8) | data[offset + i]
            if data[offset + 1] < 0x80:
                expiry[0] = <long long>millis
        elif data[offset] != 0x40:
            return _fault(b"properties: absolute-expiry-time is not a timestamp")
        offset = _pass(data, size, offset, count - ABSOLUTE_EXPIRY, 1)
    if offset < 0:
        return -1
    return end if offset == end else _fault(b"properties: the fields do not fill the size")


# --- the header -----------------------------------------------------------------------------------------------------


cdef bint _read_header(Bytes data, Py_ssize_t size, bint* durable, int* priority, long long* ttl, long long* count):
    """Read a header section that was walked, so that all sizes are true; False with a reason in _why."""
    cdef Py_ssize_t at, first, fields, end
    cdef int code, i
    cdef bint first_acquirer
    cdef long long number
    at = _descriptor(data, size, 0, &code)
    if at < 0 or _open(data, size, at, &first, &fields, &end) < 0:
        return False
    if fields > HEADER_FIELDS:
        _fault(b"a header of more than 5 fields")
        return False
    for i in range(fields):
        if data[first] == 0x40:
            pass
        elif i == 0:
            if not _boolean(data + first, durable):
                _fault(b"header: durable is not a boolean")
                return False
        elif i == 1:
            if data[first] != 0x50:
                _fault(b"header: priority is not a ubyte")
                return False
            priority[0] = data[first + 1]
        elif i == 3:
            if not _boolean(data + first, &first_acquirer):
                _fault(b"header: first-acquirer is not a boolean")
                return False
        else:
            if data[first] == 0x43:
                number = 0
            elif data[first] == 0x52:
                number = data[first + 1]
            elif data[first] == 0x70:
                number = _uint32(data + first + 1)
            else:
                _fault(b"header: ttl or delivery-count is not a uint")
                return False
            if i == 2:
                ttl[0] = number
            else:
                count[0] = number
        first = _end(data, size, first, 0)
    return True


cdef bint _boolean(Bytes data, bint* value):
    if data[0] == 0x41 or (data[0] == 0x56 and data[1] == 1):
        value[0] = True
    elif data[0] == 0x42 or (data[0] == 0x56 and data[1] == 0):
        value[0] = False
    else:
        return False
    return True


cdef Py_ssize_t _write_header(unsigned char* out, bint durable, int priority, object ttl, long long failures) except -1:
    """A header section, at most 22 bytes, or nothing when it would say nothing: its length is returned."""
    cdef Py_ssize_t at = 6
    cdef Py_ssize_t last = 0
    cdef int fields = 0
    cdef long long millis
    if failures < 0 or failures > 0xFFFFFFFF or priority < 0 or priority > 255:
        raise ValueError(f"{failures} failures, priority {priority}: not a uint and a ubyte")
    out[at] = 0x40
    if durable:
        out[at] = 0x41
        fields, last = 1, at + 1
    at += 1
    if priority != PRIORITY_DEFAULT:
        out[at] = 0x50
        out[at + 1] = priority
        at += 2
        fields, last = 2, at
    else:
        out[at] = 0x40
        at += 1
    if ttl is not None:
        millis = max(1, min(ttl, 0xFFFFFFFF))  # 0 as time left would read as no ttl.
        at = _write_uint(out, at, millis)
        fields, last = 3, at
    else:
        out[at] = 0x40
        at += 1
    if failures:
        out[at] = 0x40
        at = _write_uint(out, at + 1, failures)
        fields, last = 5, at
    if fields == 0:
        return 0
    out[0] = 0
    out[1] = 0x53
    out[2] = HEADER
    out[3] = 0xC0
    out[4] = last - 5
    out[5] = fields
    return last


cdef Py_ssize_t _write_uint(unsigned char* out, Py_ssize_t at, long long value):
    if value < 256:
        out[at] = 0x52
        out[at + 1] = value
        return at + 2
    out[at] = 0x70
    out[at + 1] = (value >> 24) & 0xFF
    out[at + 2] = (value >> 16) & 0xFF
    out[at + 3] = (value >> 8) & 0xFF
    out[at + 4] = value & 0xFF
    return at + 5


cdef void _fill_forms():
    """How far the next value is, by format code: see sections._form."""
    cdef int code
    for code in range(256):
        _forms[code] = OTHER
    for code in (0x40, 0x41, 0x42, 0x43, 0x44, 0x45):
        _forms[code] = 1
    for code in (0x50, 0x51, 0x52, 0x53, 0x54, 0x55, 0x56):
        _forms[code] = 2
    for code in (0x60, 0x61):
        _forms[code] = 3
    for code in (0x70, 0x71, 0x72, 0x73, 0x74):
        _forms[code] = 5
    for code in (0x80, 0x81, 0x82, 0x83, 0x84):
        _forms[code] = 9
    for code in (0x94, 0x98):
        _forms[code] = 17
    for code in (0xA0, 0xA1, 0xA3, 0xE0):
        _forms[code] = SIZE8
    for code in (0xB0, 0xB1, 0xB3, 0xF0):
        _forms[code] = SIZE32
    for code in (0xC0, 0xC1):
        _forms[code] = NESTED8
    for code in (0xD0, 0xD1):
        _forms[code] = NESTED32


_fill_forms()
