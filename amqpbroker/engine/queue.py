"""A queue: its entries, their states, and what it counts. Must not know links' windows, addresses or the store.

Invariants, all verified by `check()`:

1. added = storing + ready + held + leased + gone, and gone = acknowledged + expired + killed + replaced + removed.
2. The leases held by consumers are the LEASED entries; each entry has at most one.
3. No consumer has taken more than its credit: credit >= 0.
4. Order: an entry that was never offered goes after all that were; returned ones go first, by sequence (D-11).
5. No entry is offered while an older one of its lane is STORING.
6. Counters never fall.
7. `bytes` is the sum of the payloads of all entries.
8. A consumer with credit is in `willing` (a browser: in `browsing`) or waits for its session or connection; one
   without is in neither.
9. An entry that some link refused is in `refused`; READY, it waits in `behind` of each consumer that has not
   refused it.
"""

import heapq
from collections import OrderedDict
from typing import TYPE_CHECKING

from amqpbroker.base import sections
from amqpbroker.base.ids import LinkId, Millis, QueueId, Sequence
from amqpbroker.base.sections import Facts
from amqpbroker.engine.expiry import Expiry
from amqpbroker.engine.journal import Journal
from amqpbroker.engine.message import (
    LEASED,
    READY,
    RETURNED,
    STORING,
    Arrival,
    Entry,
    History,
    entries_of,
    has_expired,
)
from amqpbroker.engine.outcome import Rule
from amqpbroker.engine.ready import Lane
from amqpbroker.engine.records import Delete, Put, Update
from amqpbroker.engine.stats import Stats

if TYPE_CHECKING:
    from amqpbroker.engine.consumer import Consumer

ARRIVAL_ORDER = b""  # Order key of a standard queue: the sequence alone (docs/seams.md, section 5).
STALE_MAX = 64  # Of `behind`: with fewer stale items, making it anew costs more than it frees.
SECTION = b"\x00\x53\x72"  # What makes a map a message-annotations section [3.2.3].


