"""What a peer does wrong, the condition that it is told, and that nobody else notices (client-needs B0, B12).

Each fault comes whole, byte by byte and in random pieces, beside a client that does everything right.
"""

# ruff: noqa: ANN401  # Fields may be anything.

import gc
import struct
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from amqpbroker.amqp.settings import PeerSettings
from amqpbroker.base.ids import BatchNumber
from amqpbroker.engine.records import Batch
from amqpbroker.engine.settings import AddressSettings, BrokerSettings
from tests.amqp.bystander import Bystander
from tests.amqp.cuts import CUTS, Cut
from tests.amqp.memory import SETTINGS, MemoryBroker
from tests.raw.client import RawClient, error
from tests.raw.frames import (
    AMQP_HEADER,
    Composite,
    Described,
    Frame,
    Symbol,
    Typed,
    data,
    delivery_annotations,
    empty_frame,
    frame,
    frame_of,
    header,
    list_of,
    message,
    message_annotations,
    properties,
    raw,
    symbolic,
    value,
)

Fault = Callable[[RawClient], object]


def all_of(client: RawClient) -> list[Frame]:
    frames = []
    while (read := client.read_frame(0)) is not None:
        frames.append(read)
    return frames


def with_credit(client: RawClient) -> RawClient:
    """One session; handle 0 sends to q and has its credit, handle 1 receives from it."""
    client.opened().begun().producer("q").consumer("q", handle=1)
    client.wait_for("attach", role=False)
    all_of(client)
    return client


def sends(*pieces: bytes) -> Fault:
    return lambda client: client.send(*pieces)


def performs(name: str, /, **fields: Any) -> Fault:
    return lambda client: client.performative(name, **fields)


def transfers(payload: bytes = b"", **fields: Any) -> Fault:
    return lambda client: client.transfer(payload, **fields)


class NeverDone:
    """A store whose disk does not answer."""

    def submit(self, batch: Batch) -> None:
        pass

    def take_stored(self) -> BatchNumber | None:
        return None

    def close(self) -> None:
        pass


# --- what closes the connection -------------------------------------------------------------------

FRAMING, DECODE = "amqp:connection:framing-error", "amqp:decode-error"
MISSING, STATE, NOT_ALLOWED = "amqp:invalid-field", "amqp:illegal-state", "amqp:not-allowed"
DEEP = Described(Symbol("d"), None)
for _ in range(40):
    DEEP = Described(Symbol("d"), [DEEP])
BOTTOMLESS = raw("00" * 10_000 + "40")

