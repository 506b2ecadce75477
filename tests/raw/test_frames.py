"""The tests' own encoder and decoder, against themselves and against Proton's."""
# ruff: noqa: ANN401  # An AMQP value may be anything.

from typing import Any

import proton
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.raw import frames
from tests.raw.frames import Composite, Described, Symbol, Typed, decode, encode

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.text(st.characters(codec="utf-8"), max_size=300),
    st.text(st.characters(codec="ascii"), max_size=300).map(Symbol),
    st.binary(max_size=300),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=9), inner, max_size=5),
        # Of scalars only: Proton 0.40 loses what follows a described value within a described one.
        st.builds(Described, st.integers(0x1000, 2**64 - 1), SCALARS),
    ),
    max_leaves=10,
)
NUMBERS = {
    "ubyte": (proton.ubyte, 0, 2**8 - 1),
    "ushort": (proton.ushort, 0, 2**16 - 1),
    "uint": (proton.uint, 0, 2**32 - 1),
    "ulong": (proton.ulong, 0, 2**64 - 1),
    "byte": (proton.byte, -(2**7), 2**7 - 1),
    "short": (proton.short, -(2**15), 2**15 - 1),
    "int": (proton.int32, -(2**31), 2**31 - 1),
    "long": (int, -(2**63), 2**63 - 1),
    "timestamp": (proton.timestamp, 0, 2**63 - 1),
}


def read_by_proton(encoded: bytes) -> object:
    data = proton.Data()
    while encoded:
        encoded = encoded[data.decode(encoded) :]
    data.rewind()
    data.next()
    return own(data.get_object())


def own(item: Any) -> Any:
    """Proton's binaries are views of its own memory."""
    if isinstance(item, memoryview):
        return bytes(item)
    if isinstance(item, list):
        return [own(each) for each in item]
    if isinstance(item, dict):
        return {key: own(each) for key, each in item.items()}
    if isinstance(item, proton.Described):
        return proton.Described(item.descriptor, own(item.value))
    return item


def written_by_proton(item: object) -> bytes:
    data = proton.Data()
    data.put_object(item)
    encoded = data.encode()
    return bytes(encoded)


def for_proton(item: Any) -> Any:
    if isinstance(item, Symbol):
        return proton.symbol(item)
    if isinstance(item, list):
        return [for_proton(each) for each in item]
    if isinstance(item, dict):
        return {key: for_proton(each) for key, each in item.items()}
    if isinstance(item, Described):
        return proton.Described(proton.ulong(item.descriptor), for_proton(item.value))
    return item


@given(VALUES)
def test_a_value_comes_back_as_it_was(item: object) -> None:
    encoded = encode(item)
    decoded, end = decode(encoded + b"more")
    assert (decoded, type(decoded), end) == (item, type(item), len(encoded))


def test_long_compounds_are_wide() -> None:
    for item in ([None] * 300, ["x" * 300], {f"{n}": n for n in range(200)}):
        encoded = encode(item)
        assert encoded[0] in (0xD0, 0xD1)
        assert decode(encoded) == (item, len(encoded))
        assert read_by_proton(encoded) == item


@given(VALUES)
def test_proton_reads_what_we_write(item: object) -> None:
    assert read_by_proton(encode(item)) == for_proton(item)


@given(VALUES)
def test_we_read_what_proton_writes(item: object) -> None:
    assert decode(written_by_proton(for_proton(item)))[0] == item


@pytest.mark.parametrize("name", NUMBERS)
@given(data=st.data())
def test_numbers_are_those_of_proton(name: str, data: st.DataObject) -> None:
    python_type, low, high = NUMBERS[name]
    number = data.draw(
        st.one_of(st.integers(low, high), st.integers(max(low, -300), min(high, 300)))
    )
    for encoded in (encode(Typed(name, number)), frames.wide(name, number)):
        read = read_by_proton(encoded)
        assert (read, type(read)) == (number, python_type)
        assert decode(encoded) == (number, len(encoded))
    assert decode(written_by_proton(python_type(number)))[0] == number


