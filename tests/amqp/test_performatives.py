"""Performatives: what is written is read, defaults and absence, and what is refused with which error."""

import copy

import proton
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqpbroker.amqp import performatives
from amqpbroker.amqp.codes import SASL_FRAME
from amqpbroker.amqp.performatives import (
    EMPTY_FRAME,
    FRAME_BODIES,
    Accepted,
    Attach,
    Begin,
    Close,
    Coordinator,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    MissingField,
    Modified,
    Open,
    Performative,
    Received,
    Rejected,
    Released,
    SaslChallenge,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
    Source,
    Target,
    Transfer,
    decode_performative,
    encode_performative,
    frame,
)
from amqpbroker.base.codec import (
    Array,
    DecodeError,
    Described,
    Symbol,
    UByte,
    UInt,
    ULong,
    UShort,
    encode,
    symbols,
)

SELECTOR = Described(ULong(0x468C00000004), "colour = 'red'")

EXAMPLES: list[Performative] = [
    Open(container_id=""),
    Open(
        container_id="client",
        hostname="host",
        max_frame_size=512,
        channel_max=0,
        idle_time_out=30_000,
        offered_capabilities=("ANONYMOUS-RELAY", "x"),
        properties={Symbol("product"): "client", Symbol("n"): UInt(1)},
    ),
    Begin(next_outgoing_id=0, incoming_window=0, outgoing_window=2**32 - 1),
    Begin(remote_channel=7, next_outgoing_id=1, incoming_window=2, outgoing_window=3, handle_max=4),
    Attach(name="", handle=0, role=False),
    Attach(
        name="link",
        handle=3,
        role=True,
        snd_settle_mode=0,
        rcv_settle_mode=1,
        source=Source(
            address="queue",
            durable=2,
            expiry_policy="never",
            timeout=9,
            dynamic=True,
            dynamic_node_properties={Symbol("lifetime-policy"): Described(ULong(0x2B), [])},
            distribution_mode="copy",
            filter={Symbol("jms-selector"): SELECTOR},
            default_outcome=Modified(delivery_failed=True, undeliverable_here=False),
            outcomes=("amqp:accepted:list",),
            capabilities=("queue",),
        ),
        target=Target(address="there", capabilities=("topic",)),
        unsettled={b"tag": None},
        incomplete_unsettled=True,
        initial_delivery_count=5,
        max_message_size=2**40,
        properties={},
    ),
    Attach(name="x", handle=1, role=False, source=Source(), target=Coordinator(capabilities=("a", "b"))),
    Flow(incoming_window=1, next_outgoing_id=2, outgoing_window=3),
    Flow(next_incoming_id=1, incoming_window=1, next_outgoing_id=2, outgoing_window=3, handle=0, drain=True),
    Transfer(handle=0),
    Transfer(handle=0, delivery_id=0, delivery_tag=b"", message_format=0, settled=False, more=True),
    Transfer(handle=0, state=Received(section_number=0, section_offset=0)),
    Disposition(role=True, first=0),
    Disposition(role=True, first=1, last=2, settled=True, state=Accepted()),
    Disposition(role=True, first=1, state=Rejected(error=Error(condition="amqp:not-found", info={}))),
    Disposition(role=True, first=1, state=Released()),
    Disposition(role=True, first=1, state=Modified(message_annotations={Symbol("x-opt-a"): 1})),
    Disposition(role=True, first=1, state=Described(ULong(0x34), [b"txn", Described(ULong(0x24), [])])),
    Detach(handle=0, closed=True, error=Error(condition="amqp:link:stolen")),
    End(),
    Close(error=Error(condition="amqp:connection:forced", info={Symbol("a"): "b"})),
    SaslMechanisms(sasl_server_mechanisms=("PLAIN", "ANONYMOUS")),
    SaslInit(mechanism="PLAIN", initial_response=b"", hostname="h"),
    SaslChallenge(challenge=b""),
    SaslResponse(response=b"x"),
    SaslOutcome(code=4, additional_data=b"v=x"),
]  # fmt: skip


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.NAME)
def test_what_is_written_is_read_back_and_written_the_same(example: Performative) -> None:
    body = encode_performative(example)
    read, end = decode_performative(body)
    assert read == example
    assert end == len(body)
    assert encode_performative(read) == body
    assert decode_performative(b"\xff" + body + b"payload", 1) == (example, 1 + len(body))


def test_there_is_an_example_of_each_frame_body() -> None:
    assert {example.CODE for example in EXAMPLES} == FRAME_BODIES


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.NAME)
def test_proton_understands_what_is_written(example: Performative) -> None:
    body = encode_performative(example)
    data = proton.Data()
    assert data.decode(body) == len(body)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.NAME)
def test_a_performative_cut_off_anywhere_is_refused(example: Performative) -> None:
    body = encode_performative(example)
    for length in range(len(body)):
        with pytest.raises(DecodeError):
            decode_performative(body[:length])


def body_of(code: int, *values: object) -> bytes:
    return encode(Described(ULong(code), list(values)))


