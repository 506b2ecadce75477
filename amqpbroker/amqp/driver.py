"""One connection's Proton objects, worked in batches: bytes in, flat records out, runs of messages and outcomes in.

The only file that touches `cproton_ffi.lib`. What is done per message or per frame (push, pump, take, dispose,
send_run) is the *data path*, and there are two of it: in `PureDriver`, the reference, and its compiled twin in
`_driver.pyx`, which is handed Proton's own functions as addresses. `Control`, the rest, is shared. Must not know
queues, names of nodes or settings.

How no stale pointer reaches Proton. Links and sessions are named by slots, and a slot's record is the only place that
keeps its pointer. The record holds a reference of Proton's own counting, so the memory stays while the record lives;
free_* takes the record out first, then gives the reference back. An event holds a reference to what it is about, so
that an event for something already freed is harmless: its address is not in `by_address`, and nothing new can be at
that address yet. Deliveries have no reference of ours: Proton keeps each until it is settled locally, so a ring holds
it exactly until we do that. A settled one is pooled and used again, hence no pointer to it is kept anywhere.
"""

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

from cproton_ffi import ffi, lib

from amqpbroker.amqp.codes import ACCEPTED, MODIFIED, RECEIVED, REJECTED, RELEASED
from amqpbroker.base.twins import PURE_WANTED

# Tags of the records of take(); docs/seams.md section 3 has the rest of each record.
SESSION_OPENED = 1
LINK_OPENED = 2
MESSAGES = 3
ABORTED = 4
OVERSIZE = 5
OUTCOMES = 6

# Outcomes that are only a code. 0 stands for "settled without a state".
PLAIN = frozenset({0, ACCEPTED, RELEASED})

# [2.7.1] Open needs a container-id; the tap rewrites the frame, so that this name never leaves.
CONTAINER = b"broker"

# Bytes moved between Proton and us per call: a frame of the default size. Smaller means more calls for large
# messages, larger buys nothing: Proton's own output buffer is seldom fuller.
SCRATCH_BYTES = 64 * 1024

Condition = tuple[str, str, bytes]
"""Error condition, description and info: an encoded map, or b"" for none."""

Payload = bytes | bytearray | memoryview
Record = tuple[Any, ...]
Pointer = Any  # A cffi pointer: the binding has no types.

NULL = ffi.NULL
DELIVERY = lib.PN_DELIVERY


class StaleSlot(AssertionError):  # noqa: N818 - the name of docs/seams.md
    """A session, link, delivery or driver was named after it was freed or settled: a bug of the caller."""


class _Scratch(threading.local):
    """A buffer per thread: two brokers may run in one process, and cffi calls give the GIL away."""

    def __init__(self) -> None:
        self.size = SCRATCH_BYTES
        self.buffer = ffi.new("char[]", self.size)

    def grow(self) -> None:
        self.size *= 2
        self.buffer = ffi.new("char[]", self.size)


_scratch = _Scratch()


class Session:
    """A session's record."""

    __slots__ = ("capacity", "handle", "links", "slot")

    def __init__(self, slot: int, handle: Pointer) -> None:
        self.slot = slot
        self.handle = handle  # Valid while the record lives: it holds a reference.
        self.capacity = 0  # Bytes, as told to open_session.
        self.links: set[int] = set()  # Slots of its links that are not freed.


class Link(Protocol):
    """What Control needs of a link's record; each data path has its own kind."""

    session: int
    handle: Pointer  # Valid while the record lives: it holds a reference.
    incoming: bool
    message_size_max: int  # 0: unlimited.
    discarding: bool
    sending: bool  # Outgoing: between send_begin and send_end.

    def drop_partial(self) -> None:
        """Forget the bytes of the delivery in progress."""

    def clear(self) -> None:
        """Forget every delivery."""

    def delivery_address(self, number: int) -> int:
        """The address of an incoming delivery that is not disposed of; 0 when there is none."""


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
        return 0 if delivery is None else _address(delivery)


def _address(pointer: Pointer) -> int:
    return int(ffi.cast("uintptr_t", pointer))


