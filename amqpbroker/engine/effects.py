"""What the broker wants done: the one door out. Values only; the runtime carries them out in order.

An effect about a link is for the peer that owns it. A peer that is gone meanwhile ignores it.
"""

from amqpbroker.base.errors import Refusal
from amqpbroker.base.ids import LinkId, Number, Sequence
from amqpbroker.engine.commands import Outcome
from amqpbroker.engine.records import Batch


class ProducerAttached:
    """Answer the attach with this target address; None for the anonymous terminus."""

    __slots__ = ("address", "link")

    def __init__(self, link: LinkId, address: str | None) -> None:
        self.link = link
        self.address = address


class ConsumerAttached:
    """Answer the attach with this source address; `copies`: the mode in force is copy."""

    __slots__ = ("address", "copies", "link")

    def __init__(self, link: LinkId, address: str, *, copies: bool) -> None:
        self.link = link
        self.address = address
        self.copies = copies


class AttachRefused:
    """Answer the attach with a null terminus, then detach closed with `refusal` (B4.3, B5.8)."""

    __slots__ = ("link", "refusal")

    def __init__(self, link: LinkId, refusal: Refusal) -> None:
        self.link = link
        self.refusal = refusal


class ForceDetach:
    """Detach the link with `refusal`; the engine has forgotten it already."""

    __slots__ = ("link", "number", "refusal")

    def __init__(self, link: LinkId, refusal: Refusal, number: Number | None = None) -> None:
        self.link = link
        self.refusal = refusal
        self.number = number  # The delivery at fault, whose tag the error's info names (B11).


class Grant:
    """Give a producer `credit` more."""

    __slots__ = ("credit", "link")

    def __init__(self, link: LinkId, credit: int) -> None:
        self.link = link
        self.credit = credit


class Dispose:
    """The answer to `count` deliveries of an incoming link from `first` on; presettled ones too."""

    __slots__ = ("count", "first", "link", "outcome")

    def __init__(self, link: LinkId, first: Number, count: int, outcome: Outcome) -> None:
        self.link = link
        self.first = first
        self.count = count
        self.outcome = outcome


class Transfer:
    """Send a run of entries on an outgoing link; the delivery-tag is the sequence in 8 bytes."""

    __slots__ = ("link", "payloads", "sequences", "settled")

    def __init__(
        self, link: LinkId, sequences: list[Sequence], payloads: list[bytes], *, settled: bool
    ) -> None:
        self.link = link
        self.sequences = sequences
        self.payloads = payloads  # As they go on the wire: header rewritten where it must be.
        self.settled = settled


class Drained:
    """Answer one drain: all of the link's credit is used up or given back now (B5.10)."""

    __slots__ = ("link",)

    def __init__(self, link: LinkId) -> None:
        self.link = link


class Append:
    """Hand this batch to the store; Stored(batch.number) follows when it holds it."""

    __slots__ = ("batch",)

    def __init__(self, batch: Batch) -> None:
        self.batch = batch


class Note:
    """Something an operator may want to know: an event name of ops/log.py and its fields."""

    __slots__ = ("event", "fields")

    def __init__(self, event: str, fields: dict[str, object]) -> None:
        self.event = event
        self.fields = fields


Effect = (
    ProducerAttached
    | ConsumerAttached
    | AttachRefused
    | ForceDetach
    | Grant
    | Dispose
    | Transfer
    | Drained
    | Append
    | Note
)