@pytest.mark.parametrize("cls", [type(example) for example in EXAMPLES], ids=lambda cls: cls.NAME)
def test_each_mandatory_field_must_be_there(cls: type[Performative]) -> None:
    complete = {
        "string": "x", "uint": UInt(1), "boolean": True, "symbol": Symbol("x"), "symbols": Symbol("x"),
        "binary": b"", "ubyte": UByte(0),
    }  # fmt: skip
    for missing, row in enumerate(cls.FIELDS):
        if not row.mandatory:
            continue
        values = [
            complete[field.kind] if field.mandatory else None for field in cls.FIELDS[:missing]
        ]
        rest = [
            complete[field.kind] if field.mandatory else None for field in cls.FIELDS[missing + 1 :]
        ]
        for absent in ([*values, None, *rest], values):
            with pytest.raises(MissingField) as caught:
                decode_performative(body_of(cls.CODE, *absent))
            assert caught.value.name == row.name
            assert str(caught.value) == f"{cls.NAME}: {row.name} is mandatory"
        example = next(example for example in EXAMPLES if isinstance(example, cls))
        lacking = copy.copy(example)
        setattr(lacking, row.attribute, None)
        with pytest.raises(ValueError, match=f"{row.name} is mandatory"):
            encode_performative(lacking)


def test_absent_fields_have_the_defaults_of_the_specification() -> None:
    opened, _ = decode_performative(body_of(0x10, "x"))
    assert isinstance(opened, Open)
    assert (opened.max_frame_size, opened.channel_max, opened.idle_time_out) == (
        2**32 - 1,
        65535,
        None,
    )
    attach, _ = decode_performative(
        body_of(0x12, "x", UInt(0), False, None, None, Described(ULong(0x28), []))
    )
    assert isinstance(attach, Attach)
    assert (attach.snd_settle_mode, attach.rcv_settle_mode, attach.incomplete_unsettled) == (
        2,
        0,
        False,
    )
    assert attach.source == Source()
    assert attach.source is not None
    assert attach.source.address is None
    assert (attach.source.durable, attach.source.expiry_policy, attach.source.outcomes) == (
        0,
        "session-end",
        (),
    )
    assert attach.target is None
    transfer, _ = decode_performative(body_of(0x14, UInt(0)))
    assert isinstance(transfer, Transfer)
    assert (transfer.delivery_tag, transfer.settled, transfer.more) == (None, None, False)
    assert decode_performative(body_of(0x14, UInt(0), None, b""))[0] != transfer


def test_nulls_at_the_end_are_not_written_but_defaults_are() -> None:
    assert encode_performative(End()) == b"\x00\x53\x17\x45"
    assert encode_performative(Detach(handle=0)) == body_of(0x16, UInt(0), False)
    flow = Flow(incoming_window=1, next_outgoing_id=2, outgoing_window=3)
    ids = (None, UInt(1), UInt(2), UInt(3))
    assert encode_performative(flow) == body_of(0x13, *ids, None, None, None, None, False, False)


def test_a_descriptor_may_be_symbolic() -> None:
    body = encode(
        Described(Symbol("amqp:end:list"), [Described(Symbol("amqp:error:list"), [Symbol("x")])])
    )
    assert decode_performative(body) == (End(error=Error(condition="x")), len(body))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "cut off"),
        (encode([]), "starts with a described list"),
        (encode(Described(ULong(0x10), {})), "open: not a list"),
        (encode(Described(UInt(0x10), [])), "no performative has the descriptor 16"),
        (encode(Described([], [])), "no performative has the descriptor"),
        (body_of(0x19), "no performative has the descriptor 25"),
        (body_of(0x24), "no performative has the descriptor 36"),
        (body_of(0x28), "no performative has the descriptor 40"),
        (encode(Described(Symbol("amqp:nonsense:list"), [])), "no performative"),
        (body_of(0x10, Symbol("x")), "open: container-id must be of type string, not symbol"),
        (body_of(0x10, "x", None, UShort(1)), "open: max-frame-size must be of type uint, not ushort"),
        (body_of(0x10, "x", None, 1), "max-frame-size must be of type uint, not long"),
        (body_of(0x10, *(["x"] + [None] * 10)), "open: 11 fields, there are 10"),
        (body_of(0x17, None, None), "end: 2 fields, there are 1"),
        (body_of(0x17, Described(ULong(0x24), [])), "end: error cannot be what 36 describes"),
        (body_of(0x17, Described(ULong(0x1D), [])), "error: condition is mandatory"),
        (body_of(0x17, Described(ULong(0x1D), ["x"])), "error: condition must be of type symbol, not str"),
        (body_of(0x17, "x"), "end: error must be of type error, not str"),
        (body_of(0x12, "x", UInt(0), True, None, None, Described(ULong(0x29), [])), "source cannot be what 41"),
        (body_of(0x12, "x", UInt(0), UByte(1)), "role must be of type boolean, not ubyte"),
        (body_of(0x12, "x", UInt(0), True, UInt(1)), "snd-settle-mode must be of type ubyte, not uint"),
        (body_of(0x40, "PLAIN"), "sasl-server-mechanisms is not one symbol or an array"),
        (body_of(0x40, Array(0xA1, ["PLAIN"])), "sasl-server-mechanisms is not one symbol or an array"),
        (body_of(0x40, [Symbol("PLAIN")]), "sasl-server-mechanisms is not one symbol or an array"),
        (body_of(0x10, *(["x"] + [None] * 8), {ULong(1): 1}), "properties has a key of type ulong"),
        (body_of(0x15, True, UInt(0), None, None, "accepted"), "state must be of type state, not str"),
        (body_of(0x15, True, UInt(0), None, None, Described(ULong(0x24), [None])), "accepted: 1 fields"),
        (body_of(0x15, True, UInt(0), None, None, Described(ULong(0x23), [])), "section-number is mandatory"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused_with_the_reason(body: bytes, reason: str) -> None:
    with pytest.raises(DecodeError, match=reason):
        decode_performative(body)


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        (None, ()),
        (Symbol("a"), ("a",)),
        (symbols(()), ()),
        (symbols(("a", "b")), ("a", "b")),
        (Array(0xB3, [Symbol("a")]), ("a",)),
    ],
)
def test_a_multiple_field_is_a_tuple_however_it_was_sent(
    sent: object, read: tuple[str, ...]
) -> None:
    opened, _ = decode_performative(body_of(0x10, "x", None, None, None, None, None, None, sent))
    assert isinstance(opened, Open)
    assert opened.offered_capabilities == read