def _text(chars: Pointer) -> str:
    # A peer's text may be broken UTF-8: it is only shown, never compared.
    return "" if chars == NULL else bytes(ffi.string(chars)).decode("utf-8", "replace")


def _set_condition(target: Pointer, condition: Condition | None) -> None:
    if condition is None:
        return
    name, description, info = condition
    lib.pn_condition_set_name(target, name.encode())
    lib.pn_condition_set_description(target, description.encode("utf-8", "replace"))
    if info:
        data = lib.pn_condition_info(target)
        decoded = lib.pn_data_decode(data, info, len(info))
        assert decoded == len(info), "the info of a condition is one encoded map"


def _abort(record: Link) -> None:
    record.sending = False
    current = lib.pn_link_current(record.handle)
    if current != NULL:  # Else the consumer settled it half way.
        lib.pn_delivery_abort(current)


class Control:
    """What is done per session, link or connection; a data path is the other base of each driver.

    The caller calls free() once it is done: nothing else gives Proton's memory back.
    """

    links: dict[int, Any]  # Slot -> record.
    by_address: dict[int, Any]  # Address of a link -> the same record.
    held: list[Record]  # Taken already, for the next take().

    def __init__(self, *, max_frame_size: int, channel_max: int) -> None:
        self.links = {}
        self.by_address = {}
        self.held = []
        self._sessions: dict[int, Session] = {}
        self._sessions_by_address: dict[int, Session] = {}
        self._slot_next = 1  # Slots are never used again; sessions and links share the counter.
        self._freed = False
        self._collector = lib.pn_collector()
        self._connection = lib.pn_connection()
        self._transport = lib.pn_transport()
        lib.pn_transport_set_server(self._transport)
        lib.pn_transport_set_max_frame(self._transport, max_frame_size)
        lib.pn_transport_set_channel_max(self._transport, channel_max)
        lib.pn_connection_collect(self._connection, self._collector)
        lib.pn_transport_bind(self._transport, self._connection)
        self._bind(_address(self._transport), _address(self._collector))

    # What the data path supplies; take, push, pump, dispose and send_run besides.

    def take(self) -> list[Record]:
        """See the data path."""
        raise NotImplementedError

    def _bind(self, transport: int, collector: int) -> None:
        raise NotImplementedError

    def _unbind(self) -> None:
        raise NotImplementedError

    def _new_link(self, slot: int, session: int, handle: Pointer, *, incoming: bool) -> Link:
        raise NotImplementedError

    # The connection.

    def error(self) -> tuple[str, str] | None:
        """Condition and description of a transport error, or None."""
        self._check_alive()
        condition = lib.pn_transport_condition(self._transport)
        if not lib.pn_condition_is_set(condition):
            return None
        return _text(lib.pn_condition_get_name(condition)), _text(
            lib.pn_condition_get_description(condition)
        )

    def open_connection(self) -> None:
        """Answer the peer's Open with the next pump."""
        self._check_alive()
        lib.pn_connection_set_container(self._connection, CONTAINER)
        lib.pn_connection_open(self._connection)

    def close_connection(self, condition: Condition | None) -> None:
        """Send Close with the next pump."""
        self._check_alive()
        _set_condition(lib.pn_connection_condition(self._connection), condition)
        lib.pn_connection_close(self._connection)

    def free(self) -> None:
        """Give everything back to Proton; every slot is stale afterwards. Idempotent."""
        if self._freed:
            return
        self._freed = True
        self._unbind()
        handles = [link.handle for link in self.links.values()]
        handles += [session.handle for session in self._sessions.values()]
        for link in self.links.values():
            link.clear()
        self.links.clear()
        self.by_address.clear()
        self._sessions.clear()
        self._sessions_by_address.clear()
        # The collector first: its events hold references, and from now on it takes no new ones. Then the order of
        # Proton's connection_driver.c: unbind, connection, transport.
        lib.pn_collector_release(self._collector)
        for handle in handles:
            lib.pn_decref(handle)
        lib.pn_transport_unbind(self._transport)
        lib.pn_connection_release(self._connection)
        lib.pn_decref(self._connection)
        lib.pn_decref(self._transport)
        lib.pn_collector_free(self._collector)
        self._transport = self._connection = self._collector = None

    # Sessions.

    def open_session(self, session: int, capacity: int) -> None:
        """Answer a Begin. `capacity`: bytes of the incoming window, at least one frame."""
        record = self._session(session)
        record.capacity = capacity
        lib.pn_session_set_incoming_capacity(record.handle, capacity)
        lib.pn_session_open(record.handle)

    def force_flow(self, session: int) -> None:
        """A session flow leaves with the next pump."""
        record = self._session(session)
        lib.pn_session_set_incoming_capacity(record.handle, record.capacity)

    def close_session(self, session: int, condition: Condition | None) -> None:
        """Send End with the next pump."""
        handle = self._session(session).handle
        _set_condition(lib.pn_session_condition(handle), condition)
        lib.pn_session_close(handle)

    def free_session(self, session: int) -> None:
        """Forget the session and its links; frames already asked for still leave."""
        record = self._session(session)
        # Links that wait in the collector get their slots first: see _link_opened.
        held = self.take()
        freed = {session, *record.links}
        for link in sorted(record.links):
            self.free_link(link)
        self.held = [other for other in held if other[1] not in freed]
        del self._sessions[session]
        del self._sessions_by_address[_address(record.handle)]
        lib.pn_session_free(record.handle)
        lib.pn_decref(record.handle)

    # Links.

    def open_link(self, link: int, message_size_max: int) -> None:
        """Answer an Attach. `message_size_max`: bytes, 0 for unlimited."""
        record = self._link(link)
        record.message_size_max = message_size_max
        lib.pn_link_set_max_message_size(record.handle, message_size_max)
        lib.pn_link_open(record.handle)

    def close_link(self, link: int, condition: Condition | None, *, closed: bool) -> None:
        """Send Detach with the next pump."""
        handle = self._link(link).handle
        _set_condition(lib.pn_link_condition(handle), condition)
        if closed:
            lib.pn_link_close(handle)
        else:
            lib.pn_link_detach(handle)

    def discard(self, link: int) -> None:
        """From now on what arrives on the link is read, settled without a state and forgotten."""
        record = self._link(link, incoming=True)
        record.discarding = True
        record.drop_partial()

    def free_link(self, link: int) -> None:
        """Forget the link; Proton settles its deliveries. Frames already asked for still leave.

        To be called once the peer has detached: of a delivery freed half way Proton drops the rest without giving its
        bytes back to the session's window.
        """
        record = self._link(link)
        del self.links[link]
        del self.by_address[_address(record.handle)]
        self._sessions[record.session].links.discard(link)
        record.clear()
        if record.sending:
            # Proton settles what is in progress, which would end it as if it were whole.
            _abort(record)
        lib.pn_link_free(record.handle)
        lib.pn_decref(record.handle)

    def grant(self, link: int, credit: int) -> None:
        """Give the producer `credit` more."""
        assert credit >= 0, "credit is never revoked: Proton would grant 2^32 - 1 (PROTON_FACTS 5)"
        lib.pn_link_flow(self._link(link, incoming=True).handle, credit)

    def drain(self, link: int) -> None:
        """Ask the producer for its credit back: the part of producer flow control (docs/seams.md) that stands."""
        lib.pn_link_drain(self._link(link, incoming=True).handle, 0)

    def drained(self, link: int) -> int:
        """The credit that the producer gave back since the last call."""
        return int(lib.pn_link_drained(self._link(link, incoming=True).handle))

    def give_back(self, link: int) -> None:
        """Answer a drain with what is left of the credit, if Proton sees one asked for."""
        lib.pn_link_drained(self._link(link, incoming=False).handle)

    def tag(self, link: int, number: int) -> bytes:
        """The delivery-tag of an incoming delivery that is not disposed of."""
        address = self._link(link, incoming=True).delivery_address(number)
        if not address:
            self._stale_number(link, number)
        tag = lib.pn_delivery_tag(ffi.cast("pn_delivery_t *", address))
        return bytes(ffi.buffer(tag.start, tag.size)) if tag.size else b""

    # A large message, part by part.

    def send_begin(self, link: int, tag: int) -> None:
        """Start a delivery whose payload comes in parts; nothing else is sent on the link until send_end."""
        record = self._link(link, incoming=False)
        assert not record.sending, f"link {link}: a delivery is in progress"
        record.sending = True
        chars = ffi.new("char[]", tag.to_bytes(8, "big"))  # Alive until pn_delivery has copied it.
        lib.pn_delivery(record.handle, {"start": chars, "size": 8})

    def send_part(self, link: int, data: Payload) -> None:
        """Add to the delivery in progress."""
        record = self._link(link, incoming=False)
        assert record.sending, f"link {link}: no delivery is in progress"
        # No longer current when the consumer settled it half way: Proton then ignores the bytes.
        lib.pn_link_send(record.handle, ffi.from_buffer(data), len(data))

    def send_end(self, link: int, settled: bool) -> None:  # noqa: FBT001 - the contract's order
        """Finish the delivery in progress."""
        record = self._link(link, incoming=False)
        assert record.sending, f"link {link}: no delivery is in progress"
        record.sending = False
        current = lib.pn_link_current(record.handle)
        if current == NULL:
            return
        lib.pn_link_advance(record.handle)
        if settled:
            lib.pn_delivery_settle(current)

    def send_abort(self, link: int) -> None:
        """Give the delivery in progress up: its consumer is told, once the session's window has room for that.

        Until then Proton holds a Detach of the link back; without an abort the Detach leaves at once.
        """
        record = self._link(link, incoming=False)
        assert record.sending, f"link {link}: no delivery is in progress"
        _abort(record)

    # Called by the data path, with addresses since that is all the twin has.

    def _session_opened(self, address: int) -> Record | None:
        if address in self._sessions_by_address:
            return None  # A second Begin for it, which the tap refuses.
        handle = ffi.cast("pn_session_t *", address)
        record = Session(self._take_slot(), handle)
        lib.pn_incref(handle)
        self._sessions[record.slot] = self._sessions_by_address[address] = record
        return SESSION_OPENED, record.slot

    def _link_opened(self, address: int) -> Record | None:
        handle = ffi.cast("pn_link_t *", address)
        session = self._sessions_by_address.get(_address(lib.pn_link_session(handle)))
        if session is None:
            # Attached after free_session, so nobody has freed it. Left like this Proton would finalize the session
            # twice: the link's own end posts the session's last event, which revives it.
            lib.pn_link_free(handle)
            return None
        if address in self.by_address:
            return None  # Attached twice, which the tap refuses.
        incoming = bool(lib.pn_link_is_receiver(handle))
        slot = self._take_slot()
        record = self._new_link(slot, session.slot, handle, incoming=incoming)
        lib.pn_incref(handle)
        self.links[slot] = self.by_address[address] = record
        session.links.add(slot)
        return LINK_OPENED, slot, session.slot, incoming

    def _outcome_detail(self, address: int, code: int) -> Any:  # noqa: ANN401 - a record's last field
        """What comes with a rejected, a modified or an unknown outcome; the same is set as our answer to it."""
        delivery = ffi.cast("pn_delivery_t *", address)
        remote, local = lib.pn_delivery_remote(delivery), lib.pn_delivery_local(delivery)
        if code == REJECTED:
            condition = lib.pn_disposition_condition(remote)
            return _text(lib.pn_condition_get_name(condition)), _text(
                lib.pn_condition_get_description(condition)
            )
        if code == MODIFIED:
            failed, elsewhere = (
                lib.pn_disposition_is_failed(remote),
                lib.pn_disposition_is_undeliverable(remote),
            )
            lib.pn_disposition_set_failed(local, failed)
            lib.pn_disposition_set_undeliverable(local, elsewhere)
            return (
                bool(failed),
                bool(elsewhere),
                _encoded_map(lib.pn_disposition_annotations(remote)),
            )
        data = lib.pn_disposition_data(remote)
        if data != NULL:
            lib.pn_data_copy(lib.pn_disposition_data(local), data)
        return None

    def _set_error(self, address: int, condition: Condition) -> None:
        local = lib.pn_delivery_local(ffi.cast("pn_delivery_t *", address))
        _set_condition(lib.pn_disposition_condition(local), condition)

    def _stale(self, link: int) -> None:
        raise StaleSlot(f"link {link} was freed")

    def _stale_number(self, link: int, number: int) -> None:
        raise StaleSlot(f"link {link}: delivery {number} is not there, or was settled")

    # Slots.

    def _take_slot(self) -> int:
        slot = self._slot_next
        self._slot_next += 1
        return slot

    def _check_alive(self) -> None:
        if self._freed:
            raise StaleSlot("the driver was freed")

    def _session(self, session: int) -> Session:
        record = self._sessions.get(session)
        if record is None:
            raise StaleSlot(f"session {session} was freed")
        return record

    def _link(self, link: int, *, incoming: bool | None = None) -> Any:  # noqa: ANN401 - a Link of either path
        record = self.links.get(link)
        if record is None:
            raise StaleSlot(f"link {link} was freed")
        assert incoming is None or record.incoming == incoming, f"link {link} goes the other way"
        return record