class Queue:
    """One standard queue."""

    __slots__ = (
        "_arrival",
        "behind",
        "browsing",
        "bytes",
        "consumers",
        "draining",
        "durable",
        "durables",
        "expiry",
        "held",
        "id",
        "idle_until",
        "is_automatic",
        "is_remembered",
        "is_used",
        "is_watched",
        "journal",
        "lane",
        "leased",
        "name",
        "ready",
        "refused",
        "stats",
        "storing",
        "sweep_at",
        "willing",
    )

    def __init__(
        self, queue: QueueId, name: str, journal: Journal, *, durable: bool, is_automatic: bool
    ) -> None:
        self.id = queue
        self.name = name
        self.journal = journal
        self.durable = durable  # False: nothing of it is ever stored.
        self.is_automatic = is_automatic  # Made on demand, so it may be deleted when idle (LC-1).
        self.is_used = False  # Had a consumer or a message.
        self.is_remembered = False  # The store knows its name.
        # Its end hangs on its last entry: a dynamic node without its maker.
        self.is_watched = False
        self.idle_until = Millis(0)  # When it is deleted if it stays idle; 0: it is not idle.
        self.sweep_at = Millis(0)  # The deadline that is set for its expiry; 0: none.
        self.lane = Lane()
        self.stats = Stats()
        self.expiry = Expiry()
        self.storing = self.ready = self.held = self.leased = 0  # Entries by state.
        self.bytes = 0
        self.durables = 0  # Entries that have a record.
        self.consumers: dict[LinkId, Consumer] = {}  # Browsers too.
        self.willing: OrderedDict[LinkId, Consumer] = OrderedDict()  # The next to be served first.
        self.browsing: dict[LinkId, Consumer] = {}  # Browsers with credit.
        self.draining: dict[LinkId, Consumer] = {}  # Drains to be answered.
        self.refused: dict[Sequence, Entry] = {}  # Entries that some link must not see again.
        self.behind: dict[LinkId, Consumer] = {}  # Consumers that have such entries to take.
        self._arrival: Arrival | None = None  # Of the latest run: often that of the next one too.

    def count(self) -> int:
        """Everything the queue owns (semantics: depth)."""
        return self.storing + self.ready + self.held + self.leased

    # --- arrivals -----------------------------------------------------------------------------------------------

    def admit(
        self, payloads: list[bytes], facts: list[Facts], now: Millis, expires: Millis
    ) -> list[Entry]:
        """Add a run that shares its durability and expiry; STORING and with records when it is durable."""
        count = len(payloads)
        is_stored = self.durable and facts[0].durable
        state = STORING if is_stored else READY
        first = self.lane.next
        uniform = facts.count(facts[0]) == count
        if uniform:
            arrival = self._arrival_of(facts[0], now, expires)
            entries = entries_of(first, payloads, arrival, state)
            uneven = not arrival.even
        else:
            arrivals = [Arrival(each, now, expires) for each in facts]
            numbers = range(first, first + count)
            entries = [
                Entry(number, payload, arrival, state)
                for number, payload, arrival in zip(numbers, payloads, arrivals, strict=True)
            ]
            uneven = not all(arrival.even for arrival in arrivals)
        self.lane.append(entries, uneven=uneven, storing=is_stored)
        self.is_used = True
        self.idle_until = Millis(0)
        self.stats.added += count
        self.bytes += sum(map(len, payloads))
        if is_stored:
            self.storing += count
            self._write_puts(entries)
        else:
            self.ready += count
        if expires:
            self.expiry.add(expires, first, Sequence(first + count - 1))
            self.expiry.prune(self.count(), self._is_present)
        return entries

    def _is_present(self, sequence: int) -> bool:
        return self.lane.find(sequence) is not None

    def _arrival_of(self, facts: Facts, now: Millis, expires: Millis) -> Arrival:
        last = self._arrival
        if last is None or last.facts is not facts or last.at != now or last.expires != expires:
            last = self._arrival = Arrival(facts, now, expires)
        return last

    def _write_puts(self, entries: list[Entry]) -> None:
        self.durables += len(entries)
        self.journal.records += [
            Put(
                self.id,
                ARRIVAL_ORDER,
                entry.sequence,
                entry.payload,
                arrived=entry.arrival.at,
                expires=entry.arrival.expires,
                durable=True,
            )
            for entry in entries
        ]

    def expire_arrivals(self, count: int) -> None:
        """Messages that had expired when they arrived: they came and went."""
        self.is_used = True
        self.stats.added += count
        self.stats.expired += count

    def stored(self, entries: list[Entry], now: Millis) -> None:
        """The oldest STORING run is kept: it may be dispatched, unless it expired meanwhile."""
        self.lane.stored(entries[0].sequence, entries[-1].sequence)
        for entry in entries:
            entry.state = READY
        self.storing -= len(entries)
        self.ready += len(entries)
        if has_expired(entries[0], now):  # The sweep has passed by already.
            self.expire(entries)

    # --- leases and their end -----------------------------------------------------------------------------------

    def lease(self, consumer: "Consumer", entries: list[Entry], sequences: list[Sequence]) -> None:
        """READY entries that the lane gave are the consumer's until it settles them."""
        for entry in entries:
            entry.state = LEASED
        consumer.leases.update(zip(sequences, entries, strict=True))
        self.ready -= len(entries)
        self.leased += len(entries)

    def finish_leases(self, entries: list[Entry], *, killed: bool) -> None:
        """Leases that are over for good: acknowledged, or killed where no dead letter address takes them (D-17)."""
        self.leased -= len(entries)
        if killed:
            self.stats.killed += len(entries)
        else:
            self.stats.acknowledged += len(entries)
        self.end(entries, [entry.sequence for entry in entries])

    def end(self, entries: list[Entry], sequences: list[Sequence]) -> None:
        """These are gone for good; the caller has taken them off their state's count and counts why."""
        self.bytes -= sum([len(entry.payload) for entry in entries])
        if self.durables:
            self._write_deletes(entries)
        if self.refused:
            for sequence in sequences:
                self.refused.pop(sequence, None)
        self.lane.clear(sequences)

    def _write_deletes(self, entries: list[Entry]) -> None:
        gone = [
            Delete(self.id, ARRIVAL_ORDER, entry.sequence)
            for entry in entries
            if entry.arrival.facts.durable
        ]
        self.durables -= len(gone)
        self.journal.records += gone

    def expire(self, entries: list[Entry]) -> None:
        """READY entries whose time is over."""
        self.ready -= len(entries)
        self.stats.expired += len(entries)
        self.end(entries, [entry.sequence for entry in entries])

    def give_back(
        self,
        entries: list[Entry],
        rule: Rule,
        now: Millis,
        *,
        refuser: LinkId | None = None,
        annotations: bytes = b"",
    ) -> None:
        """Leases that have ended otherwise than well: READY at their old places, or expired (T-5)."""
        changed = rule.counts or bool(annotations)
        places: list[Sequence] = []
        lapsed: list[Entry] = []
        for entry in entries:
            entry.state = READY
            history = entry.history or RETURNED
            if changed or refuser is not None:
                history = self._remember(entry, history, rule, refuser, annotations)
            entry.history = history
            if has_expired(entry, now):
                lapsed.append(entry)
            elif history.refusers:
                self._offer_to_others(entry, history)
            else:
                places.append(entry.sequence)
        self.leased -= len(entries)
        self.ready += len(entries)
        self.lane.give_back(places)
        if lapsed:
            self.expire(lapsed)

    def _remember(
        self,
        entry: Entry,
        history: History,
        rule: Rule,
        refuser: LinkId | None,
        annotations: bytes,
    ) -> History:
        refusers = history.refusers
        if refuser is not None:
            refusers |= {refuser}
            self.refused[entry.sequence] = entry
        changed = History(
            history.failures + rule.counts,
            refusers,
            merge(history.annotations, annotations),
        )
        is_kept = self.durable and entry.arrival.facts.durable
        if is_kept and (rule.counts or annotations):
            self.journal.records.append(
                Update(
                    self.id,
                    ARRIVAL_ORDER,
                    entry.sequence,
                    failures=changed.failures,
                    due=Millis(0),
                    annotations=changed.annotations,
                )
            )
        return changed

    # --- entries that somebody refused --------------------------------------------------------------------------

    def _offer_to_others(self, entry: Entry, history: History) -> None:
        for link, consumer in self.consumers.items():
            if consumer.copies or link in history.refusers:
                continue
            self.behind[link] = consumer
            if len(consumer.behind) < 2 * len(self.refused) + STALE_MAX:
                heapq.heappush(consumer.behind, entry.sequence)
            else:  # What others have taken since is still in it, once for each time it came back.
                consumer.behind = self._behind_of(link)

    def _behind_of(self, link: LinkId) -> list[Sequence]:
        """The READY entries that others refused and this link did not: sorted, so a heap."""
        return sorted(
            sequence
            for sequence, entry in self.refused.items()
            if entry.state == READY
            and entry.history is not None
            and link not in entry.history.refusers
        )

    def oldest_behind(self, consumer: "Consumer", now: Millis) -> Entry | None:
        """The oldest entry that others refused and this one may have."""
        while consumer.behind:
            entry = self.lane.find(consumer.behind[0])
            if entry is not None and entry.state == READY and entry.history is not None:
                if has_expired(entry, now):
                    self.expire([entry])
                elif consumer.link not in entry.history.refusers:
                    return entry
            heapq.heappop(consumer.behind)
        self.behind.pop(consumer.link, None)
        return None

    # --- consumers ----------------------------------------------------------------------------------------------

    def add_consumer(self, consumer: "Consumer") -> None:
        """A link serves this queue from now on."""
        self.is_used = True
        self.idle_until = Millis(0)
        self.consumers[consumer.link] = consumer
        if consumer.copies:
            return
        consumer.behind = self._behind_of(consumer.link)
        if consumer.behind:
            self.behind[consumer.link] = consumer

    def remove_consumer(self, consumer: "Consumer") -> None:
        """The link is gone; its leases are the caller's to give back."""
        link = consumer.link
        del self.consumers[link]
        for where in (self.willing, self.browsing, self.draining, self.behind):
            where.pop(link, None)

    def wake(self, consumer: "Consumer") -> None:
        """Its credit, or what held it up, has changed."""
        serve = self.browsing if consumer.copies else self.willing
        if consumer.credit > 0:
            serve.setdefault(consumer.link, consumer)
        else:
            serve.pop(consumer.link, None)

    # --- time ---------------------------------------------------------------------------------------------------

    def sweep(self, now: Millis, most: int) -> int:
        """End entries that have expired, about `most` of them; how many were looked at.

        Leased ones are looked at when they come back, STORING ones when they are stored.
        """
        looked = 0
        while looked < most and (run := self.expiry.due(now)) is not None:
            looked += len(run)
            found = [self.lane.find(sequence) for sequence in run]
            lapsed = [
                entry
                for entry in found
                if entry is not None and entry.state == READY and has_expired(entry, now)
            ]
            if lapsed:
                self.expire(lapsed)
        return looked

    # --- check --------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """All invariants. O(n): for tests."""
        self.lane.check()
        entries = list(self.lane.entries())
        by_state = [sum(1 for entry in entries if entry.state == state) for state in range(4)]
        assert by_state == [self.storing, self.ready, self.held, self.leased], "counts by state"
        assert self.stats.added == self.count() + self.stats.left(), "in = here + gone"
        assert self.bytes == sum(len(entry.payload) for entry in entries)
        kept = sum(1 for entry in entries if entry.arrival.facts.durable) if self.durable else 0
        assert self.durables == kept
        leases = {entry.sequence: entry for entry in entries if entry.state == LEASED}
        held = [lease for each in self.consumers.values() for lease in each.leases.items()]
        assert len(held) == len(leases), "each lease is held once"
        assert dict(held) == leases
        self._check_places(entries)
        for consumer in self.consumers.values():
            self._check_consumer(consumer)
        assert self.draining.keys() == {
            link for link, each in self.consumers.items() if each.drains
        }

    def _check_places(self, entries: list[Entry]) -> None:
        frontier = self.lane.frontier
        for entry in entries:
            if entry.state == LEASED:
                assert entry.sequence < frontier
        refused = {
            entry.sequence: entry
            for entry in entries
            if entry.history is not None and entry.history.refusers
        }
        assert self.refused == refused
        waiting = [entry.sequence for entry in entries if entry.state == READY]
        below = {each for each in waiting if each < frontier and each not in refused}
        assert below <= set(self.lane.returned), "returned ones are found again"

    def _check_consumer(self, consumer: "Consumer") -> None:
        assert consumer.queue is self
        assert consumer.credit >= 0, "no consumer beyond its credit"
        assert not consumer.sequences, "nothing is left unsent between passes"
        assert not consumer.copies or not consumer.leases
        link = consumer.link
        session = consumer.session
        places = (self.willing, self.browsing, session.blocked, session.connection.blocked)
        assert any(link in place for place in places) == (consumer.credit > 0)
        if consumer.copies:
            return
        assert (link in self.behind) == bool(consumer.behind)
        for sequence, entry in self.refused.items():
            if entry.state == READY and entry.history is not None:
                assert link in entry.history.refusers or sequence in consumer.behind


def merge(older: bytes, newer: bytes) -> bytes:
    """Two encoded annotation maps as one; the newer one's value of a key stands. A malformed one changes nothing."""
    if not newer:
        return older
    section = SECTION + older if older else b""
    return sections.merge(section, newer)[len(SECTION) :]
