"""A well-behaved client that does what a seed says, and judges all that the broker answers.

It keeps to credit, windows and frame sizes, so nothing that the broker does may surprise it. Each thing that it writes
changes the books when the broker has read it (network.py), so that a lost connection loses exactly the rest.
"""
# ruff: noqa: ANN401  # A decoded field may be anything.

from collections import deque
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

from tests.raw.client import RawClient
from tests.raw.frames import (
    Composite,
    Frame,
    Symbol,
    accepted,
    data,
    decode,
    header,
    modified,
    properties,
    rejected,
    released,
)
from tests.sim.books import Message, QueueBook, State
from tests.sim.network import SimWire

if TYPE_CHECKING:
    from tests.sim.world import World

DATA = b"\x00\x53\x75"
SLICE = 300  # Payload per frame that fits every frame size here.
NAMES = ("a", "b", "c")
SERIAL = 1 << 32


class Session:
    """One channel of ours, and what both sides still take."""

    def __init__(self, channel: int, window: int) -> None:
        self.channel = channel
        self.remote: int | None = None  # The broker's channel, since its Begin.
        self.window = window
        self.expected_id = 0  # Of the next transfer that we read.
        self.window_end = window  # Transfers may come up to this id.
        self.sent = 0  # Transfers that we wrote.
        self.send_end = 0
        self.next_delivery: int | None = None
        self.unsettled: dict[int, Delivery] = {}  # That we received.
        self.outstanding: dict[int, tuple[Producer, Message]] = {}  # That we sent.
        self.is_ending = False


class Link:
    """One link of ours, by our handle."""

    def __init__(self, client: "SimClient", session: Session, handle: int, name: str) -> None:
        self.client = client
        self.session = session
        self.handle = handle
        self.name = name
        self.remote: int | None = None
        self.queue: QueueBook | None = None  # None: the anonymous terminus.
        self.is_attached = False  # The broker knows it: the books say so.
        self.is_answered = False
        self.is_detaching = False
        self.is_stolen = False
        self.is_failed = False  # Its message could not go where it said.
        self.is_owner = False  # Of a dynamic node.
        self.count = 0  # The delivery-count.
        self.limit = 0  # count + credit.
        self.second = False

    @property
    def is_usable(self) -> bool:
        return self.is_answered and not self.is_detaching and not self.session.is_ending

    def __repr__(self) -> str:
        return f"{self.client.name}/{self.name}"


class Producer(Link):
    is_producer = True

    def __init__(self, client: "SimClient", session: Session, handle: int, name: str) -> None:
        super().__init__(client, session, handle, name)
        self.key = client.world.fresh("p")
        self.numbers = 0
        self.rest: deque[bytes] = deque()  # Of the message in progress.
        self.message: Message | None = None
        self.presettled = False


class Consumer(Link):
    is_producer = False

    def __init__(self, client: "SimClient", session: Session, handle: int, name: str) -> None:
        super().__init__(client, session, handle, name)
        self.copies = False
        self.settled = False
        self.drains: set[int] = set()  # Delivery-counts that an answer may tell.
        self.is_draining = False
        self.partial: bytearray | None = None
        self.is_cut_short = False
        self.delivery = 0
        self.fresh: dict[str, int] = {}  # The newest first delivery of each producer.
        self.browsed: set[Message] = set()


class Delivery:
    def __init__(self, link: Consumer, message: Message) -> None:
        self.link = link
        self.message = message
        self.is_told = False  # Our outcome is out, and the broker is to settle.


