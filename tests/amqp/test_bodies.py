"""What is in a message: the bare message byte for byte, the header, annotations, and time to live (B10, T)."""

import random
from typing import Any

import pytest

from tests.amqp.memory import MemoryBroker
from tests.amqp.scenes import body, consumer, delivered, producer, put, session
from tests.raw.client import error
from tests.raw.frames import (
    Described,
    Symbol,
    Typed,
    application_properties,
    data,
    decode_sections,
    delivery_annotations,
    encode,
    header,
    list_of,
    message,
    message_annotations,
    modified,
    properties,
    raw,
    value,
    wide,
)

NOW = 1_000_000  # Where the clock of a MemoryBroker stands.


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker()


def section(code: int, item: Any) -> bytes:  # noqa: ANN401
    return bytes((0, 0x53, code)) + encode(item)


FOOTER = section(0x78, {Symbol("x-opt-crc"): 12})
ALL_PROPERTIES = properties(
    message_id=Typed("ulong", 7),
    user_id=b"me\xff",
    to="köln",
    subject="type",
    reply_to="tmp.1",
    correlation_id=Described(Symbol("odd"), "id"),
    content_type="text/plain",
    content_encoding="gzip",
    creation_time=-1,
    group_id="g",
    group_sequence=2**32 - 1,
    reply_to_group_id="r",
)
BODIES = {
    "string": value("text"),
    "map": value({"a": 1, "b": [None, True, {"c": 2.5}]}),
    "null": value(None),
    "list": value([1, "two", b"3"]),
    "decimal32": value(raw("74 22 50 00 00")),
    "decimal64": value(raw("84 22 50 00 00 00 00 00 00")),
    "decimal128": value(raw("94 22 50 00 00 00 00 00 00 00 00 00 00 00 00 00 00")),
    "timestamp": value(Typed("timestamp", -(2**63))),
    "uuid": value(raw("98 00 11 22 33 44 55 66 77 88 99 aa bb cc dd ee ff")),
    "char": value(Typed("char", 0x1F600)),
    "array": value(raw("e0 05 03 52 01 02 03")),
    "described": value(Described(Symbol("my:type"), [Described(Typed("ulong", 2**63), None)])),
    "deep": value(raw("c0 08 01 c0 05 01 c0 02 01 45")),
    "wide encodings": value(wide("string", "long form")) + FOOTER,
    "two sequences": section(0x76, [1, 2]) + section(0x76, []),
    "three data sections": data(b"a") + data(b"") + data(b"c"),
    "empty data": data(b""),
    "no body": ALL_PROPERTIES,
    "wide descriptor": raw("00 80 00 00 00 00 00 00 00 77 40"),
    "symbolic descriptor": b"\x00" + encode(Symbol("amqp:data:binary")) + encode(b"x"),
    "properties": ALL_PROPERTIES + data(b"x"),
    "message-id string": properties(message_id="ID:1") + data(b"x"),
    "message-id binary": properties(message_id=b"\x00\xff") + data(b"x"),
    "message-id uuid": properties(message_id=raw("98" + "ab" * 16)) + data(b"x"),
    "application-properties": application_properties(
        {"s": "t", "i": Typed("int", -1), "n": None, "b": True, "f": Typed("float", 1.5)}
    )
    + data(b"x"),
    "all": ALL_PROPERTIES + application_properties({"k": "v"}) + value("x") + FOOTER,
}


