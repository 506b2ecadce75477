"""Links, sessions and connections dropped at every point of a transfer: nothing stale reaches Proton, nothing leaks.

A round is a random script over one connection, both sides at once, repeated by its seed. What it checks itself is that
a slot or number that is gone raises StaleSlot and that one that is there does not; that Proton's memory is never read
after it was given back is what scripts/lifetime-valgrind.sh sees in the same rounds.
"""

import gc
import os
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from proton import Collector, Connection, Delivery, Receiver, Sender, Session, Transport, symbol

from amqpbroker.amqp import driver as module
from amqpbroker.amqp.driver import (
    ABORTED,
    LINK_OPENED,
    MESSAGES,
    SESSION_OPENED,
    PureDriver,
    StaleSlot,
)

DRIVERS = [kind for kind in (PureDriver, module.CompiledDriver) if kind is not None]
ROUNDS = int(os.environ.get("AMQPBROKER_LIFETIME_ROUNDS", "1000"))
FRAME = 512  # The smallest: messages of a few hundred bytes are multi-frame.
CODES = [
    Delivery.ACCEPTED,
    Delivery.REJECTED,
    Delivery.RELEASED,
    Delivery.MODIFIED,
    Delivery.RECEIVED,
]


class Near:
    """What the script knows of one of the driver's links."""

    def __init__(self, slot: int, session: int, incoming: bool) -> None:
        self.slot = slot
        self.session = session
        self.incoming = incoming
        self.sending = False
        self.numbers: set[int] = set()  # Certainly there.
        # Disposed of without settling: there until the peer settles.
        self.waiting: set[int] = set()
        self.gone: set[int] = set()


