"""The broker: commands and `now` in, effects out. Pure and single-threaded; knows no clock, chance, socket or disk.

Reading order: commands.py and effects.py are the doors; intake.py takes messages in, queue.py and ready.py hold them,
dispatch.py hands them out, outcome.py says what becomes of them; routing.py, links.py and lifecycle.py are about what
exists; turn.py and journal.py collect what comes of it. docs/seams.md has the contract.
"""

from collections.abc import Callable, Iterable
from typing import Any

from amqpbroker.base.ids import ConnectionId, Millis
from amqpbroker.engine.commands import (
    AttachConsumer,
    AttachProducer,
    CloseConnection,
    CloseSession,
    Command,
    Credit,
    Detach,
    OpenConnection,
    OpenSession,
    Publish,
    Room,
    Settle,
    Stored,
    Unpublished,
    Window,
)
from amqpbroker.engine.connection import Connection, LinkKey, Session
from amqpbroker.engine.consumer import Consumer
from amqpbroker.engine.credit import Producer
from amqpbroker.engine.dispatch import Dispatch, unpark
from amqpbroker.engine.effects import AttachRefused, ConsumerAttached, Effect, ProducerAttached
from amqpbroker.engine.intake import Intake
from amqpbroker.engine.lifecycle import Lifecycle
from amqpbroker.engine.links import Links
from amqpbroker.engine.outcome import LINK_CLOSED, LINK_LOST, Fate, rule_of
from amqpbroker.engine.queue import Queue
from amqpbroker.engine.routing import Address, Refused, Routing
from amqpbroker.engine.settings import BrokerSettings
from amqpbroker.engine.turn import Turn