BEFORE_OPEN: dict[str, tuple[Fault, str]] = {
    "begin before open": (performs("begin", next_outgoing_id=0, incoming_window=1), MISSING),
    "whole begin before open": (lambda client: client.begin(), STATE),
    "end before open": (performs("end"), STATE),
    "close before open": (performs("close"), STATE),
    "flow before open": (lambda client: client.flow(), NOT_ALLOWED),
    "open on channel 1": (performs("open", container_id="c", channel=1), FRAMING),
    "a size of 7 before open": (sends(b"\0\0\0\7\2\0\0\0"), FRAMING),
    "noise before open": (sends(b"\x7f" * 40), FRAMING),
    "an open that is no list": (sends(frame_of(b"\0\x53\x10\x40")), DECODE),
    "an open with a field too many": (
        sends(frame_of(b"\0\x53\x10" + list_of([b"\xa1\1c"] + [b"\x40"] * 10))),
        DECODE,
    ),
    "an open with a max-frame-size of another type": (
        performs("open", container_id="c", max_frame_size=raw("a1 01 6c")),
        DECODE,
    ),
    "an open with bad UTF-8": (performs("open", container_id=raw("a1 02 c3 28")), DECODE),
    "an open with an odd map": (
        performs("open", container_id="c", properties=raw("c1 04 01 a3 01 61")),
        DECODE,
    ),
    "an open with properties 40 deep": (
        performs("open", container_id="c", properties={"deep": DEEP}),
        DECODE,
    ),
}
AFTER_OPEN: dict[str, tuple[Fault, str]] = {
    "a second open": (performs("open", container_id="c"), STATE),
    "a frame of type 1": (sends(empty_frame()[:5] + b"\x01\0\0"), FRAMING),
    "a SASL frame": (performs("sasl_init", mechanism="ANONYMOUS"), FRAMING),
    "a data offset of 1": (sends(frame_of(b"", doff=1)), FRAMING),
    "a data offset beyond the frame": (sends(frame_of(b"", doff=3)), FRAMING),
    "a size of 0": (sends(b"\0\0\0\0\2\0\0\0"), FRAMING),
    "a size of 2^31": (sends(struct.pack(">IBBH", 2**31, 2, 0, 0)), FRAMING),
    "a second header": (sends(AMQP_HEADER), FRAMING),
    "an unknown performative": (sends(frame_of(b"\0\x53\x19\x45")), DECODE),
    "an unknown symbol": (sends(frame_of(b"\0" + symbolic("nothing") + b"\x45")), DECODE),
    "a descriptor of 2^64 - 1": (sends(frame_of(b"\0\x80" + b"\xff" * 8 + b"\x45")), DECODE),
    "a descriptor that is a list": (sends(frame_of(b"\0\x45\x45")), DECODE),
    "described 10,000 deep": (sends(frame_of(BOTTOMLESS)), DECODE),
    "a performative that is a map": (sends(frame_of(b"\0\x53\x11\xc1\1\0")), DECODE),
    "a bare value": (sends(frame_of(b"\x43\x43\x43\x43")), DECODE),
    "one byte": (sends(frame_of(b"\0")), DECODE),
    "a count of 2^32 - 1": (sends(frame_of(b"\0\x53\x11\xd0\0\0\0\4\xff\xff\xff\xff")), DECODE),
    "a size beyond the frame": (sends(frame("begin", list_size=200, incoming_window=1)), DECODE),
    "bytes after an attach": (
        lambda client: client.send(frame("end", payload=b"more")),
        DECODE,
    ),
    "an unknown constructor": (
        performs("begin", next_outgoing_id=0, incoming_window=raw("3f"), outgoing_window=1),
        DECODE,
    ),
    "an array of nothing with a count of 2^31": (
        lambda client: client.attach("n", properties={"a": raw("f0 00000005 80000000 40")}),
        DECODE,
    ),
    "a source of another type": (lambda client: client.attach("n", source=raw("a1 01 71")), DECODE),
    "a name of another type": (lambda client: client.attach(raw("53 01")), DECODE),
    "a filter 1,000 deep": (
        lambda client: client.consumer("q", handle=9, source={"filter": {"f": DEEP}}),
        DECODE,
    ),
    "begin without fields": (performs("begin", channel=9), MISSING),
    "begin without next-outgoing-id": (
        lambda client: client.begin(9, next_outgoing_id=None),
        MISSING,
    ),
    "begin without incoming-window": (
        lambda client: client.begin(9, incoming_window=None),
        MISSING,
    ),
    "begin without outgoing-window": (
        lambda client: client.begin(9, outgoing_window=None),
        MISSING,
    ),
    "a begin that answers none": (lambda client: client.begin(9, remote_channel=9), MISSING),
    "a begin on a channel in use": (lambda client: client.begin(0), NOT_ALLOWED),
    "attach without fields": (performs("attach"), MISSING),
    "attach without name": (lambda client: client.attach(None), MISSING),
    "attach without handle": (lambda client: client.attach("n", handle=None), MISSING),
    "attach without role": (performs("attach", name="n", handle=9), MISSING),
    "attach with a name of 1,025 bytes": (lambda client: client.attach("n" * 1_025), MISSING),
    "flow without fields": (performs("flow"), MISSING),
    "flow without incoming-window": (lambda client: client.flow(incoming_window=None), MISSING),
    "flow without next-outgoing-id": (lambda client: client.flow(next_outgoing_id=None), MISSING),
    "flow without outgoing-window": (lambda client: client.flow(outgoing_window=None), MISSING),
    "transfer without fields": (performs("transfer"), MISSING),
    "transfer without handle": (transfers(message(b"x"), handle=None), MISSING),
    "disposition without fields": (performs("disposition"), MISSING),
    "disposition without role": (performs("disposition", role=None, first=0), MISSING),
    "disposition without first": (performs("disposition", role=True), MISSING),
    "detach without handle": (performs("detach"), MISSING),
    "an error without a condition": (
        performs("detach", handle=0, error=Composite("error")),
        MISSING,
    ),
}
ON_A_CHANNEL: dict[str, dict[str, Any]] = {
    "attach": {"name": "n", "handle": 0, "role": True},
    "flow": {"incoming_window": 1, "next_outgoing_id": 0, "outgoing_window": 1},
    "transfer": {"handle": 0},
    "disposition": {"role": True, "first": 0},
    "detach": {"handle": 0},
    "end": {},
}
AFTER_OPEN |= {
    f"{name} on a channel that was not begun": (performs(name, channel=9, **fields), NOT_ALLOWED)
    for name, fields in ON_A_CHANNEL.items()
}


