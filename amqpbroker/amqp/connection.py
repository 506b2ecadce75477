"""What a peer's frames do: sessions and links come and go, messages and outcomes pass, the engine is told.

The order of a reaction is the peer's order of frames: each control frame is checked, fed to Proton, reacted to, and
the reaction pumped out before the next frame is looked at, so that pipelining clients work (PROTON_FACTS 4). Runs of
transfers and dispositions are fed in bulk; what came of them leaves once per turn, by `flush`.
Must not know sockets, time-outs or the login. Reading order: receive, the on_… methods, flush, close.
"""

from typing import TYPE_CHECKING, Any, ClassVar, Final

from amqpbroker import __version__
from amqpbroker.amqp import frames, tap
from amqpbroker.amqp.attachment import Attachment
from amqpbroker.amqp.codes import ATTACH, BEGIN, CLOSE, DETACH, END, OPEN
from amqpbroker.amqp.conditions import Condition, condition_of
from amqpbroker.amqp.driver import (
    ABORTED,
    CROWDED,
    LINK_OPENED,
    MESSAGES,
    OUTCOMES,
    OVERSIZE,
    SESSION_OPENED,
    Driver,
)
from amqpbroker.amqp.feed import Feed
from amqpbroker.amqp.incoming import IncomingLink
from amqpbroker.amqp.outgoing import OutgoingLink
from amqpbroker.amqp.performatives import (
    SETTLE_SECOND,
    SETTLE_SETTLED,
    Attach,
    Begin,
    Close,
    Detach,
    End,
    MissingField,
    Open,
    decode_performative,
    encode_performative,
)
from amqpbroker.amqp.performatives import frame as frame_of
from amqpbroker.amqp.sasl import AMQP_HEADER
from amqpbroker.amqp.session import Session
from amqpbroker.amqp.terminus import can_reject, refused_reply, source_of, target_of, wants_copies
from amqpbroker.base.codec import DecodeError, Symbol
from amqpbroker.base.errors import (
    CONNECTION_FORCED,
    DECODE_ERROR,
    FRAME_SIZE_TOO_SMALL,
    ILLEGAL_STATE,
    INTERNAL_ERROR,
    INVALID_FIELD,
    Refusal,
)
from amqpbroker.base.ids import Millis
from amqpbroker.engine import commands

if TYPE_CHECKING:
    from amqpbroker.amqp.peer import Peer

Link = IncomingLink | OutgoingLink

# A transfer's performative with an 8-byte tag takes 50 bytes at most, the frame header 8: what is left of a frame
# after these is surely payload. More would only make frames smaller.
TRANSFER_OVERHEAD: Final = 64
FRAME_HEADER: Final = 8
FRAME_SIZE_KNOWN: Final = 512  # Until the peer's Open says more [2.7.1].
# A peer that wants a frame every few milliseconds would cost more than its traffic; Broker-J closes it too (B2.16).
IDLE_TIMEOUT_MIN_MS: Final = 100
OF_A_SESSION: Final = frozenset((ATTACH, DETACH, END))  # The walker looks after the others.
CAPABILITIES: Final = (Symbol("ANONYMOUS-RELAY"),)  # Exactly what works (B2.2).
PROPERTIES: Final = {
    Symbol("product"): "amqpbroker",
    Symbol("version"): __version__,
    Symbol("platform"): "Python, Qpid Proton",
}
# Proton holds back its Close until an Open has come; a peer that sent none, or a wrong one, is told all the same.
PRETENDED_OPEN: Final = frame_of(0, encode_performative(Open(container_id="none")))
FAILED: Final = Symbol(
    "amqp:connection-establishment-failed"
)  # JMS waits for the Close then (B2.7).


