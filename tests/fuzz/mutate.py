"""Whatever a peer sends: nothing raises; it ends closed with an AMQP error or open and answering, never stuck;
the engine's invariants hold; nothing of it stays; and the others on the same broker still send and receive.

Streams are recorded sessions with some of their frames changed: bits, sizes, counts, fields of the wrong value or type,
cuts, repeats, swaps, other channels and handles, halves of two frames joined. A number repeats a stream:

    python -m tests.fuzz.mutate [--frames 2000000] [--processes 2] [--seed SEED] [--only NUMBER]
"""

import argparse
import multiprocessing
import random
import resource
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from amqpbroker.amqp.settings import PeerSettings
from amqpbroker.base.ids import Millis
from tests.amqp.bystander import Bystander
from tests.amqp.memory import MemoryBroker, MemoryWire
from tests.raw.client import RawClient
from tests.raw.frames import (
    LAYOUTS,
    Composite,
    Described,
    Frame,
    Raw,
    Symbol,
    Typed,
    Undecodable,
    data,
    decode_frame,
    encode,
    frame,
    message,
    modified,
    properties,
    raw,
)

# Small limits, so that streams of a few dozen frames come to them.
SETTINGS = PeerSettings(
    container_id="broker",
    max_frame_size=4096,
    channel_max=7,
    handle_max=7,
    links_max=12,
    max_message_size=20_000,
    incoming_window_bytes=64 * 4096,
    credit=20,
    credit_low=6,
)
# Then a fresh one: what only shows after a while is seen, and checks stay cheap.
STREAMS_PER_BROKER = 100
LOOK_EVERY = 5  # Streams between two looks at the bystander.
SILENCE_MS = SETTINGS.idle_timeout_ms
ANSWER_MS = 5_000

# --- what is recorded -----------------------------------------------------------------------------


class RecordingWire(MemoryWire):
    """Keeps what the client wrote."""

    def __init__(self, broker: MemoryBroker) -> None:
        super().__init__(broker, None)
        self.written: list[bytes] = []

    def send(self, data: bytes) -> None:
        self.written += _cut(data)
        super().send(data)


def _cut(stream: bytes) -> Iterator[bytes]:
    while stream:
        size = 8 if stream[:4] == b"AMQP" else int.from_bytes(stream[:4], "big")
        yield stream[:size]
        stream = stream[size:]


def produces(client: RawClient) -> None:
    client.opened(sasl=False).begin().producer("q")
    client.transfer(message(b"one")).transfer(message(b"two", durable=True))
    client.transfer(properties(message_id="m") + data(b"three"), settled=True)
    client.transfer(b"\x00\x53\x75\xb0\x00\x00\x0b\xb8" + b"x" * 1000, more=True)
    client.transfer(b"x" * 1000, more=True).transfer(b"x" * 1000)
    client.transfer(message(b"gone"), more=True).transfer(aborted=True)
    client.flow(echo=True).flow(handle=0, delivery_count=6, link_credit=9, echo=True)
    client.detach(0).producer("q", handle=0, name="again").transfer(message(b"four")).detach(0)
    client.end().begin().empty().close()


def consumes(client: RawClient) -> None:
    client.opened(sasl=False).begin().producer("q")
    for number in range(8):
        client.transfer(message(str(number).encode()), settled=number % 2 == 0)
    client.consumer("q", handle=1).credit(4, handle=1)
    client.disposition(0, state="accepted").disposition(1, state="released")
    client.disposition(2, last=3, state=modified(delivery_failed=True))
    client.credit(3, handle=1, delivery_count=4).disposition(4, last=5, state="rejected")
    client.disposition(
        6, settled=False, state=Composite("received", section_number=1, section_offset=2)
    )
    client.credit(50, handle=1, delivery_count=7, drain=True, echo=True)
    client.consumer("q", handle=2, source={"address": "q", "distribution_mode": "copy"})
    client.credit(9, handle=2).detach(1, closed=False).detach(2).end().close()


