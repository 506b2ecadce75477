"""A driver joined in memory with a client made of Proton's Python objects; its input can be cut in three ways."""

import random
import struct
from collections.abc import Callable, Iterator
from typing import Any

from proton import Collector, Connection, Delivery, Receiver, Sender, Session, Transport

from amqpbroker.amqp import driver as module
from amqpbroker.amqp.driver import LINK_OPENED, MESSAGES, OUTCOMES, SESSION_OPENED, PureDriver

DRIVERS = [kind for kind in (PureDriver, module.CompiledDriver) if kind is not None]


HEADER = b"AMQP\x00\x01\x00\x00"


Cut = Callable[[bytes], Iterator[bytes]]


Record = tuple[Any, ...]


def whole(data: bytes) -> Iterator[bytes]:
    yield data


def byte_by_byte(data: bytes) -> Iterator[bytes]:
    for i in range(len(data)):
        yield data[i : i + 1]


def new_seed() -> int:
    seed = random.randrange(1 << 32)
    print("seed", seed)  # noqa: T201 - pytest shows it when the test fails
    return seed


class RandomCut:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def __call__(self, data: bytes) -> Iterator[bytes]:
        while data:
            size = self._random.choice([1, 3, 20, 200, 5_000, 60_000])
            yield data[:size]
            data = data[size:]


class Pair:
    """A driver and a client; `records` is what take() gave since the last pump()."""

    def __init__(
        self,
        kind: type[PureDriver],
        cut: Cut,
        *,
        frame: int = 65_536,
        client_frame: int = 0,
        partial_bytes_max: int = 0,
    ) -> None:
        self.driver = kind(
            max_frame_size=frame, channel_max=100, partial_bytes_max=partial_bytes_max
        )
        self.cut = cut
        self.connection = Connection()
        self.connection.container = "client"
        self.transport = Transport()
        if client_frame:
            self.transport.max_frame_size = client_frame
        self.collector = Collector()
        self.connection.collect(self.collector)
        self.transport.bind(self.connection)
        self.connection.open()
        self.driver.open_connection()
        self.pump()

    def pump(self) -> list[Record]:
        """Move bytes both ways until none is left."""
        records: list[Record] = []
        moved = True
        while moved:
            moved = self.to_driver(records)
            moved = self.to_client(self.driver.pump()) or moved
            records += self.driver.take()
        return records

    def to_driver(self, records: list[Record]) -> bool:
        data = self.output()
        for piece in self.cut(data):
            self.driver.push(piece)
            records += self.driver.take()
        return bool(data)

    def output(self) -> bytes:
        """Everything that the client has to say now, taken out."""
        data = b""
        while (size := self.transport.pending()) > 0:
            data += self.transport.peek(size) or b""
            self.transport.pop(size)
        return data

    def to_client(self, data: bytes) -> bool:
        done = 0
        while done < len(data) and (room := self.transport.capacity()) > 0:
            self.transport.push(data[done : done + room])
            done += room
        while self.collector.peek():
            self.collector.pop()
        return bool(data)

    def session(self, *, capacity: int = 1 << 24) -> tuple[Session, int]:
        session = self.connection.session()
        session.open()
        ((tag, slot),) = self.pump()
        assert tag == SESSION_OPENED
        self.driver.open_session(slot, capacity)
        self.pump()
        return session, slot

    def producer(
        self, session: Session, *, limit: int = 0, credit: int = 100, name: str = "p"
    ) -> tuple[Sender, int]:
        link = session.sender(name)
        return link, self._attach(link, limit, credit)

    def consumer(
        self, session: Session, *, credit: int = 100, name: str = "c"
    ) -> tuple[Receiver, int]:
        link = session.receiver(name)
        slot = self._attach(link, 0, 0)
        link.flow(credit)
        self.pump()
        return link, slot

    def _attach(self, link: Sender | Receiver, limit: int, credit: int) -> int:
        link.open()
        ((tag, slot, _session, incoming),) = self.pump()
        assert tag == LINK_OPENED
        self.driver.open_link(slot, limit)
        assert incoming == link.is_sender
        if credit:
            self.driver.grant(slot, credit)
        self.pump()
        return int(slot)


def send(link: Sender, *payloads: bytes, settled: bool = False) -> list[Delivery]:
    deliveries = []
    for i, payload in enumerate(payloads):
        delivery = link.delivery(f"t{i}")
        if payload:
            link.send(payload)
        link.advance()
        if settled:
            delivery.settle()
        deliveries.append(delivery)
    return deliveries


def receive(link: Receiver) -> list[tuple[Delivery, bytes]]:
    """The next complete deliveries of a client's receiver, with payload."""
    got: list[tuple[Delivery, bytes]] = []
    while (delivery := link.current) is not None and not delivery.partial:
        payload = link.recv(delivery.pending) or b""
        link.advance()
        got.append((delivery, bytes(payload)))
    return got


def current(link: Sender | Receiver) -> Delivery:
    delivery = link.current
    assert delivery is not None
    return delivery


def messages(records: list[Record], link: int) -> list[tuple[int, bytes, bool]]:
    """(number, payload, settled) of each message, whatever the runs."""
    flat = []
    for record in records:
        if record[0] == MESSAGES and record[1] == link:
            flat += [(record[2] + i, bytes(p), record[4]) for i, p in enumerate(record[3])]
    return flat


def outcomes(records: list[Record], link: int) -> list[tuple[int, int, Any]]:
    """(code, tag, detail) of each outcome, whatever the runs."""
    return [
        (record[2], tag, record[4])
        for record in records
        if record[0] == OUTCOMES and record[1] == link
        for tag in record[3]
    ]


def transfer(handle: int, number: int | None, payload: bytes, *, more: bool = False) -> bytes:
    """A raw transfer on channel 0, unsettled, with a one-byte tag."""
    first = (
        b"\x40\x40"
        if number is None
        else b"\x43\xa0\x01t"
        if number == 0
        else bytes([0x52, number]) + b"\xa0\x01t"
    )
    fields = bytes([0x52, handle]) + first + b"\x40\x42" + (b"\x41" if more else b"\x42")
    body = b"\x00\x53\x14\xc0" + bytes([len(fields) + 1, 6]) + fields + payload
    return struct.pack(">IBBH", len(body) + 8, 2, 0, 0) + body


def answer(delivery: Delivery, code: int, settle: bool = True) -> None:
    delivery.update(code)
    if settle:
        delivery.settle()