def check_closed(client: RawClient, broker: MemoryBroker, condition: str) -> None:
    close = client.wait_for("close", error=error(condition))
    assert close.error["description"], "clients surface it"
    client.expect_closed()
    assert len(broker.switchboard.peers) == 1


@pytest.mark.rule("B0", "B12")
@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("name", BEFORE_OPEN)
def test_a_fault_before_the_open_gets_our_open_and_a_close(name: str, cut: Cut) -> None:
    broker = MemoryBroker()
    bystander = Bystander(broker.client)
    fault, condition = BEFORE_OPEN[name]
    client = broker.client(cut).header()
    fault(client)
    client.expect("open")
    check_closed(client, broker, condition)
    bystander.look()


@pytest.mark.rule("B0", "B12")
@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("name", AFTER_OPEN)
def test_a_fault_of_the_connection_is_told_in_a_close(name: str, cut: Cut) -> None:
    broker = MemoryBroker()
    bystander = Bystander(broker.client)
    fault, condition = AFTER_OPEN[name]
    client = with_credit(broker.client(cut))
    fault(client)
    check_closed(client, broker, condition)
    bystander.look()


@pytest.mark.rule("B12")
@pytest.mark.parametrize("name", AFTER_OPEN)
def test_what_was_done_before_a_fault_in_the_same_read_is_done(name: str) -> None:
    broker = MemoryBroker()
    client = with_credit(broker.client())
    fault, condition = AFTER_OPEN[name]
    with client.pipelined():
        client.transfer(message(b"before"))
        fault(client)
        client.transfer(message(b"after"))
    client.wait_for("close", error=error(condition))
    client.expect_closed()
    assert broker.queue("q").stats.added == 1


# --- what detaches the link, and no more ----------------------------------------------------------

LINK_FAULTS: dict[str, tuple[Fault, str]] = {
    "transfer without a tag": (transfers(message(b"x"), delivery_tag=None), MISSING),
    "an empty tag on an unsettled delivery": (transfers(message(b"x"), delivery_tag=b""), MISSING),
    "a tag of 33 bytes": (transfers(message(b"x"), delivery_tag=b"t" * 33), MISSING),
    "rcv-settle-mode second on a link in first": (
        transfers(message(b"x"), rcv_settle_mode=1),
        MISSING,
    ),
    "rcv-settle-mode 2": (transfers(message(b"x"), rcv_settle_mode=2), MISSING),
    "message-format 1": (transfers(message(b"x"), message_format=1), "amqp:not-implemented"),
    "resume": (transfers(message(b"x"), resume=True), "amqp:not-implemented"),
    "transfer on a link that receives": (transfers(message(b"x"), handle=1), NOT_ALLOWED),
}


def after_a_detach(client: RawClient, handle: int) -> None:
    """The session takes all again that it took before."""
    client.detach(handle)
    client.producer("q", name="after", handle=5).wait_for("attach", name="after")
    client.wait_for("flow", link_credit=1000)
    client.transfer(message(b"after"), handle=5).wait_for("disposition", state="accepted")