def _encoded_map(data: Pointer) -> bytes:
    size = 0 if data == NULL else lib.pn_data_encoded_size(data)
    if size <= 0:
        return b""
    chars = ffi.new("char[]", size)
    size = lib.pn_data_encode(data, chars, size)
    encoded = bytes(ffi.buffer(chars, size)) if size > 0 else b""
    return encoded if encoded[:1] in (b"\xc1", b"\xd1") else b""  # [1.6.23] map8, map32.


class _Records(list[Record]):
    """The records of one take(), with neighbours of one kind put together."""

    __slots__ = ("_payloads", "_run")

    def __init__(self, held: list[Record]) -> None:
        super().__init__(held)
        # Link and settled of the last record, if MESSAGES.
        self._run: tuple[int, bool] | None = None
        self._payloads: list[bytes | bytearray] = []  # That record's.

    def message(self, link: int, number: int, payload: bytes | bytearray, settled: bool) -> None:  # noqa: FBT001
        if self._run != (link, settled):
            self._run = (link, settled)
            self._payloads = []
            self.append((MESSAGES, link, number, self._payloads, settled))
        self._payloads.append(payload)

    def outcome(self, link: int, code: int, tag: int, detail: Any) -> None:  # noqa: ANN401
        self._run = None
        last = self[-1] if self else None
        if (
            last is not None
            and last[0] == OUTCOMES
            and last[1] == link
            and last[2] == code
            and last[4] == detail
        ):
            last[3].append(tag)
        else:
            self.append((OUTCOMES, link, code, [tag], detail))

    def aborted(self, link: int) -> None:
        self._run = None
        if self and self[-1][:2] == (ABORTED, link):
            self[-1] = (ABORTED, link, self[-1][2] + 1)
        else:
            self.append((ABORTED, link, 1))

    def other(self, record: Record | None) -> None:
        if record is not None:
            self._run = None
            self.append(record)


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
        records = _Records(self.held)
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
                    handle_last, link = handle, self.by_address.get(_address(handle))
                if link is None:
                    _ignore(handle, delivery)
                elif link.incoming:
                    self._arrived(records, link, delivery)
                else:
                    self._outcome(records, link, delivery)
            elif kind == lib.PN_LINK_REMOTE_OPEN:
                records.other(self._link_opened(_address(lib.pn_event_link(event))))
                handle_last = NULL
            elif kind == lib.PN_SESSION_REMOTE_OPEN:
                records.other(self._session_opened(_address(lib.pn_event_session(event))))
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
                    self._set_error(_address(delivery), condition)
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

    def _arrived(self, records: _Records, link: PureLink, delivery: Pointer) -> None:
        """An incoming delivery has new bytes, or the peer settled it."""
        if lib.pn_delivery_readable(delivery):
            if link.discarding:
                _read_away(link.handle, delivery)
            else:
                _read(records, link, delivery)
        elif link.awaiting and lib.pn_delivery_settled(delivery):
            number = link.awaiting.pop(delivery, None)
            if number is not None:
                del link.ring[number]
                lib.pn_delivery_settle(delivery)

    def _outcome(self, records: _Records, link: PureLink, delivery: Pointer) -> None:
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
        detail = None if code in PLAIN else self._outcome_detail(_address(delivery), code)
        tag = lib.pn_delivery_tag(delivery)
        records.outcome(
            link.slot, code, int.from_bytes(ffi.buffer(tag.start, tag.size), "big"), detail
        )
        lib.pn_delivery_update(delivery, code or ACCEPTED)
        if lib.pn_delivery_partial(delivery):
            # Settled half way: not to be ended as if it were whole.
            lib.pn_delivery_abort(delivery)
        else:
            lib.pn_delivery_settle(delivery)


