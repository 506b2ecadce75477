"""From the first byte to an open connection, and its close (client-needs B1 and B2), against a broker in memory."""

import struct
from typing import Any

import pytest

from amqpbroker.base.errors import RESOURCE_LIMIT_EXCEEDED, Refusal
from tests.amqp.bystander import Bystander
from tests.amqp.cuts import CUTS, Cut
from tests.amqp.memory import SETTINGS, MemoryBroker, MemoryWire
from tests.raw.client import RawClient, error
from tests.raw.frames import (
    AMQP_HEADER,
    SASL_HEADER,
    Composite,
    Frame,
    Raw,
    Symbol,
    Typed,
    array_of,
    empty_frame,
    encode,
    frame,
    message,
    raw,
)


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker()


def wire_of(client: RawClient) -> MemoryWire:
    assert isinstance(client.wire, MemoryWire)
    return client.wire


def all_of(client: RawClient) -> list[Frame]:
    frames = []
    while (read := client.read_frame(0)) is not None:
        frames.append(read)
    return frames


# --- SASL, as far as ANONYMOUS reaches it ---------------------------------------------------------

SASL_FAULTS = {
    "mechanisms": frame("sasl_mechanisms", sasl_server_mechanisms=["ANONYMOUS"]),
    "challenge": frame("sasl_challenge", challenge=b"c"),
    "outcome": frame("sasl_outcome", code=0),
    "response": frame("sasl_response", response=b"r"),
    "an empty frame": empty_frame()[:5] + b"\x01\0\0",
    "an AMQP frame": frame("open", container_id="c"),
    "a count that lies": b"\0\0\0\x14\x02\1\0\0\0\x53\x41\xd0\0\0\0\4\xff\xff\xff\xff",
    "a size without end": struct.pack(">IBBH", 2**31, 2, 1, 0),
}


@pytest.mark.rule("B0", "B1.11")
@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("wrong", SASL_FAULTS.values(), ids=SASL_FAULTS.keys())
def test_whatever_is_no_init_ends_the_connection(
    broker: MemoryBroker, wrong: bytes, cut: Cut
) -> None:
    client = broker.client(cut)
    client.sasl_header().expect("sasl_mechanisms")
    client.send(wrong)
    client.expect_closed()
    assert not broker.switchboard.peers


@pytest.mark.rule("B0", "B1.11")
@pytest.mark.parametrize("cut", CUTS)
def test_the_login_cannot_be_walked_around(broker: MemoryBroker, cut: Cut) -> None:
    client = broker.client(cut)
    client.sasl_header().expect("sasl_mechanisms")
    client.send(AMQP_HEADER, frame("open", container_id="c"))
    client.expect_closed()
    again = broker.client(cut).sasl_anonymous()
    again.send(SASL_HEADER).expect_header(AMQP_HEADER)
    again.expect_closed()
    assert not broker.switchboard.peers


@pytest.mark.rule("B1.3", "B1.7")
def test_a_mechanism_that_is_not_offered_is_answered_with_auth(broker: MemoryBroker) -> None:
    client = broker.client()
    client.sasl_header().expect("sasl_mechanisms", sasl_server_mechanisms=["ANONYMOUS"])
    client.performative("sasl_init", mechanism="PLAIN", initial_response=b"\0u\0p")
    client.expect("sasl_outcome", code=1)
    client.expect_closed()


@pytest.mark.rule("B1.2")
@pytest.mark.parametrize("header", [b"AMQP\0\0\x09\x01", b"AMQP\1\1\0\x0a", b"AMQP\2\1\0\0"])
def test_another_protocol_is_answered_with_ours_and_the_end(
    broker: MemoryBroker, header: bytes
) -> None:
    client = broker.client().send(header)
    client.expect_header(SASL_HEADER)
    client.expect_closed()


# --- Open -----------------------------------------------------------------------------------------


@pytest.mark.rule("B2.1")
def test_the_container_id_of_our_open_is_the_brokers_name_each_time(broker: MemoryBroker) -> None:
    for _ in range(2):
        client = broker.client().header().open()
        assert client.expect("open").container_id == SETTINGS.container_id != ""


@pytest.mark.rule("B2.1", "B2.7", "B12")
@pytest.mark.parametrize("late", [False, True], ids=["known before", "known after the login"])
def test_a_connection_that_is_refused_gets_our_open_with_the_key_and_then_a_close(
    broker: MemoryBroker, late: bool
) -> None:
    client = broker.client()
    peer = wire_of(client).peer
    refusal = Refusal(RESOURCE_LIMIT_EXCEEDED, "no more than 3 connections")
    if not late:
        peer.refuse(refusal, broker.now)
    client.sasl_anonymous()
    if late:
        peer.refuse(refusal, broker.now)
    client.header().open()
    opened = client.expect("open", container_id=SETTINGS.container_id)
    assert opened.properties["amqp:connection-establishment-failed"] is True
    told = {"description": "no more than 3 connections"}
    client.expect("close", error=error("amqp:resource-limit-exceeded", **told))
    client.close().expect_closed()


