"""The twin's own constants are those of the pure data path; all other tests here run over both."""

import pytest
from proton import Delivery, symbol

from amqpbroker.amqp import driver as module
from amqpbroker.amqp.driver import ABORTED, CROWDED, MESSAGES, OUTCOMES, OVERSIZE, PureDriver
from tests.amqp.driver.pair import Pair, Record, answer, receive, send, whole


@pytest.mark.skipif(module.CompiledDriver is None, reason="the twin is not built")
def test_the_twin_has_the_same_numbers() -> None:
    """The twin's tags are constants of its own: each record kind is compared here, built by both."""

    def script(kind: type[PureDriver]) -> list[Record]:
        pair = Pair(kind, whole, frame=1024, partial_bytes_max=4_000)
        session, _ = pair.session()
        producer, _ = pair.producer(session, limit=100)
        consumer, consumer_slot = pair.consumer(session)
        records: list[Record] = []
        send(producer, b"1")
        records += pair.pump()
        delivery = producer.delivery("x")
        producer.send(b"2")
        records += pair.pump()
        delivery.abort()
        records += pair.pump()
        other, _ = pair.producer(session, name="other")
        other.delivery("x")
        other.send(b"4" * 5_000)
        records += pair.pump()
        send(producer, b"3" * 101)
        pair.driver.send_run(consumer_slot, list(range(6)), [b""] * 6, False)
        records += pair.pump()
        states = [
            Delivery.ACCEPTED,
            Delivery.RELEASED,
            Delivery.REJECTED,
            Delivery.MODIFIED,
            Delivery.RECEIVED,
            Delivery.ACCEPTED,
        ]
        for (got, _), state in zip(receive(consumer), states, strict=True):
            got.local.annotations = {symbol("a"): [1, 2, {"x": 1.5}]}
            answer(got, state)
            records += pair.pump()
        pair.driver.free()
        return records

    pure = script(PureDriver)
    assert module.CompiledDriver is not None
    assert script(module.CompiledDriver) == pure
    assert {record[0] for record in pure} == {MESSAGES, ABORTED, OVERSIZE, CROWDED, OUTCOMES}
