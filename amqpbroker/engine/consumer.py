"""A consumer's link: its credit, its leases, its place. Must not know how entries are chosen for it."""

from amqpbroker.base.ids import LinkId, Sequence
from amqpbroker.engine.connection import LinkKey, Session
from amqpbroker.engine.message import Entry
from amqpbroker.engine.queue import Queue
from amqpbroker.engine.routing import Address


class Consumer:
    """An outgoing link, seen from the engine: takes entries, or copies of them (a browser)."""

    __slots__ = (
        "address",
        "behind",
        "copies",
        "created",
        "credit",
        "cursor",
        "drains",
        "key",
        "leases",
        "link",
        "payloads",
        "queue",
        "sequences",
        "session",
        "settled",
    )

    def __init__(
        self,
        link: LinkId,
        key: LinkKey,
        session: Session,
        address: Address,
        queue: Queue,
        *,
        copies: bool,
        settled: bool,
    ) -> None:
        self.link = link
        self.key = key
        self.session = session
        self.address = address
        self.queue = queue
        self.created: Address | None = None  # The dynamic node that was made for it.
        self.copies = copies
        self.settled = settled or copies
        self.credit = 0
        self.drains = 0  # Drain commands that wait for their answer.
        self.leases: dict[Sequence, Entry] = {}
        self.behind: list[
            Sequence
        ] = []  # A heap: entries that others refused and this one may have.
        self.cursor = Sequence(0)  # Browsers: the next sequence to look at.
        # The run of the pass under way; empty between passes.
        self.sequences: list[Sequence] = []
        self.payloads: list[bytes] = []
