"""A link on which a producer sends to us: its messages become Publish, the answers go back by number.

Must not know queues: where a message goes and whether it is kept is the engine's to say.
"""

from typing import TYPE_CHECKING

from amqpbroker.amqp.conditions import CODE_OF, Condition, tag_info
from amqpbroker.amqp.performatives import SETTLE_SECOND
from amqpbroker.amqp.terminus import producer_reply, refused_reply
from amqpbroker.base.codec import Symbol
from amqpbroker.base.errors import MESSAGE_SIZE_EXCEEDED, RESOURCE_LIMIT_EXCEEDED, Refusal
from amqpbroker.base.ids import Millis, Number
from amqpbroker.base.sections import scan_run
from amqpbroker.engine.commands import Outcome, Publish, Unpublished
from amqpbroker.engine.effects import (
    AttachRefused,
    Dispose,
    Effect,
    ForceDetach,
    Grant,
    ProducerAttached,
)

if TYPE_CHECKING:
    from amqpbroker.amqp.attachment import Attachment
    from amqpbroker.amqp.connection import Connection


class IncomingLink:
    """One producer's link, from its attach until both sides have detached."""

    __slots__ = ("_is_anonymous", "_second", "at", "connection")
    incoming = True

    def __init__(self, connection: "Connection", at: "Attachment") -> None:
        self.connection = connection
        self.at = at
        self._second = at.attach.rcv_settle_mode == SETTLE_SECOND
        self._is_anonymous = False  # Messages are routed one by one: failures name their delivery.

    @property
    def name(self) -> str:
        """The link's name, as its peer chose it."""
        return self.at.attach.name

    # --- what arrives

    def messages(self, first: int, payloads: list[bytes], now: Millis, *, settled: bool) -> None:
        """A run of complete messages."""
        facts = scan_run(payloads)
        publish = Publish(self.at.link, Number(first), payloads, facts, settled=settled)
        self.connection.switchboard.apply(publish, now)

    def aborted(self, count: int, now: Millis) -> None:
        """Deliveries that the producer took back; their credit returns (B4.13)."""
        self.connection.switchboard.apply(Unpublished(self.at.link, count), now)

    def oversize(self, now: Millis) -> None:
        """The delivery in progress is larger than the listener allows (B4.15)."""
        limit = self.connection.settings.max_message_size
        self.connection.fault_link(
            self, Refusal(MESSAGE_SIZE_EXCEEDED, f"a message exceeds {limit} bytes"), now
        )

    def crowded(self, now: Millis) -> None:
        """The deliveries in progress of the whole connection passed their bound with this one."""
        limit = self.connection.settings.partial_bytes_max
        text = f"unfinished messages of this connection exceed {limit} bytes"
        self.connection.fault_link(self, Refusal(RESOURCE_LIMIT_EXCEEDED, text), now)

    # --- what the engine wants done

    def carry_out(self, effect: Effect) -> None:
        """Do what the engine says about this link."""
        if isinstance(effect, Dispose):
            self._dispose(effect)
        elif isinstance(effect, Grant):
            self._grant(effect.credit)
        elif isinstance(effect, ProducerAttached):
            self._is_anonymous = effect.address is None
            limit = self.connection.settings.max_message_size
            self.connection.answer_attach(
                self, producer_reply(self.at.attach, effect.address, limit)
            )
        elif isinstance(effect, AttachRefused):
            self.connection.refuse_attach(self, refused_reply(self.at.attach), effect.refusal)
        elif isinstance(effect, ForceDetach):
            info = None
            if effect.number is not None and not self.at.is_closed:
                info = self._tag_info(effect.number)
            self.connection.force_detach(self, effect.refusal, info)

    def _grant(self, credit: int) -> None:
        if not self.at.is_closed:
            self.connection.grant(self, credit)

    def _dispose(self, effect: Dispose) -> None:
        if self.at.is_closed:
            return
        refusal = effect.outcome.refusal
        if refusal is not None and self._is_anonymous:
            for number in range(effect.first, effect.first + effect.count):
                info = self._tag_info(Number(number))
                self._answer(number, 1, effect.outcome, self.connection.condition(refusal, info))
        else:
            condition = None if refusal is None else self.connection.condition(refusal)
            self._answer(effect.first, effect.count, effect.outcome, condition)
        self.connection.touch()

    def _answer(
        self, first: int, count: int, outcome: Outcome, condition: Condition | None
    ) -> None:
        self.connection.driver.dispose(
            self.at.slot, first, count, CODE_OF[outcome.kind], not self._second, condition
        )

    def _tag_info(self, number: Number) -> dict[Symbol, object]:
        return tag_info(self.connection.driver.tag(self.at.slot, number))
