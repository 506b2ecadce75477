"""Joins the peers, the engine and the store: commands in, effects to whom they concern, one turn after another.

No sockets, no clock: the runtime calls it, and so does a test with two peers in memory. It owns the numbers that name
connections, sessions and links, and the deadlines of the peers.
"""

import os
from collections import deque
from collections.abc import Callable, Mapping

from amqpbroker.amqp.incoming import IncomingLink
from amqpbroker.amqp.outgoing import OutgoingLink
from amqpbroker.amqp.peer import Peer
from amqpbroker.amqp.settings import PeerSettings
from amqpbroker.base.errors import CONNECTION_FORCED, Refusal
from amqpbroker.base.ids import ConnectionId, LinkId, Millis, SessionId
from amqpbroker.engine.broker import Broker
from amqpbroker.engine.commands import Command, Stored
from amqpbroker.engine.deadlines import Deadlines
from amqpbroker.engine.effects import Append, Effect, Note
from amqpbroker.engine.records import Store


class EngineBroken(Exception):  # noqa: N818  # A state, as StoreFailed.
    """The engine raised: its state may be half changed, and the process must stop."""


def _unguessable_name() -> str:
    return os.urandom(16).hex()  # As secrets does, which loads OpenSSL's hashes: 6 ms of a start.


class Switchboard:
    """All peers of one broker."""

    def __init__(
        self, broker: Broker, store: Store, fresh_name: Callable[[], str] = _unguessable_name
    ) -> None:
        # For dynamic nodes: never guessable, never given twice (B11.6).
        self.fresh_name = fresh_name
        self._broker = broker
        self._store = store
        self._peers: dict[ConnectionId, Peer] = {}
        self._links: dict[LinkId, IncomingLink | OutgoingLink] = {}
        self._dirty: dict[Peer, None] = {}  # In the order in which they got output.
        self._deadlines: Deadlines[ConnectionId] = Deadlines()
        self._notes: list[Note] = []
        self._effects: deque[Effect] = deque()  # To be carried out, in this order.
        self._is_carrying_out = False
        self._connections_made = 0
        self._sessions_made = 0
        self._links_made = 0

    @property
    def peers(self) -> Mapping[ConnectionId, Peer]:
        """Those that are not finished."""
        return self._peers

    @property
    def broker(self) -> Broker:
        """The engine, to be read only: metrics and tests."""
        return self._broker

    # --- for the runtime

    def accept(self, settings: PeerSettings, remote: str, now: Millis) -> Peer:
        """A peer for a socket that was just accepted."""
        self._connections_made += 1
        peer = Peer(ConnectionId(self._connections_made), settings, remote, self, now)
        self._peers[peer.connection] = peer
        self.arm(peer)
        return peer

    def apply(self, command: Command, now: Millis) -> None:
        """Apply one command and carry out what follows from it."""
        try:
            self._broker.apply(command, now)
        except Exception as error:
            raise EngineBroken(type(command).__name__) from error
        self._carry_out(now)

    def end_turn(self, now: Millis) -> None:
        """What is due, what was stored, dispatch, the batch, then every dirty peer's output."""
        for connection in self._deadlines.due(now):
            peer = self._peers.get(connection)
            if peer is not None:
                self._guard(peer, peer.tick, now)
                self.arm(peer)
        self._run_engine(now)
        while (stored := self._store.take_stored()) is not None:
            # A store in memory has answered within the turn; what waited goes out with it.
            self.apply(Stored(stored), now)
            self._run_engine(now)
        for peer in list(self._dirty):
            self._guard(peer, peer.flush, now)

    def next_deadline(self) -> Millis | None:
        """When end_turn has something to do although nothing arrived; 0 for at once."""
        if self._dirty or self._broker.has_touched():
            return Millis(0)  # Writing has made room since.
        own = self._deadlines.next()
        engine = self._broker.next_deadline()
        if own is None or engine is None:
            return engine if own is None else own
        return min(own, engine)

    def take_dirty(self) -> list[Peer]:
        """Peers with output or that are finished, since the last call."""
        dirty = list(self._dirty)
        self._dirty.clear()
        return dirty

    def take_notes(self) -> list[Note]:
        """What an operator may want to know, since the last call."""
        notes, self._notes = self._notes, []
        return notes

    def close_all(self, now: Millis) -> None:
        """Say Close amqp:connection:forced to every peer (B2.20)."""
        for peer in list(self._peers.values()):
            peer.close(Refusal(CONNECTION_FORCED, "the broker is shutting down"), now)

    # --- for the peers

    def note(self, event: str, **fields: object) -> None:
        """Tell the operator."""
        self._notes.append(Note(event, fields))

    def touch(self, peer: Peer) -> None:
        """The peer has output, or is finished: look at it at the end of the turn."""
        self._dirty[peer] = None

    def arm(self, peer: Peer) -> None:
        """Set the peer's deadline anew."""
        at = peer.next_deadline()
        if at is None:
            self._deadlines.cancel(peer.connection)
        else:
            self._deadlines.set(peer.connection, at)

    def forget(self, peer: Peer) -> None:
        """The peer is finished."""
        self._peers.pop(peer.connection, None)
        self._deadlines.cancel(peer.connection)

    def new_session(self) -> SessionId:
        """A number that no session had."""
        self._sessions_made += 1
        return SessionId(self._sessions_made)

    def new_link(self) -> LinkId:
        """A number that no link had."""
        self._links_made += 1
        return LinkId(self._links_made)

    def add_link(self, link: IncomingLink | OutgoingLink) -> None:
        """Effects for it go to it from now on."""
        self._links[link.at.link] = link

    def drop_link(self, link: IncomingLink | OutgoingLink) -> None:
        """Effects for it are void from now on."""
        self._links.pop(link.at.link, None)

    # --- the engine

    def _guard(self, peer: Peer, step: Callable[[Millis], None], now: Millis) -> None:
        """Do this for the peer; what raises in it ends that peer alone."""
        try:
            step(now)
        except EngineBroken:
            raise
        except Exception as error:  # noqa: BLE001  Whatever it is, it must not reach the other peers.
            self._blame(peer, error, now)

    def _blame(self, peer: Peer, error: Exception, now: Millis) -> None:
        self.note("peer_failed", peer=peer.remote, failure=error)
        peer.fail(error, now)

    def _run_engine(self, now: Millis) -> None:
        try:
            self._broker.tick(now)
            self._broker.dispatch(now)
            self._broker.close_batch()
        except Exception as error:
            raise EngineBroken("turn") from error
        self._carry_out(now)

    def _carry_out(self, now: Millis) -> None:
        """In the engine's order: what follows from an effect waits until those before it are done."""
        self._effects += self._broker.take_effects()
        if self._is_carrying_out:
            return
        self._is_carrying_out = True
        try:
            while self._effects:
                self._carry_out_one(self._effects.popleft(), now)
        finally:
            self._is_carrying_out = False

    def _carry_out_one(self, effect: Effect, now: Millis) -> None:
        if isinstance(effect, Append):
            self._store.submit(effect.batch)
        elif isinstance(effect, Note):
            self._notes.append(effect)
        elif (link := self._links.get(effect.link)) is not None:
            try:
                link.carry_out(effect)
            except EngineBroken:
                raise
            except Exception as error:  # noqa: BLE001  As in _guard; inlined, since it is per run.
                # It may be another peer than the one whose frame brought the effect about.
                self._blame(link.connection.peer, error, now)
