"""From the broker's refusals and outcomes to what goes on the wire, and back: the only translator.

Which frame carries a condition is the caller's choice by scope (client-needs B12); here are names, codes and sizes.
"""

from typing import Final

from amqpbroker.amqp import codes
from amqpbroker.base.codec import Binary, Symbol, encode
from amqpbroker.base.errors import Refusal
from amqpbroker.engine.commands import ACCEPTED, RELEASED, Outcome, OutcomeKind

Condition = tuple[str, str, bytes]
"""What the driver takes: name, description, info as an encoded map (b"" for none)."""

CODE_OF: Final = {
    OutcomeKind.ACCEPTED: codes.ACCEPTED,
    OutcomeKind.REJECTED: codes.REJECTED,
    OutcomeKind.RELEASED: codes.RELEASED,
    OutcomeKind.MODIFIED: codes.MODIFIED,
}

# A Detach or Close with its description must fit a peer's frame; 512 is the smallest there is [2.7.1], and
# the frame without the text needs about 100 bytes, a container-id or tag in the info included.
DESCRIPTION_SMALL_MAX: Final = 300
DESCRIPTION_MAX: Final = 1_000
FRAME_ROOMY_MIN: Final = 4_000
"""Bytes of a frame that surely holds the longer description: an info that quotes a long address may be as long again,
and half of the frame is left over. Those with less are test programs and small devices: the short text does."""


def condition_of(
    refusal: Refusal, frame_size_max: int, info: dict[Symbol, object] | None = None
) -> Condition:
    """The refusal as the driver takes it, its text cut so that the frame fits the peer."""
    limit = DESCRIPTION_SMALL_MAX if frame_size_max < FRAME_ROOMY_MIN else DESCRIPTION_MAX
    # Cut by bytes, not by characters: the size counts on the wire, and half a character must not go out.
    text = refusal.description.encode()[:limit].decode(errors="ignore")
    return refusal.condition, text, encode(info) if info else b""


def tag_info(tag: bytes) -> dict[Symbol, object]:
    """The info of a failure that one delivery caused (client-needs B11)."""
    return {Symbol("delivery-tag"): Binary(tag)}


def outcome_of(code: int, detail: tuple[object, ...] | None) -> Outcome | None:
    """The outcome that a consumer gave; None for a state that ends nothing and is unknown to us.

    Settled without a state is the source's default-outcome, which we set to released (rule 9.3).
    """
    if code == CODE_OF[OutcomeKind.ACCEPTED]:
        return ACCEPTED
    if code in (CODE_OF[OutcomeKind.RELEASED], 0):
        return RELEASED
    if code == CODE_OF[OutcomeKind.MODIFIED]:
        failed, undeliverable_here, annotations = detail or (False, False, b"")
        if not (failed or undeliverable_here or annotations):
            return RELEASED
        return Outcome(
            OutcomeKind.MODIFIED,
            failed=bool(failed),
            undeliverable_here=bool(undeliverable_here),
            annotations=annotations if isinstance(annotations, bytes) else b"",
        )
    if code == CODE_OF[OutcomeKind.REJECTED]:
        name, description = detail or ("", "")
        return Outcome(OutcomeKind.REJECTED, refusal=Refusal(str(name), str(description)))
    return None
