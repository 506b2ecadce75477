"""Windows in serial arithmetic [2.5.6]."""

import pytest

from amqpbroker.amqp.performatives import Begin
from amqpbroker.amqp.session import SERIAL, Session, serial_difference
from amqpbroker.base.ids import SessionId


def session(window: int) -> Session:
    begin = Begin(next_outgoing_id=SERIAL - 2, incoming_window=window, outgoing_window=0)
    return Session(SessionId(1), 0, 0, begin)


def test_differences_wrap() -> None:
    assert serial_difference(2, 1) == 1
    assert serial_difference(0, SERIAL - 1) == 1
    assert serial_difference(SERIAL - 1, 0) == -1


@pytest.mark.rule("B3.1")
def test_frames_on_their_way_count_against_a_new_window() -> None:
    held = session(3)
    held.frames_sent = 3
    assert held.frames_left == 0
    held.take_window(1, 5)  # It has seen one of three: two of the five are taken already.
    assert held.frames_left == 3


def test_a_flow_before_our_begin_was_seen_counts_from_what_was_sent() -> None:
    held = session(3)
    held.take_window(None, 7)
    assert held.frames_left == 7


def test_what_was_never_sent_cannot_be_acknowledged() -> None:
    held = session(3)
    held.frames_sent = 2
    assert not held.has_sent(3)
    assert held.has_sent(2)
    assert held.has_sent(None)


def test_ids_wrap_after_2_to_the_32_frames() -> None:
    held = session(10)
    held.frames_sent = SERIAL + 5
    held.take_window(3, 4)  # Two frames are on their way.
    assert held.frames_left == 2


def test_a_window_without_bound_is_no_negative_one() -> None:
    assert session(SERIAL - 1).frames_left > 1_000_000


def test_a_flow_must_not_unsay_transfers() -> None:
    held = session(1)  # Its peer's first transfer has the id 2^32 - 2.
    held.took_frames(3)
    assert not held.is_rewound(1, 0)
    assert held.is_rewound(0, 0)
    assert held.is_rewound(1, 1)
    assert not held.is_rewound(2, 1)