class Connection:
    """AMQP with one peer, from its protocol header on."""

    def __init__(self, peer: "Peer") -> None:
        self.peer = peer
        self.settings = settings = peer.settings
        self.switchboard = peer.switchboard
        self.driver = Driver(
            max_frame_size=settings.max_frame_size,
            channel_max=settings.channel_max,
            partial_bytes_max=settings.partial_bytes_max,
        )
        self.walker = frames.Walker(settings.max_frame_size)
        self.remote_frame_size = FRAME_SIZE_KNOWN
        self.slice_size = FRAME_SIZE_KNOWN - TRANSFER_OVERHEAD  # Payload that surely fits a frame.
        self._channel_max = settings.channel_max
        self._window = settings.incoming_window_bytes // settings.max_frame_size
        self._refusal: Refusal | None = None
        self._has_fed_open = False  # Proton has seen the peer's Open.
        self._is_open = False  # The peer's Open was taken, and answered.
        self._is_closing = False  # Our Close is out; all but the peer's is ignored.
        self._is_engaged = False  # The engine knows this connection.
        self._has_left = False
        self._sessions: dict[int, Session] = {}  # By the peer's channel.
        self._links: dict[int, Link] = {}  # By the driver's slot.
        # Incoming links that we have detached and the peer not yet: Proton writes flows for them, without a handle.
        self._ghosts: set[int] = set()
        self._opened_slot = -1  # Of the session or link whose Begin or Attach was just fed.
        self._flows_due: set[Session] = set()  # Told a full window by Proton with the next pump.
        self.feed = Feed(self)
        self.driver.push(AMQP_HEADER)  # Proton sees this one and no other (PROTON_FACTS 6).
        self.pump()

    # --- for the peer -----------------------------------------------------------------------------------------------

    def receive(self, data: bytes, now: Millis) -> None:
        """Frames, or pieces of them."""
        self.walker.feed(data)
        while not self._has_left and (item := self.walker.next()) is not None:
            self._ITEMS[item[0]](self, item, now)

    def flush(self, now: Millis) -> None:
        """Put out what this turn made."""
        self.pump()
        self.feed.go_on(now)
        self.feed.tell_room(now)

    def output_written(self, now: Millis) -> None:
        """The outbox is shorter than it was."""
        self.feed.tell_room(now)
        if self.feed.is_waiting:
            self.touch()

    def refuse(self, refusal: Refusal, now: Millis) -> None:
        """Answer the peer's Open, which may have come, with this."""
        self._refusal = refusal
        if self._is_open:
            self.close(refusal, now, clean=True)

    def close(self, refusal: Refusal, now: Millis, *, clean: bool) -> None:
        """Say Close; only the peer's answer is waited for."""
        if self._is_closing:
            return
        self._is_closing = True
        self._disengage(now, clean=clean)
        if not self._is_open:
            if not self._has_fed_open:
                self.driver.push(PRETENDED_OPEN)
            self._answer_open({FAILED: True})
        self.peer.liveness.closing(now)
        self.switchboard.arm(self.peer)
        self.switchboard.note(
            "peer_closing",
            peer=self.peer.remote,
            condition=refusal.condition,
            reason=refusal.description,
        )
        self.driver.close_connection(self.condition(refusal))
        self.pump()
        self.touch()

    def leave(self, now: Millis, *, clean: bool) -> None:
        """The end: the engine and Proton forget this connection."""
        self._has_left = True
        self._disengage(now, clean=clean)
        self._links.clear()
        self._sessions.clear()
        self.driver.free()

    # --- for the links ----------------------------------------------------------------------------------------------

    def touch(self) -> None:
        """There is something to put out, or will be."""
        self.switchboard.touch(self.peer)

    def condition(self, refusal: Refusal, info: dict[Symbol, object] | None = None) -> Condition:
        """The refusal, cut to what this peer's frames take."""
        return condition_of(refusal, self.remote_frame_size, info)

    def grant(self, link: IncomingLink, credit: int) -> None:
        """Give the producer credit; Proton says so with the next pump."""
        session = link.at.session
        self.driver.grant(link.at.slot, credit)
        self.walker.grant(session.channel, link.at.handle, credit)
        self._flow_due(session)

    def send_link_flow(self, session: Session, state: tap.LinkFlow) -> None:
        """A Flow with the state of one outgoing link, which Proton would not write."""
        self.pump()
        self.driver.force_flow(session.slot)
        self._flows_due.add(session)
        self.pump(lambda chunk: tap.with_link_flow(chunk, session.local_channel, state))
        self.touch()

    def answer_drain(self, link: OutgoingLink, state: tap.LinkFlow) -> None:
        """Tell the consumer that its credit is used up or given back."""
        session = link.at.session
        self.pump()
        before = self.peer.outbox.size
        # Proton's own delivery-count must move along: it sends nothing once the two are 2^32 apart.
        self.driver.give_back(link.at.slot)
        self._flows_due.add(session)
        self.pump()
        if self.peer.outbox.size == before:  # Proton saw no credit, so it has nothing to say.
            self.send_link_flow(session, state)
        self.touch()

    def answer_attach(self, link: Link, reply: Attach) -> bool:
        """Write our Attach; False when it does not fit the peer's frames, and its session is ended."""
        at = link.at
        self.pump()
        if len(encode_performative(reply)) + 2 * FRAME_HEADER > self.remote_frame_size:
            text = f"our attach does not fit max-frame-size {self.remote_frame_size}"
            refusal = Refusal(FRAME_SIZE_TOO_SMALL, text)
            self._end_session(at.session, refusal, self.peer.liveness.read_at)
            return False
        self.driver.open_link(at.slot, self.settings.max_message_size if link.incoming else 0)
        self.pump(lambda chunk: tap.with_attach(chunk, reply))
        at.local_handle = reply.handle
        return True

    def refuse_attach(self, link: Link, reply: Attach, refusal: Refusal) -> None:
        """Our Attach with a null terminus, and at once the Detach (B4.3)."""
        self.switchboard.drop_link(link)
        if self.answer_attach(link, reply):
            self._close_link(link, self.condition(refusal))

    def force_detach(self, link: Link, refusal: Refusal, info: dict[Symbol, object] | None) -> None:
        """Our Detach; the engine has forgotten the link already."""
        self.switchboard.drop_link(link)
        self._close_link(link, self.condition(refusal, info))

    def fault_link(self, link: Link, refusal: Refusal, now: Millis) -> None:
        """Our Detach for what came on the link; its session lives."""
        if link.at.is_closed:
            return
        self._note_fault(refusal)
        self._close_link(link, self.condition(refusal))
        self.switchboard.apply(commands.Detach(link.at.link, closed=True), now)
        self.switchboard.drop_link(link)

    # --- reactions to the walker's items ----------------------------------------------------------------------------

    def _on_bulk(self, item: tuple[int, bytes], now: Millis) -> None:
        if not self._is_closing:
            self._push(item[1], now)

    def _on_control(self, item: tuple[int, int, int, bytes], now: Millis) -> None:
        _, code, channel, frame = item
        if self._is_closing:
            if code == CLOSE:
                self.peer.finish("closed", now, clean=True)
            return
        try:
            performative, _ = decode_performative(frame, 4 * frame[4])
        except MissingField as error:
            self._fail(Refusal(INVALID_FIELD, str(error)), now)
            return
        except DecodeError as error:
            self._fail(Refusal(DECODE_ERROR, str(error)), now)
            return
        if not self._is_open and code != OPEN:
            self._fail(Refusal(ILLEGAL_STATE, "the first frame is not an open"), now)
            return
        fault = tap.check_channel(channel, self._sessions) if code in OF_A_SESSION else None
        if fault is not None:
            self._fail(fault.refusal, now)
            return
        self._CONTROLS[code](self, performative, channel, frame, now)

    def _on_open(self, opening: Open, channel: int, frame: bytes, now: Millis) -> None:
        fault = tap.check_open(opening, channel, is_open=self._is_open)
        if fault is not None:
            self._fail(fault.refusal, now)
            return
        self.remote_frame_size = opening.max_frame_size
        # A channel above the peer's own limit we could not answer: ours would be as high (B2.15).
        self._channel_max = min(self._channel_max, opening.channel_max)
        own = self.settings.max_frame_size
        self.slice_size = min(self.remote_frame_size, own) - TRANSFER_OVERHEAD
        if not self._push(frame, now):
            return
        self._has_fed_open = True
        if self._refusal is not None:
            self.close(self._refusal, now, clean=True)
            return
        self._answer_open({})
        idle = opening.idle_time_out or 0
        self.peer.liveness.opened(idle)
        self.switchboard.arm(self.peer)
        if 0 < idle < IDLE_TIMEOUT_MIN_MS:
            text = f"idle-time-out {idle} ms is below {IDLE_TIMEOUT_MIN_MS} ms"
            self.close(Refusal(CONNECTION_FORCED, text), now, clean=True)
            return
        self._is_engaged = True
        container = opening.container_id
        self.switchboard.apply(
            commands.OpenConnection(
                self.peer.connection,
                container,
                self.feed.engage(),
                self.settings.credit,
                self.settings.credit_low,
            ),
            now,
        )
        self.switchboard.note("peer_opened", peer=self.peer.remote, container=container)

    def _on_begin(self, begin: Begin, channel: int, frame: bytes, now: Millis) -> None:
        fault = tap.check_begin(begin, channel, self._sessions, self._channel_max)
        if fault is not None:
            self._fail(fault.refusal, now)
            return
        self.walker.begin(channel, self._window)
        if not self._push(frame, now):
            return
        session = Session(self.switchboard.new_session(), channel, self._opened_slot, begin)
        self._sessions[channel] = session
        self.driver.open_session(session.slot, self.settings.incoming_window_bytes)
        chunk = self._take_chunk()
        session.local_channel = tap.local_channel(chunk, BEGIN)
        self.peer.outbox.append(tap.with_begin(chunk, self.settings.handle_max))
        opened = commands.OpenSession(
            self.peer.connection, session.id, session.frames_left, self.slice_size
        )
        self.switchboard.apply(opened, now)

    def _on_attach(self, attach: Attach, channel: int, frame: bytes, now: Millis) -> None:
        session = self._sessions[channel]
        fault = tap.check_attach(attach, session, len(self._links), self.settings)
        if fault is not None:
            self._answer_fault(fault, session, now)
            return
        second = attach.rcv_settle_mode == SETTLE_SECOND
        self.walker.attach(channel, attach.handle, incoming=not attach.role, second=second)
        if not self._push(frame, now):
            return
        at = Attachment(self.switchboard.new_link(), session, self._opened_slot, attach)
        link: Link = OutgoingLink(self, at) if attach.role else IncomingLink(self, at)
        crowded = tap.too_many_links(len(self._links), self.settings)
        session.add_link(link)
        self._links[at.slot] = link
        self.switchboard.add_link(link)
        command = crowded or self._attach_command(link)
        if isinstance(command, Refusal):
            self.refuse_attach(link, refused_reply(attach), command)
        else:
            self.switchboard.apply(command, now)

    def _attach_command(
        self, link: Link
    ) -> commands.AttachProducer | commands.AttachConsumer | Refusal:
        attach, session = link.at.attach, link.at.session
        fresh_name = self.switchboard.fresh_name()
        if link.incoming:
            target = target_of(attach, fresh_name)
            if isinstance(target, Refusal):
                return target
            return commands.AttachProducer(
                session.id, link.at.link, attach.name, target, can_reject=can_reject(attach)
            )
        source = source_of(attach, fresh_name)
        if isinstance(source, Refusal):
            return source
        return commands.AttachConsumer(
            session.id,
            link.at.link,
            attach.name,
            source,
            wants_copies=wants_copies(attach),
            settled=attach.snd_settle_mode == SETTLE_SETTLED,
        )

    def _on_flow(self, item: tuple[Any, ...], now: Millis) -> None:
        _, channel, frame, fields = item
        if self._is_closing:
            return
        session = self._sessions[channel]
        next_incoming, incoming_window, outgoing, _, handle, count, credit, drain, echo, _ = fields
        fault = tap.check_flow(session, next_incoming, outgoing, self._window_used(channel))
        if fault is not None:
            self._answer_fault(fault, session, now)
            return
        session.take_window(next_incoming, incoming_window)
        if not self._push(frame, now):
            return
        self.feed.go_on(now)
        self.switchboard.apply(commands.Window(session.id, session.frames_left), now)
        link = session.links.get(handle) if handle is not None else None
        if isinstance(link, OutgoingLink) and not link.at.is_closed:
            if credit is not None:
                link.flow(count, credit, now, drain=drain)
            if echo and not drain:  # A drain is answered anyway.
                self.send_link_flow(session, link.flow_state())
        elif echo:
            self.driver.force_flow(session.slot)
            if link is not None and not link.at.is_closed:
                self.driver.grant(link.at.slot, 0)  # Proton adds the link's state (PROTON_FACTS 3).
            self._flow_due(session)
        self.pump()

    def _on_detach(self, detach: Detach, channel: int, frame: bytes, now: Millis) -> None:
        session = self._sessions[channel]
        fault = tap.check_detach(detach, session)
        if fault is not None:
            self._answer_fault(fault, session, now)
            return
        link = session.take_link(detach.handle)
        self.walker.detach(channel, detach.handle)
        if not self._push(frame, now):
            return
        at = link.at
        if not at.is_closed:
            self.switchboard.apply(commands.Detach(at.link, closed=detach.closed), now)
        if not at.is_closed:
            at.is_closed = True
            self.driver.close_link(at.slot, None, closed=detach.closed)
            self.pump()
        self._drop_link(link)
        self.driver.free_link(at.slot)
        if link.incoming:
            self._ghosts.add(at.slot)
            self.pump()  # What Proton settles now may bring a flow that names the link.
            self._ghosts.discard(at.slot)

    def _on_end(self, _end: End, channel: int, frame: bytes, now: Millis) -> None:
        session = self._sessions.pop(channel)
        self.walker.end(channel)
        if not self._push(frame, now):
            return
        if not session.is_ended:
            self._leave_session(session, None, now)
        self.driver.free_session(session.slot)

    def _on_close(self, _close: Close, _channel: int, frame: bytes, now: Millis) -> None:
        self.driver.push(frame)  # Proton takes nothing after it, and says so.
        self.driver.close_connection(None)
        self.pump()
        self.peer.finish("closed", now, clean=True)

    def _on_link_fault(self, item: tuple[int, int, int, str, str], now: Millis) -> None:
        _, channel, handle, condition, description = item
        if not self._is_closing:
            link = self._sessions[channel].links[handle]
            self.fault_link(link, Refusal(condition, description), now)

    def _on_session_fault(self, item: tuple[int, int, str, str], now: Millis) -> None:
        _, channel, condition, description = item
        if not self._is_closing:
            self._end_session(self._sessions[channel], Refusal(condition, description), now)

    def _on_connection_fault(self, item: tuple[int, str, str], now: Millis) -> None:
        self._fail(Refusal(item[1], item[2]), now)

    _ITEMS: ClassVar[dict[int, Any]] = {
        frames.BULK: _on_bulk,
        frames.CONTROL: _on_control,
        frames.FLOW: _on_flow,
        frames.LINK_FAULT: _on_link_fault,
        frames.SESSION_FAULT: _on_session_fault,
        frames.CONNECTION_FAULT: _on_connection_fault,
    }
    _CONTROLS: ClassVar[dict[int, Any]] = {
        OPEN: _on_open,
        BEGIN: _on_begin,
        ATTACH: _on_attach,
        DETACH: _on_detach,
        END: _on_end,
        CLOSE: _on_close,
    }

    # --- Proton -----------------------------------------------------------------------------------------------------

    def _push(self, data: bytes, now: Millis) -> bool:
        """Feed Proton and take what came of it; False when Proton has given up on the connection."""
        fed = self.driver.push(data)
        for record in self.driver.take():
            self._on_record(record, now)
        if fed:
            return not self._has_left
        # Proton found a fault that we let through, and has written its Close already.
        name, description = self.driver.error() or (INTERNAL_ERROR, "Proton takes no more input")
        self._note_fault(Refusal(name, description))
        self.pump()
        self.peer.finish(description, now, clean=False)
        return False

    def _on_record(self, record: tuple[Any, ...], now: Millis) -> None:
        kind = record[0]
        if kind in (SESSION_OPENED, LINK_OPENED):
            self._opened_slot = record[1]
            return
        link = self._links.get(record[1])
        if link is None or link.at.is_closed:
            return
        if isinstance(link, OutgoingLink):
            assert kind == OUTCOMES
            link.outcomes(record[2], record[3], record[4], now)
        elif kind == MESSAGES:
            link.messages(record[2], record[3], now, settled=record[4])
        elif kind == ABORTED:
            link.aborted(record[2], now)
        elif kind == OVERSIZE:
            link.oversize(now)
        else:
            assert kind == CROWDED
            link.crowded(now)

    def pump(self, rewrite: Any = None) -> None:  # noqa: ANN401  # A function of bytes, or nothing.
        """Take out what Proton has to say; first see to it that no session's window runs low."""
        for channel in self.walker.take_low():
            session = self._sessions.get(channel)
            if session is not None and not session.is_ended:
                self.driver.force_flow(session.slot)
                self._flows_due.add(session)
        chunk = self._take_chunk()
        self.peer.outbox.append(chunk if rewrite is None else rewrite(chunk))
        if self._flows_due:
            for due in self._flows_due:
                if not due.is_ended and self._sessions.get(due.channel) is due:
                    due.took_frames(self._window_used(due.channel))
                    self.walker.reset_window(due.channel, self._window)
            self._flows_due.clear()

    def _take_chunk(self) -> bytes:
        chunk = self.driver.pump()
        return tap.without_ghosts(chunk) if self._ghosts else chunk

    def _window_used(self, channel: int) -> int:
        """Transfer frames that came on the channel since its window was set."""
        return self._window - self.walker.window(channel)

    def _flow_due(self, session: Session) -> None:
        self._flows_due.add(session)
        self.touch()

    # --- ends -------------------------------------------------------------------------------------------------------

    def _answer_open(self, properties: dict[object, object]) -> None:
        self._is_open = True
        opening = Open(
            container_id=self.settings.container_id,
            max_frame_size=self.settings.max_frame_size,
            channel_max=self.settings.channel_max,
            # Half of what we bear, so that a frame that is late on the way does no harm (case 115).
            idle_time_out=self.settings.idle_timeout_ms // 2 or None,
            offered_capabilities=CAPABILITIES,
            properties={**PROPERTIES, **properties},
        )
        if len(encode_performative(opening)) + FRAME_HEADER > self.remote_frame_size:
            opening.properties = properties or None
        self.driver.open_connection()
        self.pump(lambda chunk: tap.with_open(chunk, opening))

    def _close_link(self, link: Link, condition: Condition) -> None:
        at = link.at
        if at.is_closed or self._has_left:
            return
        at.is_closed = True
        if isinstance(link, IncomingLink):
            self._ghosts.add(at.slot)
            self.driver.discard(at.slot)
            self.walker.fail(at.session.channel, at.handle)
        else:
            link.give_up()
        self.driver.close_link(at.slot, condition, closed=True)
        self.pump()
        self.touch()

    def _drop_link(self, link: Link) -> None:
        self.switchboard.drop_link(link)
        self._links.pop(link.at.slot, None)
        if isinstance(link, OutgoingLink):
            link.give_up()

    def _end_session(self, session: Session, refusal: Refusal, now: Millis) -> None:
        """The peer broke the session's rules: End it, and swallow what comes until the peer's."""
        if session.is_ended:
            return
        self._note_fault(refusal)
        self.walker.swallow(session.channel)
        self._leave_session(session, refusal, now)
        self.touch()

    def _leave_session(self, session: Session, refusal: Refusal | None, now: Millis) -> None:
        self.switchboard.apply(commands.CloseSession(session.id), now)
        session.is_ended = True
        links = session.take_links()
        for link in links:
            link.at.is_closed = True
            self._drop_link(link)
        self.driver.close_session(
            session.slot, None if refusal is None else self.condition(refusal)
        )
        self.pump()
        self._ghosts.difference_update(link.at.slot for link in links)

    def _answer_fault(self, fault: tap.Fault, session: Session, now: Millis) -> None:
        if fault.scope is tap.Scope.CONNECTION:
            self._fail(fault.refusal, now)
        else:
            self._end_session(session, fault.refusal, now)

    def _fail(self, refusal: Refusal, now: Millis) -> None:
        """The peer broke the connection's rules: Close, and wait for nothing in its bytes."""
        if not self._is_closing:
            self._note_fault(refusal)
            self.close(refusal, now, clean=False)
        self.peer.finish(refusal.description, now, clean=False)

    def _note_fault(self, refusal: Refusal) -> None:
        self.switchboard.note(
            "peer_fault",
            peer=self.peer.remote,
            condition=refusal.condition,
            reason=refusal.description,
        )

    def _disengage(self, now: Millis, *, clean: bool) -> None:
        """Take this connection out of the engine: its leases go back."""
        if self._is_engaged:
            self._is_engaged = False
            self.feed.disengage()
            command = commands.CloseConnection(self.peer.connection, clean=clean)
            self.switchboard.apply(command, now)
        for link in self._links.values():
            link.at.is_closed = True
            self.switchboard.drop_link(link)
