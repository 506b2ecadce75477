"""What may be asked of the broker: the one door in. Values only; never changed after they are made.

Plain slots classes, since a frozen dataclass costs three times as much (docs/decisions/0002). On the hot path
one command is a run: all that one link brought in a turn. Which effects follow which command: docs/seams.md.
"""

from collections.abc import Sequence as Run
from enum import Enum

from amqpbroker.base.errors import Refusal
from amqpbroker.base.ids import BatchNumber, ConnectionId, LinkId, Number, Sequence, SessionId
from amqpbroker.base.sections import Facts


class Node(Enum):
    """What kind of node a terminus asks for by capability or prefix [semantics 10.2]."""

    ANY = "any"
    QUEUE = "queue"
    TOPIC = "topic"


class Lifetime(Enum):
    """When a dynamic node is deleted: lifetime-policy [3.5.10 to 3.5.13], client-needs B11.3."""

    ON_CLOSE = "delete-on-close"
    ON_NO_LINKS = "delete-on-no-links"
    ON_NO_MESSAGES = "delete-on-no-messages"
    ON_NO_LINKS_OR_MESSAGES = "delete-on-no-links-or-messages"


class OutcomeKind(Enum):
    """The four outcomes of a delivery [3.4.2 to 3.4.5]."""

    ACCEPTED = "accepted"
    REJECTED = "rejected"
    RELEASED = "released"
    MODIFIED = "modified"


class Outcome:
    """One outcome with what it carries, from a consumer or for a producer."""

    __slots__ = ("annotations", "failed", "kind", "refusal", "undeliverable_here")

    def __init__(
        self,
        kind: OutcomeKind,
        *,
        failed: bool = False,
        undeliverable_here: bool = False,
        annotations: bytes = b"",
        refusal: Refusal | None = None,
    ) -> None:
        self.kind = kind
        self.failed = failed  # modified: delivery-failed.
        self.undeliverable_here = undeliverable_here  # modified only.
        self.annotations = annotations  # modified: an encoded AMQP map, or nothing.
        self.refusal = refusal  # rejected only.


ACCEPTED = Outcome(OutcomeKind.ACCEPTED)
RELEASED = Outcome(OutcomeKind.RELEASED)


class OpenConnection:
    """A peer is open; its links may follow."""

    __slots__ = ("connection", "container", "credit", "credit_low", "room")

    def __init__(
        self, connection: ConnectionId, container: str, room: int, credit: int, credit_low: int
    ) -> None:
        self.connection = connection
        self.container = container
        self.room = room  # Bytes that may be sent to it before the next Room.
        self.credit = credit  # Granted to each of its producers' links, by its listener's setting;
        self.credit_low = credit_low  # refilled at this mark.


class CloseConnection:
    """A peer is gone: all its links with it. `clean` when it said Close or End first (rule 9.3)."""

    __slots__ = ("clean", "connection")

    def __init__(self, connection: ConnectionId, *, clean: bool) -> None:
        self.connection = connection
        self.clean = clean


class OpenSession:
    """A session of an open connection; `frame_bytes` is the payload that fits one transfer frame."""

    __slots__ = ("connection", "frame_bytes", "frames", "session")

    def __init__(
        self, connection: ConnectionId, session: SessionId, frames: int, frame_bytes: int
    ) -> None:
        self.connection = connection
        self.session = session
        self.frames = frames  # The peer's incoming-window: transfer frames it takes now.
        self.frame_bytes = frame_bytes


class CloseSession:
    """The session has ended cleanly: its links are gone."""

    __slots__ = ("session",)

    def __init__(self, session: SessionId) -> None:
        self.session = session


class Window:
    """The peer's incoming-window was learned anew: `frames` may be sent from now."""

    __slots__ = ("frames", "session")

    def __init__(self, session: SessionId, frames: int) -> None:
        self.session = session
        self.frames = frames


class Room:
    """How many more bytes the connection takes before its outgoing buffer is full; may be <= 0."""

    __slots__ = ("connection", "room")

    def __init__(self, connection: ConnectionId, room: int) -> None:
        self.connection = connection
        self.room = room