class Round:
    """One connection's life, of `steps` verbs drawn by `seed`."""

    def __init__(self, kind: type[PureDriver], seed: int) -> None:
        self.random = random.Random(seed)
        self.partial_bytes_max = self.random.choice((0, 1_500))
        self.driver = kind(
            max_frame_size=FRAME, channel_max=10, partial_bytes_max=self.partial_bytes_max
        )
        self.connection = Connection()
        self.connection.container = "c"
        self.transport = Transport()
        self.transport.max_frame_size = FRAME
        self.collector = Collector()
        self.connection.collect(self.collector)
        self.transport.bind(self.connection)
        self.wire = b""  # From client to driver, not yet pushed.
        self.sessions: dict[int, bool] = {}
        self.links: dict[int, Near] = {}
        self.stale_sessions: list[int] = []
        self.stale_links: list[int] = []
        self.far_sessions: list[Session] = []
        self.far_links: list[Sender | Receiver] = []
        self.far_sent: list[Delivery] = []
        self.tag_next = 0
        self.connection.open()
        self.driver.open_connection()

    def run(self) -> None:
        self.begin()
        for _ in range(self.random.randrange(7)):
            self.attach()
        self.carry_all()
        near: list[Callable[[], None]] = [
            self.grant, self.dispose, self.dispose, self.drain, self.send, self.send, self.send, self.send_part,
            self.send_part, self.force_flow,
        ]  # fmt: skip
        far: list[Callable[[], None]] = [
            self.begin, self.attach, self.far_send, self.far_send, self.far_send, self.far_send, self.far_part,
            self.far_part, self.far_flow, self.far_answer, self.far_answer, self.far_answer, self.far_settle,
        ]  # fmt: skip
        move: list[Callable[[], None]] = [
            self.carry_some,
            self.carry_some,
            self.carry_all,
            self.pump,
        ]
        end: list[Callable[[], None]] = [
            self.discard, self.close_link, self.free_link, self.close_session, self.free_session, self.use_stale,
            self.far_close_link, self.far_close_link, self.far_close_session,
        ]  # fmt: skip
        for _ in range(self.random.randrange(80)):
            (verbs,) = self.random.choices((near, far, move, end), (8, 8, 4, 1))
            self.random.choice(verbs)()
            if self.random.random() < 0.3:
                self.carry_all()
            if self.random.random() < 0.005:
                self.random.choice((self.connection.close, self.close_connection))()
        # Whatever is under way, the connection goes now.
        self.driver.free()
        self.stale_links += self.links
        self.stale_sessions += self.sessions
        self.use_stale()

    # Bytes.

    def client_output(self) -> bytes:
        data = b""
        while (size := self.transport.pending()) > 0:
            data += self.transport.peek(size) or b""
            self.transport.pop(size)
        return data

    def carry_some(self) -> None:
        self.wire += self.client_output()
        size = self.random.randrange(len(self.wire) + 1)
        self.driver.push(self.wire[:size])
        self.wire = self.wire[size:]
        if self.random.random() < 0.7:  # Else events wait, while the script goes on.
            self.take()

    def carry_all(self) -> None:
        self.wire += self.client_output()
        self.driver.push(self.wire)
        self.wire = b""
        self.take()
        self.pump()

    def pump(self) -> None:
        data = self.driver.pump()
        while data and (room := self.transport.capacity()) > 0:
            self.transport.push(data[:room])
            data = data[room:]
        while self.collector.peek():
            self.collector.pop()

    def take(self) -> None:
        for record in self.driver.take():
            if record[0] == SESSION_OPENED:
                self.sessions[record[1]] = True
                self.driver.open_session(record[1], 20 * FRAME)
            elif record[0] == LINK_OPENED:
                link = Near(*record[1:4])
                self.links[link.slot] = link
                self.driver.open_link(link.slot, self.random.choice((0, 0, 2000)))
                if link.incoming:
                    self.driver.grant(link.slot, 20)
            elif record[0] == MESSAGES:
                self.links[record[1]].numbers.update(range(record[2], record[2] + len(record[3])))
            elif record[0] == ABORTED:
                assert record[2] > 0
        partial_bytes = sum(link.filled for link in self.driver.links.values())
        assert self.driver.partial_bytes == partial_bytes
        assert not 0 < self.partial_bytes_max < partial_bytes

    # The driver's side.

    def pick(self, incoming: bool) -> Near | None:
        links = [link for link in self.links.values() if link.incoming == incoming]
        return self.random.choice(links) if links else None

    def grant(self) -> None:
        if link := self.pick(incoming=True):
            self.driver.grant(link.slot, self.random.randrange(10))

    def dispose(self) -> None:
        link = self.pick(incoming=True)
        if link is None:
            return
        condition = self.random.choice(
            [None, ("amqp:decode-error", "bad", b"\xc1\x05\x02\xa3\x01k\x43")]
        )
        for number in sorted(link.numbers):
            if self.random.random() < 0.5:
                settle = self.random.random() < 0.7
                self.driver.tag(link.slot, number)
                code = self.random.choice([0, *map(int, CODES[:4])])
                self.driver.dispose(link.slot, number, 1, code, settle, condition)
                link.numbers.discard(number)
                (link.gone if settle else link.waiting).add(number)
        for number in sorted(link.waiting):
            if self.random.random() < 0.2:
                link.waiting.discard(number)
                link.gone.add(number)
                try:
                    self.driver.dispose(link.slot, number, 1, 0x24, True, None)
                except StaleSlot:  # The peer was first.
                    continue
        if link.gone:
            with pytest.raises(StaleSlot):
                self.driver.dispose(link.slot, max(link.gone), 1, 0x24, True, None)

    def discard(self) -> None:
        if link := self.pick(incoming=True):
            self.driver.discard(link.slot)

    def drain(self) -> None:
        if link := self.pick(incoming=True):
            self.driver.drain(link.slot)
            self.driver.drained(link.slot)
        if link := self.pick(incoming=False):
            self.driver.give_back(link.slot)

    def send(self) -> None:
        link = self.pick(incoming=False)
        if link is None or link.sending:
            return
        count = self.random.randrange(5)
        payloads = [b"x" * self.random.choice((0, 10, 100, 2_000)) for _ in range(count)]
        tags = list(range(self.tag_next, self.tag_next + count))
        self.tag_next += count
        self.driver.send_run(link.slot, tags, payloads, self.random.random() < 0.3)

    def send_part(self) -> None:
        link = self.pick(incoming=False)
        if link is None:
            return
        if not link.sending:
            self.driver.send_begin(link.slot, self.tag_next)
            self.tag_next += 1
            link.sending = True
        elif self.random.random() < 0.1:
            self.driver.send_abort(link.slot)
            link.sending = False
        elif self.random.random() < 0.5:
            self.driver.send_part(link.slot, b"p" * self.random.randrange(1_000))
        else:
            self.driver.send_end(link.slot, self.random.random() < 0.3)
            link.sending = False

    def close_link(self) -> None:
        if link := self.pick(self.random.random() < 0.5):
            condition = self.random.choice([None, ("amqp:link:stolen", "", b"")])
            self.driver.close_link(link.slot, condition, closed=self.random.random() < 0.7)
            if self.random.random() < 0.5:
                self.forget_link(link)

    def free_link(self) -> None:
        if link := self.pick(self.random.random() < 0.5):
            self.forget_link(link)

    def forget_link(self, link: Near) -> None:
        self.driver.free_link(link.slot)
        del self.links[link.slot]
        self.stale_links.append(link.slot)

    def close_session(self) -> None:
        if self.sessions:
            self.driver.close_session(self.random.choice(list(self.sessions)), None)

    def free_session(self) -> None:
        if not self.sessions:
            return
        session = self.random.choice(list(self.sessions))
        self.driver.free_session(session)
        del self.sessions[session]
        self.stale_sessions.append(session)
        for slot in [slot for slot, link in self.links.items() if link.session == session]:
            del self.links[slot]
            self.stale_links.append(slot)

    def close_connection(self) -> None:
        self.driver.close_connection(("amqp:connection:forced", "end", b""))

    def force_flow(self) -> None:
        if self.sessions:
            self.driver.force_flow(self.random.choice(list(self.sessions)))

    def use_stale(self) -> None:
        for slot in self.stale_links[-3:]:
            with pytest.raises(StaleSlot):
                self.driver.dispose(slot, 0, 1, 0x24, True, None)
            with pytest.raises(StaleSlot):
                self.driver.send_run(slot, [1], [b""], True)
            with pytest.raises(StaleSlot):
                self.driver.free_link(slot)
        for slot in self.stale_sessions[-3:]:
            with pytest.raises(StaleSlot):
                self.driver.free_session(slot)

    # The client's side.

    def begin(self) -> None:
        if len(self.far_sessions) < 4:
            session = self.connection.session()
            session.open()
            self.far_sessions.append(session)

    def attach(self) -> None:
        if not self.far_sessions or len(self.far_links) > 12:
            return
        session = self.random.choice(self.far_sessions)
        name = f"l{len(self.far_links)}"
        link = session.sender(name) if self.random.random() < 0.5 else session.receiver(name)
        link.open()
        if link.is_receiver:
            link.flow(self.random.randrange(50))
        self.far_links.append(link)

    def far(self, sender: bool) -> Any:  # noqa: ANN401 - a Sender or a Receiver, as asked
        links = [link for link in self.far_links if link.is_sender == sender]
        return self.random.choice(links) if links else None

    def far_send(self) -> None:
        link = self.far(sender=True)
        if link is None or link.current:
            return
        for _ in range(self.random.randrange(4)):
            delivery = link.delivery(str(self.random.random()))
            link.send(b"m" * self.random.choice((0, 10, 100, 3_000)))
            link.advance()
            if self.random.random() < 0.3:
                delivery.settle()
            else:
                self.far_sent.append(delivery)

    def far_part(self) -> None:
        link = self.far(sender=True)
        if link is None:
            return
        if not link.current:
            link.delivery(str(self.random.random()))
        dice = self.random.random()
        if dice < 0.4:
            link.send(b"h" * self.random.randrange(1_000))
        elif dice < 0.8:
            link.advance()
        else:
            link.current.abort()

    def far_flow(self) -> None:
        if link := self.far(sender=False):
            self.random.choice((link.flow, link.drain))(self.random.randrange(5))

    def far_answer(self) -> None:
        for link in self.far_links:
            if isinstance(link, Receiver):
                self.far_answer_on(link)

    def far_answer_on(self, link: Receiver) -> None:
        while (delivery := link.current) and self.random.random() < 0.9:
            if delivery.aborted:
                delivery.settle()
                continue
            link.recv(5_000)
            if self.random.random() < 0.8:
                delivery.local.annotations = {symbol("a"): 1}
                delivery.update(self.random.choice(CODES))
            if self.random.random() < 0.6:
                delivery.settle()
            if delivery.partial:
                return
            link.advance()

    def far_settle(self) -> None:
        self.random.shuffle(self.far_sent)
        for delivery in self.far_sent[len(self.far_sent) // 2 :]:
            delivery.settle()
        del self.far_sent[len(self.far_sent) // 2 :]

    def far_close_link(self) -> None:
        if link := self.far(self.random.random() < 0.5):
            self.random.choice((link.close, link.detach))()

    def far_close_session(self) -> None:
        if self.far_sessions:
            self.random.choice(self.far_sessions).close()


def run_rounds(kind: type[PureDriver], seed: int, rounds: int) -> None:
    for number in range(seed, seed + rounds):
        try:
            Round(kind, number).run()
        except BaseException:
            print("seed", number)  # noqa: T201 - repeats the round
            raise


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", DRIVERS, ids=lambda kind: kind.__name__)
def test_dropped_at_any_point(kind: type[PureDriver]) -> None:
    run_rounds(kind, random.randrange(1 << 32), ROUNDS)


# --- Leaks -----------------------------------------------------------------------------------------------------------


def resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def recorded(messages: int) -> tuple[bytes, bytes]:
    """What a client sends: open, begin and an attach each way; messages, the last of which is half sent."""
    connection, transport = Connection(), Transport()
    connection.container = "c"
    transport.bind(connection)
    connection.open()
    session = connection.session()
    session.open()
    producer, consumer = session.sender("p"), session.receiver("c")
    producer.open()
    consumer.open()
    consumer.flow(messages)

    def output() -> bytes:
        data = b""
        while (size := transport.pending()) > 0:
            data += transport.peek(size) or b""
            transport.pop(size)
        return data

    opening = output()
    # Grants the credit without which nothing is sent.
    near = PureDriver(max_frame_size=65_536, channel_max=10, partial_bytes_max=0)
    near.push(opening)
    near.open_connection()
    _, (_, incoming, slot, _), (_, outgoing, _, _) = near.take()
    near.open_session(slot, 1 << 20)
    near.open_link(incoming, 0)
    near.open_link(outgoing, 0)
    near.grant(incoming, messages + 1)
    transport.push(near.pump())
    near.free()
    for i in range(messages):
        producer.delivery(str(i))
        producer.send(b"m" * 200)
        producer.advance()
    producer.delivery("half")
    producer.send(b"h" * 200)
    return opening, output()


def live(kind: type[PureDriver], opening: bytes, traffic: bytes) -> None:
    driver = kind(max_frame_size=65_536, channel_max=10, partial_bytes_max=0)
    driver.open_connection()
    driver.push(opening)
    (_, session), (_, incoming, _, _), (_, outgoing, _, _) = driver.take()
    driver.open_session(session, 1 << 20)
    driver.open_link(incoming, 0)
    driver.open_link(outgoing, 0)
    driver.grant(incoming, 100)
    driver.pump()
    driver.push(traffic)
    ((_, _, _, payloads, _),) = driver.take()
    messages = len(payloads)
    driver.dispose(incoming, 0, messages // 3, 0x24, True, None)
    driver.dispose(
        incoming,
        messages // 3,
        1,
        0x25,
        True,
        ("amqp:decode-error", "bad", b"\xc1\x05\x02\xa3\x01k\x43"),
    )
    driver.dispose(incoming, messages // 2, 1, 0x24, False, None)
    driver.send_run(outgoing, list(range(len(payloads))), payloads, False)
    driver.pump()
    driver.send_begin(outgoing, 1 << 40)
    driver.send_part(outgoing, b"half")
    driver.pump()
    driver.free()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("kind", DRIVERS, ids=lambda kind: kind.__name__)
def test_connections_leave_no_memory_behind(kind: type[PureDriver]) -> None:
    connections = 3_000
    opening, traffic = recorded(10)
    for _ in range(500):  # Until the allocators have what they keep.
        live(kind, opening, traffic)
    before = resident_bytes()
    for _ in range(connections):
        live(kind, opening, traffic)
    assert resident_bytes() - before < 200 * connections


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("kind", DRIVERS, ids=lambda kind: kind.__name__)
def test_links_leave_no_memory_behind(kind: type[PureDriver]) -> None:
    """Attach, a message each way, detach, over and over on one connection."""
    near = Round(kind, 0)
    near.begin()
    near.carry_all()
    session = near.far_sessions[0]

    def link(name: str) -> None:
        producer, consumer = session.sender(name), session.receiver(name)
        producer.open()
        consumer.open()
        consumer.flow(1)
        near.carry_all()
        producer.delivery("t")
        producer.send(b"x" * 700)
        producer.advance()
        near.carry_all()
        for slot, record in list(near.links.items()):
            if not record.incoming:
                near.driver.send_run(slot, [1], [b"x"], True)
            near.driver.close_link(slot, None, closed=True)
        near.pump()
        producer.close()
        consumer.close()
        near.carry_all()
        for record in list(near.links.values()):
            near.forget_link(record)
        near.stale_links.clear()
        producer.free()
        consumer.free()
        near.carry_all()

    for i in range(300):
        link(f"w{i % 2}")
    before = resident_bytes()
    for i in range(1_500):
        link(f"n{i % 2}")
    grown = resident_bytes() - before
    near.driver.free()
    assert grown < 200 * 1_500


def main(arguments: list[str]) -> None:
    """Rounds of the compiled driver for scripts/lifetime-valgrind.sh: SEED ROUNDS."""
    seed, rounds = map(int, arguments)
    assert module.CompiledDriver is not None, "build the twin first"
    run_rounds(module.CompiledDriver, seed, rounds)


if __name__ == "__main__":
    main(sys.argv[1:])
