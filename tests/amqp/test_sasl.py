"""The exchange before AMQP, byte by byte and whole (client-needs B1)."""

import pytest

from amqpbroker.amqp.performatives import (
    Performative,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
    decode_performative,
    encode_performative,
    frame,
)
from amqpbroker.amqp.sasl import AMQP_HEADER, BYTES_MAX, FRAME_MAX, SASL_HEADER, Exchange

INIT = frame(0, encode_performative(SaslInit(mechanism="ANONYMOUS")), 1)
OPENING = b"an open frame would stand here"


def run(data: bytes, *, step: int = 0, bare_allowed: bool = True) -> Exchange:
    exchange = Exchange(bare_allowed=bare_allowed)
    for start in range(0, len(data), step or len(data)):
        exchange.receive(data[start : start + (step or len(data))])
        if exchange.is_done or exchange.failure:
            break
    return exchange


def frames_of(output: bytes) -> list[Performative]:
    found = []
    while output:
        size = int.from_bytes(output[:4], "big")
        found.append(decode_performative(output[:size], 8)[0])
        output = output[size:]
    return found


@pytest.mark.rule("B1.10")
def test_a_client_may_write_its_login_and_its_open_at_once() -> None:
    exchange = run(SASL_HEADER + INIT + AMQP_HEADER + OPENING)
    assert exchange.is_done
    assert exchange.take_rest() == OPENING
    output = exchange.take_output()
    assert output.startswith(SASL_HEADER)
    mechanisms, outcome = frames_of(output[8:])
    assert isinstance(mechanisms, SaslMechanisms)
    assert mechanisms.sasl_server_mechanisms == ("ANONYMOUS",)
    assert isinstance(outcome, SaslOutcome)
    assert outcome.code == 0


@pytest.mark.parametrize("step", [1, 3, 7, 9])
def test_pieces_of_any_size_do_as_well(step: int) -> None:
    exchange = run(SASL_HEADER + INIT + AMQP_HEADER, step=step)
    assert exchange.is_done


@pytest.mark.rule("B1.1")
def test_bare_amqp_is_taken_only_where_it_is_allowed() -> None:
    taken = run(AMQP_HEADER + OPENING)
    assert taken.is_done
    assert taken.take_output() == b""  # Proton writes the AMQP header.
    refused = run(AMQP_HEADER, bare_allowed=False)
    assert refused.failure
    assert refused.take_output() == SASL_HEADER


@pytest.mark.rule("B1.2")
@pytest.mark.parametrize(
    "header",
    [
        b"AMQP\x00\x00\x09\x01",
        b"AMQP\x01\x01\x00\x0a",
        b"AMQP\x02\x01\x00\x00",
        b"AMQP\x00\x01\x01\x00",
        b"GET / HTTP/1.1\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01",
    ],
)
@pytest.mark.parametrize("step", [0, 1])
def test_another_header_is_answered_with_ours(header: bytes, step: int) -> None:
    exchange = run(header, step=step)
    assert exchange.failure
    assert exchange.take_output() == SASL_HEADER


@pytest.mark.rule("B1.7")
def test_a_mechanism_that_was_not_offered_fails_the_login() -> None:
    plain = SaslInit(mechanism="PLAIN", initial_response=b"\0u\0p")
    exchange = run(SASL_HEADER + frame(0, encode_performative(plain), 1))
    assert exchange.failure
    assert not exchange.is_done
    outcome = frames_of(exchange.take_output()[8:])[-1]
    assert isinstance(outcome, SaslOutcome)
    assert outcome.code == 1


@pytest.mark.rule("B1.11")
@pytest.mark.parametrize(
    "wrong",
    [
        frame(0, b"", 1),  # An empty frame.
        frame(0, encode_performative(SaslInit(mechanism="ANONYMOUS")), 0),  # An AMQP frame.
        frame(0, encode_performative(SaslMechanisms(sasl_server_mechanisms=("ANONYMOUS",))), 1),
        frame(0, encode_performative(SaslResponse(response=b"x")), 1),
        frame(0, encode_performative(SaslOutcome(code=0)), 1),
        frame(0, b"\x00\x53\x41\xd0\xff\xff\xff\xff", 1),
    ],
)
def test_whatever_is_no_init_ends_the_exchange(wrong: bytes) -> None:
    assert run(SASL_HEADER + wrong).failure


@pytest.mark.rule("B1.13")
def test_a_token_of_8_kib_is_no_matter() -> None:
    init = SaslInit(mechanism="ANONYMOUS", initial_response=b"t" * 8192)
    assert run(SASL_HEADER + frame(0, encode_performative(init), 1) + AMQP_HEADER).is_done


def test_what_a_peer_may_send_before_its_login_is_bounded() -> None:
    large = (FRAME_MAX + 1).to_bytes(4, "big") + b"\x02\x01\0\0"
    assert run(SASL_HEADER + large).failure
    trickle = Exchange(bare_allowed=True)
    trickle.receive(SASL_HEADER + FRAME_MAX.to_bytes(4, "big") + b"\x02\x01\0\0")
    trickle.receive(b"\0" * (BYTES_MAX + 1))
    assert trickle.failure


def test_a_second_sasl_header_after_the_login_is_refused() -> None:
    exchange = run(SASL_HEADER + INIT + SASL_HEADER)
    assert exchange.failure
    assert not exchange.is_done