class Terminus:
    """The node that a link asks for."""

    __slots__ = ("address", "fresh_name", "lifetime", "node")

    def __init__(
        self,
        address: str | None,
        node: Node = Node.ANY,
        lifetime: Lifetime | None = None,
        fresh_name: str = "",
    ) -> None:
        self.address = address  # None: anonymous terminus, or dynamic when `lifetime` is given.
        self.node = node
        self.lifetime = lifetime  # Given: make a dynamic node named `fresh_name`.
        self.fresh_name = fresh_name


class AttachProducer:
    """A producer wants an incoming link. Answer: ProducerAttached then Grant, or AttachRefused."""

    __slots__ = ("can_reject", "link", "name", "session", "target")

    def __init__(
        self, session: SessionId, link: LinkId, name: str, target: Terminus, *, can_reject: bool
    ) -> None:
        self.session = session
        self.link = link
        self.name = name
        self.target = target
        self.can_reject = can_reject  # Its source outcomes are unstated or hold rejected.


class AttachConsumer:
    """A consumer wants an outgoing link. Answer: ConsumerAttached or AttachRefused."""

    __slots__ = ("link", "name", "session", "settled", "source", "wants_copies")

    def __init__(
        self,
        session: SessionId,
        link: LinkId,
        name: str,
        source: Terminus,
        *,
        wants_copies: bool,
        settled: bool,
    ) -> None:
        self.session = session
        self.link = link
        self.name = name
        self.source = source
        self.wants_copies = wants_copies  # distribution-mode copy: a browser.
        self.settled = settled  # snd-settle-mode settled: an entry is gone when it is sent.


class Detach:
    """The link is gone, asked for by its peer or closed by us for a fault."""

    __slots__ = ("closed", "link")

    def __init__(self, link: LinkId, *, closed: bool) -> None:
        self.link = link
        self.closed = closed  # As in the Detach frame: false keeps a dynamic node (B11.4).


class Publish:
    """All complete messages that one incoming link brought this turn, in arrival order.

    `numbers[i]` belongs to `payloads[i]`. Each number gets exactly one Dispose.
    """

    __slots__ = ("facts", "first", "link", "payloads", "settled")

    def __init__(
        self,
        link: LinkId,
        first: Number,
        payloads: list[bytes],
        facts: list[Facts],
        *,
        settled: bool,
    ) -> None:
        self.link = link
        self.first = first  # Numbers are first, first+1, …: a run has no gap.
        self.payloads = payloads
        self.facts = facts  # Of base.sections.scan_run(payloads).
        self.settled = settled  # The whole run was sent settled.


class Unpublished:
    """Deliveries that used credit and brought no message: aborted, or refused by the peer's checks."""

    __slots__ = ("count", "link")

    def __init__(self, link: LinkId, count: int) -> None:
        self.link = link
        self.count = count


class Credit:
    """A consumer's flow: it takes `credit` more entries, counted from what was sent to it so far."""

    __slots__ = ("credit", "drain", "link")

    def __init__(self, link: LinkId, credit: int, *, drain: bool) -> None:
        self.link = link
        self.credit = credit
        self.drain = drain  # True: answered by exactly one Drained.


class Settle:
    """A run of leases of one outgoing link with one outcome; unknown sequences are ignored."""

    __slots__ = ("link", "outcome", "sequences")

    def __init__(self, link: LinkId, outcome: Outcome, sequences: Run[Sequence]) -> None:
        self.link = link
        self.outcome = outcome
        self.sequences = sequences


class Stored:
    """The store holds all batches up to and including `batch`, as durably as it promises."""

    __slots__ = ("batch",)

    def __init__(self, batch: BatchNumber) -> None:
        self.batch = batch


Command = (
    OpenConnection
    | CloseConnection
    | OpenSession
    | CloseSession
    | Window
    | Room
    | AttachProducer
    | AttachConsumer
    | Detach
    | Publish
    | Unpublished
    | Credit
    | Settle
    | Stored
)
