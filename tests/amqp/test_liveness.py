"""Time-outs of a connection, with a clock held in the hand."""

import pytest

from amqpbroker.amqp.liveness import CLOSE_TIMEOUT_MS, Due, Liveness
from amqpbroker.amqp.settings import PeerSettings
from amqpbroker.base.ids import Millis

SETTINGS = PeerSettings(container_id="b", idle_timeout_ms=60_000, handshake_timeout_ms=10_000)
START = Millis(1_000_000)


def at(ms: int) -> Millis:
    return Millis(START + ms)


@pytest.mark.rule("B1.12")
def test_a_peer_that_does_not_open_in_time_is_dropped() -> None:
    liveness = Liveness(SETTINGS, START)
    assert liveness.next_deadline() == at(10_000)
    liveness.read_at = at(9_000)  # Bytes do not help: only the Open does.
    assert liveness.due(at(9_999)) is Due.NOTHING
    assert liveness.due(at(10_000)) is Due.HANDSHAKE


@pytest.mark.rule("B2.17")
def test_a_silent_peer_is_idle_after_twice_what_we_advertise() -> None:
    liveness = Liveness(SETTINGS, START)
    liveness.opened(0)
    assert liveness.next_deadline() == at(60_000)
    liveness.read_at = at(30_000)
    assert liveness.due(at(60_000)) is Due.NOTHING
    assert liveness.next_deadline() == at(90_000)
    assert liveness.due(at(90_000)) is Due.IDLE


@pytest.mark.rule("B2.16")
def test_a_frame_goes_out_within_half_of_the_peers_time() -> None:
    liveness = Liveness(SETTINGS, START)
    liveness.opened(30_000)
    assert liveness.next_deadline() == at(15_000)
    assert liveness.due(at(14_999)) is Due.NOTHING
    assert liveness.due(at(15_000)) is Due.HEARTBEAT
    assert liveness.next_deadline() == at(30_000)
    liveness.wrote_at = at(29_000)  # A write spares the heartbeat.
    assert liveness.due(at(30_000)) is Due.NOTHING


def test_no_idle_time_out_means_no_deadline() -> None:
    settings = PeerSettings(container_id="b", idle_timeout_ms=0)
    liveness = Liveness(settings, START)
    liveness.opened(0)
    assert liveness.next_deadline() is None
    assert liveness.due(at(10**9)) is Due.NOTHING


def test_only_the_answer_to_our_close_is_waited_for() -> None:
    liveness = Liveness(SETTINGS, START)
    liveness.opened(1_000)
    liveness.closing(at(100))
    assert liveness.next_deadline() == at(100 + CLOSE_TIMEOUT_MS)
    assert liveness.due(at(100 + CLOSE_TIMEOUT_MS - 1)) is Due.NOTHING
    assert liveness.due(at(100 + CLOSE_TIMEOUT_MS)) is Due.UNANSWERED
