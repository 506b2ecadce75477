"""A producer's link when answers come late; all else is in test_producers.py and test_anonymous.py."""

import pytest

from amqpbroker.amqp.settings import PeerSettings
from tests.amqp.memory import MemoryBroker
from tests.amqp.scenes import SlowStore, frames_of, producer, send
from tests.raw.client import error
from tests.raw.frames import Frame, data, message


def answered(frames: list[Frame]) -> list[tuple[int, int]]:
    return [
        (frame.first, frame.last or frame.first)
        for frame in frames
        if frame.name == "disposition" and frame.state is not None
    ]


@pytest.mark.rule("B4.16", "B13.4")
@pytest.mark.parametrize("how", ["fault", "detach", "end"])
def test_an_answer_for_a_link_that_has_ended_goes_nowhere(how: str) -> None:
    store = SlowStore()
    broker = MemoryBroker(store=store)
    client = producer(broker)
    client.transfer(message(b"x", durable=True))
    if how == "fault":
        client.transfer(message(b"x"), resume=True)
        client.wait_for("detach", error=error("amqp:not-implemented"))
    elif how == "detach":
        client.detach(0).wait_for("detach", error=None)
    else:
        client.end().wait_for("end", error=None)
    store.finish()
    assert not answered(frames_of(client))
    assert broker.queue("q").ready == 1


@pytest.mark.rule("B4.9", "B4.18")
def test_what_was_stored_together_is_answered_together_and_in_order() -> None:
    store = SlowStore()
    client = producer(MemoryBroker(store=store))
    for _ in range(6):
        client.transfer(message(b"x", durable=True))
    client.transfer(message(b"x"))  # Needs no store: answered first.
    assert answered(frames_of(client)) == [(6, 6)]
    store.finish(2)
    assert answered(frames_of(client)) == [(0, 1)]
    store.finish()
    assert answered(frames_of(client)) == [(2, 5)]


@pytest.mark.rule("B4.10")
def test_a_late_answer_finds_its_delivery_in_mode_second() -> None:
    store = SlowStore()
    client = producer(MemoryBroker(store=store), rcv_settle_mode=1)
    for _ in range(3):
        client.transfer(message(b"x", durable=True))
    client.disposition(1, role="sender", state="accepted")  # It does not wait for us.
    store.finish()
    assert {number for first, last in answered(frames_of(client)) for number in (first, last)} == {
        0,
        2,
    }
    client.disposition(0, role="sender", last=2, state="accepted")
    client.transfer(message(b"x"), delivery_tag=b"0").wait_for("disposition", first=3)


@pytest.mark.rule("B4.15")
def test_a_size_that_is_not_limited_is_not_in_the_attach() -> None:
    broker = MemoryBroker(PeerSettings(container_id="b", max_message_size=0))
    client = producer(broker)
    attach = next(frame for frame in client.frames if frame.name == "attach")
    assert attach.max_message_size is None
    send(client, data(b"x" * 300_000)).wait_for("disposition", state="accepted")