def has_sessions(client: RawClient) -> None:
    client.opened(sasl=False, idle_time_out=10_000, channel_max=9)
    for channel in (0, 1, 5):
        client.begin(channel, incoming_window=2, handle_max=3)
        client.producer("q", channel=channel, name=f"p{channel}")
        client.consumer("q", channel=channel, name=f"c{channel}")
        client.credit(2, channel=channel, handle=1)
    for channel in (5, 1, 0):
        client.transfer(message(b"m"), channel=channel).flow(channel, next_incoming_id=1, echo=True)
        client.disposition(0, last=9, channel=channel, state="accepted")
    client.end(1).begin(1).producer("q", channel=1, name="p0").end(5).end(0).close()


def goes_small(client: RawClient) -> None:
    client.opened(sasl=False, max_frame_size=512).begin(incoming_window=3)
    client.producer("q", rcv_settle_mode=1).consumer("q", rcv_settle_mode=1)
    client.transfer(message(b"y" * 3000), rcv_settle_mode=1).disposition(0, role="sender")
    client.credit(2, handle=1).flow(next_incoming_id=3).flow(next_incoming_id=6)
    client.disposition(0, settled=False, state="accepted").disposition(0)
    client.producer("q2", handle=2, snd_settle_mode=1).transfer(
        message(b"z" * 2000), handle=2, settled=True
    )
    client.consumer("q2", handle=3, snd_settle_mode=1).credit(1, handle=3)
    client.flow(next_incoming_id=9, incoming_window=1).detach(3).detach(2).close()


def names_nodes(client: RawClient) -> None:
    client.opened(
        sasl=False, properties={"product": "p", "n": 1}, desired_capabilities=["ANONYMOUS-RELAY"]
    )
    client.begin().producer(None).transfer(properties(to="q") + data(b"r")).transfer(
        message(b"nowhere")
    )
    policy = {"lifetime-policy": Described(0x2B, [])}
    client.consumer(None, source={"dynamic": True, "dynamic_node_properties": policy})
    client.producer(None, target={"dynamic": True, "capabilities": ["temporary-queue"]})
    client.attach(role="receiver", source=None).attach(target=Composite("coordinator"))
    client.consumer("q", source={"address": "q", "filter": {"f": Described(Symbol("f"), "x")}})
    client.consumer("q", source={"address": "q", "outcomes": ["amqp:accepted:list"]})
    client.credit(5, handle=5).detach(1, error={"condition": "amqp:internal-error"}).detach(
        2
    ).close()


def logs_in(client: RawClient) -> None:
    client.opened().begin().producer("q").transfer(message(b"s")).end(
        error={"condition": "x", "info": {"a": 1}}
    )
    client.close(error={"condition": "amqp:connection:forced", "description": "d"})


SCRIPTS: tuple[Callable[[RawClient], None], ...] = (
    produces,
    consumes,
    has_sessions,
    goes_small,
    names_nodes,
    logs_in,
)


def recorded() -> list[list[bytes]]:
    """Per script what its client wrote, header by header and frame by frame."""
    sessions = []
    for script in SCRIPTS:
        wire = RecordingWire(MemoryBroker(SETTINGS))
        script(RawClient(wire=wire))
        sessions.append(wire.written)
    return sessions


# --- how it is changed ----------------------------------------------------------------------------

NUMBERS = (0, 1, 2, 3, 7, 8, 127, 128, 255, 256, 511, 512, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1)
BYTES = (
    0,
    1,
    0x40,
    0x41,
    0x43,
    0x45,
    0x52,
    0x53,
    0x70,
    0x80,
    0xA0,
    0xB0,
    0xC0,
    0xC1,
    0xD0,
    0xE0,
    0xF0,
    0xFF,
)
VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    "",
    "q",
    "x" * 2000,
    b"",
    b"t" * 33,
    1.5,
    [],
    {},
    {"k": [None, {"deep": [[[[]]]]}]},
    Symbol("amqp:accepted:list"),
    Typed("ubyte", 2),
    Typed("ubyte", 1),
    Typed("ulong", 2**64 - 1),
    Described(0x99, None),
    Composite("accepted"),
    Composite("modified", delivery_failed=True),
    Composite("rejected", error=Composite("error", condition="c")),
    raw("d0 00000004 ffffffff"),
    raw("f0 00000005 80000000 40"),
    raw("c1 02 01 40"),
    raw("a1 02 c3 28"),
    raw("00" * 400 + "40"),
)
ENCODED = tuple(Raw(encode(value)) for value in VALUES)  # So that they fit a field of any type.


