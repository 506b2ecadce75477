"""Conditions and delivery states as they reach the other side."""

import struct

import pytest
from proton import Condition, Delivery, symbol

from amqpbroker.amqp.driver import OUTCOMES
from tests.amqp.driver.pair import Pair, answer, outcomes, receive, send


def test_conditions_reach_the_peer_with_info(pair: Pair) -> None:
    session, slot = pair.session()
    link, link_slot = pair.producer(session)
    info = b"\xc1\x08\x02\xa3\x01k\xa1\x02vv"  # {symbol k: "vv"}
    pair.driver.close_link(link_slot, ("amqp:not-found", "no “q”", info), closed=True)
    pair.driver.close_session(slot, ("amqp:session:errant-link", "", b""))
    pair.driver.close_connection(("amqp:connection:forced", "bye", b""))
    pair.pump()
    assert link.remote_condition == Condition("amqp:not-found", "no “q”", {symbol("k"): "vv"})
    assert session.remote_condition == Condition("amqp:session:errant-link")
    assert pair.connection.remote_condition == Condition("amqp:connection:forced", "bye")


def test_a_rejection_carries_its_error(pair: Pair) -> None:
    session, _ = pair.session()
    link, slot = pair.producer(session)
    one, two = send(link, b"1", b"2")
    pair.pump()
    pair.driver.dispose(slot, 0, 1, 0x25, True, ("amqp:decode-error", "bad section", b""))
    pair.driver.dispose(slot, 1, 1, 0x25, True, ("x", "", b"\xc1\x05\x02\xa3\x01k\x43"))
    pair.pump()
    assert one.remote_state == two.remote_state == Delivery.REJECTED
    assert one.remote.condition == Condition("amqp:decode-error", "bad section")
    assert two.remote.condition == Condition("x", None, {symbol("k"): 0})


@pytest.mark.parametrize("settle", [True, False])
def test_each_outcome_is_reported_once_and_settled(pair: Pair, settle: bool) -> None:
    session, _ = pair.session()
    link, slot = pair.consumer(session)
    pair.driver.send_run(slot, [10, 11, 12, 13, 14], [b"x"] * 5, False)
    pair.pump()
    accepted, rejected, bare, released, modified = [d for d, _ in receive(link)]
    answer(accepted, Delivery.ACCEPTED, settle)
    rejected.local.condition = Condition("app:bad", "no “good”")
    answer(rejected, Delivery.REJECTED, settle)
    answer(bare, Delivery.REJECTED, settle)
    answer(released, Delivery.RELEASED, settle)
    modified.local.failed = True
    modified.local.undeliverable = True
    modified.local.annotations = {symbol("k"): 1}
    answer(modified, Delivery.MODIFIED, settle)
    annotations = b"\xd1\x00\x00\x00\x09\x00\x00\x00\x02\xa3\x01k\x55\x01"
    assert sorted(outcomes(pair.pump(), slot), key=lambda o: o[1]) == [
        (0x24, 10, None),
        (0x25, 11, ("app:bad", "no “good”")),
        (0x25, 12, ("", "")),
        (0x26, 13, None),
        (0x27, 14, (True, True, annotations)),
    ]
    if not settle:
        for delivery in (accepted, rejected, bare, released, modified):
            assert delivery.settled  # Our answer: a consumer in settle mode second waits for it.
            assert delivery.remote_state == delivery.local_state
        assert modified.remote.failed
        assert modified.remote.undeliverable
    assert pair.pump() == []


def test_an_unknown_state_is_reported_by_its_code(pair: Pair) -> None:
    session, _ = pair.session()
    link, slot = pair.consumer(session)
    pair.driver.send_run(slot, [1], [b"x"], False)
    pair.pump()
    receive(link)
    state = b"\x00\x53\x34\xc0\x05\x01\xa0\x02tx"  # transactional-state, txn-id "tx".
    fields = b"\x41\x43\x43\x42" + state
    body = b"\x00\x53\x15\xc0" + bytes([len(fields) + 1, 5]) + fields
    for piece in pair.cut(struct.pack(">IBBH", len(body) + 8, 2, 0, 0) + body):
        assert pair.driver.push(piece)
    assert pair.driver.take() == [(OUTCOMES, slot, 0x34, [1], None)]
    assert b"\x00\x53\x34\xd0\x00\x00\x00\x08\x00\x00\x00\x01\xa0\x02tx" in pair.driver.pump()


def test_deep_annotations_are_handed_on_as_they_came(pair: Pair) -> None:
    """Proton's codec does not recurse: 5,000 levels are no deeper for the C stack than one."""
    session, _ = pair.session()
    link, slot = pair.consumer(session)
    pair.driver.send_run(slot, [1], [b"x"], False)
    pair.pump()
    receive(link)
    deep = b"\x45"
    for _ in range(5_000):
        deep = b"\xd0" + struct.pack(">II", len(deep) + 4, 1) + deep
    annotations = b"\xd1" + struct.pack(">II", len(deep) + 7, 2) + b"\xa3\x01k" + deep
    state = b"\x41\x42" + annotations
    fields = b"\x41\x43\x43\x42\x00\x53\x27\xd0" + struct.pack(">II", len(state) + 4, 3) + state
    body = b"\x00\x53\x15\xd0" + struct.pack(">II", len(fields) + 4, 5) + fields
    assert pair.driver.push(struct.pack(">IBBH", len(body) + 8, 2, 0, 0) + body)
    ((_, _, code, _, (failed, elsewhere, got)),) = pair.driver.take()
    assert (code, failed, elsewhere) == (0x27, True, False)
    assert got == annotations