@pytest.mark.rule("B0", "B12")
@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("name", LINK_FAULTS)
def test_a_fault_of_a_link_is_told_in_a_detach(name: str, cut: Cut) -> None:
    broker = MemoryBroker()
    bystander = Bystander(broker.client)
    client = with_credit(broker.client(cut))
    fault, condition = LINK_FAULTS[name]
    fault(client)
    detach = client.wait_for("detach", error=error(condition), closed=True)
    assert detach.error["description"]
    assert not broker.has_queue("q") or not broker.queue("q").stats.added
    after_a_detach(client, 1 if "receives" in name else 0)
    bystander.look()


@pytest.mark.rule("B0", "B10.3")
@pytest.mark.parametrize("cut", CUTS)
def test_a_delivery_has_one_message_format(cut: Cut) -> None:
    broker = MemoryBroker()
    client = with_credit(broker.client(cut))
    client.transfer(message(b"x"), more=True).transfer(b"", message_format=1, more=True)
    client.wait_for("detach", error=error("amqp:invalid-field"))
    client.transfer(b"rest")
    after_a_detach(client, 0)
    assert broker.queue("q").stats.added == 1


@pytest.mark.rule("B12", "PF-9")
@pytest.mark.parametrize("cut", CUTS)
def test_more_deliveries_than_credit_detach_the_link_and_the_session_lives(cut: Cut) -> None:
    # Nothing is stored, so nothing is answered and no credit comes again.
    settings = PeerSettings(container_id="broker", credit=3, credit_low=1)
    broker = MemoryBroker(settings, store=NeverDone())
    client = broker.client(cut).opened().begun().producer("q")
    client.wait_for("flow", link_credit=3)
    for _ in range(7):
        client.transfer(message(b"x", durable=True))
    client.wait_for("detach", error=error("amqp:link:transfer-limit-exceeded"))
    client.detach(0).producer("q", name="after", handle=5)
    client.wait_for("flow", link_credit=3)
    client.transfer(message(b"y"), handle=5).wait_for("disposition", state="accepted")


@pytest.mark.rule("B12", "B4.15")
@pytest.mark.parametrize("frames", [1, 3, 200])
def test_a_message_that_is_too_large_detaches_its_link(frames: int) -> None:
    # Bug case 24: the last one never ends.
    settings = PeerSettings(container_id="b", max_message_size=10_000)
    broker = MemoryBroker(settings)
    client = with_credit(broker.client())
    client.producer("q", name="other", handle=5).wait_for("attach", max_message_size=10_000)
    client.transfer(message(b"x" * 9_000)).wait_for("disposition", state="accepted")
    size = 10_100 if frames == 1 else 4_000
    for number in range(frames):
        client.transfer(message(b"x" * size), more=number + 1 < frames or frames == 200)
    client.wait_for("detach", error=error("amqp:link:message-size-exceeded"))
    client.transfer(message(b"other"), handle=5).wait_for("disposition", state="accepted")
    assert broker.queue("q").stats.added == 2
    client.detach(0).producer("q", name="again", handle=0).wait_for("attach", name="again")


@pytest.mark.rule("B0", "B10.2", "B12")
@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\0",
        b"noise",
        message(b"x") + b"\0\x53\x70\x45",
        data(b"x") + properties(to="q"),
        properties(to="q") + header(durable=True) + data(b"x"),
        data(b"x") + value("y"),
        delivery_annotations({"a": 1}) + header(priority=1) + data(b"x"),  # Bug case 29.
        b"\0\x53\x75\xb0\xff\xff\xff\xff",
        b"\0\x53\x74\xd1\0\0\0\4\xff\xff\xff\xff" + data(b"x"),
        b"\0\x53\x70\xc0\x03\x01\xa1\0" + data(b"x"),  # Bug case 166: a header of wrong types.
        message_annotations({}) + b"\0\x53\x99\x45",
        raw("00" * 10_000 + "40"),
    ],
    ids=range(13),
)
def test_a_malformed_message_is_rejected_and_kept_by_nobody(payload: bytes) -> None:
    broker = MemoryBroker()
    client = with_credit(broker.client())
    client.transfer(payload)
    answer = client.expect("disposition", first=0, settled=True, state="rejected")
    assert answer.state["error"]["condition"] == "amqp:decode-error"
    assert answer.state["error"]["description"]
    client.transfer(message(b"good")).expect("disposition", first=1, state="accepted")
    client.transfer(payload, settled=True)  # No outcome can tell it (RJ-3).
    detach = client.expect("detach", handle=0, error=error("amqp:decode-error"))
    assert detach.error["info"] == {"delivery-tag": b"2"}
    client.credit(5, handle=1)
    assert [read.payload for read in all_of(client)] == [message(b"good")]


