"""Neighbours of one kind are one record."""

import struct

from proton import Delivery

from amqpbroker.amqp.driver import ABORTED, MESSAGES, OUTCOMES, PureDriver
from tests.amqp.driver.pair import Pair, answer, receive, send, whole


def test_a_run_is_one_record(kind: type[PureDriver]) -> None:
    pair = Pair(kind, whole)
    session, _ = pair.session()
    link, slot = pair.producer(session)
    other, other_slot = pair.producer(session, name="other")
    send(link, b"a", b"b")
    send(link, b"c", settled=True)
    send(link, b"d")
    send(other, b"e")
    send(link, b"f")
    assert pair.pump() == [
        (MESSAGES, slot, 0, [b"a", b"b"], False),
        (MESSAGES, slot, 2, [b"c"], True),
        (MESSAGES, slot, 3, [b"d"], False),
        (MESSAGES, other_slot, 0, [b"e"], False),
        (MESSAGES, slot, 4, [b"f"], False),
    ]
    pair.driver.free()


def test_aborts_in_a_row_are_one_record(kind: type[PureDriver]) -> None:
    pair = Pair(kind, whole)
    session, _ = pair.session()
    _, slot = pair.producer(session)
    for number in range(2):
        fields = (
            b"\x43"
            + (b"\x43" if number == 0 else b"\x52\x01")
            + b"\xa0\x01t\x40\x42\x42\x40\x40\x42\x41"
        )
        body = b"\x00\x53\x14\xc0" + bytes([len(fields) + 1, 10]) + fields
        assert pair.driver.push(struct.pack(">IBBH", len(body) + 8, 2, 0, 0) + body)
    assert pair.driver.take() == [(ABORTED, slot, 2)]
    pair.driver.free()


def test_outcomes_of_a_kind_are_one_record(kind: type[PureDriver]) -> None:
    pair = Pair(kind, whole)
    session, _ = pair.session()
    link, slot = pair.consumer(session)
    other, other_slot = pair.consumer(session, name="other")
    pair.driver.send_run(slot, [1, 2, 3, 4, 5], [b"x"] * 5, False)
    pair.driver.send_run(other_slot, [1], [b"x"], False)
    pair.pump()
    got = [d for d, _ in receive(link)]
    (first,) = [d for d, _ in receive(other)]
    for delivery, code in zip(got, [Delivery.ACCEPTED] * 2 + [Delivery.RELEASED] * 2, strict=False):
        answer(delivery, code)
    answer(first, Delivery.RELEASED)
    answer(got[4], Delivery.ACCEPTED)
    records = pair.pump()
    assert [(r[0], r[1], r[2], sorted(r[3]), r[4]) for r in records] == [
        (OUTCOMES, slot, 0x24, [1, 2], None),
        (OUTCOMES, slot, 0x26, [3, 4], None),
        (OUTCOMES, other_slot, 0x26, [1], None),
        (OUTCOMES, slot, 0x24, [5], None),
    ]
    pair.driver.free()
