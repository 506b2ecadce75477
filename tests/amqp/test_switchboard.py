"""What joins peers, engine and store: deadlines, work left over, and faults of ours that end one peer only."""

import pytest

from amqpbroker.amqp.incoming import IncomingLink
from amqpbroker.amqp.settings import PeerSettings
from amqpbroker.amqp.switchboard import EngineBroken
from tests.amqp.memory import MemoryBroker
from tests.raw.frames import message

COUNT = 3_000


def test_a_consumer_that_only_room_holds_up_goes_on_when_its_output_is_written() -> None:
    settings = PeerSettings(container_id="broker", outgoing_buffer=32 * 1024, credit=COUNT)
    broker = MemoryBroker(settings)
    producer = broker.client().opened().begun(incoming_window=COUNT)
    producer.producer("q").wait_for("flow", handle=0)
    for at in range(0, COUNT, 500):
        with producer.pipelined():
            for _ in range(500):
                producer.transfer(message(b"x" * 200), settled=True)
        assert broker.queue("q").stats.added == at + 500
    wire = broker.wire()
    consumer = broker.client_of(wire).opened().begun(incoming_window=2 * COUNT)
    consumer.consumer("q", snd_settle_mode=1).wait_for("attach")
    consumer.credit(COUNT, incoming_window=2 * COUNT)
    written = 0
    for _ in range(COUNT):
        size = len(wire.peer.output())
        if size:
            wire.peer.written(size, broker.now)
            written += size
        if broker.switchboard.next_deadline() != 0:
            break
        broker.turn()
    assert broker.queue("q").stats.acknowledged == COUNT
    assert written > COUNT * 200


def test_a_mistake_of_ours_about_one_link_ends_its_peer_and_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = MemoryBroker()
    other = broker.client().opened().begun().consumer("q")
    other.credit(5)
    client = broker.client().opened().begun()
    client.producer("q").wait_for("flow", handle=0)

    def broken(_link: IncomingLink, _effect: object) -> None:
        raise KeyError("ours")

    monkeypatch.setattr(IncomingLink, "_dispose", broken)
    client.transfer(message(b"x"))
    assert client.wait_for("close").error["condition"] == "amqp:internal-error"
    client.expect_closed()
    assert [note.event for note in broker.notes if "failure" in note.fields] == ["peer_failed"]
    assert len(other.receive()) == 1


def test_a_mistake_in_the_engine_is_not_a_peers() -> None:
    broker = MemoryBroker()
    with pytest.raises(EngineBroken):
        broker.switchboard.apply("no command", broker.now)  # type: ignore[arg-type]
