"""Refusals and outcomes to the wire and back."""

import pytest

from amqpbroker.amqp.conditions import condition_of, outcome_of, tag_info
from amqpbroker.base.codec import decode
from amqpbroker.base.errors import NOT_FOUND, Refusal
from amqpbroker.engine.commands import ACCEPTED, RELEASED, OutcomeKind


@pytest.mark.rule("B12")
@pytest.mark.parametrize(("frame_size", "most"), [(512, 300), (3_999, 300), (4_000, 1_000)])
def test_a_description_is_cut_to_what_the_peers_frames_take(frame_size: int, most: int) -> None:
    for text in ("short", "a" * 2_000, "ü" * 1_000, "aü" * 800, "\N{GRINNING FACE}" * 500):
        name, description, info = condition_of(Refusal(NOT_FOUND, text), frame_size)
        assert (name, info) == (NOT_FOUND, b"")
        assert text.startswith(description)
        assert min(len(text.encode()), most) - 3 <= len(description.encode()) <= most


@pytest.mark.rule("B11")
def test_the_info_of_a_failed_delivery_is_a_map_with_its_tag() -> None:
    _, _, info = condition_of(Refusal(NOT_FOUND, ""), 512, tag_info(b"\x00\xff"))
    assert decode(info, 0)[0] == {"delivery-tag": b"\x00\xff"}


@pytest.mark.rule("B8.1", "B8.2", "B8.7")
def test_the_plain_outcomes_are_one_object_each() -> None:
    assert outcome_of(0x24, None) is ACCEPTED
    assert outcome_of(0x26, None) is RELEASED
    assert outcome_of(0, None) is RELEASED


@pytest.mark.rule("B8.3", "B8.4", "B8.5")
def test_modified_says_what_it_carries_and_is_released_when_that_is_nothing() -> None:
    assert outcome_of(0x27, (False, False, b"")) is RELEASED
    for detail in [(True, False, b""), (False, True, b""), (False, False, b"\xc1\x01\x00")]:
        outcome = outcome_of(0x27, detail)
        assert outcome is not None
        assert outcome.kind is OutcomeKind.MODIFIED
        assert (outcome.failed, outcome.undeliverable_here, outcome.annotations) == detail


@pytest.mark.rule("B8.6")
def test_rejected_keeps_the_consumers_reason() -> None:
    outcome = outcome_of(0x25, ("app:bad", "because"))
    assert outcome is not None
    assert outcome.refusal == Refusal("app:bad", "because")


def test_other_states_are_no_outcomes() -> None:
    assert outcome_of(0x34, None) is None
    assert outcome_of(0x99, None) is None
