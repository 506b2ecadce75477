"""The obvious broker, to hold the real one against: lists that are searched in full. It judges effects, it makes none.

Where the real one may choose (which consumer gets which entry), the model says what every choice must keep.
"""

from dataclasses import dataclass, field

from amqpbroker.base.ids import LinkId
from amqpbroker.engine.commands import Outcome, OutcomeKind
from tests.engine.rig import header_of, text_of


@dataclass
class Item:
    """One entry."""

    sequence: int
    payload: bytes
    durable: bool
    expires: int
    state: str  # storing, ready or leased.
    failures: int = 0
    returned: bool = False
    refusers: set[LinkId] = field(default_factory=set)
    owner: LinkId | None = None


@dataclass
class Peer:
    """A connection or session: what it takes."""

    limit: int
    used: list[int] = field(default_factory=list)  # By each entry that was started since `limit`.

    def may_start(self) -> bool:
        return self.limit - sum(self.used) > 0


@dataclass
class Taker:
    """A consumer or browser."""

    link: LinkId
    queue: "ModelQueue"
    window: Peer
    room: Peer
    frame_bytes: int
    copies: bool
    settled: bool
    credit: int = 0
    drains: int = 0
    sent: int = 0  # Browsers: the newest they were sent. They may get what comes after it, ...
    # ... and must get what comes after this: what they passed need not be shown (N-9).
    passed: int = 0

    def is_blocked(self) -> bool:
        return not (self.window.may_start() and self.room.may_start())


@dataclass
class ModelQueue:
    """One queue."""

    items: list[Item] = field(default_factory=list)
    next: int = 1
    added: int = 0
    acknowledged: int = 0
    expired: int = 0
    killed: int = 0

    def add(self, payload: bytes, *, durable: bool, expires: int, now: int) -> None:
        self.added += 1
        if 0 < expires < now:
            self.expired += 1
            return
        state = "storing" if durable else "ready"
        self.items.append(Item(self.next, payload, durable, expires, state))
        self.next += 1

    def find(self, sequence: int) -> Item:
        (item,) = [item for item in self.items if item.sequence == sequence]
        return item

    def expire(self, now: int) -> None:
        lapsed = [item for item in self.items if item.state == "ready" and 0 < item.expires < now]
        self.expired += len(lapsed)
        self.items = [item for item in self.items if item not in lapsed]

    def give_back(self, item: Item, *, failed: bool) -> None:
        item.state = "ready"
        item.owner = None
        item.returned = True
        item.failures += failed

    def settle(self, taker: Taker, outcome: Outcome, sequences: list[int]) -> None:
        for sequence in dict.fromkeys(sequences):
            held = [i for i in self.items if i.sequence == sequence and i.owner == taker.link]
            for item in held:
                match outcome.kind:
                    case OutcomeKind.ACCEPTED:
                        self.acknowledged += 1
                        self.items.remove(item)
                    case OutcomeKind.REJECTED:
                        self.killed += 1
                        self.items.remove(item)
                    case OutcomeKind.RELEASED:
                        self.give_back(item, failed=False)
                    case OutcomeKind.MODIFIED:
                        self.give_back(item, failed=outcome.failed)
                        if outcome.undeliverable_here:
                            item.refusers.add(taker.link)

    # --- what may be sent ---------------------------------------------------------------------------------------

    def offered(self, now: int) -> list[Item]:
        """What may be sent now to somebody: nothing behind a STORING entry."""
        found = []
        for item in self.items:
            if item.state == "storing":
                break
            if item.state == "ready" and not 0 < item.expires < now:
                found.append(item)
        return found

    def for_taker(self, taker: Taker, now: int) -> list[Item]:
        """What it may get."""
        offered = self.offered(now)
        if taker.copies:
            return [item for item in offered if item.sequence > taker.sent]
        return [item for item in offered if taker.link not in item.refusers]

    def due_to(self, taker: Taker, now: int) -> list[Item]:
        """What it must get when nothing holds it up."""
        found = self.for_taker(taker, now)
        return [item for item in found if not taker.copies or item.sequence > taker.passed]

    def pass_by(self, taker: Taker, now: int) -> None:
        """A browser that waits for nothing has looked at all there is."""
        if taker.credit and not (taker.is_blocked() and self.for_taker(taker, now)):
            storing = [item.sequence for item in self.items if item.state == "storing"]
            taker.passed = min([*storing, self.next]) - 1

    def send(
        self, taker: Taker, sequences: list[int], payloads: list[bytes], now: int
    ) -> list[Item]:
        """Judge one Transfer, and apply it."""
        assert sequences, "no empty runs"
        assert sequences == sorted(set(sequences)), "oldest first, each once"
        sent = []
        for sequence, payload in zip(sequences, payloads, strict=True):
            assert taker.credit > 0, "beyond its credit"
            item = self.find(sequence)
            assert item in self.for_taker(taker, now), "not ready, or not for this one"
            self._check_payload(item, payload, now)
            taker.credit -= 1
            taker.window.used.append(1 + (len(payload) - 1) // taker.frame_bytes)
            taker.room.used.append(len(payload))
            sent.append(item)
            if taker.copies:
                skipped = [i for i in self.due_to(taker, now) if i.sequence < sequence]
                assert not skipped, "a browser skips nothing that is ready"
                taker.sent = sequence
            elif taker.settled:
                self.acknowledged += 1
                self.items.remove(item)
            else:
                item.state = "leased"
                item.owner = taker.link
        return sent

    def _check_payload(self, item: Item, payload: bytes, now: int) -> None:
        header = header_of(payload)
        if not item.returned and not item.expires and header_of(item.payload)[4] is None:
            assert payload == item.payload, "as received"
            return
        assert text_of(payload) == text_of(item.payload)
        assert (header[4] or 0) == item.failures, "delivery-count is that of failed deliveries"
        assert bool(header[0]) == item.durable
        assert header[2] == (max(1, item.expires - now) if item.expires else None)
        if item.returned:
            assert not header[3], "not the first acquirer"
