"""One connection as the runtime sees it, sans-IO: bytes in, bytes out, time as an argument.

It logs the peer in, keeps its output and its time-outs, and ends it; what the frames mean is connection.py's matter.
Must not know sockets or the clock.
"""

from typing import TYPE_CHECKING, Final

from amqpbroker.amqp.connection import Connection
from amqpbroker.amqp.liveness import Due, Liveness
from amqpbroker.amqp.outbox import Outbox
from amqpbroker.amqp.performatives import EMPTY_FRAME
from amqpbroker.amqp.sasl import Exchange
from amqpbroker.base.errors import INTERNAL_ERROR, RESOURCE_LIMIT_EXCEEDED, Refusal
from amqpbroker.base.ids import ConnectionId, Millis

if TYPE_CHECKING:
    from amqpbroker.amqp.settings import PeerSettings
    from amqpbroker.amqp.switchboard import Switchboard

# Dispatch fills the outgoing buffer once; what goes beyond are replies to a peer that writes and does not read. At
# twice the buffer its input waits too. Less would stop a consumer whose buffer is merely full.
OUTPUT_FACTOR: Final = 2


class Peer:
    """From the first byte of a connection to its last."""

    def __init__(
        self,
        connection: ConnectionId,
        settings: "PeerSettings",
        remote: str,
        switchboard: "Switchboard",
        now: Millis,
    ) -> None:
        self.connection = connection
        self.settings = settings
        self.remote = remote  # Where it connected from, for the log.
        self.switchboard = switchboard
        self.owner: object = None  # The runtime's record of its socket.
        self.outbox = Outbox()
        self.liveness = Liveness(settings, now)
        self.is_finished = False  # The socket is shut once the output is out.
        self._exchange: Exchange | None = Exchange(bare_allowed=settings.bare_amqp)
        self._amqp: Connection | None = None  # Since the login.
        self._refusal: Refusal | None = None  # Said instead of a welcome, once the peer opens.

    @property
    def wants_input(self) -> bool:
        """False while more than the bound waits for the store, or for the peer: do not read the socket."""
        return not (self._waits_for_store or self._waits_for_peer)

    def receive(self, data: bytes, now: Millis) -> None:
        """Take what arrived. A fault of the peer's ends in its Close, never in an exception."""
        self.liveness.read_at = now
        if self.is_finished:
            return
        if self._exchange is not None:
            data = self._log_in(self._exchange, data, now)
        if self._amqp is not None:
            self._amqp.receive(data, now)
        self.switchboard.touch(self)

    def input_closed(self, now: Millis) -> None:
        """End of file or reset: what is unsettled comes back, counted unless a Close came (9.3)."""
        self.finish("connection lost", now, clean=False)

    def output(self) -> memoryview:
        """What is to be written next; empty when there is nothing."""
        return self.outbox.view()

    def written(self, count: int, now: Millis) -> None:
        """So much of `output` was written."""
        self.liveness.wrote_at = now
        if count and self._waits_for_peer:
            self.liveness.read_at = now  # That it reads is all that we can see of it.
        self.outbox.written(count)
        if self._amqp is not None and not self.is_finished:
            self._amqp.output_written(now)

    def flush(self, now: Millis) -> None:
        """Put out all that this turn made; once per turn for a peer that was touched."""
        if self._amqp is not None and not self.is_finished:
            self._amqp.flush(now)

    def next_deadline(self) -> Millis | None:
        """When `tick` should look at this peer next."""
        return None if self.is_finished else self.liveness.next_deadline()

    def tick(self, now: Millis) -> None:
        """Do what is due."""
        if self._waits_for_store:
            self.liveness.read_at = now  # We are the ones who do not read.
        due = self.liveness.due(now)
        if due is Due.HEARTBEAT and not self.outbox.size:
            self.outbox.append(EMPTY_FRAME)
            self.switchboard.touch(self)
        elif due is Due.IDLE:
            # Proton's own words, which clients know (B2.17).
            refusal = Refusal(RESOURCE_LIMIT_EXCEEDED, "local-idle-timeout expired")
            self.close(refusal, now, clean=False)
        elif due in (Due.HANDSHAKE, Due.UNANSWERED):
            self.finish(due.value, now, clean=False)

    def refuse(self, refusal: Refusal, now: Millis) -> None:
        """Let the peer log in and open, then tell it that it is not welcome (B2.7)."""
        self._refusal = refusal
        if self._amqp is not None:
            self._amqp.refuse(refusal, now)

    def close(self, refusal: Refusal, now: Millis, *, clean: bool = True) -> None:
        """Close from our side; the socket ends when the peer has answered. Clean: see rule 9.3."""
        if self.is_finished:
            return
        if self._amqp is None:
            self.finish(refusal.description, now, clean=clean)
            return
        self._amqp.close(refusal, now, clean=clean)

    def fail(self, _error: BaseException, now: Millis) -> None:
        """Something of ours raised while this peer was served, and was logged: it ends, the others live on."""
        self.close(Refusal(INTERNAL_ERROR, "internal error"), now, clean=False)
        self.finish("internal error", now, clean=False)

    def finish(self, reason: str, now: Millis, *, clean: bool) -> None:
        """Nothing more comes in; what is in the outbox still goes out."""
        if self.is_finished:
            return
        self.is_finished = True
        if self._amqp is not None:
            self._amqp.leave(now, clean=clean)
        self.switchboard.forget(self)
        self.switchboard.note("peer_closed", peer=self.remote, reason=reason)
        self.switchboard.touch(self)

    def let_go(self) -> None:
        """The socket is done with, and nothing of this peer runs any more: be gone without the collector's help.

        Connection, sessions, links and this peer point at each other; the collector looks once a minute at best
        (runtime/garbage.py), and 1,000 clients that came and went would hold 7 MB until then.
        """
        if self._amqp is not None:
            vars(self._amqp).clear()
        self._amqp = self._exchange = None

    @property
    def _waits_for_store(self) -> bool:
        waiting = self.switchboard.broker.unstored_bytes(self.connection)
        return waiting >= self.settings.incoming_bytes_max

    @property
    def _waits_for_peer(self) -> bool:
        return self.outbox.size >= OUTPUT_FACTOR * self.settings.outgoing_buffer

    def _log_in(self, exchange: Exchange, data: bytes, now: Millis) -> bytes:
        """Run the exchange; return what is for AMQP already."""
        exchange.receive(data)
        self.outbox.append(exchange.take_output())
        if exchange.failure:
            self.finish(exchange.failure, now, clean=False)
        elif exchange.is_done:
            self._exchange = None
            self._amqp = Connection(self)
            if self._refusal is not None:
                self._amqp.refuse(self._refusal, now)
            return exchange.take_rest()
        return b""
