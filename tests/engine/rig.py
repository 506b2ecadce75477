"""A broker to talk to in few words: a call applies a command, checks all invariants, and gives what came of it."""

from collections.abc import Iterable, Sequence
from typing import TypeVar

from amqpbroker.base import codec, sections
from amqpbroker.base.ids import BatchNumber, ConnectionId, LinkId, Millis, Number, SessionId
from amqpbroker.base.ids import Sequence as Place
from amqpbroker.engine.broker import Broker
from amqpbroker.engine.commands import (
    ACCEPTED,
    AttachConsumer,
    AttachProducer,
    CloseConnection,
    CloseSession,
    Command,
    Credit,
    Detach,
    Lifetime,
    Node,
    OpenConnection,
    OpenSession,
    Outcome,
    OutcomeKind,
    Publish,
    Room,
    Settle,
    Stored,
    Terminus,
    Unpublished,
    Window,
)
from amqpbroker.engine.consumer import Consumer
from amqpbroker.engine.effects import Append, Dispose, Effect, Note, Transfer
from amqpbroker.engine.queue import Queue
from amqpbroker.engine.records import Record
from amqpbroker.engine.settings import BrokerSettings

PLENTY = 1 << 40
START = Millis(1_000_000)
REJECTED = Outcome(OutcomeKind.REJECTED)
NULL = b"\x40"

AnyEffect = TypeVar("AnyEffect", bound=Effect)


def message(
    text: str = "m",
    *,
    durable: bool = False,
    ttl: int | None = None,
    count: int = 0,
    to: str | None = None,
    absolute_expiry: int | None = None,
) -> bytes:
    """An encoded message; plain unless it says something that the broker must rewrite."""
    head = b""
    if durable or ttl is not None or count:
        ttl_field = NULL if ttl is None else codec.encode(codec.UInt(ttl))
        fields = [b"\x41" if durable else NULL, NULL, ttl_field, NULL]
        if count:
            fields.append(codec.encode(codec.UInt(count)))
        head = b"\x00\x53\x70" + codec.encode_list(fields)
    if to is not None or absolute_expiry is not None:
        fields = [NULL, NULL, NULL if to is None else codec.encode(to)]
        if absolute_expiry is not None:
            fields += [NULL] * 5 + [codec.encode(codec.Timestamp(absolute_expiry))]
        head += b"\x00\x53\x73" + codec.encode_list(fields)
    return head + b"\x00\x53\x77" + codec.encode(text)


def text_of(payload: bytes) -> str:
    """The body of what `message` made, however its header was rewritten."""
    at = payload.rindex(b"\x00\x53\x77")
    value, _ = codec.decode(payload, at + 3)
    assert isinstance(value, str)
    return value


def header_of(payload: bytes) -> list[object]:
    """The five header fields; None where nothing is said."""
    values: object = []
    if payload.startswith(b"\x00\x53\x70"):
        values, _ = codec.decode(payload, 3)
    assert isinstance(values, list)
    return values + [None] * (5 - len(values))