class Mutator:
    """A source of changed frames."""

    def __init__(self, chance: random.Random, sessions: list[list[bytes]]) -> None:
        self.chance = chance
        self.pool = [each for session in sessions for each in session]
        self.read: dict[bytes, Frame] = {each: decode_frame(each) for each in self.pool}
        self.ways = (
            *(self.flips,) * 2,
            *(self.puts_a_byte,) * 2,
            self.puts_a_number,
            self.says_another_size,
            self.cuts,
            self.cuts_in_good_form,
            self.grows,
            self.joins,
            *(self.goes_elsewhere,) * 2,
            *(self.changes_a_field,) * 8,
        )

    def change(self, whole: bytes) -> bytes:
        """`whole`, which is no longer what it was."""
        return self.chance.choice(self.ways)(whole)

    def at(self, whole: bytes) -> int:
        # Seven of eight in the first 64 bytes: behind them is seldom more than a payload.
        bound = len(whole) if self.chance.random() < 0.125 else min(len(whole), 64)
        return self.chance.randrange(bound)

    def flips(self, whole: bytes) -> bytes:
        changed = bytearray(whole)
        for _ in range(self.chance.choice((1, 1, 2, 8))):
            changed[self.at(whole)] ^= 1 << self.chance.randrange(8)
        return bytes(changed)

    def puts_a_byte(self, whole: bytes) -> bytes:
        at = self.at(whole)
        return whole[:at] + bytes((self.chance.choice(BYTES),)) + whole[at + 1 :]

    def puts_a_number(self, whole: bytes) -> bytes:
        at = self.at(whole)
        return (whole[:at] + struct.pack(">I", self.chance.choice(NUMBERS)) + whole[at + 4 :])[
            : len(whole)
        ]

    def says_another_size(self, whole: bytes) -> bytes:
        size = len(whole) + self.chance.choice((-9, -8, -1, 1, 8, 100))
        if self.chance.random() < 0.2:
            size = self.chance.choice(NUMBERS)
        return struct.pack(">I", max(0, size)) + whole[4:]

    def cuts(self, whole: bytes) -> bytes:
        return whole[: self.at(whole)]

    def cuts_in_good_form(self, whole: bytes) -> bytes:
        return sized(whole[: max(8, self.at(whole))])

    def grows(self, whole: bytes) -> bytes:
        more = self.chance.randbytes(self.chance.choice((1, 4, 30, 300)))
        return sized(whole + more)

    def joins(self, whole: bytes) -> bytes:
        other = self.chance.choice(self.pool)
        joined = whole[: self.at(whole)] + other[self.at(other) :]
        return sized(joined) if len(joined) >= 8 and self.chance.random() < 0.7 else joined

    def goes_elsewhere(self, whole: bytes) -> bytes:
        return (
            whole[:6]
            + struct.pack(">H", self.chance.choice((0, 1, 2, 5, 7, 8, 77, 65535)))
            + whole[8:]
        )

    def changes_a_field(self, whole: bytes) -> bytes:
        """The same performative with one to three other fields; mostly of the right type."""
        read = self.read.get(whole)
        if read is None or read.name in ("header", "empty"):
            return self.flips(whole)
        fields: dict[str, Any] = dict(read.fields)
        layout = LAYOUTS[read.name].fields
        for _ in range(self.chance.choice((1, 1, 2, 3))):
            if not layout:
                break
            name = self.chance.choice(list(layout))
            fields[name] = self.value(layout[name])
        return frame(read.name, channel=read.channel, payload=read.payload, **fields)

    def value(self, kind: str) -> Any:  # noqa: ANN401  Any value there is.
        chance = self.chance
        if kind in ("uint", "ulong") and chance.random() < 0.8:
            return Typed(kind, chance.choice(NUMBERS))
        if kind == "ushort" and chance.random() < 0.8:
            return Typed(kind, chance.choice(NUMBERS) % 2**16)
        if kind == "boolean" and chance.random() < 0.8:
            return chance.random() < 0.5
        return chance.choice(ENCODED)