@pytest.mark.rule("B2.2")
def test_what_is_offered_is_what_works_whatever_is_desired(broker: MemoryBroker) -> None:
    desired = [
        "sole-connection-for-container",
        "DELAYED_DELIVERY",
        "ANONYMOUS-RELAY",
        "SHARED-SUBS",
    ]
    client = broker.client().header().open(desired_capabilities=desired)
    offered = client.expect("open").offered_capabilities
    assert offered == ["ANONYMOUS-RELAY"]
    assert all(isinstance(each, Symbol) for each in offered)


@pytest.mark.rule("B2.3")
@pytest.mark.parametrize(
    "one",
    [Raw(encode(Symbol("SHARED-SUBS"))), array_of(0xA3, [b"\x0bSHARED-SUBS"])],
    ids=["a symbol", "an array of one"],
)
def test_one_capability_may_be_a_symbol_or_an_array(broker: MemoryBroker, one: Raw) -> None:
    client = broker.client().header()
    client.open(offered_capabilities=one, desired_capabilities=one).expect("open")
    client.close().expect("close", error=None)


@pytest.mark.rule("B2.4", "B2.5", "B2.6")
def test_our_open_says_the_product_and_neither_prefixes_nor_other_brokers(
    broker: MemoryBroker,
) -> None:
    mine = {"product": "QpidJMS", "version": "2", "platform": "JVM"}
    properties = broker.client().header().open(properties=mine).expect("open").properties
    assert properties.keys() == {"product", "version", "platform"}
    assert all(isinstance(key, Symbol) for key in properties)
    assert properties["product"] == "amqpbroker"


@pytest.mark.rule("B0", "B2.11")
@pytest.mark.parametrize(
    ("container", "condition"),
    [
        ({}, "amqp:invalid-field"),
        ({"container_id": None}, "amqp:invalid-field"),
        ({"container_id": ""}, "amqp:invalid-field"),
        ({"container_id": raw("a3 01 63")}, "amqp:decode-error"),  # A symbol.
        ({"container_id": raw("52 07")}, "amqp:decode-error"),
    ],
)
@pytest.mark.parametrize("cut", CUTS)
def test_an_open_without_a_container_id_gets_our_open_and_a_close(
    broker: MemoryBroker, container: dict[str, Any], condition: str, cut: Cut
) -> None:
    client = broker.client(cut).header().performative("open", **container)
    client.expect("open", container_id=SETTINGS.container_id)
    client.expect("close", error=error(condition))
    client.expect_closed()


@pytest.mark.rule("B2.13")
@pytest.mark.parametrize("hostname", [None, "", "vhost:tenant", "127.0.0.1", "ü.example"])
def test_any_hostname_will_do(broker: MemoryBroker, hostname: str | None) -> None:
    broker.client().opened(hostname=hostname).begun().close().wait_for("close", error=None)


# --- frame sizes ----------------------------------------------------------------------------------


@pytest.mark.rule("B0", "B2.14")
@pytest.mark.parametrize("size", [0, 1, 8, 511])
def test_a_max_frame_size_below_512_is_refused(broker: MemoryBroker, size: int) -> None:
    client = broker.client().header().open(max_frame_size=size)
    client.expect("open")
    client.expect("close", error=error("amqp:invalid-field"))
    client.expect_closed()


@pytest.mark.rule("B2.14")
@pytest.mark.parametrize("size", [512, 4321, 65536])
@pytest.mark.parametrize("body", [100, 4_000, 1_000_000])
def test_no_frame_is_larger_than_its_reader_takes(
    broker: MemoryBroker, size: int, body: int
) -> None:
    # Bug case 23.
    sender = broker.client().opened().begun().producer("q")
    sender.wait_for("flow", link_credit=1000)
    payload = message(b"b" * body)
    with sender.pipelined():
        for at in range(0, len(payload), 60_000):
            part = payload[at : at + 60_000]
            sender.transfer(part, more=at + 60_000 < len(payload))
    sender.wait_for("disposition", state="accepted")
    reader = broker.client().opened(max_frame_size=size).begun(incoming_window=2**31)
    reader.consumer("q").credit(1, incoming_window=2**31)
    (delivery,) = reader.receive()
    assert delivery.payload == payload
    assert max(len(read.whole) for read in reader.frames) <= size
    if body > size:  # And the frames are used: a session's window counts them.
        assert max(len(read.whole) for read in reader.frames) > size - 64


