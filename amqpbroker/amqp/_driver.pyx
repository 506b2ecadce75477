# cython: language_level=3, boundscheck=False, wraparound=False
"""The compiled data path of driver/: the same records from the same calls, in C loops that hold the GIL.

`PureDriver` and `PureLink` in driver/pure.py are the reference; each function here says only what differs. Proton is
reached through addresses of its own functions, which driver/compiled.py hands to `init`: so there is no second copy of Proton, and no
header of it is needed to build this file. The GIL is held throughout: giving it away costs more than a call takes, and
the scratch buffer is shared by all drivers.

Rare things (a link opened, a rejected outcome's text) are done by methods of driver/control.py, called with addresses.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_CheckExact, PyByteArray_GET_SIZE
from cpython.bytes cimport (
    PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE,
)
from cpython.ref cimport Py_XDECREF, PyObject
from libc.stdint cimport uint64_t, uintptr_t
from libc.stdlib cimport calloc, free, malloc

cdef extern from *:
    """
    #include <stdbool.h>
    """
    # Proton returns C's bool, whose upper bits are nobody's: `bint` alone would read a whole int.
    ctypedef bint c_bool "bool"

cdef extern from "Python.h":
    int _PyBytes_Resize(PyObject **bytes, Py_ssize_t size) except -1
    PyObject *PyBytes_New "PyBytes_FromStringAndSize"(const char *start, Py_ssize_t size) except NULL

cdef struct bytes_t:  # pn_bytes_t, also pn_delivery_tag_t.
    size_t size
    const char *start

# Proton's functions, each named as in Proton without pn_. Signatures: cproton.h of the binding, version 0.40.
cdef void *(*collector_peek)(void *collector) noexcept
cdef c_bool (*collector_pop)(void *collector) noexcept
cdef int (*event_type)(void *event) noexcept
cdef void *(*event_context)(void *event) noexcept
cdef void *(*delivery_new)(void *link, bytes_t tag) noexcept
cdef void (*delivery_abort)(void *delivery) noexcept
cdef c_bool (*delivery_aborted)(void *delivery) noexcept
cdef void *(*delivery_link)(void *delivery) noexcept
cdef uint64_t (*delivery_local_state)(void *delivery) noexcept
cdef c_bool (*delivery_partial)(void *delivery) noexcept
cdef size_t (*delivery_pending)(void *delivery) noexcept
cdef c_bool (*delivery_readable)(void *delivery) noexcept
cdef uint64_t (*delivery_remote_state)(void *delivery) noexcept
cdef void (*delivery_settle)(void *delivery) noexcept
cdef c_bool (*delivery_settled)(void *delivery) noexcept
cdef bytes_t (*delivery_tag)(void *delivery) noexcept
cdef void (*delivery_update)(void *delivery, uint64_t state) noexcept
cdef c_bool (*link_advance)(void *link) noexcept
cdef Py_ssize_t (*link_recv)(void *link, char *bytes, size_t size) noexcept
cdef Py_ssize_t (*link_send)(void *link, const char *bytes, size_t size) noexcept
cdef Py_ssize_t (*transport_capacity)(void *transport) noexcept
cdef Py_ssize_t (*transport_peek)(void *transport, char *bytes, size_t size) noexcept
cdef void (*transport_pop)(void *transport, size_t size) noexcept
cdef Py_ssize_t (*transport_push)(void *transport, const char *bytes, size_t size) noexcept

cdef int PN_DELIVERY, PN_LINK_REMOTE_OPEN, PN_SESSION_REMOTE_OPEN

# Tags and delivery states, as in driver/records.py: test_the_twin_has_the_same_numbers.
cdef enum:
    MESSAGES = 3
    ABORTED = 4
    OVERSIZE = 5
    OUTCOMES = 6
    CROWDED = 7
    RECEIVED = 0x23
    ACCEPTED = 0x24
    RELEASED = 0x26

cdef enum:
    RING_MIN = 16  # Places of a ring's first growth; a power of two, as every size of it.
    RING_KEPT = 1024  # An empty ring above this is given back: it stands for a backlog that has passed.
    # A ring above this grows only while more than half of it is in use. Below it, stragglers cost less where they are.
    RING_SPARSE = 1024

cdef size_t scratch_bytes = 64 * 1024
cdef char *scratch = NULL


def init(dict functions, dict events):
    """Take the addresses of Proton's functions and the numbers of its events, by name."""
    global collector_peek, collector_pop, event_type, event_context, delivery_new, delivery_abort
    global delivery_aborted, delivery_link, delivery_local_state, delivery_partial, delivery_pending
    global delivery_readable, delivery_remote_state, delivery_settle, delivery_settled, delivery_tag
    global delivery_update, link_advance, link_recv, link_send
    global transport_capacity, transport_peek, transport_pop, transport_push
    global PN_DELIVERY, PN_LINK_REMOTE_OPEN, PN_SESSION_REMOTE_OPEN, scratch
    collector_peek = <void *(*)(void *) noexcept><uintptr_t>functions["pn_collector_peek"]
    collector_pop = <c_bool (*)(void *) noexcept><uintptr_t>functions["pn_collector_pop"]
    event_type = <int (*)(void *) noexcept><uintptr_t>functions["pn_event_type"]
    event_context = <void *(*)(void *) noexcept><uintptr_t>functions["pn_event_context"]
    delivery_new = <void *(*)(void *, bytes_t) noexcept><uintptr_t>functions["pn_delivery"]
    delivery_abort = <void (*)(void *) noexcept><uintptr_t>functions["pn_delivery_abort"]
    delivery_aborted = <c_bool (*)(void *) noexcept><uintptr_t>functions["pn_delivery_aborted"]
    delivery_link = <void *(*)(void *) noexcept><uintptr_t>functions["pn_delivery_link"]
    delivery_local_state = <uint64_t (*)(void *) noexcept><uintptr_t>functions["pn_delivery_local_state"]
    delivery_partial = <c_bool (*)(void *) noexcept><uintptr_t>functions["pn_delivery_partial"]
    delivery_pending = <size_t (*)(void *) noexcept><uintptr_t>functions["pn_delivery_pending"]
    delivery_readable = <c_bool (*)(void *) noexcept><uintptr_t>functions["pn_delivery_readable"]
    delivery_remote_state = <uint64_t (*)(void *) noexcept><uintptr_t>functions["pn_delivery_remote_state"]
    delivery_settle = <void (*)(void *) noexcept><uintptr_t>functions["pn_delivery_settle"]
    delivery_settled = <c_bool (*)(void *) noexcept><uintptr_t>functions["pn_delivery_settled"]
    delivery_tag = <bytes_t (*)(void *) noexcept><uintptr_t>functions["pn_delivery_tag"]
    delivery_update = <void (*)(void *, uint64_t) noexcept><uintptr_t>functions["pn_delivery_update"]
    link_advance = <c_bool (*)(void *) noexcept><uintptr_t>functions["pn_link_advance"]
    link_recv = <Py_ssize_t (*)(void *, char *, size_t) noexcept><uintptr_t>functions["pn_link_recv"]
    link_send = <Py_ssize_t (*)(void *, const char *, size_t) noexcept><uintptr_t>functions["pn_link_send"]
    transport_capacity = <Py_ssize_t (*)(void *) noexcept><uintptr_t>functions["pn_transport_capacity"]
    transport_peek = <Py_ssize_t (*)(void *, char *, size_t) noexcept><uintptr_t>functions["pn_transport_peek"]
    transport_pop = <void (*)(void *, size_t) noexcept><uintptr_t>functions["pn_transport_pop"]
    transport_push = <Py_ssize_t (*)(void *, const char *, size_t) noexcept><uintptr_t>functions["pn_transport_push"]
    PN_DELIVERY = events["PN_DELIVERY"]
    PN_LINK_REMOTE_OPEN = events["PN_LINK_REMOTE_OPEN"]
    PN_SESSION_REMOTE_OPEN = events["PN_SESSION_REMOTE_OPEN"]
    if scratch == NULL:
        scratch = <char *>malloc(scratch_bytes)
        if scratch == NULL:
            raise MemoryError