def test_symbols_are_an_array_of_symbols() -> None:
    encoded = frames.encode_as("symbols", ["one", "two"])
    read = read_by_proton(encoded)
    assert isinstance(read, proton.Array)
    assert list(read.elements) == ["one", "two"]
    assert decode(encoded)[0] == ["one", "two"]


@pytest.mark.parametrize("name", [*frames.PERFORMATIVES, *frames.SASL_FRAMES])
def test_an_empty_performative_is_an_empty_list(name: str) -> None:
    frame = frames.decode_frame(frames.frame(name, channel=3))
    assert (frame.name, frame.channel, set(frame.fields.values())) in (
        (name, 3, {None}),
        (name, 3, set()),
    )
    assert frame.whole[8:] == bytes((0, 0x53, frames.LAYOUTS[name].code, 0x45))


def test_a_transfer_comes_back_with_its_fields() -> None:
    fields: dict[str, Any] = {
        "handle": 0,
        "delivery_id": 300,
        "delivery_tag": b"tag",
        "more": False,
        "state": frames.rejected("amqp:not-found", "gone"),
    }
    built = frames.frame("transfer", channel=9, payload=b"payload", **fields)
    frame = frames.decode_frame(built)
    assert frame.fields == Composite("transfer", **fields)
    assert frame.payload == b"payload"
    assert frame.handle == 0
    assert frame.state["error"]["condition"] == "amqp:not-found"
    assert frame.settled is None


def test_an_attach_carries_termini() -> None:
    source = {
        "address": "q",
        "filter": {"f": Described(Symbol("apache.org:selector-filter:string"), "a = 1")},
        "outcomes": ["amqp:accepted:list"],
    }
    built = frames.frame("attach", name="l", handle=1, role=True, source=source, target={})
    frame = frames.decode_frame(built)
    assert frame.source == Composite("source", **source)
    assert frame.target == Composite("target")
    coordinator = frames.frame("attach", target=Composite("coordinator", capabilities=[]))
    assert frames.decode_frame(coordinator).target.kind == "coordinator"


def test_what_is_wrong_is_written_as_asked() -> None:
    assert frames.frame("flow", handle=frames.raw("56 00"), list_size=99, count=2)[
        8:
    ] == bytes.fromhex("00 53 13 c0 63 02 40 40 40 40 56 00")
    assert frames.frame("end", size=7, doff=1, kind=3)[:6] == bytes.fromhex("00 00 00 07 01 03")
    assert (
        frames.frame("end", descriptor=frames.symbolic("end"))[8:] == b"\0\xa3\x0damqp:end:list\x45"
    )
    assert frames.frame("end", list_wide=True)[11:] == bytes.fromhex("d0 00 00 00 04 00 00 00 00")
    assert frames.frame("open", container_id=None)[11:] == bytes.fromhex("c0 02 01 40")
    with pytest.raises(TypeError, match="has no field"):
        frames.frame("open", name="x")


@pytest.mark.parametrize(
    "text", ["", "a1 05 61", "c0 03 02 40", "c1 02 01 40", "ff", "70 00", "a1 01 ff", "00 40"]
)
def test_what_is_not_amqp_is_refused(text: str) -> None:
    with pytest.raises(frames.Undecodable):
        frames.decode(bytes.fromhex(text))


def test_sections_come_back_by_name() -> None:
    payload = (
        frames.header(durable=True, ttl=5)
        + frames.message_annotations({"x-opt": 1})
        + frames.properties(message_id="m", to="q")
        + frames.application_properties({"k": "v"})
        + frames.data(b"one")
        + frames.data(b"two")
    )
    sections = frames.decode_sections(payload)
    assert sections["header"]["durable"] is True
    assert sections["header"]["ttl"] == 5
    assert sections["message_annotations"] == {"x-opt": 1}
    assert sections["properties"]["to"] == "q"
    assert sections["application_properties"] == {"k": "v"}
    assert sections["data"] == [b"one", b"two"]
    assert frames.decode_sections(frames.message("text")) == {"value": "text"}
    message = proton.Message()
    message.decode(payload.replace(frames.data(b"two"), b""))
    assert (message.durable, message.id, message.body) == (True, "m", b"one")