@pytest.mark.rule("B2.14")
def test_a_long_explanation_is_cut_to_the_readers_frame(broker: MemoryBroker) -> None:
    # Bug case 23: the Detach or Close that carries a long text.
    client = broker.client().opened(max_frame_size=512).begun()
    name = "ü" * 100
    client.attach(name, role="receiver", source=None)
    assert all(len(read.whole) <= 512 for read in all_of(client))
    assert client.frames[-1].error["condition"] == "amqp:not-found"
    text = "long " * 1_000
    wire_of(client).peer.close(Refusal(RESOURCE_LIMIT_EXCEEDED, text), broker.now)
    close = client.expect("close", error=error("amqp:resource-limit-exceeded"))
    assert len(close.whole) <= 512


@pytest.mark.rule("B2.14", "B12")
@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("size", [SETTINGS.max_frame_size + 1, 2**31, 2**32 - 1])
def test_a_frame_larger_than_ours_may_be_is_a_framing_error_before_it_is_there(
    broker: MemoryBroker, size: int, cut: Cut
) -> None:
    bystander = Bystander(broker.client)
    client = broker.client(cut).opened().begun()
    client.send(struct.pack(">IBBH", size, 2, 0, 0))
    client.expect("flow")
    client.expect("close", error=error("amqp:connection:framing-error"))
    client.expect_closed()
    bystander.look()


@pytest.mark.rule("B2.14")
def test_a_frame_as_large_as_ours_may_be_is_taken(broker: MemoryBroker) -> None:
    client = broker.client().opened().begun().producer("q")
    client.wait_for("flow", link_credit=1000)
    fields: dict[str, Any] = {"handle": 0, "delivery_id": 0, "delivery_tag": b"t"}
    empty = frame("transfer", payload=message(b"x" * 300), **fields)
    body = b"x" * (SETTINGS.max_frame_size - len(empty) + 300)
    largest = frame("transfer", payload=message(body), **fields)
    assert len(largest) == SETTINGS.max_frame_size
    client.send(largest).expect("disposition", state="accepted")


# --- channels -------------------------------------------------------------------------------------


@pytest.mark.rule("B2.15")
def test_the_highest_channel_is_the_lower_of_both_limits(broker: MemoryBroker) -> None:
    client = broker.client().header().open(channel_max=65535)
    assert client.expect("open").channel_max == SETTINGS.channel_max
    client.begun(SETTINGS.channel_max).begin(SETTINGS.channel_max + 1)
    client.wait_for("close", error=error("amqp:connection:framing-error"))
    client.expect_closed()


@pytest.mark.rule("B2.15", "B12")
@pytest.mark.parametrize("channel", [3, 9, 65535])
def test_a_channel_above_the_peers_own_limit_is_refused_too(
    broker: MemoryBroker, channel: int
) -> None:
    client = broker.client().opened(channel_max=2)
    for each in range(3):
        client.begin(each).wait_for("begin", remote_channel=each)
    client.begin(channel).wait_for("close", error=error("amqp:connection:framing-error"))
    client.expect_closed()


@pytest.mark.rule("B2.15")
def test_a_connection_has_its_hidden_session_and_as_many_as_it_likes(broker: MemoryBroker) -> None:
    client = broker.client().opened(channel_max=255)  # AMQPNetLite's.
    for channel in range(256):
        client.begin(channel).wait_for("begin", remote_channel=channel)


# --- idle time-outs -------------------------------------------------------------------------------


@pytest.mark.rule("B2.16")
def test_a_frame_leaves_in_time_while_a_huge_delivery_waits_for_its_window(
    broker: MemoryBroker,
) -> None:
    client = broker.client().opened(max_frame_size=512, idle_time_out=10_000)
    client.begun(incoming_window=1).producer("q").consumer("q", handle=1).credit(
        1, handle=1, incoming_window=1
    )
    client.transfer(message(b"h" * 50_000)).wait_for("disposition")
    assert [read.name for read in all_of(client)] == ["transfer"]
    for _ in range(10):
        broker.advance(5_000)
        assert [read.name for read in all_of(client)] == ["empty"]