class SimClient:
    """One connection."""

    def __init__(self, world: "World", container: str) -> None:
        self.world = world
        self.random: Random = world.random
        self.name = world.fresh("client")
        self.container = container
        self.wire = SimWire(world.broker)
        self.raw = RawClient(wire=self.wire)
        self.frame_size = self.random.choice((512, 700, 4096))
        self.sessions: list[Session] = []
        self.links: list[Link] = []
        self.state = "new"  # open, closing, closed
        self.is_open_at_broker = False
        self.may_be_idle = False
        self._answers: dict[tuple[int, str, bool], deque[Link]] = {}
        self._by_remote: dict[tuple[int, int], Link] = {}
        self._channels: dict[int, Session] = {}
        self._open()

    def _open(self) -> None:
        bare = self.random.random() < 0.5
        if not bare:
            self.raw.sasl_header()
            self.raw.performative("sasl_init", mechanism="ANONYMOUS", initial_response=b"sim")
        self.raw.header().open(container_id=self.container, max_frame_size=self.frame_size)
        self.state = "open"
        self.mark(lambda: setattr(self, "is_open_at_broker", True))
        self.begin()

    def mark(self, effect: Callable[[], None]) -> None:
        self.wire.mark(effect)

    def check(self, fact: object, text: str) -> None:
        assert fact, f"{self.name}: {text}"

    # --- what it does ---------------------------------------------------------------------------------------------

    def begin(self) -> Session:
        channel = next(n for n in range(99) if all(s.channel != n for s in self.sessions))
        session = Session(channel, self.random.choice((1, 3, 10, 200)))
        self.sessions.append(session)
        self._delivery_ids_start(channel)
        self.raw.begin(channel, next_outgoing_id=0, incoming_window=session.window)
        return session

    def _delivery_ids_start(self, channel: int) -> None:
        self.raw._delivery_ids.pop(channel, None)

    def _free_handle(self, session: Session) -> int:
        taken = {link.handle for link in self.links if link.session is session}
        return next(n for n in range(999) if n not in taken)

    def _free_name(self, session: Session, *, producer: bool) -> str | None:
        taken = {
            link.name
            for link in self.links
            if link.session is session and isinstance(link, Producer) is producer
        }
        free = [name for name in NAMES if name not in taken]
        return self.random.choice(free) if free else None

    def _attached(self, link: Link) -> None:
        """The broker has read our Attach."""
        if link.queue is not None and not link.queue.is_alive:
            return
        key = (self.container, link.name, isinstance(link, Producer))
        old = self.world.attached.get(key)
        if old is not None and old.is_attached:
            old.is_stolen = True
            self.world.unlink(old, ends_node=False)
        link.is_attached = True
        self.world.attached[key] = link
        if link.is_owner:
            self.world.owners.append(link)

    def attach_producer(self, session: Session, queue: QueueBook | None) -> None:
        name = self._free_name(session, producer=True)
        if name is None:
            return
        link = Producer(self, session, self._free_handle(session), name)
        link.queue = queue
        link.second = self.random.random() < 0.2
        self._attach(
            link,
            "sender",
            target={"address": None if queue is None else queue.name},
            rcv_settle_mode=int(link.second),
        )

    def attach_consumer(self, session: Session, queue: QueueBook | None) -> Consumer | None:
        name = self._free_name(session, producer=False)
        if name is None:
            return None
        link = Consumer(self, session, self._free_handle(session), name)
        mode = self.random.random()
        source: dict[str, Any] = {}
        if queue is None:
            link.is_owner = True
            link.queue = QueueBook("?", is_dynamic=True)
            source["dynamic"] = True
        else:
            link.queue = queue
            source["address"] = queue.name
            link.copies = mode < 0.15
            link.settled = 0.15 < mode < 0.25
            link.second = 0.25 < mode < 0.4
            if link.copies:
                source["distribution_mode"] = Symbol("copy")
        self._attach(
            link,
            "receiver",
            source=source,
            snd_settle_mode=1 if link.settled else 2,
            rcv_settle_mode=int(link.second),
        )
        return link

    def _attach(self, link: Link, role: str, **fields: Any) -> None:
        self.links.append(link)
        key = (link.session.channel, link.name, role == "sender")
        self._answers.setdefault(key, deque()).append(link)
        self.raw.attach(link.name, role, channel=link.session.channel, handle=link.handle, **fields)
        self.mark(lambda: self._attached(link))

    def send(self, link: Producer) -> None:
        """Start a message, or go on with the one in progress; within credit and window."""
        for _ in range(self.random.choice((1, 2, 5, 30))):
            session = link.session
            if session.send_end - session.sent <= 0:
                return
            if link.message is None:
                if link.count >= link.limit:
                    return
                self._start(link)
            self._send_frame(link)

    def _start(self, link: Producer) -> None:
        queue = link.queue or self.world.some_queue()
        message = self.world.books.message(queue, link.key, link.numbers)
        link.numbers += 1
        link.count += 1
        random = self.random
        size = random.choice((0, 0, 0, 10, 100, 1000, 4000))
        body = self.world.books.key(message) + b" " + random.randbytes(size)
        message.ttl = 4000 if random.random() < 0.1 else 0
        head = b""
        if random.random() < 0.9 or message.ttl:
            head = header(
                durable=random.random() < 0.5, first_acquirer=True, ttl=message.ttl or None
            )
        to = properties(to=queue.name) if link.queue is None else b""
        message.body = to + data(body)
        message.has_header = bool(head)
        payload = head + message.body
        step = random.choice((SLICE, 50, 17)) if len(payload) < 600 else SLICE
        link.rest = deque(payload[at : at + step] for at in range(0, len(payload), step))
        link.message = message
        link.presettled = random.random() < 0.2

    def _send_frame(self, link: Producer) -> None:
        session, message = link.session, link.message
        assert message is not None
        number = self.raw._delivery_ids.get(session.channel, 0)
        is_first = not self.raw._links[session.channel, link.handle].more
        is_aborted = len(link.rest) > 1 and not is_first and self.random.random() < 0.05
        part = link.rest.popleft()
        more = bool(link.rest) and not is_aborted
        session.sent += 1
        fields: dict[str, Any] = {"aborted": True} if is_aborted else {}
        if is_first and not link.presettled:
            session.outstanding[number] = (link, message)
        settled = link.presettled
        self.raw.transfer(
            part, link.handle, channel=session.channel, more=more, settled=settled, **fields
        )
        if is_aborted:
            message.state = State.VOID
            for old, (_, outstanding) in list(session.outstanding.items()):
                if outstanding is message:
                    del session.outstanding[old]
        elif not more:
            self.mark(lambda: self._arrived(link, message, is_presettled=settled))
        if not more:
            link.message = None
            link.rest.clear()

    def _arrived(self, link: Producer, message: Message, *, is_presettled: bool) -> None:
        if not link.is_attached or not message.queue.is_alive:
            message.state = State.VOID
            if link.is_attached and link.queue is None and is_presettled:
                link.is_attached = False  # No outcome can tell it (RJ-3).
                link.is_failed = True
            return
        message.state = State.KEPT
        if message.ttl:
            message.expires = self.world.broker.now + message.ttl

    def credit(self, link: Consumer, *, drain: bool = False) -> None:
        """More credit, never less; a drain asks for all of it back."""
        if link.is_draining and drain:
            return
        more = 0 if drain and self.random.random() < 0.3 else self.random.choice((1, 2, 10, 50))
        link.limit = max(link.limit, link.count + more)
        link.is_draining = drain
        if drain:
            link.drains.add(link.limit)
        self._flow(
            link.session,
            handle=link.handle,
            delivery_count=link.count % SERIAL,
            link_credit=link.limit - link.count,
            drain=drain,
            echo=self.random.random() < 0.1,
        )

    def _flow(self, session: Session, **fields: Any) -> None:
        session.window_end = session.expected_id + session.window
        known = session.expected_id if session.remote is not None else None
        self.raw.flow(
            session.channel,
            next_incoming_id=known,
            incoming_window=session.window,
            next_outgoing_id=session.sent,
            **fields,
        )

    def open_windows(self) -> None:
        for session in self.sessions:
            if not session.is_ending and session.window_end <= session.expected_id:
                self._flow(session)

    def settle(self, session: Session) -> None:
        """An outcome for one delivery, or for a run of them."""
        held = [n for n, each in session.unsettled.items() if not each.is_told]
        if not held:
            return
        first = self.random.choice(held)
        last = first
        most = self.random.choice((1, 1, 4, 100))
        second = session.unsettled[first].link.second
        while (
            last - first + 1 < most
            and (following := session.unsettled.get(last + 1)) is not None
            and following.link.second == second
            and not following.is_told
        ):
            last += 1
        outcome = self._outcome()
        told = [session.unsettled[n] for n in range(first, last + 1)]
        for number, each in zip(range(first, last + 1), told, strict=True):
            each.is_told = True
            if not second:
                del session.unsettled[number]
        self.raw.disposition(
            first,
            channel=session.channel,
            last=None if last == first else last,
            settled=not second,
            state=outcome,
        )
        self.mark(lambda: self._judged(told, outcome))

    def _outcome(self) -> Composite | None:
        return self.random.choice(
            (
                accepted(),
                accepted(),
                accepted(),
                released(),
                modified(),
                modified(delivery_failed=True),
                modified(delivery_failed=True, undeliverable_here=True),
                modified(undeliverable_here=True),
                rejected(),
            )
        )

    def _judged(self, told: list[Delivery], outcome: Composite | None) -> None:
        """The broker has read an outcome."""
        for each in told:
            message, link = each.message, each.link
            if not link.is_attached or link.copies or message.state is not State.KEPT:
                continue
            if message.holder is not link:
                continue
            message.holder = None
            if outcome is not None and outcome.kind in ("accepted", "rejected"):
                message.state = State.GONE
                continue
            message.queue.has_returns = True
            if outcome is None or outcome.kind == "released":
                continue
            failed = bool(outcome.get("delivery_failed"))
            message.failures_min += failed
            message.failures_max += failed
            if outcome.get("undeliverable_here"):
                message.refusers.add(link)

    def detach(self, link: Link, *, closed: bool = True) -> None:
        link.is_detaching = True
        self.raw.detach(link.handle, channel=link.session.channel, closed=closed)
        self.links.remove(link)
        self.mark(lambda: self.world.unlink(link, ends_node=closed))
        for number, each in list(link.session.unsettled.items()):
            if each.link is link:
                del link.session.unsettled[number]

    def end(self, session: Session) -> None:
        session.is_ending = True
        links = [link for link in self.links if link.session is session]
        for link in links:
            link.is_detaching = True
            self.links.remove(link)
        self.raw.end(session.channel)

        def ended() -> None:
            for link in links:
                self.world.unlink(link, ends_node=True)
            self.world.end_nodes_of(session)

        self.mark(ended)

    def close(self) -> None:
        self.state = "closing"
        self.raw.close()
        self.mark(lambda: self.world.disconnect(self, clean=True))

    def drop(self, most: int) -> None:
        """The connection is lost, after so many more bytes have arrived."""
        if self.wire.peer is None:
            self.state = "closed"
            return
        self.wire.is_up_stalled = False
        self.wire.carry_up(most)
        self.world.disconnect(self, clean=False)
        self.wire.drop(0)
        self.state = "closed"

    # --- what it reads --------------------------------------------------------------------------------------------

    def read(self) -> bool:
        """Take in all that has come; whether there was something."""
        found = False
        while self.state != "closed" and (frame := self.raw.read_frame(0)) is not None:
            found = True
            reaction = getattr(self, f"_on_{frame.name}", None)
            self.check(reaction is not None, f"unexpected {frame}")
            self.check(
                len(frame.whole) <= self.frame_size or frame.name.startswith("sasl"),
                f"a frame of {len(frame.whole)} bytes, above {self.frame_size}",
            )
            if reaction is not None:
                reaction(frame)
        if self.raw.is_closed and self.state != "closed":
            self.check(self.state == "closing", "the stream ended without a close")
            self.state = "closed"
        return found

    def _on_empty(self, frame: Frame) -> None: ...

    def _on_header(self, frame: Frame) -> None: ...

    def _on_sasl_mechanisms(self, frame: Frame) -> None: ...

    def _on_sasl_outcome(self, frame: Frame) -> None:
        self.check(frame.code == 0, str(frame))

    def _on_open(self, frame: Frame) -> None:
        self.check(frame.container_id == "broker", str(frame))

    def _on_close(self, frame: Frame) -> None:
        if self.may_be_idle:
            if self.state == "open":
                self.raw.close()
        else:
            self.check(self.state == "closing" and frame.error is None, f"unexpected {frame}")
        self.state = "closing"

    def _on_begin(self, frame: Frame) -> None:
        session = next(
            s for s in self.sessions if s.channel == frame.remote_channel and s.remote is None
        )
        session.remote = frame.channel
        self._channels[frame.channel] = session
        self.check(frame.next_outgoing_id == session.expected_id, f"starts elsewhere: {frame}")
        session.send_end = frame.incoming_window

    def _on_end(self, frame: Frame) -> None:
        session = self._channels.pop(frame.channel)
        self.check(session.is_ending and frame.error is None, f"unexpected {frame}")
        self.sessions.remove(session)
        for key in [key for key in self._by_remote if key[0] == frame.channel]:
            del self._by_remote[key]
        for answer in [key for key in self._answers if key[0] == session.channel]:
            del self._answers[answer]

    def _on_attach(self, frame: Frame) -> None:
        session = self._channels[frame.channel]
        link = self._answers[session.channel, frame.fields["name"], frame.role].popleft()
        link.remote = frame.handle
        self._by_remote[frame.channel, frame.handle] = link
        terminus = frame.target if frame.role else frame.source
        if terminus is None:
            self.check(link.queue is not None and not link.queue.is_alive, f"refused: {frame}")
            return
        if link.is_owner and link.queue is not None:
            link.queue.name = terminus["address"]
            self.world.books.queues[link.queue.name] = link.queue
        link.is_answered = True

    def _on_detach(self, frame: Frame) -> None:
        link = self._by_remote.pop((frame.channel, frame.handle))
        if link.is_detaching:
            return
        deleted = link.queue is not None and not link.queue.is_alive
        wanted = {
            "amqp:link:stolen": link.is_stolen,
            "amqp:resource-deleted": deleted,
            "amqp:not-found": deleted or link.is_failed,
        }
        self.check(wanted.get(frame.error["condition"]), f"unexpected {frame}")
        if not link.session.is_ending:
            self.detach(link)

    def _on_flow(self, frame: Frame) -> None:
        session = self._channels[frame.channel]
        if frame.next_incoming_id is not None:
            self.check(frame.next_incoming_id <= session.sent, f"not sent yet: {frame}")
            session.send_end = max(session.send_end, frame.next_incoming_id + frame.incoming_window)
        if frame.handle is None:
            return
        link = self._by_remote[frame.channel, frame.handle]
        if isinstance(link, Producer):
            link.limit = frame.delivery_count + frame.link_credit
        elif isinstance(link, Consumer) and frame.drain:
            self.check(frame.link_credit == 0, f"credit after a drain: {frame}")
            self.check(
                frame.delivery_count in link.drains, f"{link}: drains {link.drains}, {frame}"
            )
            is_whole = link.partial is None or link.is_cut_short
            self.check(is_whole, "drained within a delivery")
            link.count = frame.delivery_count
            link.is_draining = False

    def _on_disposition(self, frame: Frame) -> None:
        session = self._channels[frame.channel]
        last = frame.first if frame.last is None else frame.last
        if not frame.role:
            for number in range(frame.first, last + 1):
                each = session.unsettled.get(number)
                if each is not None:
                    self.check(each.is_told, f"settled unasked: {frame}")
                    del session.unsettled[number]
            return
        known = [n for n in range(frame.first, last + 1) if n in session.outstanding]
        second = False
        for number in known:
            link, message = session.outstanding.pop(number)
            second = link.second
            is_over = not link.is_attached or link.is_detaching or not message.queue.is_alive
            if frame.state is None and is_over:  # Settled, and nothing is said of its outcome.
                continue
            self._answered(message, frame)
            self.check(frame.settled is not second, f"settled or not: {frame}")
        if second and not session.is_ending:
            self.raw.disposition(
                frame.first, "sender", channel=session.channel, last=last, state=frame.state
            )

    def _answered(self, message: Message, frame: Frame) -> None:
        kind = frame.state.kind
        if kind == "accepted":
            self.check(message.state in (State.KEPT, State.GONE), f"accepted {message}")
            self.world.accepted += 1
        else:
            self.check(kind == "rejected" and message.state is State.VOID, f"{kind} {message}")

    def _on_transfer(self, frame: Frame) -> None:
        session = self._channels[frame.channel]
        self.check(session.expected_id < session.window_end, f"beyond the window: {frame}")
        session.expected_id += 1
        link = self._by_remote[frame.channel, frame.handle]
        assert isinstance(link, Consumer)
        if link.partial is None:
            if session.next_delivery is not None:
                self.check(frame.delivery_id == session.next_delivery, f"ids have a gap: {frame}")
            session.next_delivery = (frame.delivery_id + 1) % SERIAL
            self.check(link.count < link.limit or link.is_detaching, f"beyond credit: {frame}")
            link.count += 1
            link.partial = bytearray()
            link.is_cut_short = False
            link.delivery = frame.delivery_id
        link.partial += frame.payload
        if frame.aborted:
            self.check(
                link.is_cut_short or link.is_detaching, f"aborted, and we are there: {frame}"
            )
            link.partial = None
        elif not frame.more:
            payload = bytes(link.partial)
            link.partial = None
            if link.is_usable and not link.is_cut_short:
                self._delivered(link, payload, is_settled=frame.settled is True)
            elif link.settled and link.queue is not None:
                link.queue.losses += 1
        elif self.random.random() < 0.02 and self._can_cut_short(link):
            self._cut_short(link)

    def _can_cut_short(self, link: Consumer) -> bool:
        return link.is_usable and not (
            link.settled or link.copies or link.second or link.is_cut_short
        )

    def _cut_short(self, link: Consumer) -> None:
        """Accept a delivery of which only a part has come."""
        assert link.partial is not None
        try:
            message = self._message_of(bytes(link.partial))
        except (ValueError, IndexError):
            return
        link.is_cut_short = True
        self._take(link, message)
        self.raw.disposition(
            link.delivery, channel=link.session.channel, settled=True, state=accepted()
        )
        delivery = Delivery(link, message)
        self.mark(lambda: self._judged([delivery], accepted()))

    def _message_of(self, payload: bytes) -> Message:
        at = payload.index(DATA) + len(DATA)
        return self.world.books.found(payload[at + (2 if payload[at] == 0xA0 else 5) :])

    def _delivered(self, link: Consumer, payload: bytes, *, is_settled: bool) -> None:
        message = self._message_of(payload)
        self.world.deliveries += 1
        self.check(message.queue is link.queue, f"{message} on {link.queue}")
        head, rest = Composite("header"), payload
        if payload.startswith(b"\x00\x53\x70"):
            head, at = decode(payload)
            rest = payload[at:]
        self.check(rest == message.body, f"{message}: the body changed")
        if not link.is_attached:
            message.queue.losses += link.settled
            return  # The broker has ended it meanwhile: what had been on its way is no longer ours.
        if link.copies:
            self._browsed(link, message)
            return
        self.check(is_settled == link.settled, f"{message}: settled is {is_settled}")
        self._check_marks(link, message, head)
        self._take(link, message)
        if link.settled:
            message.state = State.GONE
            message.holder = None
        else:
            link.session.unsettled[link.delivery] = Delivery(link, message)

    def _browsed(self, link: Consumer, message: Message) -> None:
        self.check(message.state not in (State.SENT, State.VOID), f"browsed {message}")
        self.check(message not in link.browsed, f"{link} browses {message} again")
        link.browsed.add(message)
        link.session.unsettled[link.delivery] = Delivery(link, message)

    def _check_marks(self, link: Consumer, message: Message, head: Composite) -> None:
        failures = head.get("delivery_count") or 0
        self.check(
            message.failures_min <= failures <= message.failures_max,
            f"{message}: delivery-count {failures},"
            f" not {message.failures_min} to {message.failures_max}",
        )
        if not message.has_header:
            return
        is_first = head.get("first_acquirer") is True
        self.check(not (message.was_delivered and is_first), f"{message}: not marked")
        # A header that is made anew, for the time to live, never claims to be the first acquirer's.
        is_known = message.queue.has_returns or message.ttl
        self.check(is_first or is_known, f"{message}: marked for no reason")
        if is_first:
            last = link.fresh.get(message.producer, -1)
            self.check(last < message.number, f"{link}: {message} after number {last}")
            link.fresh[message.producer] = message.number

    def _take(self, link: Consumer, message: Message) -> None:
        if not link.is_attached:
            return
        self.check(message.state is State.KEPT, f"{link} was sent {message}")
        self.check(message.holder is None, f"{link} was sent {message}, which {message.holder} has")
        self.check(link not in message.refusers, f"{link} was sent {message}, which it refused")
        message.holder = link
        message.was_delivered = True