ABSURD = {
    "ttl": (header(ttl=2**32 - 1), data(b"x")),
    "priority": (header(priority=255), data(b"x")),
    "delivery-count": (header(delivery_count=2**32 - 1, first_acquirer=True), data(b"x")),
    "times": (
        b"",
        properties(absolute_expiry_time=2**63 - 1, creation_time=-(2**63), group_sequence=2**32 - 1)
        + data(b"x"),
    ),
    "names": (
        b"",
        properties(
            message_id=Typed("ulong", 2**64 - 1),
            user_id=bytes(range(256)),
            to="",
            subject="\0\U0010ffff" * 100,
            reply_to="x" * 50_000,
            correlation_id=b"",
        )
        + data(b"x"),
    ),
    "broker annotations": (
        message_annotations(
            {"x-opt-ORIG-QUEUE": 7, "x-opt-delivery-time": "soon", "x-opt-jms-dest": [1]}
        ),
        data(b"x"),
    ),
    "a map of 10,000": (
        b"",
        b"\0\x53\x74"
        + list_of(
            [b"\xa1\4%04d\x40" % key for key in range(10_000)], constructor=0xC1, count=20_000
        )
        + data(b"x"),
    ),
    "nothing in it": (b"", data(b"")),
    "null": (b"", value(None)),
    "a value 30 deep": (b"", value([[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]]]]]]]]])),
}


@pytest.mark.rule("B10.1", "B10.11")
@pytest.mark.parametrize("name", ABSURD)
def test_an_absurd_message_that_is_well_formed_passes_as_it_is(name: str) -> None:
    broker = MemoryBroker()
    client = with_credit(broker.client())
    before, bare = ABSURD[name]
    whole = before + bare
    for at in range(0, len(whole), 60_000):
        client.transfer(whole[at : at + 60_000], more=at + 60_000 < len(whole))
    client.expect("disposition", first=0, settled=True, state="accepted")
    client.credit(5, handle=1)
    for state in ("modified", "released", "accepted"):
        (delivery,) = client.receive()
        assert delivery.payload.endswith(bare)
        client.disposition(delivery.delivery_id, state=state)


# --- refusals of an attach ------------------------------------------------------------------------


def refused(client: RawClient, condition: str, *, role: bool) -> None:
    """An Attach with a null terminus of ours, at once a Detach, and the session lives (B4.3)."""
    attach = client.expect("attach", role=role)
    assert attach.target is None if role else attach.source is None
    detach = client.expect("detach", handle=attach.handle, closed=True, error=error(condition))
    assert detach.error["description"]
    client.detach(5).producer("q", name="fine", handle=6).expect("attach", name="fine")
    client.expect("flow", link_credit=1000)


REFUSED: dict[str, tuple[Fault, str]] = {
    "a source that is null": (
        lambda client: client.attach("r", "receiver", handle=5, source=None),
        "amqp:not-found",
    ),
    "a source without an address": (
        lambda client: client.consumer(None, handle=5),
        "amqp:invalid-field",
    ),
    "an address of bytes": (
        lambda client: client.consumer("q", handle=5, source={"address": b"q"}),
        "amqp:invalid-field",
    ),
    "an address of 1,025 bytes": (
        lambda client: client.consumer("q" * 1_025, handle=5),
        "amqp:invalid-field",
    ),
    "an unknown distribution mode": (
        lambda client: client.consumer(
            "q", handle=5, source={"address": "q", "distribution_mode": "steal"}
        ),
        "amqp:invalid-field",
    ),
    "a selector": (
        lambda client: client.consumer(
            "q",
            handle=5,
            source={
                "address": "q",
                "filter": {"s": Described(Symbol("apache.org:selector-filter:string"), "a = 1")},
            },
        ),
        "amqp:not-implemented",
    ),
    "a coordinator": (
        lambda client: client.attach("t", handle=5, target=Composite("coordinator")),
        "amqp:not-implemented",
    ),
    "a target that is null": (
        lambda client: client.attach("t", handle=5, target=None),
        "amqp:invalid-field",
    ),
    "a queue and a topic at once": (
        lambda client: client.producer(
            "q", handle=5, target={"address": "q", "capabilities": ["queue", "topic"]}
        ),
        "amqp:precondition-failed",
    ),
    "an unknown lifetime": (
        lambda client: client.consumer(
            None,
            handle=5,
            source={
                "dynamic": True,
                "dynamic_node_properties": {"lifetime-policy": Described(0x2F, [])},
            },
        ),
        "amqp:invalid-field",
    ),
    "a dead dynamic node": (lambda client: client.producer("tmp.gone", handle=5), "amqp:not-found"),
}