def test_no_mechanisms_is_not_the_same_as_none_named() -> None:
    with pytest.raises(MissingField):
        decode_performative(body_of(0x40, None))
    assert decode_performative(body_of(0x40, symbols(())))[0] == SaslMechanisms(
        sasl_server_mechanisms=()
    )
    assert encode_performative(SaslMechanisms(sasl_server_mechanisms=())) == body_of(
        0x40, symbols(())
    )


def test_filters_come_out_as_they_went_in() -> None:
    filters: dict[object, object] = {
        Symbol("apache.org:selector-filter:string"): Described(Symbol("apache.org:selector-filter:string"), "a = 1"),
        Symbol("no-local"): Described(ULong(0x468C00000003), []),
        Symbol("binding"): Described(ULong(1), {Symbol("k"): [UInt(0), symbols(("a", "b"))]}),
        Symbol("bare"): None,
    }  # fmt: skip
    body = encode_performative(Attach(name="x", handle=0, role=True, source=Source(filter=filters)))
    read, _ = decode_performative(body)
    assert isinstance(read, Attach)
    assert read.source is not None
    assert read.source.filter is not None
    assert encode(read.source.filter) == encode(filters)


def test_plain_numbers_and_text_are_written_in_the_type_of_the_field() -> None:
    assert encode_performative(SaslInit(mechanism="PLAIN")) == body_of(0x41, Symbol("PLAIN"))
    assert encode_performative(SaslOutcome(code=1)) == body_of(0x44, UByte(1))
    with pytest.raises(ValueError, match="does not fit"):
        encode_performative(SaslOutcome(code=256))
    with pytest.raises(ValueError, match="does not fit"):
        encode_performative(Transfer(handle=-1))


def test_a_frame_has_its_size_type_and_channel_in_front() -> None:
    assert frame(0x102, b"abc") == b"\0\0\0\x0b\x02\x00\x01\x02abc"
    assert frame(0, b"", SASL_FRAME) == b"\0\0\0\x08\x02\x01\x00\x00"
    assert EMPTY_FRAME == b"\0\0\0\x08\x02\x00\x00\x00"


def test_every_class_is_slotted_and_its_table_is_its_fields() -> None:
    for cls in performatives._CLASSES.values():
        assert "__dict__" not in dir(cls)
        assert [row.attribute for row in cls.FIELDS] == list(cls.__annotations__)


def test_a_performative_takes_its_own_fields_only_and_no_mandatory_one_is_left_out() -> None:
    with pytest.raises(TypeError, match="Detach has no channel"):
        Detach(handle=0, channel=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="Detach: handle is missing"):
        Detach()  # type: ignore[call-arg]


def test_a_performative_is_equal_by_its_fields_and_shows_them() -> None:
    assert Detach(handle=1) == Detach(handle=1, closed=False)
    assert Detach(handle=1) != Detach(handle=2)
    assert End() != Close()
    assert repr(Detach(handle=1)) == "Detach(handle=1, closed=False, error=None)"


@given(st.sampled_from(EXAMPLES), st.data())
def test_mutated_performatives_are_read_or_refused(
    example: Performative, data: st.DataObject
) -> None:
    body = bytearray(encode_performative(example))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(body) - 1))
        body[at] = data.draw(
            st.one_of(st.integers(0, 255), st.sampled_from([0x40, 0x45, 0xC0, 0xE0]))
        )
    try:
        read, _ = decode_performative(bytes(body))
    except DecodeError:
        return
    again, _ = decode_performative(encode_performative(read))
    assert encode_performative(again) == encode_performative(read)
