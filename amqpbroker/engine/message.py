"""A message's place in one queue: the entry, and what can be shared by many of them.

An entry refers to nothing that refers back to it, so that millions of them never wait for the cycle collector.
Memory per entry: 72 bytes and its sequence, 32; a slot in its lane, 8. All else is shared by a run or is rare.
"""

from itertools import repeat

from amqpbroker.base import sections
from amqpbroker.base.ids import LinkId, Millis, Sequence
from amqpbroker.base.sections import Facts

# States. Plain ints: an Enum member costs a lookup per message where a constant costs none.
# GONE has no number: an entry that is gone has left its slot.
STORING = 0  # Its record is not yet synced.
READY = 1
HELD = 2  # Not before a time.
LEASED = 3

TTL_MIN = Millis(1)  # T-6: what is sent of a ttl that is used up but not yet over.


class Arrival:
    """What the messages of a run share: facts, arrival time and expiry."""

    __slots__ = ("at", "even", "expires", "facts")

    def __init__(self, facts: Facts, at: Millis, expires: Millis) -> None:
        self.facts = facts
        self.at = at
        self.expires = expires  # 0: never.
        # Goes out as it came in on its first delivery, and needs no look before it.
        self.even = facts.plain and not expires


class History:
    """What has happened to an entry that was leased and came back. A value: shared, never changed."""

    __slots__ = ("annotations", "failures", "refusers")

    def __init__(
        self,
        failures: int = 0,
        refusers: frozenset[LinkId] = frozenset(),
        annotations: bytes = b"",
    ) -> None:
        self.failures = failures  # Failed deliveries: the header's delivery-count (D-4).
        self.refusers = refusers  # Links that must not see it again: undeliverable-here.
        self.annotations = annotations  # Merged by modified outcomes, an encoded map (D-10).


RETURNED = History()  # Came back uncounted, with nothing else to remember.


class Entry:
    """A message's place in one queue."""

    __slots__ = ("arrival", "history", "payload", "sequence", "state")

    def __init__(self, sequence: int, payload: bytes, arrival: Arrival, state: int) -> None:
        self.sequence = Sequence(sequence)
        self.payload = payload
        self.arrival = arrival
        self.state = state
        self.history: History | None = None  # None until it came back once: acquired never before.


def entries_of(first: Sequence, payloads: list[bytes], arrival: Arrival, state: int) -> list[Entry]:
    """Entries first, first+1, … that share one arrival."""
    numbers = range(first, first + len(payloads))
    return list(map(Entry, numbers, payloads, repeat(arrival), repeat(state)))


def expiry_of(facts: Facts, now: Millis) -> Millis:
    """When a message that arrives at `now` expires; 0: never. header.ttl goes before absolute-expiry-time (B10.6)."""
    if facts.ttl:
        return Millis(now + facts.ttl)
    return facts.absolute_expiry


def has_expired(entry: Entry, now: Millis) -> bool:
    """Strictly after its expiry (T-4)."""
    expires = entry.arrival.expires
    return 0 < expires < now


def outgoing(entry: Entry, now: Millis) -> bytes:
    """The payload as it goes on the wire: as received, or with a header that says what happened since."""
    arrival = entry.arrival
    history = entry.history
    if history is None:
        if arrival.even:
            return entry.payload
        history = RETURNED
    ttl = Millis(max(TTL_MIN, arrival.expires - now)) if arrival.expires else None
    return sections.deliver(
        entry.payload,
        arrival.facts,
        failures=history.failures,
        ttl=ttl,
        annotations=history.annotations,
    )
