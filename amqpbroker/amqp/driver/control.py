"""What is done per session, link or connection: the half of a driver that both data paths share.

How no stale pointer reaches Proton. Links and sessions are named by slots, and a slot's record is the only place that
keeps its pointer. The record holds a reference of Proton's own counting, so the memory stays while the record lives;
free_* takes the record out first, then gives the reference back. An event holds a reference to what it is about, so
that an event for something already freed is harmless: its address is not in `by_address`, and nothing new can be at
that address yet. Deliveries have no reference of ours: Proton keeps each until it is settled locally, so a ring holds
it exactly until we do that. A settled one is pooled and used again, hence no pointer to it is kept anywhere.
"""

from typing import Any, Protocol

from cproton_ffi import ffi, lib

from amqpbroker.amqp.driver.records import LINK_OPENED, SESSION_OPENED, Record
from amqpbroker.amqp.driver.values import (
    NULL,
    Condition,
    Pointer,
    address_of,
    outcome_detail,
    set_condition,
    text_of,
)

Payload = bytes | bytearray | memoryview

# [2.7.1] Open needs a container-id; the tap rewrites the frame, so that this name never leaves.
CONTAINER = b"broker"


class StaleSlot(AssertionError):  # noqa: N818 - the name of docs/seams.md
    """A session, link, delivery or driver was named after it was freed or settled: a bug of the caller."""


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

    @property
    def filled(self) -> int:
        """Bytes of the delivery in progress."""

    def drop_partial(self) -> None:
        """Forget the bytes of the delivery in progress."""

    def clear(self) -> None:
        """Forget every delivery."""

    def delivery_address(self, number: int) -> int:
        """The address of an incoming delivery that is not disposed of; 0 when there is none."""


class Control:
    """What is done per session, link or connection; a data path is the other base of each driver.

    The caller calls free() once it is done: nothing else gives Proton's memory back.
    """

    links: dict[int, Any]  # Slot -> record.
    by_address: dict[int, Any]  # Address of a link -> the same record.
    held: list[Record]  # Taken already, for the next take().
    partial_bytes: int  # `filled` of all links together.
    partial_bytes_max: int  # The link that would pass it discards from then on. 0: unlimited.

    def __init__(self, *, max_frame_size: int, channel_max: int, partial_bytes_max: int) -> None:
        self.links = {}
        self.by_address = {}
        self.held = []
        self.partial_bytes = 0
        self.partial_bytes_max = partial_bytes_max
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
        self._bind(address_of(self._transport), address_of(self._collector))

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
        return text_of(lib.pn_condition_get_name(condition)), text_of(
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
        set_condition(lib.pn_connection_condition(self._connection), condition)
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
        self.partial_bytes = 0
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
        set_condition(lib.pn_session_condition(handle), condition)
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
        del self._sessions_by_address[address_of(record.handle)]
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
        set_condition(lib.pn_link_condition(handle), condition)
        if closed:
            lib.pn_link_close(handle)
        else:
            lib.pn_link_detach(handle)

    def discard(self, link: int) -> None:
        """From now on what arrives on the link is read, settled without a state and forgotten."""
        record = self._link(link, incoming=True)
        record.discarding = True
        self.partial_bytes -= record.filled
        record.drop_partial()

    def free_link(self, link: int) -> None:
        """Forget the link; Proton settles its deliveries. Frames already asked for still leave.

        To be called once the peer has detached: of a delivery freed half way Proton drops the rest without giving its
        bytes back to the session's window.
        """
        record = self._link(link)
        del self.links[link]
        del self.by_address[address_of(record.handle)]
        self._sessions[record.session].links.discard(link)
        self.partial_bytes -= record.filled
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
        session = self._sessions_by_address.get(address_of(lib.pn_link_session(handle)))
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
        return outcome_detail(ffi.cast("pn_delivery_t *", address), code)

    def _set_error(self, address: int, condition: Condition) -> None:
        local = lib.pn_delivery_local(ffi.cast("pn_delivery_t *", address))
        set_condition(lib.pn_disposition_condition(local), condition)

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


def _abort(record: Link) -> None:
    record.sending = False
    current = lib.pn_link_current(record.handle)
    if current != NULL:  # Else the consumer settled it half way.
        lib.pn_delivery_abort(current)