cdef class Link:
    """A link's record. Deliveries that we have not settled sit in a ring: number -> pointer, NULL once settled.

    Credit bounds how many are not disposed of, but not how far apart they are: while one waits for the store, others
    come and go, each of which gives its credit back. So a ring that would grow though it is half empty moves what is
    left of its older half to `stragglers`: O(1) per delivery, since a scan of n places comes after n deliveries, and
    at most four places for each delivery that was there at once, or RING_SPARSE.
    """

    cdef readonly long long slot, session
    cdef readonly object handle
    cdef readonly bint incoming
    cdef public unsigned long long message_size_max
    cdef public bint discarding, sending
    cdef void *pointer
    cdef PyObject *partial  # Bytes of the delivery in progress, at least `filled`; NULL when it was not seen yet.
    cdef readonly Py_ssize_t filled
    cdef void **ring
    cdef readonly long long ring_size  # 0 or a power of two: a number's place is number & (ring_size - 1).
    cdef long long ring_used  # Places that are not NULL.
    cdef long long number_first, number_next  # The ring holds numbers first <= n < next.
    cdef dict stragglers  # Number < number_first -> address; nearly always empty.
    cdef dict awaiting  # Address -> number, disposed of with settle=False.

    def __init__(self, slot, session, handle, address, *, incoming):
        self.slot = slot
        self.session = session
        self.handle = handle
        self.pointer = <void *><uintptr_t>address
        self.incoming = incoming
        self.stragglers = {}
        self.awaiting = {}

    def __dealloc__(self):
        Py_XDECREF(self.partial)
        free(self.ring)

    def drop_partial(self):
        """Forget the bytes of the delivery in progress."""
        Py_XDECREF(self.partial)
        self.partial = NULL
        self.filled = 0

    def clear(self):
        """Forget every delivery."""
        self.drop_partial()
        self.awaiting.clear()
        free(self.ring)
        self.ring = NULL
        self.ring_size = self.ring_used = 0
        self.number_first = self.number_next
        self.stragglers.clear()

    def delivery_address(self, long long number):
        """The address of an incoming delivery that is not disposed of; 0 when there is none."""
        return <uintptr_t>self.get(number)

    cdef void *get(self, long long number) except? NULL:
        if self.number_first <= number < self.number_next:
            return self.ring[number & (self.ring_size - 1)]
        if self.stragglers:
            return <void *><uintptr_t>self.stragglers.get(number, 0)
        return NULL

    cdef int add(self, void *delivery) except -1:
        if self.number_next - self.number_first == self.ring_size:
            if self.ring_size >= RING_SPARSE and 2 * self.ring_used <= self.ring_size:
                self.thin_out()
            else:
                self.grow()
        self.ring[self.number_next & (self.ring_size - 1)] = delivery
        self.ring_used += 1
        self.number_next += 1
        return 0

    cdef int thin_out(self) except -1:
        """Move what is left of the older half to `stragglers`."""
        cdef long long number, mask = self.ring_size - 1
        for number in range(self.number_first, self.number_first + self.ring_size // 2):
            if self.ring[number & mask] != NULL:
                self.stragglers[number] = <uintptr_t>self.ring[number & mask]
                self.ring[number & mask] = NULL
                self.ring_used -= 1
        self.number_first += self.ring_size // 2
        self.skip_empty()
        return 0

    cdef void skip_empty(self) noexcept:
        cdef long long mask = self.ring_size - 1
        while self.number_first < self.number_next and self.ring[self.number_first & mask] == NULL:
            self.number_first += 1

    cdef int grow(self) except -1:
        cdef long long size = self.ring_size * 2 if self.ring_size else RING_MIN
        cdef long long number
        cdef void **ring = <void **>calloc(size, sizeof(void *))
        if ring == NULL:
            raise MemoryError
        for number in range(self.number_first, self.number_next):
            ring[number & (size - 1)] = self.ring[number & (self.ring_size - 1)]
        free(self.ring)
        self.ring = ring
        self.ring_size = size
        return 0

    cdef int remove(self, long long number) except -1:
        """Forget a delivery that get() has found."""
        if number < self.number_first:
            del self.stragglers[number]
            return 0
        self.ring[number & (self.ring_size - 1)] = NULL
        self.ring_used -= 1
        self.skip_empty()
        if self.number_first == self.number_next and self.ring_size > RING_KEPT:
            free(self.ring)
            self.ring = NULL
            self.ring_size = 0
        return 0

    cdef int read_part(self, size_t pending) except -1:
        """Add what Proton has of the current delivery to `partial`, whose room grows by half."""
        cdef Py_ssize_t size = self.filled + <Py_ssize_t>pending
        if self.partial == NULL:
            self.partial = PyBytes_New(NULL, size)
            self.filled = 0
        elif size > PyBytes_GET_SIZE(<object>self.partial):
            # Sets `partial` to NULL when there is no memory.
            _PyBytes_Resize(&self.partial, size + (size >> 1))
        if pending:
            link_recv(self.pointer, PyBytes_AS_STRING(<object>self.partial) + self.filled, pending)
        self.filled = size
        return 0

    cdef object take_partial(self):
        """The whole payload, cut to size."""
        if self.filled != PyBytes_GET_SIZE(<object>self.partial):
            _PyBytes_Resize(&self.partial, self.filled)
        payload = <object>self.partial
        self.drop_partial()
        return payload


cdef class Records:
    """The records of one take(), with neighbours of one kind put together."""

    cdef list records
    cdef list run  # Payloads or tags of the last record.
    cdef Link link  # Of the last record.
    cdef int kind  # Of the last record.
    cdef uint64_t code  # Outcome, or settled, of the last record.
    cdef object detail  # Of the last record, if OUTCOMES.

    def __cinit__(self, list held):
        self.records = held

    cdef int message(self, Link link, object payload, bint settled) except -1:
        if self.kind != MESSAGES or self.link is not link or self.code != settled:
            self.run = []
            self.start(MESSAGES, link, settled, (MESSAGES, link.slot, link.number_next, self.run, settled))
        self.run.append(payload)
        return 0

    cdef int outcome(self, Link link, uint64_t code, uint64_t tag, object detail) except -1:
        if self.kind != OUTCOMES or self.link is not link or self.code != code or self.detail != detail:
            self.run = []
            self.start(OUTCOMES, link, code, (OUTCOMES, link.slot, code, self.run, detail))
            self.detail = detail
        self.run.append(tag)
        return 0

    cdef int aborted(self, Link link) except -1:
        if self.kind == ABORTED and self.link is link:
            last = self.records.pop()
            self.records.append((ABORTED, link.slot, last[2] + 1))
        else:
            self.start(ABORTED, link, 0, (ABORTED, link.slot, 1))
        return 0

    cdef int other(self, tuple record) except -1:
        if record is not None:
            self.start(0, None, 0, record)
        return 0

    cdef int start(self, int kind, Link link, uint64_t code, tuple record) except -1:
        self.kind = kind
        self.link = link
        self.code = code
        self.records.append(record)
        return 0


cdef class DataPath:
    """What is done per message or per frame; driver.Control is the other base of the driver made of it."""

    cdef public dict links, by_address
    cdef public list held
    cdef public unsigned long long partial_bytes, partial_bytes_max
    cdef void *transport  # NULL once freed.
    cdef void *collector

    def _bind(self, transport, collector):
        self.transport = <void *><uintptr_t>transport
        self.collector = <void *><uintptr_t>collector

    def _unbind(self):
        self.transport = NULL
        self.collector = NULL

    def push(self, data):
        """Hand Proton all of `data`; False when it takes no more."""
        cdef const unsigned char[::1] view = data
        cdef size_t size = view.shape[0], done = 0
        cdef Py_ssize_t pushed
        if self.transport == NULL:
            self._check_alive()
        while done < size:
            pushed = transport_push(self.transport, <const char *>&view[0] + done, size - done)
            if pushed <= 0:
                return False
            done += pushed
        return transport_capacity(self.transport) >= 0

    def pump(self):
        """Everything that Proton has to say now, taken out."""
        cdef list parts = []
        cdef Py_ssize_t size
        if self.transport == NULL:
            self._check_alive()
        while True:
            size = transport_peek(self.transport, scratch, scratch_bytes)
            if size <= 0:
                return b"".join(parts)
            parts.append(PyBytes_FromStringAndSize(scratch, size))
            transport_pop(self.transport, size)
            if <size_t>size == scratch_bytes:
                grow_scratch()

    def take(self):
        """What happened since the last call, as records; leaves the collector empty."""
        cdef Records records
        cdef Link link = None
        cdef void *event
        cdef void *delivery
        cdef void *pointer
        cdef void *pointer_last = NULL  # The link of the event before, whose record is `link`.
        cdef int kind
        if self.transport == NULL:
            self._check_alive()
        records = Records(self.held)
        self.held = []
        while True:
            event = collector_peek(self.collector)
            if event == NULL:
                return records.records
            kind = event_type(event)
            if kind == PN_DELIVERY:
                delivery = event_context(event)
                pointer = delivery_link(delivery)
                if pointer != pointer_last:
                    link = self.by_address.get(<uintptr_t>pointer)
                    pointer_last = pointer
                if link is None:
                    ignore(pointer, delivery)
                elif link.incoming:
                    self.arrived(records, link, delivery)
                else:
                    self.outcome(records, link, delivery)
            elif kind == PN_LINK_REMOTE_OPEN:
                records.other(self._link_opened(<uintptr_t>event_context(event)))
                pointer_last = NULL
            elif kind == PN_SESSION_REMOTE_OPEN:
                records.other(self._session_opened(<uintptr_t>event_context(event)))
            collector_pop(self.collector)

    def dispose(self, link, long long first, long long count, uint64_t code, bint settle, condition):
        """Give `count` deliveries from number `first` on the outcome `code`, and settle them or not."""
        cdef Link record = self.links.get(link)
        cdef long long number
        cdef void *delivery
        cdef bint peer_settled
        if record is None:
            self._stale(link)
        assert record.incoming, f"link {link} goes the other way"
        for number in range(first, first + count):
            delivery = record.get(number)
            if delivery == NULL:
                self._stale_number(link, number)
            peer_settled = delivery_settled(delivery)
            if code and not peer_settled:
                if condition is not None:
                    self._set_error(<uintptr_t>delivery, condition)
                delivery_update(delivery, code)
            if settle or peer_settled:
                if record.awaiting:
                    record.awaiting.pop(<uintptr_t>delivery, None)
                record.remove(number)
                delivery_settle(delivery)
            else:
                record.awaiting[<uintptr_t>delivery] = number

    def send_run(self, link, tags, payloads, bint settled):
        """Send whole messages, in order."""
        cdef Link record = self.links.get(link)
        cdef Py_ssize_t i, count = len(tags)
        cdef void *delivery
        cdef unsigned char[8] chars
        cdef bytes_t tag
        cdef const char *start
        cdef Py_ssize_t size
        if record is None:
            self._stale(link)
        assert not record.incoming, f"link {link} goes the other way"
        assert not record.sending, f"link {link}: a delivery is in progress"
        if len(payloads) != count:
            raise ValueError("a tag for each payload")
        tag.size = 8
        tag.start = <const char *>chars
        for i in range(count):
            payload = payloads[i]
            if PyBytes_CheckExact(payload):
                start, size = PyBytes_AS_STRING(payload), PyBytes_GET_SIZE(payload)
            elif PyByteArray_CheckExact(payload):
                start, size = PyByteArray_AS_STRING(payload), PyByteArray_GET_SIZE(payload)
            else:
                raise TypeError("a payload is bytes or a bytearray")
            write_tag(chars, tags[i])
            delivery = delivery_new(record.pointer, tag)
            link_send(record.pointer, start, size)
            link_advance(record.pointer)
            if settled:
                delivery_settle(delivery)

    cdef int arrived(self, Records records, Link link, void *delivery) except -1:
        """An incoming delivery has new bytes, or the peer settled it."""
        if delivery_readable(delivery):
            if link.discarding:
                read_away(link.pointer, delivery)
            else:
                self.read(records, link, delivery)
        elif link.awaiting and delivery_settled(delivery):
            number = link.awaiting.pop(<uintptr_t>delivery, None)
            if number is not None:
                link.remove(number)
                delivery_settle(delivery)
        return 0

    cdef int read(self, Records records, Link link, void *delivery) except -1:
        """Read what there is of the current delivery; when that is all, it is a message."""
        cdef size_t pending
        cdef bint partial
        cdef object payload
        if delivery_aborted(delivery):
            self.partial_bytes -= link.filled
            link.drop_partial()
            delivery_settle(delivery)  # And so advanced.
            records.aborted(link)
            return 0
        pending, partial = delivery_pending(delivery), delivery_partial(delivery)
        if link.message_size_max and link.filled + pending > link.message_size_max:
            return self.refuse(records, link, delivery, OVERSIZE)
        if link.partial == NULL and not partial:
            payload = PyBytes_FromStringAndSize(NULL, pending)
            if pending:
                link_recv(link.pointer, PyBytes_AS_STRING(payload), pending)
        elif partial:
            if 0 < self.partial_bytes_max < self.partial_bytes + pending:
                return self.refuse(records, link, delivery, CROWDED)
            link.read_part(pending)
            self.partial_bytes += pending
            return 0
        else:
            self.partial_bytes -= link.filled
            link.read_part(pending)
            payload = link.take_partial()
        link_advance(link.pointer)
        records.message(link, payload, delivery_settled(delivery))
        return link.add(delivery)

    cdef int refuse(self, Records records, Link link, void *delivery, int kind) except -1:
        """No more of this delivery, and from now on of this link."""
        link.discarding = True
        self.partial_bytes -= link.filled
        link.drop_partial()
        records.other((kind, link.slot))
        read_away(link.pointer, delivery)
        return 0

    cdef int outcome(self, Records records, Link link, void *delivery) except -1:
        """A consumer said something about a delivery of ours."""
        cdef uint64_t code
        cdef bint peer_settled
        cdef object detail = None
        if delivery_local_state(delivery):
            return 0  # Reported already: driver/pure.py says why this tells.
        code = delivery_remote_state(delivery)
        peer_settled = delivery_settled(delivery)
        if code == RECEIVED:
            code = 0
        if not code and not peer_settled:
            return 0
        if code and code != ACCEPTED and code != RELEASED:
            detail = self._outcome_detail(<uintptr_t>delivery, code)
        records.outcome(link, code, read_tag(delivery_tag(delivery)), detail)
        delivery_update(delivery, code or ACCEPTED)
        if link.sending and delivery_partial(delivery):
            delivery_abort(delivery)  # Settled half way: not to be ended as if it were whole.
        else:
            delivery_settle(delivery)
        return 0


cdef void ignore(void *pointer, void *delivery) noexcept:
    # Of a link already freed: driver/pure.py's _ignore.
    if delivery_readable(delivery):
        read_away(pointer, delivery)


cdef void read_away(void *pointer, void *delivery) noexcept:
    # Not settled before its end: driver/pure.py's _read_away says why.
    if delivery_partial(delivery) and not delivery_aborted(delivery):
        while link_recv(pointer, scratch, scratch_bytes) > 0:
            pass
    else:
        delivery_settle(delivery)


cdef int grow_scratch() except -1:
    # Each pop moves what is left in Proton's buffer to its front, so a small scratch beside much output is O(n^2).
    global scratch, scratch_bytes
    cdef char *grown = <char *>malloc(2 * scratch_bytes)
    if grown == NULL:
        raise MemoryError
    free(scratch)
    scratch = grown
    scratch_bytes *= 2
    return 0


cdef void write_tag(unsigned char *chars, uint64_t tag) noexcept:
    cdef int i
    for i in range(8):
        chars[i] = <unsigned char>(tag >> (8 * (7 - i)))


cdef uint64_t read_tag(bytes_t tag) noexcept:
    cdef uint64_t number = 0
    cdef size_t i
    for i in range(tag.size):
        number = (number << 8) | <unsigned char>tag.start[i]
    return number
