"""Control frames checked on the way in, rewritten on the way out."""

import pytest

from amqpbroker.amqp import tap
from amqpbroker.amqp.attachment import Attachment
from amqpbroker.amqp.codes import OPEN
from amqpbroker.amqp.incoming import IncomingLink
from amqpbroker.amqp.performatives import (
    EMPTY_FRAME,
    Attach,
    Begin,
    Flow,
    Open,
    Source,
    Target,
    decode_performative,
    encode_performative,
    frame,
)
from amqpbroker.amqp.session import Session
from amqpbroker.amqp.settings import PeerSettings
from amqpbroker.base import errors
from amqpbroker.base.codec import Symbol
from amqpbroker.base.ids import LinkId, SessionId

SETTINGS = PeerSettings(container_id="b", handle_max=10, links_max=3)


def session() -> Session:
    begin = Begin(next_outgoing_id=0, incoming_window=100, outgoing_window=0, handle_max=255)
    return Session(SessionId(1), 0, 0, begin)


def attach(name: str = "l", handle: int = 0, *, role: bool = False) -> Attach:
    return Attach(name=name, handle=handle, role=role, source=Source(), target=Target())


def condition(fault: tap.Fault | None) -> tuple[str, str]:
    assert fault is not None
    assert fault.refusal.description
    return fault.scope.value, fault.refusal.condition


@pytest.mark.rule("B2.11", "B2.14")
def test_a_bad_open_is_told_why() -> None:
    assert tap.check_open(Open(container_id="c"), 0, is_open=False) is None
    assert tap.check_open(Open(container_id="c", max_frame_size=512), 0, is_open=False) is None
    checks = [
        (tap.check_open(Open(container_id="c"), 1, is_open=False), errors.FRAMING_ERROR),
        (tap.check_open(Open(container_id="c"), 0, is_open=True), errors.ILLEGAL_STATE),
        (tap.check_open(Open(container_id=""), 0, is_open=False), errors.INVALID_FIELD),
        (
            tap.check_open(Open(container_id="c", max_frame_size=511), 0, is_open=False),
            errors.INVALID_FIELD,
        ),
    ]
    for fault, expected in checks:
        assert condition(fault) == ("connection", expected)


@pytest.mark.rule("B2.15")
def test_a_begin_needs_a_free_channel_within_the_limit() -> None:
    begin = Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1)
    assert tap.check_begin(begin, 3, {}, 3) is None
    assert condition(tap.check_begin(begin, 4, {}, 3)) == ("connection", errors.FRAMING_ERROR)
    assert condition(tap.check_begin(begin, 3, {3: session()}, 3)) == (
        "connection",
        errors.NOT_ALLOWED,
    )
    begin.remote_channel = 0
    assert condition(tap.check_begin(begin, 3, {}, 3)) == ("connection", errors.INVALID_FIELD)


@pytest.mark.rule("B3.2", "B13.1")
def test_an_attach_needs_a_free_handle_and_a_free_name() -> None:
    held = session()
    taken = attach("taken", 1)
    held.add_link(IncomingLink(None, Attachment(LinkId(1), held, 0, taken)))  # type: ignore[arg-type]
    assert tap.check_attach(attach("other", 2), held, 1, SETTINGS) is None
    # One name for both directions is what Proton's blocking client uses.
    assert tap.check_attach(attach("taken", 2, role=True), held, 1, SETTINGS) is None
    assert condition(tap.check_attach(attach("other", 11), held, 1, SETTINGS)) == (
        "connection",
        errors.FRAMING_ERROR,
    )
    assert condition(tap.check_attach(attach("other", 1), held, 1, SETTINGS)) == (
        "session",
        errors.HANDLE_IN_USE,
    )
    assert condition(tap.check_attach(attach("taken", 2), held, 1, SETTINGS)) == (
        "session",
        errors.ERRANT_LINK,
    )
    crowd = 2 * SETTINGS.links_max
    assert condition(tap.check_attach(attach("other", 2), held, crowd, SETTINGS)) == (
        "session",
        errors.RESOURCE_LIMIT_EXCEEDED,
    )
    held.handle_max = 0
    assert condition(tap.check_attach(attach("other", 2), held, 1, SETTINGS)) == (
        "session",
        errors.RESOURCE_LIMIT_EXCEEDED,
    )


@pytest.mark.rule("B12")
def test_a_connection_has_its_share_of_links() -> None:
    assert tap.too_many_links(2, SETTINGS) is None
    refusal = tap.too_many_links(3, SETTINGS)
    assert refusal is not None
    assert refusal.condition == errors.RESOURCE_LIMIT_EXCEEDED


def chunk_of(*performatives: tuple[int, object]) -> bytes:
    return b"".join(frame(channel, encode_performative(p)) for channel, p in performatives)  # type: ignore[arg-type]


def read(chunk: bytes) -> list[tuple[int, object]]:
    found: list[tuple[int, object]] = []
    while chunk:
        size = int.from_bytes(chunk[:4], "big")
        channel = int.from_bytes(chunk[6:8], "big")
        found.append((channel, decode_performative(chunk[:size], 8)[0] if size > 8 else None))
        chunk = chunk[size:]
    return found


def test_our_open_takes_the_place_of_protons() -> None:
    chunk = EMPTY_FRAME + chunk_of((0, Open(container_id="proton")))
    ours = Open(container_id="ours", offered_capabilities=(Symbol("ANONYMOUS-RELAY"),))
    assert read(tap.with_open(chunk, ours)) == [(0, None), (0, ours)]
    assert tap.local_channel(chunk, OPEN) == 0


def test_our_attach_takes_protons_handle_and_channel() -> None:
    written = attach("l", 5, role=True)
    flow = Flow(incoming_window=1, next_outgoing_id=0, outgoing_window=1)
    ours = attach("l", 0, role=True)
    ours.offered_capabilities = (Symbol("x"),)
    (channel, found), after = read(tap.with_attach(chunk_of((9, written), (9, flow)), ours))
    assert channel == 9
    assert isinstance(found, Attach)
    assert (found.handle, found.offered_capabilities) == (5, ("x",))
    assert after == (9, flow)
    assert ours.handle == 5


def test_link_fields_go_into_the_flow_of_their_session_only() -> None:
    flow = Flow(next_incoming_id=3, incoming_window=1, next_outgoing_id=0, outgoing_window=1)
    state = tap.LinkFlow(handle=2, delivery_count=7, credit=0, drain=True)
    found = read(tap.with_link_flow(chunk_of((1, flow), (2, flow)), 2, state))
    assert found[0] == (1, flow)
    widened = found[1][1]
    assert isinstance(widened, Flow)
    assert (widened.handle, widened.delivery_count, widened.link_credit) == (2, 7, 0)
    assert widened.drain
    assert (widened.next_incoming_id, widened.incoming_window) == (3, 1)
