"""The data path through cffi, in Python alone: the reference for the compiled twin, `amqp/_driver.pyx`."""

import threading
from collections.abc import Sequence

from cproton_ffi import ffi, lib

from amqpbroker.amqp.codes import ACCEPTED, RECEIVED
from amqpbroker.amqp.driver.control import Control, Link
from amqpbroker.amqp.driver.records import CROWDED, OVERSIZE, PLAIN, Record, Records
from amqpbroker.amqp.driver.values import NULL, Condition, Pointer, address_of

DELIVERY = lib.PN_DELIVERY

# Bytes moved between Proton and us per call: a frame of the default size. Smaller means more calls for large
# messages, larger buys nothing: Proton's own output buffer is seldom fuller.
SCRATCH_BYTES = 64 * 1024


class _Scratch(threading.local):
    """A buffer per thread: two brokers may run in one process, and cffi calls give the GIL away."""

    def __init__(self) -> None:
        self.size = SCRATCH_BYTES
        self.buffer = ffi.new("char[]", self.size)

    def grow(self) -> None:
        self.size *= 2
        self.buffer = ffi.new("char[]", self.size)


_scratch = _Scratch()


class PureLink:
    """A link's record for the pure data path."""

    __slots__ = (
        "awaiting", "discarding", "handle", "incoming", "message_size_max", "number_next", "partial",
        "ring", "sending", "session", "slot",
    )  # fmt: skip

    def __init__(self, slot: int, session: int, handle: Pointer, *, incoming: bool) -> None:
        self.slot = slot
        self.session = session
        self.handle = handle
        self.incoming = incoming
        self.message_size_max = 0
        self.discarding = False
        self.sending = False
        self.number_next = 0
        self.partial: bytearray | None = None  # Of the delivery in progress, once it was seen.
        self.ring: dict[int, Pointer] = {}  # Number -> delivery that we have not settled.
        self.awaiting: dict[Pointer, int] = {}  # Delivery -> number, disposed of with settle=False.

    @property
    def filled(self) -> int:
        """Bytes of the delivery in progress."""
        return 0 if self.partial is None else len(self.partial)

    def drop_partial(self) -> None:
        """Forget the bytes of the delivery in progress."""
        self.partial = None

    def clear(self) -> None:
        """Forget every delivery."""
        self.partial = None
        self.ring.clear()
        self.awaiting.clear()

    def delivery_address(self, number: int) -> int:
        """The address of an incoming delivery that is not disposed of; 0 when there is none."""
        delivery = self.ring.get(number)
        return 0 if delivery is None else address_of(delivery)