def sized(whole: bytes) -> bytes:
    """With the size that it has."""
    return struct.pack(">I", len(whole)) + whole[4:]


class Stream(NamedTuple):
    """What one broken peer sends: pieces as they arrive."""

    pieces: list[bytes]
    frames: int
    changed: int


def stream_of(seed: str, mutator: Mutator, sessions: list[list[bytes]]) -> Stream:
    """The stream that this seed names."""
    chance = mutator.chance
    chance.seed(seed)
    session = chance.choice(sessions)
    rate = chance.choice((0.1, 0.3, 0.6))
    # Mostly the header and the Open are as they should be.
    start = 0 if chance.random() < 0.1 else 2
    out, changed = list(session[:start]), 0
    for each in session[start:]:
        if chance.random() >= rate:
            out.append(each)
            continue
        changed += 1
        what = chance.random()
        if what < 0.08:
            out += [each] * chance.choice((2, 2, 3, 40))
        elif what < 0.14:
            pass
        elif what < 0.22 and len(out) > start:
            out.insert(chance.randrange(start, len(out)), each)
        elif what < 0.32:
            out += [chance.choice(mutator.pool), each]
        else:
            out.append(mutator.change(each))
    return Stream(_pieces(out, chance), len(out), changed)


def _pieces(frames: list[bytes], chance: random.Random) -> list[bytes]:
    how = chance.random()
    if how < 0.4:
        return frames
    whole = b"".join(frames)
    if how < 0.8:
        return [whole]
    pieces = []
    while whole:
        size = chance.choice((1, 7, 60, 700))
        pieces.append(whole[:size])
        whole = whole[size:]
    return pieces


# --- the check ------------------------------------------------------------------------------------


class QuickBroker(MemoryBroker):
    """Checks the engine when asked instead of every turn."""

    def turn(self) -> None:
        self.switchboard.end_turn(self.now)
        self.switchboard.take_dirty()
        self.switchboard.take_notes()


class Round:
    """One broker and the streams that it takes."""

    def __init__(self) -> None:
        self.broker = QuickBroker(SETTINGS)
        self.bystander = Bystander(self.broker.client)

    def close(self) -> None:
        """Give Proton's memory back, which nothing else does."""
        self.bystander.client.close().wait_for("close")

    def run(self, stream: Stream) -> None:
        """Feed a stream, and see that all of the first line is so."""
        broker = self.broker
        wire = broker.wire()
        out = bytearray()
        for piece in stream.pieces:
            if wire.peer.is_finished:
                break
            wire.peer.receive(piece, broker.now)
            broker.turn()
            drain(wire, out)
        if not wire.peer.is_finished:
            self.end(wire, out, is_whole=ends_whole(b"".join(stream.pieces)))
        assert wire.peer.is_finished, "neither closed nor answering"
        last = last_frame(bytes(out))
        assert last is None or last.name in (
            "close",
            "sasl_outcome",
            "sasl_mechanisms",
            "header",
        ), f"the last word was {last}"
        assert len(broker.switchboard.peers) == 1, "a peer stays"
        assert len(broker.switchboard._links) == 2, "links stay"
        assert wire.peer.outbox.size == 0
        broker.engine.check()

    def end(self, wire: MemoryWire, out: bytearray, *, is_whole: bool) -> None:
        """A peer that is open answers a Close, unless it waits for the rest of a frame: then its time runs out."""
        broker = self.broker
        if is_whole:
            wire.peer.receive(frame("close"), broker.now)
            broker.turn()
            drain(wire, out)
            assert wire.peer.is_finished, "a Close is not answered"
            return
        broker.now = Millis(broker.now + SILENCE_MS // 2)
        self.bystander.stay()
        broker.now = Millis(broker.now + SILENCE_MS // 2)
        broker.turn()
        drain(wire, out)
        if not wire.peer.is_finished:  # It was told, and does not answer.
            self.bystander.stay()
            broker.advance(ANSWER_MS)
            drain(wire, out)


def ends_whole(stream: bytes) -> bool:
    """Whether the broker is not left with the beginning of a frame."""
    at = 0
    while at + 8 <= len(stream):
        at += 8 if stream[at : at + 4] == b"AMQP" else int.from_bytes(stream[at : at + 4], "big")
    return at == len(stream)


def drain(wire: MemoryWire, out: bytearray) -> None:
    """Read what the broker says."""
    while written := bytes(wire.peer.output()):
        wire.peer.written(len(written), wire.broker.now)
        out += written
        wire.broker.turn()


def last_frame(out: bytes) -> Frame | None:
    """All that was said is whole frames about links that are there; the last of them."""
    last = None
    attached: set[tuple[int, int]] = set()
    try:
        for each in _cut(out):
            last = decode_frame(each)
            if last.name == "attach":
                attached.add((last.channel, last.handle))
            elif last.name in ("flow", "transfer", "detach") and last.handle is not None:
                assert (last.channel, last.handle) in attached, f"no such handle: {last}"
    except Undecodable as error:
        raise AssertionError(f"{error}: {each.hex(' ')}") from None
    return last


# --- the campaign ---------------------------------------------------------------------------------


@dataclass
class Report:
    """What was done so far."""

    streams: int = 0
    frames: int = 0
    changed: int = 0
    seconds: float = 0.0
    slowest_ms: float = 0.0
    slowest: int = 0
    memory_kib: list[int] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.frames:,} frames ({self.changed:,} changed) in {self.streams:,} streams, {self.seconds:.0f} s, "
            f"slowest stream {self.slowest_ms:.0f} ms (number {self.slowest}), "
            f"peak memory after each chunk {self.memory_kib} KiB"
        )