@pytest.mark.rule("B2.16")
@pytest.mark.parametrize("never", [None, 0])
def test_a_peer_that_asks_for_no_heartbeat_gets_none(
    broker: MemoryBroker, never: int | None
) -> None:
    client = broker.client().opened(idle_time_out=never)
    for _ in range(10):
        broker.advance(SETTINGS.idle_timeout_ms // 2)
        client.empty()
    assert all_of(client) == []


@pytest.mark.rule("B2.16")
@pytest.mark.parametrize("tiny", [1, 99])
def test_a_time_out_that_nobody_could_keep_is_refused(broker: MemoryBroker, tiny: int) -> None:
    client = broker.client().header().open(idle_time_out=tiny)
    client.expect("open")
    client.expect("close", error=error("amqp:connection:forced"))
    client.close().expect_closed()


@pytest.mark.rule("B2.17")
@pytest.mark.parametrize("pace", [0.9, 1.5, 1.99])
def test_a_peer_that_is_late_within_twice_what_we_said_stays(
    broker: MemoryBroker, pace: float
) -> None:
    # Bug case 115: the value that is advertised is half of the one that is enforced.
    client = broker.client().header().open()
    told = client.expect("open").idle_time_out
    for _ in range(20):
        broker.advance(int(pace * told))
        client.empty()
    assert all_of(client) == []
    broker.advance(2 * told)
    text = "local-idle-timeout expired"
    client.expect("close", error=error("amqp:resource-limit-exceeded", description=text))


@pytest.mark.rule("B2.17")
def test_what_waits_for_a_silent_peer_does_not_keep_it_alive(broker: MemoryBroker) -> None:
    # Bug case 115: it neither reads nor writes while megabytes wait for it.
    sender = broker.client().opened(container_id="sender").begun().producer("q")
    sender.wait_for("flow", link_credit=1000)
    payload = message(b"p" * 30_000)
    for _ in range(200):
        sender.transfer(payload, settled=True)
    silent = broker.client().opened(container_id="silent").begun(incoming_window=2**31)
    silent.consumer("q").wait_for("attach")
    wire = wire_of(silent)
    wire.is_stalled = True
    silent.credit(200)
    assert wire.peer.outbox.size >= SETTINGS.outgoing_buffer // 2
    for _ in range(2):
        broker.advance(SETTINGS.idle_timeout_ms // 2)
        sender.empty()
    assert len(broker.switchboard.peers) == 2  # It was told, as far as it reads.
    broker.advance(5_000)
    assert len(broker.switchboard.peers) == 1
    sender.consumer("q", handle=1).credit(200, handle=1)
    assert len(sender.receive(200)) == 200


@pytest.mark.rule("B2.18")
def test_empty_frames_are_taken_on_any_channel_at_any_time(broker: MemoryBroker) -> None:
    # Bug case 116.
    client = broker.client().opened().empty()
    client.begun().empty().empty(1).empty(77).empty(65535)
    client.producer("q").wait_for("attach")
    client.wait_for("flow", link_credit=1000)
    client.empty().transfer(message(b"x"), more=True).empty().transfer().empty()
    client.expect("disposition", state="accepted")


# --- the end --------------------------------------------------------------------------------------


@pytest.mark.rule("B2.19")
def test_a_close_is_answered_without_waiting_for_detach_or_end(broker: MemoryBroker) -> None:
    client = broker.client().opened().begun().producer("q").consumer("q", handle=1)
    client.credit(5, handle=1).transfer(message(b"u"), more=True)
    all_of(client)
    client.close(error=Composite("error", condition="amqp:internal-error", description="mine"))
    client.expect("close", error=None)
    client.expect_closed()
    assert not broker.switchboard.peers


@pytest.mark.rule("B2.19")
def test_bytes_after_a_close_are_nobodys(broker: MemoryBroker) -> None:
    client = broker.client().opened()
    client.send(frame("close"), frame("begin", next_outgoing_id=Typed("uint", 0)), b"\xff" * 50)
    client.expect("close", error=None)
    client.expect_closed()


@pytest.mark.rule("B2.20", "B12")
def test_a_shutdown_closes_every_connection_with_forced(broker: MemoryBroker) -> None:
    clients = [broker.client().opened(container_id=name).begun() for name in "abc"]
    for client in clients:
        all_of(client)
    broker.switchboard.close_all(broker.now)
    for client in clients[:2]:
        text = "the broker is shutting down"
        client.expect("close", error=error("amqp:connection:forced", description=text))
        client.close().expect_closed()
    assert len(broker.switchboard.peers) == 1  # The third has not answered.
    broker.advance(5_000)
    assert not broker.switchboard.peers


@pytest.mark.rule("B2.20")
def test_a_shutdown_finds_peers_that_have_not_opened_yet(broker: MemoryBroker) -> None:
    silent, logging_in, logged_in = broker.client(), broker.client(), broker.client()
    logging_in.sasl_header()
    logged_in.sasl_anonymous().header()
    broker.switchboard.close_all(broker.now)
    silent.expect_closed()
    logging_in.wait_for("sasl_mechanisms")
    logging_in.expect_closed()
    logged_in.expect("open")
    logged_in.expect("close", error=error("amqp:connection:forced"))
    logged_in.open().close().expect_closed()
    assert not broker.switchboard.peers