class Broker:
    """The whole engine."""

    def __init__(self, settings: BrokerSettings) -> None:
        self._turn = Turn()
        self._routing = Routing(settings, self._turn.journal)
        self._links = Links(self._turn)
        self._lifecycle = Lifecycle(settings, self._turn, self._routing, self._links)
        self._intake = Intake(settings, self._turn, self._routing, self._links, self._lifecycle)
        self._dispatch = Dispatch(self._turn)
        self._handlers: dict[type[Command], Callable[[Any, Millis], None]] = {
            OpenConnection: self._open_connection,
            CloseConnection: self._close_connection,
            OpenSession: self._open_session,
            CloseSession: self._close_session,
            Window: self._window,
            Room: self._room,
            AttachProducer: self._attach_producer,
            AttachConsumer: self._attach_consumer,
            Detach: self._detach,
            Publish: self._intake.publish,
            Unpublished: self._intake.unpublished,
            Credit: self._credit,
            Settle: self._settle,
            Stored: self._intake.stored,
        }

    # --- one turn -----------------------------------------------------------------------------------------------

    def apply(self, command: Command, now: Millis) -> None:
        """Do what is asked; what comes of it is in `take_effects`."""
        self._handlers[type(command)](command, now)

    def dispatch(self, now: Millis) -> None:
        """Serve every queue that was touched since the last call."""
        touched = self._turn.touched
        if not touched:
            return
        self._turn.touched = {}
        for queue in touched.values():
            self._serve(queue, now)

    def _serve(self, queue: Queue, now: Millis) -> None:
        self._dispatch.serve(queue, now)
        if not queue.consumers or queue.is_watched:
            self._lifecycle.review_queue(queue, now)

    def has_touched(self) -> bool:
        """Whether `dispatch` has something to look at."""
        return bool(self._turn.touched)

    def tick(self, now: Millis) -> None:
        """Do what is due at `now`."""
        self._lifecycle.tick(now)

    def next_deadline(self) -> Millis | None:
        """When `tick` has something to do next."""
        return self._lifecycle.deadlines.next()

    def take_effects(self) -> list[Effect]:
        """All effects since the last call, in the order in which they are to be carried out."""
        return self._turn.take_effects()

    def close_batch(self) -> None:
        """Emit Append for the records of this turn, if any."""
        self._turn.close_batch()

    def queues(self) -> Iterable[Queue]:
        """Every queue: for metrics, which read plain ints."""
        return self._routing.queues.values()

    def unstored_bytes(self, connection: ConnectionId) -> int:
        """Payload bytes that came from this connection and wait for the store: whoever reads it should pause."""
        known = self._links.connections.get(connection)
        return 0 if known is None else known.unstored_bytes

    # --- peers --------------------------------------------------------------------------------------------------

    def _open_connection(self, command: OpenConnection, _now: Millis) -> None:
        self._links.connections[command.connection] = Connection(command)

    def _close_connection(self, command: CloseConnection, now: Millis) -> None:
        connection = self._links.connections.get(command.connection)
        if connection is not None:
            rule = LINK_CLOSED if command.clean else LINK_LOST
            self._lifecycle.close_connection(connection, rule, now)

    def _open_session(self, command: OpenSession, _now: Millis) -> None:
        connection = self._links.connections[command.connection]
        session = Session(command.session, connection, command.frames, command.frame_bytes)
        self._links.sessions[command.session] = connection.sessions[command.session] = session

    def _close_session(self, command: CloseSession, now: Millis) -> None:
        session = self._links.sessions.get(command.session)
        if session is not None:
            self._lifecycle.close_session(session, now)

    def _window(self, command: Window, _now: Millis) -> None:
        session = self._links.sessions.get(command.session)
        if session is not None:
            session.frames = command.frames
            if command.frames > 0 and session.blocked:
                session.blocked = self._wake(session.blocked)

    def _room(self, command: Room, _now: Millis) -> None:
        connection = self._links.connections.get(command.connection)
        if connection is not None:
            connection.room = command.room
            if command.room > 0 and connection.blocked:
                connection.blocked = self._wake(connection.blocked)

    def _wake(self, blocked: dict[Any, Consumer]) -> dict[Any, Consumer]:
        for consumer in blocked.values():
            consumer.queue.wake(consumer)
            self._turn.touch(consumer.queue)
        return {}

    # --- links --------------------------------------------------------------------------------------------------

    def _attach_producer(self, command: AttachProducer, now: Millis) -> None:
        session = self._links.sessions[command.session]
        target = command.target
        created: Address | None = None
        try:
            if target.lifetime is not None:
                address = created = self._routing.make_dynamic(target, command.link, session)
            elif target.address is None:
                address = None
            else:
                address = self._routing.target(target.address, target.node)
        except Refused as refused:
            self._turn.effects.append(AttachRefused(command.link, refused.refusal))
            return
        key = LinkKey(session.connection.container, command.name, incoming=True)
        stolen = self._steal(key, now)
        producer = Producer(command.link, key, session, address, can_reject=command.can_reject)
        producer.created = created
        self._links.add(producer)
        name = None if address is None else address.name
        self._turn.effects.append(ProducerAttached(command.link, name))
        self._intake.refill(producer)
        if stolen is not None:
            self._lifecycle.review_address(stolen)

    def _attach_consumer(self, command: AttachConsumer, now: Millis) -> None:
        session = self._links.sessions[command.session]
        source = command.source
        created: Address | None = None
        try:
            if source.lifetime is not None:
                address = created = self._routing.make_dynamic(source, command.link, session)
                queue = self._routing.queue_of(address)
            else:
                address, queue = self._routing.source(source.address, source.node, session)
        except Refused as refused:
            self._turn.effects.append(AttachRefused(command.link, refused.refusal))
            return
        key = LinkKey(session.connection.container, command.name, incoming=False)
        stolen = self._steal(key, now)
        consumer = Consumer(
            command.link,
            key,
            session,
            address,
            queue,
            copies=command.wants_copies,
            settled=command.settled,
        )
        consumer.created = created
        self._links.add(consumer)
        self._turn.effects.append(
            ConsumerAttached(command.link, address.name, copies=consumer.copies)
        )
        if stolen is not None:
            self._lifecycle.review_address(stolen)

    def _steal(self, key: LinkKey, now: Millis) -> Address | None:
        """End the link that has this name already; its address, to be looked at when the new one is there."""
        number = self._links.by_key.get(key)
        old = None if number is None else self._links.find(number)
        if old is None:
            return None
        self._lifecycle.steal(old, now)
        return old.address

    def _detach(self, command: Detach, now: Millis) -> None:
        link = self._links.find(command.link)
        if link is not None:
            self._lifecycle.detach(link, now, closed=command.closed)

    # --- consumers ----------------------------------------------------------------------------------------------

    def _credit(self, command: Credit, now: Millis) -> None:
        consumer = self._links.consumers.get(command.link)
        if consumer is None:
            return
        queue = consumer.queue
        consumer.credit = command.credit
        if not command.credit:
            unpark(consumer)
        queue.wake(consumer)
        if command.drain:
            consumer.drains += 1
            queue.draining[consumer.link] = consumer
            self._turn.touched.pop(queue.id, None)
            self._serve(queue, now)
            return
        if consumer.drains:  # The peer's newest flow says that it does not drain any more [2.6.7].
            consumer.drains = 0
            del queue.draining[consumer.link]
        if command.credit and (queue.ready or consumer.copies):
            self._turn.touch(queue)

    def _settle(self, command: Settle, now: Millis) -> None:
        consumer = self._links.consumers.get(command.link)
        if consumer is None or not consumer.leases:
            return
        pop = consumer.leases.pop
        entries = [
            entry for sequence in command.sequences if (entry := pop(sequence, None)) is not None
        ]
        if not entries:
            return
        queue = consumer.queue
        rule = rule_of(command.outcome)
        if rule.fate is Fate.READY:
            queue.give_back(
                entries,
                rule,
                now,
                refuser=None if rule.same_link else consumer.link,
                annotations=command.outcome.annotations,
            )
            self._turn.touch(queue)
            return
        queue.finish_leases(entries, killed=rule.fate is Fate.DEAD)
        if queue.is_watched:
            self._turn.touch(queue)

    # --- check --------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """All invariants; for tests, which call it after every command."""
        for queue in self.queues():
            queue.check()
        self._links.check()
        self._routing.check()
        runs = [*self._turn.waiting, *(run for _, batch in self._turn.pending for run in batch)]
        for connection in self._links.connections.values():
            own = [run.size for run in runs if run.connection is connection]
            assert connection.unstored_bytes == sum(own)