class PureDriver(Control):
    """The driver in Python alone: its data path, through cffi, is the reference for the compiled twin."""

    def _bind(self, transport: int, collector: int) -> None:
        pass  # Control's own pointers serve.

    def _unbind(self) -> None:
        pass

    def _new_link(self, slot: int, session: int, handle: Pointer, *, incoming: bool) -> Link:
        return PureLink(slot, session, handle, incoming=incoming)

    def push(self, data: bytes) -> bool:
        """Hand Proton all of `data`; False when it takes no more: an error (see error()) or the peer's Close."""
        self._check_alive()
        chars = ffi.from_buffer(data)
        done, size = 0, len(data)
        while done < size:
            pushed = lib.pn_transport_push(self._transport, chars + done, size - done)
            if pushed <= 0:
                return False
            done += pushed
        return bool(lib.pn_transport_capacity(self._transport) >= 0)

    def pump(self) -> bytes:
        """Everything that Proton has to say now, taken out."""
        self._check_alive()
        transport, scratch, parts = self._transport, _scratch, []
        while (size := lib.pn_transport_peek(transport, scratch.buffer, scratch.size)) > 0:
            parts.append(bytes(ffi.buffer(scratch.buffer, size)))
            lib.pn_transport_pop(transport, size)
            if size == scratch.size:
                # Each pop moves what is left in Proton's buffer to its front: a small scratch would make that O(n^2).
                scratch.grow()
        return b"".join(parts)

    def take(self) -> list[Record]:
        """What happened since the last call, as records; leaves the collector empty."""
        self._check_alive()
        records = Records(self.held)
        self.held = []
        collector = self._collector
        peek, pop, type_of = lib.pn_collector_peek, lib.pn_collector_pop, lib.pn_event_type
        delivery_of, link_of = lib.pn_event_delivery, lib.pn_delivery_link
        handle_last, link = NULL, None  # Of the event before: runs of one link are the rule.
        while event := peek(collector):
            kind = type_of(event)
            if kind == DELIVERY:
                delivery = delivery_of(event)
                handle = link_of(delivery)
                if handle != handle_last:
                    handle_last, link = handle, self.by_address.get(address_of(handle))
                if link is None:
                    _ignore(handle, delivery)
                elif link.incoming:
                    self._arrived(records, link, delivery)
                else:
                    self._outcome(records, link, delivery)
            elif kind == lib.PN_LINK_REMOTE_OPEN:
                records.other(self._link_opened(address_of(lib.pn_event_link(event))))
                handle_last = NULL
            elif kind == lib.PN_SESSION_REMOTE_OPEN:
                records.other(self._session_opened(address_of(lib.pn_event_session(event))))
            pop(collector)
        return records

    def dispose(
        self,
        link: int,
        first: int,
        count: int,
        code: int,
        settle: bool,  # noqa: FBT001 - the contract's order
        condition: Condition | None,
    ) -> None:
        """Give `count` deliveries from number `first` on the outcome `code` (0: none), and settle them or not.

        Not settled ones are settled by the driver once the peer settles. What the peer has settled is only settled.
        """
        record = self._link(link, incoming=True)
        ring, awaiting = record.ring, record.awaiting
        is_settled, update, end = (
            lib.pn_delivery_settled,
            lib.pn_delivery_update,
            lib.pn_delivery_settle,
        )
        for number in range(first, first + count):
            delivery = ring.get(number)
            if delivery is None:
                self._stale_number(link, number)
            peer_settled = is_settled(delivery)
            if code and not peer_settled:
                if condition is not None:
                    self._set_error(address_of(delivery), condition)
                update(delivery, code)
            if settle or peer_settled:
                del ring[number]
                if awaiting:
                    awaiting.pop(delivery, None)
                end(delivery)
            else:
                awaiting[delivery] = number

    def send_run(
        self,
        link: int,
        tags: Sequence[int],
        payloads: Sequence[bytes | bytearray],
        settled: bool,  # noqa: FBT001 - the contract's order
    ) -> None:
        """Send whole messages, in order. The caller keeps within credit and window (PROTON_FACTS 2)."""
        record = self._link(link, incoming=False)
        assert not record.sending, f"link {link}: a delivery is in progress"
        if len(tags) != len(payloads):
            raise ValueError("a tag for each payload")
        handle = record.handle
        chars = ffi.new("char[8]")
        view = ffi.buffer(chars)
        tag = ffi.new("pn_bytes_t *", {"start": chars, "size": 8})
        value = tag[0]
        begin, send, advance = lib.pn_delivery, lib.pn_link_send, lib.pn_link_advance
        for lease, payload in zip(tags, payloads, strict=False):
            view[:] = lease.to_bytes(8, "big")
            delivery = begin(handle, value)
            # cffi passes bytes as they are; for a bytearray it needs to be told that they stay where they are.
            send(
                handle,
                payload if type(payload) is bytes else ffi.from_buffer(payload),
                len(payload),
            )
            advance(handle)
            if settled:
                lib.pn_delivery_settle(delivery)

    def _arrived(self, records: Records, link: PureLink, delivery: Pointer) -> None:
        """An incoming delivery has new bytes, or the peer settled it."""
        if lib.pn_delivery_readable(delivery):
            if link.discarding:
                _read_away(link.handle, delivery)
            else:
                self._read(records, link, delivery)
        elif link.awaiting and lib.pn_delivery_settled(delivery):
            number = link.awaiting.pop(delivery, None)
            if number is not None:
                del link.ring[number]
                lib.pn_delivery_settle(delivery)

    def _read(self, records: Records, link: PureLink, delivery: Pointer) -> None:
        """Read what there is of the current delivery; when that is all, it is a message."""
        handle, scratch = link.handle, _scratch.buffer
        if lib.pn_delivery_aborted(delivery):
            self.partial_bytes -= link.filled
            link.partial = None
            lib.pn_delivery_settle(delivery)  # And so advanced.
            records.aborted(link.slot)
            return
        partial, pending = lib.pn_delivery_partial(delivery), lib.pn_delivery_pending(delivery)
        filled = link.filled
        if link.message_size_max and filled + pending > link.message_size_max:
            self._refuse(records, link, delivery, OVERSIZE)
            return
        if link.partial is None and not partial and pending <= SCRATCH_BYTES:
            lib.pn_link_recv(handle, scratch, pending)
            payload: bytes | bytearray = bytes(ffi.buffer(scratch, pending))
        else:
            total = self.partial_bytes + pending
            if partial and 0 < self.partial_bytes_max < total:
                self._refuse(records, link, delivery, CROWDED)
                return
            if link.partial is None:
                link.partial = bytearray()
            while (n := lib.pn_link_recv(handle, scratch, SCRATCH_BYTES)) > 0:
                link.partial += ffi.buffer(scratch, n)
            if partial:
                self.partial_bytes = total
                return
            self.partial_bytes -= filled
            payload, link.partial = link.partial, None
        lib.pn_link_advance(handle)
        settled = bool(lib.pn_delivery_settled(delivery))
        records.message(link.slot, link.number_next, payload, settled)
        link.ring[link.number_next] = delivery
        link.number_next += 1

    def _refuse(self, records: Records, link: PureLink, delivery: Pointer, kind: int) -> None:
        """No more of this delivery, and from now on of this link."""
        link.discarding = True
        self.partial_bytes -= link.filled
        link.partial = None
        records.other((kind, link.slot))
        _read_away(link.handle, delivery)

    def _outcome(self, records: Records, link: PureLink, delivery: Pointer) -> None:
        """A consumer said something about a delivery of ours."""
        # A local state means that it was reported already, since only this function sets one: an event may still be
        # in the collector for a delivery that was settled here, and it may be the second of two.
        if lib.pn_delivery_local_state(delivery):
            return
        code = lib.pn_delivery_remote_state(delivery)
        peer_settled = lib.pn_delivery_settled(delivery)
        if code == RECEIVED:
            code = 0
        if not code and not peer_settled:
            return
        detail = None if code in PLAIN else self._outcome_detail(address_of(delivery), code)
        tag = lib.pn_delivery_tag(delivery)
        records.outcome(
            link.slot, code, int.from_bytes(ffi.buffer(tag.start, tag.size), "big"), detail
        )
        lib.pn_delivery_update(delivery, code or ACCEPTED)
        if link.sending and lib.pn_delivery_partial(delivery):
            # Settled half way: not to be ended as if it were whole.
            lib.pn_delivery_abort(delivery)
        else:
            lib.pn_delivery_settle(delivery)


def _ignore(handle: Pointer, delivery: Pointer) -> None:
    # Of a link already freed: Proton settled what there was, so only what came since needs reading.
    if lib.pn_delivery_readable(delivery):
        _read_away(handle, delivery)


def _read_away(handle: Pointer, delivery: Pointer) -> None:
    # A delivery settled before its last transfer would make Proton forget to give back the window of the rest
    # (pn_do_transfer counts bytes that nobody can read): so it is read to its end, then settled.
    if lib.pn_delivery_partial(delivery) and not lib.pn_delivery_aborted(delivery):
        while lib.pn_link_recv(handle, _scratch.buffer, SCRATCH_BYTES) > 0:
            pass
    else:
        lib.pn_delivery_settle(delivery)  # And so advanced, which drops what is left to read.