@pytest.mark.rule("B10.1", "B10.5", "B10.7", "B10.12")
@pytest.mark.parametrize("bare", BODIES.values(), ids=BODIES.keys())
@pytest.mark.parametrize("parts", [1, 3])
def test_the_bare_message_comes_out_as_it_went_in(
    broker: MemoryBroker, bare: bytes, parts: int
) -> None:
    """Bug cases 26 and 27; whatever the broker must write anew before it."""
    heads = [
        b"",
        header(durable=True),
        header(priority=9, ttl=60_000) + message_annotations({"x-opt-a": 1}),
        delivery_annotations({"d": 1}) + message_annotations({"x-opt-a": 1}),
        message_annotations({"x-opt-a": 1}),
    ]
    client = producer(broker)
    for head in heads:
        whole = head + bare
        cut = [whole[len(whole) * i // parts : len(whole) * (i + 1) // parts] for i in range(parts)]
        for number, piece in enumerate(cut):
            client.transfer(piece, more=number < parts - 1)
        client.expect("disposition", state="accepted")
    other = consumer(broker, credit=5)
    first = other.receive(5)
    assert [frame.payload[-len(bare) :] for frame in first] == [bare] * 5
    for number in (0, 1, 4):  # As received, since nothing in it is the broker's to change.
        assert first[number].payload == heads[number] + bare
    state = modified(delivery_failed=True, message_annotations={"x-opt-b": 2})
    other.disposition(0, last=4, state=state).credit(5, delivery_count=5)
    for frame in other.receive(5):
        assert frame.payload.endswith(bare)
        sections = decode_sections(frame.payload[: -len(bare)])
        assert sections["header"]["delivery_count"] == 1
        assert sections["message_annotations"]["x-opt-b"] == 2
        assert "delivery_annotations" not in sections


@pytest.mark.rule("B10.1")
def test_random_bytes_in_a_data_section_come_out_as_they_went_in(broker: MemoryBroker) -> None:
    source = random.Random(7)
    payloads = [data(source.randbytes(source.randint(0, 2_000))) for _ in range(50)]
    put(broker, *payloads)
    assert [frame.payload for frame in consumer(broker, credit=50).receive(50)] == payloads


@pytest.mark.rule("B10.2")
@pytest.mark.parametrize(
    "payload",
    [
        data(b"x") + header(durable=True),
        properties(to="q") + message_annotations({"a": 1}) + data(b"x"),
        application_properties({"a": 1}) + properties(to="q") + data(b"x"),
        header(durable=True) + header(durable=True) + data(b"x"),
        delivery_annotations({"a": 1}) + header(durable=True, priority=7, ttl=1_000) + data(b"x"),
        data(b"x") + value("y"),
        value("x") + value("y"),
        FOOTER + data(b"x"),
        data(b"x")[:-1],
        section(0x70, [Typed("string", "yes")]) + data(b"x"),
        section(0x75, "a string"),
        section(0x60, b""),
        b"no section",
        b"",
    ],
)
def test_sections_out_of_order_or_broken_are_rejected(broker: MemoryBroker, payload: bytes) -> None:
    """Bug case 29 among them: delivery-annotations before the header are out of order."""
    client = producer(broker)
    client.transfer(payload)
    answer = client.expect("disposition", state="rejected", settled=True)
    assert answer.state["error"]["condition"] == "amqp:decode-error"
    client.transfer(message(b"x")).expect("disposition", state="accepted")
    assert broker.queue("q").count() == 1


@pytest.mark.rule("B10.2", "RJ-3")
def test_a_broken_message_that_was_sent_settled_ends_its_link(broker: MemoryBroker) -> None:
    client = producer(broker)
    with client.pipelined():
        client.transfer(message(b"a"), settled=True).transfer(b"broken", settled=True)
        client.transfer(message(b"b"), settled=True)
    client.wait_for("detach", error=error("amqp:decode-error"))
    client.detach(0).producer("q", handle=0).wait_for("attach")
    assert broker.queue("q").ready == 1


@pytest.mark.rule("B10.3")
@pytest.mark.parametrize("message_format", [1, 0x80013700, 2**32 - 1])
def test_only_message_format_0_is_taken(broker: MemoryBroker, message_format: int) -> None:
    client = producer(broker)
    client.transfer(message(b"x"), message_format=message_format)
    client.expect("detach", error=error("amqp:not-implemented"))
    assert broker.queue("q").count() == 0


@pytest.mark.rule("B10.3")
def test_the_format_cannot_change_within_a_delivery(broker: MemoryBroker) -> None:
    client = producer(broker)
    client.transfer(b"\x00\x53\x75", more=True).transfer(b"\xa0\x00", message_format=1)
    client.wait_for("detach", error=error("amqp:invalid-field"))


# --- header


@pytest.mark.rule("B10.4", "B10.11")
@pytest.mark.parametrize(
    "head",
    [b"", header(), header(durable=False), header(durable=True, priority=0), header(priority=255)],
)
def test_a_header_that_says_nothing_of_time_passes_unchanged(
    broker: MemoryBroker, head: bytes
) -> None:
    put(broker, head + data(b"x"))
    assert consumer(broker, credit=1).receive()[0].payload == head + data(b"x")


@pytest.mark.rule("B10.4", "T-6")
def test_the_ttl_that_a_consumer_reads_is_the_time_that_is_left(broker: MemoryBroker) -> None:
    put(broker, message(b"x", ttl=1_000, durable=True, priority=2))
    for elapsed, left in ((0, 1_000), (400, 600), (599, 1), (1, 1)):
        broker.advance(elapsed)
        client = consumer(broker, credit=1)
        head = decode_sections(client.receive()[0].payload)["header"]
        assert head["ttl"] == left
        assert (head["durable"], head["priority"]) == (True, 2)
        client.disposition(0, state="released").detach(0)


@pytest.mark.rule("B10.8", "B10.4")
def test_annotations_are_kept_and_delivery_annotations_are_not(broker: MemoryBroker) -> None:
    annotations = {
        "x-opt-jms-msg-type": Typed("byte", 5),
        "x-opt-jms-dest": Typed("byte", 0),
        "x-opt-jms-reply-to": Typed("byte", 2),
        "x-opt-to-type": "queue",
        "x-opt-unknown": [1, 2],
    }
    kept = message_annotations(annotations) + data(b"x")
    put(broker, delivery_annotations({"x-opt-hop": 1}) + kept)
    assert consumer(broker, credit=1).receive()[0].payload == kept


# --- time to live


@pytest.mark.rule("B10.6", "T-4")
@pytest.mark.parametrize("ttl", [0, 1, 2**31 - 1, 2**31, 2**32 - 1])
def test_a_ttl_is_an_unsigned_number_and_0_is_none(broker: MemoryBroker, ttl: int) -> None:
    """Bug case 66."""
    put(broker, message(b"x", ttl=ttl))
    broker.advance(1)
    assert broker.queue("q").ready == 1  # Not after its time, only at it.
    broker.advance(1)
    if ttl == 1:
        assert not broker.has_queue("q") or broker.queue("q").count() == 0
        return
    (frame,) = consumer(broker, credit=1).receive()
    assert decode_sections(frame.payload)["header"]["ttl"] == max(ttl - 2, 0)


@pytest.mark.rule("B10.6", "T-4")
@pytest.mark.parametrize(
    ("at", "lives"),
    [
        (0, True),
        (1, False),
        (-1, True),  # Before 1970: as 0, since no clock was ever there.
        (NOW - 1, False),
        (NOW, True),
        (10_413_792_000_000, True),
        (2**63 - 1, True),
        (-(2**63), True),
    ],
)
def test_an_absolute_expiry_time_that_is_past_expires_the_message_at_once(
    broker: MemoryBroker, at: int, lives: bool
) -> None:
    """Bug case 66."""
    whole = properties(absolute_expiry_time=at) + data(b"x")
    other = consumer(broker, credit=1)
    producer(broker).transfer(whole).expect("disposition", state="accepted")
    frames = other.receive() if lives else []
    assert [frame.payload[-len(whole) :] for frame in frames] == [whole] * lives
    other.expect_nothing()
    assert broker.queue("q").stats.expired == (0 if lives else 1)


@pytest.mark.rule("B10.6")
def test_a_ttl_goes_before_an_absolute_expiry_time(broker: MemoryBroker) -> None:
    late = properties(absolute_expiry_time=NOW + 10_000) + data(b"ttl is shorter")
    early = properties(absolute_expiry_time=NOW - 10_000) + data(b"ttl is longer")
    put(broker, header(ttl=100) + late, header(ttl=5_000) + early)
    broker.advance(200)
    assert delivered(consumer(broker, credit=9)) == [b"ttl is longer"]


@pytest.mark.rule("B10.6", "T-5")
def test_expired_messages_are_not_delivered_and_use_no_credit(broker: MemoryBroker) -> None:
    """Bug cases 11 and 62."""
    client = consumer(broker, credit=1)
    put(broker, message(b"first"))
    assert delivered(client) == [b"first"]
    put(broker, *[message(b"x", ttl=100)] * 50, message(b"stays"), message(b"y", ttl=150))
    broker.advance(101)
    queue = broker.queue("q")
    assert (queue.stats.expired, queue.count()) == (50, 3)  # Behind one that stays, too.
    broker.advance(50)
    assert queue.stats.expired == 51
    assert delivered(client.credit(1, delivery_count=1)) == [b"stays"]


@pytest.mark.rule("T-5")
def test_what_expires_is_gone_without_a_consumer(broker: MemoryBroker) -> None:
    client = producer(broker)
    for ttl in (1_000, 0, 2_000, 60_000, 1_000):
        client.transfer(message(b"%d" % ttl, ttl=ttl)).expect("disposition", state="accepted")
    broker.advance(2_500)
    assert broker.queue("q").count() == 2
    assert delivered(consumer(broker, credit=9)) == [b"0", b"60000"]


@pytest.mark.rule("B10.6")
def test_a_message_that_had_expired_on_arrival_is_accepted_and_counted(
    broker: MemoryBroker,
) -> None:
    consumer(broker)
    client = producer(broker)
    whole = header(durable=True) + properties(absolute_expiry_time=NOW - 1) + data(b"x")
    client.transfer(whole).expect("disposition", state="accepted", settled=True)
    client.transfer(whole, settled=True).expect_nothing()
    stats = broker.queue("q").stats
    assert (stats.added, stats.expired, broker.queue("q").count()) == (2, 2, 0)


@pytest.mark.rule("B10.14")
def test_a_list_of_many_values_costs_no_decoding(broker: MemoryBroker) -> None:
    body_bytes = value(list_of([encode(number) for number in range(5_000)], wide=True))
    put(broker, body_bytes)
    (frame,) = session(broker).consumer("q").credit(1).receive()
    assert frame.payload == body_bytes
    assert len(body(frame)) == 5_000
