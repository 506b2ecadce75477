"""A connection as the runtime sees it: when it is read, when it is given up, and how it ends."""

import gc
import weakref

import pytest

from amqpbroker.amqp.peer import OUTPUT_FACTOR, Peer
from amqpbroker.base.errors import CONNECTION_FORCED, Refusal
from amqpbroker.base.ids import Millis
from tests.amqp.bystander import Bystander
from tests.amqp.memory import SETTINGS, MemoryBroker, MemoryWire
from tests.raw.client import RawClient, error
from tests.raw.frames import frame, message

ECHOES = b"".join(
    frame(
        "flow",
        next_incoming_id=0,
        incoming_window=9,
        next_outgoing_id=0,
        outgoing_window=9,
        echo=True,
    )
    for _ in range(1_000)
)
OUTPUT_MAX = OUTPUT_FACTOR * SETTINGS.outgoing_buffer


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker()


def deaf(broker: MemoryBroker) -> tuple[RawClient, MemoryWire, Peer]:
    """A client that writes and does not read, until its peer is not read either."""
    wire = broker.wire()
    client = RawClient(wire=wire).opened().begun()
    wire.is_stalled = True
    written = 0
    while wire.peer.wants_input and written < 20 * OUTPUT_MAX:
        client.wire.send(ECHOES)
        written += len(ECHOES)
    return client, wire, wire.peer


def read(wire: MemoryWire, count: int) -> None:
    """Take so many bytes."""
    wire.peer.written(min(count, len(wire.peer.output())), wire.broker.now)
    wire.broker.turn()


def test_who_does_not_read_is_not_read_either(broker: MemoryBroker) -> None:
    bystander = Bystander(broker.client)
    client, wire, peer = deaf(broker)
    assert not peer.wants_input
    assert OUTPUT_MAX <= peer.outbox.size < OUTPUT_MAX + 2 * len(ECHOES)
    bystander.look()
    wire.is_stalled = False
    client.close().wait_for("close", error=None)


@pytest.mark.rule("B2.17")
def test_who_does_not_read_is_given_up_in_time_though_it_may_have_written(
    broker: MemoryBroker,
) -> None:
    # Bug case 115: it could stay for ever, since output waits and input is not looked at.
    peer = deaf(broker)[2]
    broker.advance(SETTINGS.idle_timeout_ms)
    broker.advance(5_000)
    assert peer.is_finished


@pytest.mark.rule("B2.17")
def test_who_reads_slowly_lives_though_nothing_of_it_can_be_read(broker: MemoryBroker) -> None:
    _, wire, peer = deaf(broker)
    for _ in range(10):
        broker.advance(SETTINGS.idle_timeout_ms - 1)
        read(wire, 100)
    assert not peer.wants_input
    assert not peer.is_finished
    read(wire, OUTPUT_MAX)
    assert peer.wants_input


@pytest.mark.rule("B2.17")
def test_written_bytes_are_no_sign_of_life_while_its_input_is_read(broker: MemoryBroker) -> None:
    client = broker.client().opened(idle_time_out=10_000)
    for _ in range(SETTINGS.idle_timeout_ms // 5_000 - 1):
        broker.advance(5_000)
        client.wait_for("empty")
    broker.advance(5_000)
    client.wait_for("close", error=error("amqp:resource-limit-exceeded"))


def test_after_the_end_nothing_is_taken_and_nothing_comes(broker: MemoryBroker) -> None:
    wire = broker.wire()
    RawClient(wire=wire).opened().begun().close().wait_for("close")
    peer = wire.peer
    assert peer.is_finished
    peer.receive(ECHOES, broker.now)
    peer.tick(Millis(broker.now + 1_000_000))
    peer.close(Refusal(CONNECTION_FORCED, "again"), broker.now)
    peer.finish("again", broker.now, clean=False)
    peer.flush(broker.now)
    assert not peer.output()
    assert peer.next_deadline() is None


@pytest.mark.rule("D-33", "B8.9")
@pytest.mark.parametrize("clean", [False, True])
def test_leases_of_a_connection_that_was_lost_have_failed_once(
    broker: MemoryBroker, clean: bool
) -> None:
    client = broker.client().opened().begun().producer("q").consumer("q", snd_settle_mode=0)
    client.wait_for("flow", link_credit=1000)
    client.transfer(message(b"x")).wait_for("disposition")
    client.credit(1, handle=1).receive()
    if clean:
        client.close()
    client.wire.close()
    other = broker.client().opened().begun().consumer("q").credit(1)
    (again,) = other.receive()
    assert (again.payload == message(b"x")) == clean


def test_a_close_before_the_login_ends_the_socket_without_a_word(broker: MemoryBroker) -> None:
    peer = broker.wire().peer
    peer.close(Refusal(CONNECTION_FORCED, "the broker is shutting down"), broker.now)
    assert peer.is_finished
    assert not peer.output()
    broker.turn()
    (note,) = [note for note in broker.notes if note.event == "peer_closed"]
    assert note.fields["reason"] == "the broker is shutting down"


def test_the_first_reason_to_finish_is_the_one_that_is_told(broker: MemoryBroker) -> None:
    peer = broker.wire().peer
    peer.finish("one", broker.now, clean=False)
    peer.finish("two", broker.now, clean=False)
    peer.fail(KeyError("three"), broker.now)
    broker.turn()
    told = [note.fields["reason"] for note in broker.notes if note.event == "peer_closed"]
    assert told == ["one"]
    assert not broker.switchboard.peers


def test_a_peer_that_is_let_go_is_gone_without_the_collector(broker: MemoryBroker) -> None:
    gc.disable()
    try:
        wire = broker.wire()
        RawClient(wire=wire).opened().begun().producer("q").close().wait_for("close")
        left = weakref.ref(wire.peer)
        wire.peer.let_go()
        del wire
        assert left() is None
    finally:
        gc.enable()
