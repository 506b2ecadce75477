"""The engine alone, in us per message: publish, dispatch, settle, with nothing below it.

Run: python -m bench.engine_micro. One producer link and one consumer link per queue, credit always there, messages of
100 bytes. The memory figure is what a queued message costs beyond its own bytes. Time is that of the process.
"""

import gc
import sys
import time
import tracemalloc

from amqpbroker.base import sections
from amqpbroker.base.ids import ConnectionId, LinkId, Millis, Number, SessionId
from amqpbroker.engine.broker import Broker
from amqpbroker.engine.commands import (
    ACCEPTED,
    AttachConsumer,
    AttachProducer,
    Credit,
    OpenConnection,
    OpenSession,
    Publish,
    Room,
    Settle,
    Stored,
    Terminus,
    Unpublished,
    Window,
)
from amqpbroker.engine.effects import Append, Transfer
from amqpbroker.engine.settings import BrokerSettings

NOW = Millis(1_000_000)
PLENTY = 1 << 40
TRANSIENT = b"\x00\x53\x77\xa1\x5f" + b"x" * 95
DURABLE = b"\x00\x53\x70\xc0\x02\x01\x41" + b"\x00\x53\x77\xa1\x58" + b"x" * 88
WITH_TTL = (
    b"\x00\x53\x70\xc0\x08\x03\x40\x40\x70\x00\x0f\x42\x40" + b"\x00\x53\x77\xa1\x52" + b"x" * 82
)


class Rig:
    """A broker with one connection, and a producer and consumers on each of its queues."""

    def __init__(self, queues: int, consumers: int) -> None:
        self.broker = Broker(BrokerSettings())
        self.do(OpenConnection(ConnectionId(1), "bench", PLENTY, 1000, 300))
        self.do(OpenSession(ConnectionId(1), SessionId(1), PLENTY, 65_000))
        self.consumers: list[LinkId] = []
        for number in range(queues):
            target = Terminus(f"q{number}")
            producer = LinkId(number + 1)
            self.do(AttachProducer(SessionId(1), producer, f"p{number}", target, can_reject=True))
            for each in range(consumers):
                link = LinkId(1_000_000 + number * consumers + each)
                self.do(
                    AttachConsumer(
                        SessionId(1), link, f"c{link}", target, wants_copies=False, settled=False
                    )
                )
                self.consumers.append(link)
        self.queues = queues
        self.numbers = [0] * (queues + 1)

    def do(self, *commands: object) -> None:
        """Apply and forget what comes of it."""
        for command in commands:
            self.broker.apply(command, NOW)  # type: ignore[arg-type]
        self.broker.take_effects()

    def turn(self, message: bytes, run: int) -> None:
        """Each queue gets a run; all is dispatched, stored, and settled."""
        broker = self.broker
        for number in range(1, self.queues + 1):
            payloads = [message] * run
            facts = [sections.scan(message)] * run
            first = Number(self.numbers[number])
            self.numbers[number] += run
            broker.apply(Publish(LinkId(number), first, payloads, facts, settled=False), NOW)
        broker.dispatch(NOW)
        broker.close_batch()
        effects = broker.take_effects()
        for effect in effects:
            if type(effect) is Append:
                broker.apply(Stored(effect.batch.number), NOW)
                broker.dispatch(NOW)
                effects += broker.take_effects()
        for effect in effects:
            if type(effect) is Transfer:
                broker.apply(Settle(effect.link, ACCEPTED, effect.sequences), NOW)
                broker.apply(Credit(effect.link, 1000, drain=False), NOW)
        broker.dispatch(NOW)
        broker.close_batch()
        for effect in broker.take_effects():
            if type(effect) is Append:
                broker.apply(Stored(effect.batch.number), NOW)


def measure(name: str, message: bytes, *, run: int, queues: int = 1, consumers: int = 1) -> None:
    rig = Rig(queues, consumers)
    for link in rig.consumers:
        rig.do(Credit(link, 1000, drain=False))
    turns = max(1, 60_000 // (run * queues))
    best = float("inf")
    for _ in range(5):
        start = time.process_time()
        for _ in range(turns):
            rig.turn(message, run)
        best = min(best, (time.process_time() - start) / (turns * run * queues))
        rig.do(Room(ConnectionId(1), PLENTY), Window(SessionId(1), PLENTY))
    rig.broker.check()
    print(f"{name:<44}{best * 1e6:8.3f} us")


def deep(count: int) -> None:
    """Memory of `count` queued messages, and the cost of a turn on top of them."""
    rig = Rig(1, 1)
    facts = [sections.scan(TRANSIENT)] * 100
    tracemalloc.start()
    payloads = [bytes(bytearray(TRANSIENT)) for _ in range(count)]
    bodies = tracemalloc.get_traced_memory()[0]
    for first in range(0, count, 100):
        part = payloads[first : first + 100]
        rig.do(Publish(LinkId(1), Number(first), part, facts, settled=False))
        rig.do(Unpublished(LinkId(1), 0))
    beyond = (tracemalloc.get_traced_memory()[0] - bodies) / count
    tracemalloc.stop()
    print(f"{f'{count:,} queued: beyond the body':<44}{beyond:8.1f} B")
    del payloads
    (link,) = rig.consumers
    start = time.process_time()
    for _ in range(count // 100):
        rig.do(Credit(link, 100, drain=False))
        rig.broker.dispatch(NOW)
        for effect in rig.broker.take_effects():
            if type(effect) is Transfer:
                rig.do(Settle(link, ACCEPTED, effect.sequences))
    cost = (time.process_time() - start) / count * 1e6
    print(f"{'taking them again in runs of 100':<44}{cost:8.3f} us")
    rig.broker.check()


def main() -> None:
    gc.disable()
    print(f"Python {sys.version.split()[0]}, publish -> dispatch -> settle, per message")
    measure("transient, runs of 100", TRANSIENT, run=100)
    measure("transient, runs of 1", TRANSIENT, run=1)
    measure("transient, 64 queues, runs of 100", TRANSIENT, run=100, queues=64)
    measure("transient, 64 queues, runs of 1", TRANSIENT, run=1, queues=64)
    measure("transient, 4 consumers, runs of 100", TRANSIENT, run=100, consumers=4)
    measure("transient, 1000 consumers, runs of 1", TRANSIENT, run=1, consumers=1000)
    measure("with a ttl, runs of 100", WITH_TTL, run=100)
    measure("durable, runs of 100", DURABLE, run=100)
    measure("durable, runs of 1", DURABLE, run=1)
    deep(300_000)


if __name__ == "__main__":
    main()
