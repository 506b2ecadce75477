"""Messages in: checked, expired or admitted, and answered now or when they are stored.

Must not know what a queue does with them. A number gets one answer: here for a transient message, in `stored` for a
durable one; a link whose failure cannot be told by an outcome is detached instead (RJ-3, B11).
"""

from collections.abc import Iterator, Sequence
from itertools import groupby

from amqpbroker.base import errors, sections
from amqpbroker.base.errors import Refusal
from amqpbroker.base.ids import LinkId, Millis, Number
from amqpbroker.base.sections import Facts
from amqpbroker.engine.commands import Node, Outcome, OutcomeKind, Publish, Stored, Unpublished
from amqpbroker.engine.credit import Producer
from amqpbroker.engine.effects import Grant
from amqpbroker.engine.lifecycle import Lifecycle
from amqpbroker.engine.links import Links
from amqpbroker.engine.message import STORING, expiry_of
from amqpbroker.engine.routing import Address, Refused, Routing
from amqpbroker.engine.settings import BrokerSettings
from amqpbroker.engine.turn import StoringRun, Turn


class Part:
    """A stretch of one Publish that goes one way."""

    __slots__ = ("facts", "first", "payloads", "settled")

    def __init__(
        self, first: int, payloads: list[bytes], facts: list[Facts], *, settled: bool
    ) -> None:
        self.first = Number(first)
        self.payloads = payloads
        self.facts = facts
        self.settled = settled

    def cut(self, start: int, count: int) -> "Part":
        """`count` messages from the place `start` on."""
        stop = start + count
        return Part(
            self.first + start,
            self.payloads[start:stop],
            self.facts[start:stop],
            settled=self.settled,
        )


class Intake:
    """Publish, Unpublished and Stored."""

    __slots__ = ("_lifecycle", "_links", "_routing", "_settings", "_turn")

    def __init__(
        self,
        settings: BrokerSettings,
        turn: Turn,
        routing: Routing,
        links: Links,
        lifecycle: Lifecycle,
    ) -> None:
        self._settings = settings
        self._turn = turn
        self._routing = routing
        self._links = links
        self._lifecycle = lifecycle

    def publish(self, command: Publish, now: Millis) -> None:
        """Messages of one link; ignored when the link is gone."""
        producer = self._links.producers.get(command.link)
        if producer is None or not command.payloads:
            return
        producer.granted -= len(command.payloads)
        part = Part(command.first, command.payloads, command.facts, settled=command.settled)
        if producer.address is None:
            is_alive = self._by_message(producer, part, now)
        else:
            is_alive = self._to_address(producer, producer.address, part, now)
        if is_alive:
            self.refill(producer)

    def unpublished(self, command: Unpublished, _now: Millis) -> None:
        """Credit that was used and brought nothing."""
        producer = self._links.producers.get(command.link)
        if producer is not None:
            producer.granted -= command.count
            self.refill(producer)

    def refill(self, producer: Producer) -> None:
        """Grant what the low mark asks for."""
        more = producer.refill()
        if more:
            self._turn.effects.append(Grant(producer.link, more))

    def stored(self, command: Stored, now: Millis) -> None:
        """Answer all that waited for batches up to this one; their entries may be dispatched."""
        pending = self._turn.pending
        relieved: dict[LinkId, Producer] = {}
        while pending and pending[0][0] <= command.batch:
            for run in pending.popleft()[1]:
                count = len(run.entries)
                run.queue.stored(run.entries, now)
                self._turn.touch(run.queue)
                run.connection.unstored_bytes -= run.size
                self._turn.accept(run.link, run.first, count)
                producer = self._links.producers.get(run.link)
                if producer is not None:
                    producer.unstored -= count
                    relieved[run.link] = producer
        for producer in relieved.values():
            self.refill(producer)

    # --- where it goes ------------------------------------------------------------------------------------------

    def _by_message(self, producer: Producer, part: Part, now: Millis) -> bool:
        """Anonymous terminus: each message says where it goes (B4.6). False when the link was detached."""
        destinations = [
            None if facts.fault else sections.to(payload, facts)
            for payload, facts in zip(part.payloads, part.facts, strict=True)
        ]
        faults = [bool(facts.fault) for facts in part.facts]
        for start, count in _stretches(list(zip(faults, destinations, strict=True))):
            stretch = part.cut(start, count)
            if faults[start]:
                is_alive = self._refuse_faults(producer, stretch, now)
            else:
                try:
                    address = self._destination(destinations[start])
                except Refused as refused:
                    is_alive = self._refuse(producer, stretch, refused.refusal, now)
                else:
                    is_alive = self._to_address(producer, address, stretch, now)
            if not is_alive:
                return False
        return True

    def _destination(self, to: str | None) -> Address:
        if not to:
            raise Refused(errors.INVALID_FIELD, "properties.to is missing: no address to route by")
        return self._routing.target(to, Node.ANY)

    def _to_address(self, producer: Producer, address: Address, part: Part, now: Millis) -> bool:
        facts = part.facts
        if facts.count(facts[0]) == len(facts):
            return self._run(producer, address, part, now)
        kinds = [(each.fault, each.durable, expiry_of(each, now)) for each in facts]
        return all(
            self._run(producer, address, part.cut(start, count), now)
            for start, count in _stretches(kinds)
        )

    # --- one run ------------------------------------------------------------------------------------------------

    def _run(self, producer: Producer, address: Address, part: Part, now: Millis) -> bool:
        """Messages alike in fault, durability and expiry, for one address. False when the link was detached."""
        facts = part.facts[0]
        if facts.fault:
            return self._refuse_faults(producer, part, now)
        try:
            queue = self._routing.queue_of(address)
        except Refused as refused:
            return self._refuse(producer, part, refused.refusal, now)
        turn = self._turn
        count = len(part.payloads)
        expires = expiry_of(facts, now)
        if 0 < expires < now:
            queue.expire_arrivals(count)
            turn.touch(queue)
            turn.accept(producer.link, part.first, count)
            return True
        if facts.durable and queue.durable:
            self._routing.remember(address, queue)
        entries = queue.admit(part.payloads, part.facts, now, expires)
        if entries[0].state == STORING:
            size = sum(map(len, part.payloads))
            turn.waiting.append(StoringRun(producer, part.first, queue, entries, size))
            producer.session.connection.unstored_bytes += size
            producer.unstored += count
        else:
            turn.accept(producer.link, part.first, count)
            if queue.willing or queue.browsing:
                turn.touch(queue)
        if expires:
            self._lifecycle.arm_expiry(queue)
        return True

    def _refuse_faults(self, producer: Producer, part: Part, now: Millis) -> bool:
        return all(
            self._refuse(
                producer,
                part.cut(start, count),
                Refusal(errors.DECODE_ERROR, part.facts[start].fault),
                now,
            )
            for start, count in _stretches([facts.fault for facts in part.facts])
        )

    def _refuse(self, producer: Producer, part: Part, refusal: Refusal, now: Millis) -> bool:
        """Reject, or detach where that cannot be said: sent settled, or an outcome the producer does not take."""
        if part.settled or not producer.can_reject:
            self._lifecycle.force_detach(producer, refusal, now, part.first)
            return False
        outcome = Outcome(OutcomeKind.REJECTED, refusal=refusal)
        self._turn.dispose(producer.link, part.first, len(part.payloads), outcome)
        return True


def _stretches(kinds: Sequence[object]) -> Iterator[tuple[int, int]]:
    """(start, count) of each run of equal items."""
    start = 0
    for _, group in groupby(kinds):
        count = len(list(group))
        yield start, count
        start += count