def _read(records: _Records, link: PureLink, delivery: Pointer) -> None:
    """Read what there is of the current delivery; when that is all, it is a message."""
    handle = link.handle
    if lib.pn_delivery_aborted(delivery):
        link.partial = None
        lib.pn_delivery_settle(delivery)  # And so advanced.
        records.aborted(link.slot)
        return
    partial, pending = lib.pn_delivery_partial(delivery), lib.pn_delivery_pending(delivery)
    size = pending if link.partial is None else pending + len(link.partial)
    if link.message_size_max and size > link.message_size_max:
        link.discarding = True
        link.partial = None
        records.other((OVERSIZE, link.slot))
        _read_away(handle, delivery)
        return
    scratch = _scratch.buffer
    if link.partial is None and not partial and pending <= SCRATCH_BYTES:
        lib.pn_link_recv(handle, scratch, pending)
        payload: bytes | bytearray = bytes(ffi.buffer(scratch, pending))
    else:
        if link.partial is None:
            link.partial = bytearray()
        while (n := lib.pn_link_recv(handle, scratch, SCRATCH_BYTES)) > 0:
            link.partial += ffi.buffer(scratch, n)
        if partial:
            return
        payload, link.partial = link.partial, None
    lib.pn_link_advance(handle)
    records.message(link.slot, link.number_next, payload, bool(lib.pn_delivery_settled(delivery)))
    link.ring[link.number_next] = delivery
    link.number_next += 1


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