@pytest.mark.rule("B12", "B4.3", "B5.8")
@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("name", REFUSED)
def test_an_attach_that_is_refused_says_why_and_the_session_lives(name: str, cut: Cut) -> None:
    broker = MemoryBroker()
    bystander = Bystander(broker.client)
    client = broker.client(cut).opened().begun()
    all_of(client)
    fault, condition = REFUSED[name]
    fault(client)
    answer = client.peek()
    assert answer is not None
    refused(client, condition, role=bool(answer.role))
    bystander.look()


@pytest.mark.rule("B12")
def test_a_node_that_may_not_be_made_is_not_found() -> None:
    address = AddressSettings(auto_create_addresses=False, auto_create_queues=False)
    broker = MemoryBroker(broker=BrokerSettings(address=address))
    client = broker.client().opened().begun()
    all_of(client)
    for handle, role in enumerate(("sender", "receiver")):
        client.attach(f"l{handle}", role, source={"address": "q"}, target={"address": "q"})
        client.expect("attach")
        client.expect("detach", error=error("amqp:not-found"))
    assert not broker.has_queue("q")


@pytest.mark.rule("B12")
@pytest.mark.parametrize("cut", CUTS)
def test_more_links_than_a_connection_may_have_are_refused_one_by_one(cut: Cut) -> None:
    broker = MemoryBroker(PeerSettings(container_id="b", links_max=3))
    client = broker.client(cut).opened().begun().producer("q").producer("q").consumer("q")
    all_of(client)
    for handle in range(5, 8):
        client.producer("q", handle=handle, name=f"n{handle}").expect("attach", target=None)
        client.expect("detach", error=error("amqp:resource-limit-exceeded"))
        client.detach(handle)
    client.detach(0).expect("detach")
    client.producer("q", handle=9, name="fits").expect(
        "attach", name="fits", target={"address": "q"}
    )


@pytest.mark.rule("B12")
def test_ten_thousand_attaches_are_bounded_and_stop_nobody() -> None:
    broker = MemoryBroker(PeerSettings(container_id="b", links_max=200))
    bystander = Bystander(broker.client)
    client = broker.client().opened().begin(0).begin(1).begin(2)
    ends = 0
    for start in range(0, 10_002, 834):
        with client.pipelined():
            for number in range(start, start + 834):
                channel, handle = number % 3, number // 3
                client.consumer("q", channel=channel, handle=handle, name=f"l{number}")
        for read in all_of(client):
            ends += read.name == "end"
            assert read.name != "close"
        assert len(broker.queue("q").consumers if broker.has_queue("q") else ()) <= 200
        client.transcript.clear()
        client.frames.clear()
    assert ends == 3  # Refused one by one up to a bound, then with their sessions.
    bystander.look()
    client.close().wait_for("close", error=None)
    assert len(broker.switchboard._links) == 2


@pytest.mark.rule("B12")
def test_a_session_may_have_thousands_of_links() -> None:
    broker = MemoryBroker()
    client = broker.client().opened().begin(0)
    for start in range(0, 4_000, 500):
        with client.pipelined():
            for handle in range(start, start + 500):
                client.consumer("q", handle=handle)
        assert sum(read.name == "attach" for read in all_of(client)) == 500
    assert len(broker.queue("q").consumers) == 4_000
    client.close().wait_for("close", error=None)
    assert not broker.switchboard._links


