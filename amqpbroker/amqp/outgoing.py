"""A link on which a consumer receives from us: runs of entries go out, its flow and outcomes come in.

Must not know queues. delivery-count and link-credit live here: the engine is told only how many more entries
the consumer takes from now. A message that fits one frame goes to Proton in a run; a larger one is fed in slices of
exactly one frame, as the session's window and the outgoing buffer allow, so that it never lies in memory twice.
"""

from collections import deque
from typing import TYPE_CHECKING

from amqpbroker.amqp.conditions import outcome_of
from amqpbroker.amqp.session import SERIAL
from amqpbroker.amqp.tap import LinkFlow
from amqpbroker.amqp.terminus import consumer_reply, refused_reply
from amqpbroker.base.errors import NOT_IMPLEMENTED, Refusal
from amqpbroker.base.ids import Millis, Sequence
from amqpbroker.engine.commands import Credit, Settle, Window
from amqpbroker.engine.effects import (
    AttachRefused,
    ConsumerAttached,
    Drained,
    Effect,
    ForceDetach,
    Transfer,
)

if TYPE_CHECKING:
    from amqpbroker.amqp.attachment import Attachment
    from amqpbroker.amqp.connection import Connection


class OutgoingLink:
    """One consumer's link, from its attach until both sides have detached."""

    __slots__ = (
        "_credit",
        "_drains_waiting",
        "_offset",
        "_pending",
        "_sent",
        "at",
        "connection",
    )
    incoming = False

    def __init__(self, connection: "Connection", at: "Attachment") -> None:
        self.connection = connection
        self.at = at
        self._sent = 0  # delivery-count: entries taken from the engine, credit given back included.
        self._credit = 0  # What the consumer takes besides.
        self._pending: deque[tuple[Sequence, bytes, bool]] = deque()  # Not yet all at Proton.
        self._offset = 0  # What of the first pending payload is at Proton.
        self._drains_waiting = 0  # Their answer must follow the pending entries (bug case 16).

    @property
    def name(self) -> str:
        """The link's name, as its peer chose it."""
        return self.at.attach.name

    @property
    def is_feeding(self) -> bool:
        """Whether entries wait for the window or the buffer."""
        return bool(self._pending)

    def flow_state(self) -> LinkFlow:
        """What a Flow from us says now (B3.6)."""
        waiting = len(self._pending)
        return LinkFlow(
            self.at.local_handle,
            (self._sent - waiting) % SERIAL,
            self._credit + waiting,
            drain=False,
        )

    # --- what arrives

    def flow(
        self, delivery_count: int | None, link_credit: int, now: Millis, *, drain: bool
    ) -> None:
        """The consumer's Flow [2.6.7]; a null delivery-count means that it saw no transfer yet."""
        on_their_way = (self._sent - (delivery_count or 0)) % SERIAL
        self._credit = max(0, link_credit - on_their_way)
        if not drain:
            self._drains_waiting = 0  # Withdrawn: an answer would take the new credit away.
        self.connection.switchboard.apply(Credit(self.at.link, self._credit, drain=drain), now)

    def outcomes(
        self,
        code: int,
        sequences: list[Sequence],
        detail: tuple[object, ...] | None,
        now: Millis,
    ) -> None:
        """A run of outcomes, which the driver has settled."""
        outcome = outcome_of(code, detail)
        if outcome is None:
            refusal = Refusal(NOT_IMPLEMENTED, f"delivery state 0x{code:x} is not supported")
            self.connection.fault_link(self, refusal, now)
            return
        if self._offset and self._pending[0][0] in sequences:
            self._cut_short(now)
        self.connection.switchboard.apply(Settle(self.at.link, outcome, sequences), now)

    def _cut_short(self, now: Millis) -> None:
        """The consumer settled the delivery in progress: the driver has told Proton to abort it."""
        session = self.at.session
        self.connection.driver.send_end(self.at.slot, settled=True)
        self._pending.popleft()
        self._offset = 0
        session.frames_sent += 1  # The transfer that says so.
        # The engine has counted all frames of the entry.
        self.connection.switchboard.apply(Window(session.id, session.frames_left), now)
        self._answer_drains()

    # --- what the engine wants done

    def carry_out(self, effect: Effect) -> None:
        """Do what the engine says about this link."""
        if isinstance(effect, Transfer):
            if not self.at.is_closed:
                self._transfer(effect)
        elif isinstance(effect, Drained):
            self._drains_waiting += 1
            self._answer_drains()
        elif isinstance(effect, ConsumerAttached):
            reply = consumer_reply(self.at.attach, effect.address, copies=effect.copies)
            self.connection.answer_attach(self, reply)
        elif isinstance(effect, AttachRefused):
            self.connection.refuse_attach(self, refused_reply(self.at.attach), effect.refusal)
        elif isinstance(effect, ForceDetach):
            self.connection.force_detach(self, effect.refusal, None)

    def _transfer(self, effect: Transfer) -> None:
        payloads = effect.payloads
        count = len(payloads)
        self._sent = (self._sent + count) % SERIAL
        self._credit -= count
        connection = self.connection
        session = self.at.session
        sizes = list(map(len, payloads))
        connection.feed.spend(sum(sizes))
        if (
            not self._pending
            and max(sizes) <= connection.slice_size
            and count <= session.frames_left
        ):
            settled = effect.settled
            connection.feed.send(self.at.slot, effect.sequences, payloads, settled=settled)
            session.frames_sent += count
        else:
            self._pending.extend(
                (sequence, payload, effect.settled)
                for sequence, payload in zip(effect.sequences, payloads, strict=True)
            )
            connection.feed.wait(self)
        connection.touch()

    def feed(self) -> bool:
        """Hand Proton one frame's worth of what is pending; False when the window is shut or all is out."""
        session = self.at.session
        if not self._pending or session.frames_left == 0:
            return False
        driver, slot, size = self.connection.driver, self.at.slot, self.connection.slice_size
        sequence, payload, settled = self._pending[0]
        if self._offset == 0:
            driver.send_begin(slot, sequence)
        view = memoryview(payload)[self._offset : self._offset + size]
        driver.send_part(slot, view)
        session.frames_sent += 1
        self._offset += len(view)
        if self._offset == len(payload):
            driver.send_end(slot, settled)
            self._pending.popleft()
            self._offset = 0
            self._answer_drains()
        return True

    def give_up(self) -> None:
        """Send no more: a Detach ends what is half sent; an aborted transfer would have to wait for the window."""
        if self._pending:
            self._pending.clear()
            self.connection.feed.forget(self)

    def _answer_drains(self) -> None:
        if self._pending or self.at.is_closed:
            return
        while self._drains_waiting:
            self._drains_waiting -= 1
            self._sent = (self._sent + self._credit) % SERIAL
            self._credit = 0
            state = LinkFlow(self.at.local_handle, self._sent, 0, drain=True)
            self.connection.answer_drain(self, state)
