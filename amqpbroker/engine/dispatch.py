"""Who gets the next entry: round robin in strides, within credit, window and room. Must not know why an entry is ready.

The common pass is `_deal`: a slice of the lane is cut into strides, one per consumer, so that a run is one list per
link. Whatever needs a look at each entry takes `_one_by_one`: an entry that came back, a window that is nearly used up.
"""

import heapq
from itertools import islice

from amqpbroker.base.ids import Millis, Sequence
from amqpbroker.engine.consumer import Consumer
from amqpbroker.engine.effects import Drained, Transfer
from amqpbroker.engine.message import Entry, outgoing
from amqpbroker.engine.queue import Queue
from amqpbroker.engine.turn import Turn

# Entries dealt at once. Below 100 the fixed cost shows; above, a large message is looked at in vain more often.
CHUNK = 256
# A rewritten header is longer than the one it replaces by no more than this.
HEADER_GROWTH = 32


class Dispatch:
    """One pass over one queue at a time; nothing is kept between passes."""

    __slots__ = ("_sending", "_turn")

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._sending: list[Consumer] = []  # Have a run to be sent at the end of the pass.

    def serve(self, queue: Queue, now: Millis) -> None:
        """Offer what is ready to all who take it, then answer drains. Browsers first: they see what consumers take."""
        if queue.browsing:
            for browser in list(queue.browsing.values()):
                self._browse(queue, browser, now)
        if queue.willing and queue.ready:
            self._distribute(queue, now)
        if self._sending:
            self._send()
        if queue.draining:
            self._answer_drains(queue, now)

    # --- consumers ----------------------------------------------------------------------------------------------

    def _distribute(self, queue: Queue, now: Millis) -> None:
        lane = queue.lane
        willing = queue.willing
        lapsed: list[Entry] = []
        while willing and queue.ready:
            if queue.behind and any(link in willing for link in queue.behind):
                self._serve_behind(queue, now)
                continue
            takers, count = _takers(queue)
            chunk = lane.take(count, now, lapsed)
            if lapsed:
                queue.expire(lapsed)
                lapsed = []
            if not chunk:
                return
            if lane.fresh:
                payloads = [entry.payload for entry in chunk]
                size = sum(map(len, payloads))
                if not lane.even:
                    size += HEADER_GROWTH * len(chunk)
                if _fits(takers, len(chunk), size):
                    if not lane.even:
                        payloads = [outgoing(entry, now) for entry in chunk]
                    self._deal(queue, takers, chunk, payloads)
                    continue
            self._one_by_one(queue, chunk, now)

    def _deal(
        self,
        queue: Queue,
        takers: list[Consumer],
        chunk: list[Entry],
        payloads: list[bytes],
    ) -> None:
        """Entry i to consumer i modulo their number; all fits."""
        sequences = [entry.sequence for entry in chunk]
        if len(takers) == 1:
            queue.willing.move_to_end(takers[0].link)
            self._give(queue, takers[0], chunk, sequences, payloads)
            return
        willing = queue.willing
        width = len(takers)
        count = len(chunk)
        served = count if width < len(willing) else count % width
        for taker in islice(takers, min(served, width)):
            willing.move_to_end(taker.link)
        for place, taker in enumerate(islice(takers, count)):
            self._give(
                queue, taker, chunk[place::width], sequences[place::width], payloads[place::width]
            )

    def _give(
        self,
        queue: Queue,
        consumer: Consumer,
        entries: list[Entry],
        sequences: list[Sequence],
        payloads: list[bytes],
    ) -> None:
        if consumer.settled:
            queue.ready -= len(entries)
            queue.stats.acknowledged += len(entries)
            queue.end(entries, sequences)
        else:
            queue.lease(consumer, entries, sequences)
        self._charge(consumer, sequences, payloads)
        if not consumer.credit:
            del queue.willing[consumer.link]

    def _charge(self, consumer: Consumer, sequences: list[Sequence], payloads: list[bytes]) -> None:
        if not consumer.sequences:
            self._sending.append(consumer)
            consumer.sequences = sequences
            consumer.payloads = payloads
        else:
            consumer.sequences += sequences
            consumer.payloads += payloads
        count = len(sequences)
        size = sum(map(len, payloads))
        consumer.credit -= count
        session = consumer.session
        session.connection.room -= size
        frame = session.frame_bytes
        if size > frame:
            count += sum([(len(payload) - 1) // frame for payload in payloads])
        session.frames -= count

    def _one_by_one(self, queue: Queue, chunk: list[Entry], now: Millis) -> None:
        for place, entry in enumerate(chunk):
            consumer = _next_able(queue)
            if consumer is None:
                queue.lane.untake(chunk[place:])
                return
            self._give(queue, consumer, [entry], [entry.sequence], [outgoing(entry, now)])

    def _serve_behind(self, queue: Queue, now: Millis) -> None:
        """While a consumer may take what others refused: one entry per turn, the oldest that is for it."""
        in_vain = 0
        while in_vain < len(queue.willing):
            consumer = _next_able(queue)
            if consumer is None:
                return
            entry = _oldest_for(queue, consumer, now)
            if entry is None:
                in_vain += 1
                continue
            in_vain = 0
            self._give(queue, consumer, [entry], [entry.sequence], [outgoing(entry, now)])

    # --- browsers -----------------------------------------------------------------------------------------------

    def _browse(self, queue: Queue, browser: Consumer, now: Millis) -> None:
        """Copies of what is ready and was not seen yet; nothing of the queue changes (N-9, N-10)."""
        while browser.credit:
            count = min(browser.credit, CHUNK)
            found, after = queue.lane.read(browser.cursor, count, now)
            for entry in found:
                if _park(queue, browser):
                    return
                self._charge(browser, [entry.sequence], [outgoing(entry, now)])
                browser.cursor = Sequence(entry.sequence + 1)
            browser.cursor = Sequence(after)
            if not found:
                return
        del queue.browsing[browser.link]

    # --- at the end of the pass ---------------------------------------------------------------------------------

    def _send(self) -> None:
        effects = self._turn.effects
        for consumer in self._sending:
            effects.append(
                Transfer(
                    consumer.link, consumer.sequences, consumer.payloads, settled=consumer.settled
                )
            )
            consumer.sequences = []
            consumer.payloads = []
        self._sending.clear()

    def _answer_drains(self, queue: Queue, now: Millis) -> None:
        for consumer in list(queue.draining.values()):
            if consumer.credit and _is_held_up(queue, consumer, now):
                continue
            self._turn.effects += [Drained(consumer.link)] * consumer.drains
            consumer.drains = 0
            consumer.credit = 0
            queue.wake(consumer)
            unpark(consumer)
            del queue.draining[consumer.link]


def _takers(queue: Queue) -> tuple[list[Consumer], int]:
    """Those who are dealt to next, in turn, and how many entries at most."""
    willing = queue.willing
    if len(willing) == 1:
        only = next(iter(willing.values()))
        return [only], min(only.credit, queue.ready, CHUNK)
    width = min(len(willing), queue.ready, CHUNK)
    takers = list(islice(willing.values(), width))
    rounds = min([taker.credit for taker in takers])
    return takers, min(rounds * width, queue.ready, CHUNK)


def _fits(takers: list[Consumer], count: int, size: int) -> bool:
    """Whether any of them could take all of it: then each can take its part."""
    for taker in takers:
        session = taker.session
        if size > session.connection.room or session.connection.room <= 0:
            return False
        if count + size // session.frame_bytes > session.frames:
            return False
    return True


def _park(queue: Queue, consumer: Consumer) -> bool:
    """Put a consumer aside that waits for its window or its connection's room; whether it was one."""
    session = consumer.session
    if session.connection.room <= 0:
        session.connection.blocked[consumer.link] = consumer
    elif session.frames <= 0:
        session.blocked[consumer.link] = consumer
    else:
        return False
    serve = queue.browsing if consumer.copies else queue.willing
    del serve[consumer.link]
    return True


def unpark(consumer: Consumer) -> None:
    """It waits for nothing any more: it is gone, or has no credit."""
    consumer.session.blocked.pop(consumer.link, None)
    consumer.session.connection.blocked.pop(consumer.link, None)


def _next_able(queue: Queue) -> Consumer | None:
    """The consumer whose turn it is and that can take an entry now; the turn goes on."""
    willing = queue.willing
    while willing:
        consumer = next(iter(willing.values()))
        if not _park(queue, consumer):
            willing.move_to_end(consumer.link)
            return consumer
    return None


def _oldest_for(queue: Queue, consumer: Consumer, now: Millis) -> Entry | None:
    """The oldest entry this consumer may have, refused by others or not; it is taken."""
    behind = queue.oldest_behind(consumer, now) if consumer.behind else None
    lapsed: list[Entry] = []
    found = queue.lane.take(1, now, lapsed)
    if lapsed:
        queue.expire(lapsed)
    if behind is None:
        return found[0] if found else None
    if found and found[0].sequence < behind.sequence:
        return found[0]
    queue.lane.untake(found)
    heapq.heappop(consumer.behind)
    if not consumer.behind:
        del queue.behind[consumer.link]
    return behind


def _is_held_up(queue: Queue, consumer: Consumer, now: Millis) -> bool:
    """Whether there is something for it that only its window or its connection keeps back."""
    if not consumer.session.is_blocked():
        return False
    if consumer.copies:
        return bool(queue.lane.read(consumer.cursor, 1, now)[0])
    if consumer.behind and queue.oldest_behind(consumer, now) is not None:
        return True
    lapsed: list[Entry] = []
    found = queue.lane.take(1, now, lapsed)
    queue.lane.untake(found)
    if lapsed:
        queue.expire(lapsed)
    return bool(found)