@pytest.mark.rule("B12", "B11.5")
def test_a_dynamic_node_is_its_connections_alone() -> None:
    broker = MemoryBroker()
    owner = broker.client().opened().begun()
    owner.consumer(None, source={"dynamic": True})
    address = owner.wait_for("attach").source["address"]
    other = broker.client().opened(container_id="other").begun()
    all_of(other)
    other.consumer(address, handle=5).expect("attach", source=None)
    other.expect("detach", error=error("amqp:resource-locked"))
    other.producer(address, handle=1).expect("attach", target={"address": address})


@pytest.mark.rule("B12", "B11.4")
def test_the_links_on_a_node_that_is_deleted_are_told_so() -> None:
    broker = MemoryBroker()
    owner = broker.client().opened().begun()
    owner.consumer(None, source={"dynamic": True})
    address = owner.wait_for("attach").source["address"]
    other = broker.client().opened(container_id="other").begun().producer(address)
    other.wait_for("flow", link_credit=1000)
    owner.close()
    detach = other.wait_for("detach", error=error("amqp:resource-deleted"), closed=True)
    assert detach.error["description"]


@pytest.mark.rule("B12", "B11.8")
def test_dynamic_nodes_have_a_bound() -> None:
    broker = MemoryBroker(broker=BrokerSettings(dynamic_nodes_max=2))
    client = broker.client().opened().begun()
    for _ in range(3):
        client.consumer(None, source={"dynamic": True})
    client.wait_for("detach", error=error("amqp:resource-limit-exceeded"))


@pytest.mark.rule("B12", "B4.7")
def test_an_anonymous_message_that_goes_nowhere_is_rejected_and_its_link_lives() -> None:
    broker = MemoryBroker()
    client = broker.client().opened().begun().producer(None)
    client.wait_for("flow", link_credit=1000)
    for payload, condition in (
        (message(b"to nobody"), "amqp:invalid-field"),
        (properties(to="tmp.dead") + data(b"x"), "amqp:not-found"),
    ):
        answer = client.transfer(payload).expect("disposition", settled=True, state="rejected")
        assert answer.state["error"]["condition"] == condition
        assert answer.state["error"]["info"]["delivery-tag"]
    client.transfer(properties(to="q") + data(b"x")).expect("disposition", state="accepted")


@pytest.mark.rule("B12")
def test_a_fault_of_ours_is_an_internal_error_without_a_word_of_code() -> None:
    broker = MemoryBroker()
    bystander = Bystander(broker.client)
    wire = broker.wire()
    client = RawClient(wire=wire).opened().begun()
    wire.peer.fail(KeyError("secret"), broker.now)
    close = client.wait_for("close", error=error("amqp:internal-error"))
    assert close.error["description"] == "internal error"
    client.expect_closed()
    bystander.look()


# --- memory ---------------------------------------------------------------------------------------


def misbehave(broker: MemoryBroker, number: int) -> None:
    faults = list(AFTER_OPEN.values())
    wire = broker.wire()
    client = RawClient(wire=wire).opened().begun().producer("q").consumer("q", handle=1)
    client.credit(9, handle=1).transfer(message(b"x" * 3_000), more=True)
    faults[number % len(faults)][0](client)
    client.wait_for("close")
    client.expect_closed()


@pytest.mark.rule("B12")
def test_after_hundreds_of_bad_peers_memory_is_where_it_was() -> None:
    broker = MemoryBroker()
    bystander = Bystander(broker.client)
    for number in range(100):
        misbehave(broker, number)
    settle_down(broker, bystander)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for number in range(300):
        misbehave(broker, number)
    settle_down(broker, bystander)
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 16 * 1024
    bystander.look()


def settle_down(broker: MemoryBroker, bystander: Bystander) -> None:
    """Deadlines of those that are gone are forgotten when they are due."""
    for _ in range(3):
        bystander.stay()
        broker.advance(SETTINGS.idle_timeout_ms // 2)
    broker.notes.clear()
    gc.collect()