# What the twin calls, and the events that it must tell apart.
FUNCTIONS = """
    pn_collector_peek pn_collector_pop pn_event_type pn_event_context pn_delivery pn_delivery_abort
    pn_delivery_aborted pn_delivery_link pn_delivery_local_state pn_delivery_partial pn_delivery_pending
    pn_delivery_readable pn_delivery_remote_state pn_delivery_settle pn_delivery_settled pn_delivery_tag
    pn_delivery_update pn_link_advance pn_link_recv pn_link_send
    pn_transport_capacity pn_transport_peek pn_transport_pop pn_transport_push
"""
EVENTS = "PN_DELIVERY PN_LINK_REMOTE_OPEN PN_SESSION_REMOTE_OPEN"


def _compiled() -> type[PureDriver] | None:
    """The driver with its data path in C; None when the twin is not built."""
    try:
        from amqpbroker.amqp import _driver
    except ImportError:
        return None
    _driver.init(
        {name: _address(ffi.addressof(lib, name)) for name in FUNCTIONS.split()},
        {name: getattr(lib, name) for name in EVENTS.split()},
    )

    class CompiledDriver(_driver.DataPath, Control):
        """The driver with its data path in C."""

        def _new_link(self, slot: int, session: int, handle: Pointer, *, incoming: bool) -> Link:
            return _driver.Link(slot, session, handle, _address(handle), incoming=incoming)

    return cast("type[PureDriver]", CompiledDriver)  # One interface.


CompiledDriver = _compiled()
COMPILED: bool = CompiledDriver is not None and not PURE_WANTED
if TYPE_CHECKING:
    Driver = PureDriver
else:
    Driver = CompiledDriver if COMPILED else PureDriver