class Campaign:
    """Streams number by number, from one seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.sessions = recorded()
        self.mutator = Mutator(random.Random(0), self.sessions)
        self.round = Round()
        self.report = Report()

    def stream(self, number: int) -> Stream:
        return stream_of(f"{self.seed}/{number}", self.mutator, self.sessions)

    def run(self, numbers: Iterator[int], frames: int) -> Report:
        """Go on until at least so many more frames were fed."""
        report = self.report
        goal = report.frames + frames
        started = time.monotonic()
        while report.frames < goal:
            self.one(next(numbers))
        report.seconds += time.monotonic() - started
        report.memory_kib.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
        return report

    def one(self, number: int) -> None:
        report = self.report
        stream = self.stream(number)
        if report.streams and report.streams % STREAMS_PER_BROKER == 0:
            self.round.close()
            self.round = Round()
        began = time.process_time()
        try:
            self.round.run(stream)
            if report.streams % LOOK_EVERY == 0:
                self.round.bystander.look()
        except BaseException as error:
            written = "\n".join(piece.hex(" ") for piece in stream.pieces)
            error.add_note(f"seed {self.seed}, stream {number}:\n{written}")
            raise
        took = 1000 * (time.process_time() - began)
        if took > report.slowest_ms:
            report.slowest_ms, report.slowest = took, number
        report.streams += 1
        report.frames += stream.frames
        report.changed += stream.changed


def work(seed: int, first: int, step: int, frames: int, chunks: int) -> Report:
    """One process's part, with a line per chunk."""
    campaign = Campaign(seed)
    numbers = iter(range(first, 2**63, step))
    for _ in range(chunks):
        campaign.run(numbers, frames // chunks)
        print(f"process {first}: {campaign.report}", flush=True)  # noqa: T201  The report.
    return campaign.report


def run(seed: int, frames: int, processes: int, chunks: int = 10) -> list[Report]:
    """The campaign; raises the first failure."""
    print(f"seed {seed}", flush=True)  # noqa: T201
    # Not by fork: each interpreter loads Proton anew.
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        parts = [
            pool.apply_async(work, (seed, first, processes, frames // processes, chunks))
            for first in range(processes)
        ]
        return [part.get() for part in parts]


def main() -> None:
    """See the docstring of the module."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--frames", type=int, default=2_000_000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    parser.add_argument("--only", type=int, help="run this stream and no other")
    given = parser.parse_args()
    if given.only is not None:
        Campaign(given.seed).one(given.only)
    else:
        run(given.seed, given.frames, given.processes)


if __name__ == "__main__":
    main()