class Rig:
    """Numbers are given out here; `now` stands still until it is moved."""

    def __init__(
        self, settings: BrokerSettings | None = None, *, credit: int = 1000, credit_low: int = 300
    ) -> None:
        self.broker = Broker(settings or BrokerSettings())
        self.credit_high = credit  # Of the connections opened here.
        self.credit_low = credit_low
        self.now = START
        self.appended: list[BatchNumber] = []  # Handed to the store, not yet told as stored.
        self.records: list[Record] = []  # All, in order.
        self.notes: list[Note] = []  # For the log.
        self._last = 0
        self._numbers: dict[LinkId, int] = {}
        self._counters: dict[int, tuple[int, ...]] = {}

    # --- a turn -------------------------------------------------------------------------------------------------

    def do(self, *commands: Command) -> list[Effect]:
        """One turn with these commands."""
        for command in commands:
            self.broker.apply(command, self.now)
            self.broker.check()
        return self.turn()

    def turn(self) -> list[Effect]:
        """One turn, or the rest of it."""
        self.broker.tick(self.now)
        self.broker.dispatch(self.now)
        self.broker.close_batch()
        self.broker.check()
        self._check_counters()
        deadline = self.broker.next_deadline()
        assert deadline is None or deadline > self.now, "a deadline is never in the past"
        effects = self.broker.take_effects()
        self.notes += of(effects, Note)
        effects = [effect for effect in effects if not isinstance(effect, Note)]
        for append in of(effects, Append):
            self.appended.append(append.batch.number)
            self.records += append.batch.records
        return effects

    def _check_counters(self) -> None:
        for queue in self.broker.queues():
            values = queue.stats.values()
            before = self._counters.get(queue.id, (0,) * len(values))
            assert all(old <= new for old, new in zip(before, values, strict=True))
            self._counters[queue.id] = values

    def move_to(self, now: int) -> list[Effect]:
        self.now = Millis(now)
        return self.turn()

    def stored(self) -> list[Effect]:
        """The store has kept all it was given."""
        newest = self.appended[-1]
        self.appended.clear()
        return self.do(Stored(newest))

    def number(self) -> int:
        """One that names nothing yet."""
        self._last += 1
        return self._last

    # --- peers --------------------------------------------------------------------------------------------------

    def connection(self, container: str = "", *, room: int = PLENTY) -> ConnectionId:
        number = ConnectionId(self.number())
        name = container or f"container {number}"
        assert not self.do(OpenConnection(number, name, room, self.credit_high, self.credit_low))
        return number

    def session(
        self,
        connection: ConnectionId | None = None,
        *,
        frames: int = PLENTY,
        frame_bytes: int = 1000,
    ) -> SessionId:
        number = SessionId(self.number())
        where = self.connection() if connection is None else connection
        assert not self.do(OpenSession(where, number, frames, frame_bytes))
        return number

    def close_session(self, session: SessionId) -> list[Effect]:
        return self.do(CloseSession(session))

    def close(self, connection: ConnectionId, *, clean: bool = True) -> list[Effect]:
        return self.do(CloseConnection(connection, clean=clean))

    def window(self, session: SessionId, frames: int) -> list[Effect]:
        return self.do(Window(session, frames))

    def room(self, connection: ConnectionId, room: int) -> list[Effect]:
        return self.do(Room(connection, room))

    # --- links --------------------------------------------------------------------------------------------------

    def attach_producer(
        self,
        address: str | None = "q",
        *,
        session: SessionId | None = None,
        name: str = "",
        node: Node = Node.ANY,
        lifetime: Lifetime | None = None,
        can_reject: bool = True,
    ) -> tuple[LinkId, list[Effect]]:
        link = LinkId(self.number())
        target = Terminus(address, node, lifetime, f"tmp.{link}" if lifetime else "")
        where = self.session() if session is None else session
        command = AttachProducer(where, link, name or f"link {link}", target, can_reject=can_reject)
        return link, self.do(command)

    def producer(self, address: str | None = "q", **options: object) -> LinkId:
        return self.attach_producer(address, **options)[0]  # type: ignore[arg-type]

    def attach_consumer(
        self,
        address: str | None = "q",
        *,
        session: SessionId | None = None,
        name: str = "",
        node: Node = Node.ANY,
        lifetime: Lifetime | None = None,
        copies: bool = False,
        settled: bool = False,
    ) -> tuple[LinkId, list[Effect]]:
        link = LinkId(self.number())
        source = Terminus(address, node, lifetime, f"tmp.{link}" if lifetime else "")
        where = self.session() if session is None else session
        command = AttachConsumer(
            where, link, name or f"link {link}", source, wants_copies=copies, settled=settled
        )
        return link, self.do(command)

    def consumer(self, address: str | None = "q", *, credit: int = 0, **options: object) -> LinkId:
        link, _ = self.attach_consumer(address, **options)  # type: ignore[arg-type]
        if credit:
            self.do(Credit(link, credit, drain=False))
        return link

    def detach(self, link: LinkId, *, closed: bool = True) -> list[Effect]:
        return self.do(Detach(link, closed=closed))

    # --- messages -----------------------------------------------------------------------------------------------

    def publishing(self, link: LinkId, *payloads: bytes | str, settled: bool = False) -> Publish:
        encoded = [message(each) if isinstance(each, str) else each for each in payloads]
        first = Number(self._numbers.get(link, 0))
        self._numbers[link] = first + len(encoded)
        facts = sections.scan_run(encoded)
        return Publish(link, first, encoded, facts, settled=settled)

    def publish(self, link: LinkId, *payloads: bytes | str, settled: bool = False) -> list[Effect]:
        return self.do(self.publishing(link, *payloads, settled=settled))

    def unpublished(self, link: LinkId, count: int) -> list[Effect]:
        return self.do(Unpublished(link, count))

    def credit(self, link: LinkId, credit: int, *, drain: bool = False) -> list[Effect]:
        return self.do(Credit(link, credit, drain=drain))

    def settle(
        self, link: LinkId, sequences: Iterable[int], outcome: Outcome = ACCEPTED
    ) -> list[Effect]:
        return self.do(Settle(link, outcome, [Place(sequence) for sequence in sequences]))

    # --- what is there ------------------------------------------------------------------------------------------

    def queue(self, name: str = "q") -> Queue:
        (found,) = [queue for queue in self.broker.queues() if queue.name == name]
        return found

    def queue_consumer(self, link: LinkId) -> Consumer:
        return self.broker._links.consumers[link]

    def has_queue(self, name: str = "q") -> bool:
        return any(queue.name == name for queue in self.broker.queues())


def of(effects: Iterable[Effect], kind: type[AnyEffect]) -> list[AnyEffect]:
    """Those of one kind."""
    return [effect for effect in effects if isinstance(effect, kind)]


def kinds(effects: Iterable[Effect]) -> list[str]:
    """What came, by name."""
    return [type(effect).__name__ for effect in effects]


def taken(effects: Iterable[Effect], link: LinkId | None = None) -> list[str]:
    """The bodies that were sent, on one link or on all, in order."""
    return [
        text_of(payload)
        for transfer in of(effects, Transfer)
        if link is None or transfer.link == link
        for payload in transfer.payloads
    ]


def answers(effects: Iterable[Effect]) -> list[tuple[int, int, str]]:
    """(first, count, outcome) of each Dispose."""
    return [(each.first, each.count, each.outcome.kind.value) for each in of(effects, Dispose)]


def the(effects: Sequence[Effect], kind: type[AnyEffect]) -> AnyEffect:
    """The only effect of this kind."""
    (found,) = of(effects, kind)
    return found
