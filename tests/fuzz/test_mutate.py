"""The campaign of mutate.py, a short one each time and a long one on request; and that it would see a fault."""

import random

import pytest

from amqpbroker.amqp import connection, frames, tap
from amqpbroker.amqp.connection import Connection
from amqpbroker.amqp.driver import PureDriver
from amqpbroker.amqp.frames import PureWalker
from tests.fuzz import mutate


@pytest.mark.parametrize("pure", [False, True], ids=["as built", "pure"])
def test_twenty_thousand_frames_of_broken_sessions_break_nothing(
    monkeypatch: pytest.MonkeyPatch, pure: bool
) -> None:
    if pure:
        monkeypatch.setattr(frames, "Walker", PureWalker)
        monkeypatch.setattr(connection, "Driver", PureDriver)
    campaign = mutate.Campaign(random.randrange(2**32))
    report = campaign.run(iter(range(1_000_000)), 20_000)
    assert report.changed > report.frames / 10


@pytest.mark.slow
@pytest.mark.timeout(7_200)
def test_two_million_frames_of_broken_sessions_break_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with capsys.disabled():
        mutate.run(random.randrange(2**32), 2_000_000, processes=2)


def test_a_seed_repeats_its_streams() -> None:
    one, other = mutate.Campaign(7), mutate.Campaign(7)
    assert [one.stream(number) for number in range(50)] == [
        other.stream(number) for number in reversed(range(50))
    ][::-1]


def test_a_missing_check_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tap, "check_channel", lambda channel, sessions: None)
    with pytest.raises(KeyError) as caught:
        mutate.Campaign(1).run(iter(range(1_000)), 20_000)
    assert any(note.startswith("seed 1, stream ") for note in caught.value.__notes__)


def test_a_peer_that_is_stuck_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Connection, "_on_close", lambda *_: None)
    monkeypatch.setitem(Connection._CONTROLS, 0x18, lambda *_: None)
    with pytest.raises(AssertionError, match="a Close is not answered"):
        mutate.Campaign(1).run(iter(range(1_000)), 20_000)
