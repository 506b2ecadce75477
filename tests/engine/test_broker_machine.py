"""The engine against the obvious model: few queues, few links, so that everything happens to the same entries.

Each step is one turn. After it all invariants are checked (rig), every effect is judged (model), and nothing that could
have been sent has stayed.
"""

from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
)

from amqpbroker.base.ids import BatchNumber, ConnectionId, LinkId, SessionId
from amqpbroker.base.ids import Sequence as Place
from amqpbroker.engine import dispatch, ready
from amqpbroker.engine.commands import (
    ACCEPTED,
    RELEASED,
    CloseConnection,
    CloseSession,
    Command,
    Credit,
    Detach,
    Outcome,
    OutcomeKind,
    Room,
    Settle,
    Stored,
    Window,
)
from amqpbroker.engine.effects import (
    Append,
    ConsumerAttached,
    Dispose,
    Drained,
    Effect,
    ForceDetach,
    Grant,
    ProducerAttached,
    Transfer,
)
from amqpbroker.engine.records import Delete, Put
from tests.engine.model import ModelQueue, Peer, Taker
from tests.engine.rig import Rig, message

CREDIT, LOW = 6, 2
QUEUES = ("a", "b")
FRAME = 20  # A message of 12 letters or so takes one frame, a long one three.
TEXTS = st.sampled_from(["x", "yy", "a body that is longer than two frames of twenty bytes"])
OUTCOMES = st.sampled_from(
    [
        ACCEPTED,
        RELEASED,
        Outcome(OutcomeKind.REJECTED),
        Outcome(OutcomeKind.MODIFIED),
        Outcome(OutcomeKind.MODIFIED, failed=True),
        Outcome(OutcomeKind.MODIFIED, undeliverable_here=True),
        Outcome(OutcomeKind.MODIFIED, failed=True, undeliverable_here=True),
    ]
)
SOURCES = st.sampled_from(["a", "a", "a", "b"])
NAMES = st.sampled_from(["x", "y"])
SOMETIMES = st.sampled_from([False, False, True])
# Text, durable, ttl.
KINDS = st.tuples(TEXTS, SOMETIMES, st.sampled_from([None, None, None, 1, 2]))


@dataclass
class Sender:
    """A producer."""

    address: str
    granted: int = 0
    unstored: int = 0
    next: int = 0


class BrokerMachine(RuleBasedStateMachine):
    """Peers that do what peers may do, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.rig = Rig(credit=CREDIT, credit_low=LOW)
        self.queues: dict[str, ModelQueue] = {name: ModelQueue() for name in QUEUES}
        self.rooms: dict[ConnectionId, Peer] = {}
        self.windows: dict[SessionId, tuple[ConnectionId, Peer]] = {}
        self.senders: dict[LinkId, Sender] = {}
        self.takers: dict[LinkId, Taker] = {}
        self.places: dict[LinkId, tuple[SessionId, str, bool]] = {}  # Session, name, incoming.
        self.containers: dict[ConnectionId, str] = {}
        self.unanswered: set[tuple[LinkId, int]] = set()
        self.in_batch: list[tuple[LinkId, int, str, int]] = []  # Link, number, queue, sequence.
        self.pending: list[tuple[BatchNumber, list[tuple[LinkId, int, str, int]]]] = []
        # Ends of peers and sessions are allowed now and then only: too much ends with them.
        self.steps = 0

    # --- judging ------------------------------------------------------------------------------------------------

    def turn(self, *commands: Command) -> list[Effect]:
        effects = self.rig.do(*commands)
        self.judge(effects)
        return effects

    def judge(self, effects: list[Effect]) -> None:
        """Apply what came, in order, and look at what stayed."""
        now = self.rig.now
        given: dict[LinkId, list[int]] = {}
        for effect in effects:
            match effect:
                case Transfer():
                    taker = self.takers[effect.link]
                    assert effect.settled == taker.settled
                    sent = taker.queue.send(taker, list(effect.sequences), effect.payloads, now)
                    given.setdefault(effect.link, []).extend(item.sequence for item in sent)
                case Drained():
                    self.judge_drained(self.takers[effect.link])
                case Dispose():
                    for number in range(effect.first, effect.first + effect.count):
                        assert effect.outcome.kind is OutcomeKind.ACCEPTED
                        self.unanswered.remove((effect.link, number))
                case Grant():
                    self.senders[effect.link].granted += effect.credit
                case Append():
                    self.pending.append((effect.batch.number, self.in_batch))
                    self.in_batch = []
                case ForceDetach():
                    self.forget(effect.link, failed=False)
        assert not self.in_batch, "durable messages are handed over in their own turn"
        for queue in self.queues.values():
            queue.expire(now)
        self.judge_order(given)
        self.judge_what_stayed()

    def judge_drained(self, taker: Taker) -> None:
        assert taker.drains > 0, "one answer per drain"
        taker.drains -= 1
        due = taker.queue.due_to(taker, self.rig.now)
        assert taker.credit == 0 or not due, "drained before all was sent"
        if taker.copies:
            taker.queue.pass_by(taker, self.rig.now)
        taker.credit = 0

    def judge_order(self, given: dict[LinkId, list[int]]) -> None:
        """Nothing went to a consumer while something older that it may have stayed behind."""
        for link, sequences in given.items():
            taker = self.takers.get(link)
            if taker is None or taker.copies:
                continue
            older = [
                item
                for item in taker.queue.for_taker(taker, self.rig.now)
                if item.sequence < max(sequences)
            ]
            assert not older, "order of arrival"

    def judge_what_stayed(self) -> None:
        now = self.rig.now
        for taker in self.takers.values():
            if taker.credit and taker.queue.due_to(taker, now):
                assert taker.is_blocked(), "could have been sent"
            if taker.drains:
                assert taker.credit, "a drain without credit is answered"
                assert taker.queue.for_taker(taker, now), "a drain is answered when nothing is left"
            if taker.copies:
                taker.queue.pass_by(taker, now)
        for peer in [*self.rooms.values(), *(window for _, window in self.windows.values())]:
            if peer.used:
                assert sum(peer.used) - max(peer.used) < peer.limit, "started without room"

    def forget(self, link: LinkId, *, failed: bool) -> None:
        """A link is gone; its leases go back."""
        del self.places[link]
        self.senders.pop(link, None)
        taker = self.takers.pop(link, None)
        if taker is not None:
            for item in taker.queue.items:
                if item.owner == link:
                    taker.queue.give_back(item, failed=failed)

    # --- one of many --------------------------------------------------------------------------------------------

    @rule(data=st.data())
    def step(self, data: st.DataObject) -> None:
        """One rule and a draw: as rules of their own, each would be left out of half of all runs."""
        able = [name for name, is_able in self.chances() if is_able]
        getattr(self, data.draw(st.sampled_from(able)))(data)

    def chances(self) -> list[tuple[str, bool]]:
        granted = any(sender.granted for sender in self.senders.values())
        held = any(item.owner for queue in self.queues.values() for item in queue.items)
        return [
            *[("messages_come", granted)] * 6,
            *[("a_flow", bool(self.takers))] * 8,
            *[("an_outcome", held)] * 6,
            *[("the_store_keeps_up_to", bool(self.pending))] * 3,
            *[("all_have_plenty", True)] * 4,
            *[("a_window_moves", bool(self.windows))] * 2,
            *[("room_changes", bool(self.rooms))] * 2,
            *[("a_consumer_attaches", len(self.takers) < 4)] * 4,
            *[("a_producer_attaches", len(self.senders) < 3)] * 2,
            *[("time_passes", True)] * 2,
            ("a_delivery_is_aborted", granted),
            ("a_link_goes", bool(self.places)),
            ("a_session_ends", bool(self.windows)),
            ("a_peer_goes", bool(self.rooms)),
            ("a_peer_comes", len(self.rooms) < 2),
        ]

    # --- peers --------------------------------------------------------------------------------------------------

    @initialize()
    def two_peers(self) -> None:
        for container in ("c", "d"):
            self.open_peer(container)
        sessions = sorted(self.windows)
        self.attach_producer(sessions[0], "x", "a")
        for session in (sessions[1], sessions[2]):
            self.attach_consumer(session, "x", "a", copies=False, settled=False)

    def open_peer(self, container: str) -> None:
        connection = self.rig.connection(container)
        self.containers[connection] = container
        self.rooms[connection] = Peer(1 << 40)
        for _ in range(2):
            session = self.rig.session(connection, frame_bytes=FRAME)
            self.windows[session] = (connection, Peer(1 << 40))

    def a_peer_comes(self, data: st.DataObject) -> None:
        self.open_peer(data.draw(st.sampled_from(["c", "d"])))

    def a_peer_goes(self, data: st.DataObject) -> None:
        clean = data.draw(st.booleans())
        connection = data.draw(st.sampled_from(sorted(self.rooms)))
        for link in self.links_of({s for s, (c, _) in self.windows.items() if c == connection}):
            self.forget(link, failed=not clean)
        del self.rooms[connection]
        self.windows = {s: each for s, each in self.windows.items() if each[0] != connection}
        self.turn(CloseConnection(connection, clean=clean))

    def a_session_ends(self, data: st.DataObject) -> None:
        session = data.draw(st.sampled_from(sorted(self.windows)))
        for link in self.links_of({session}):
            self.forget(link, failed=False)
        del self.windows[session]
        self.turn(CloseSession(session))

    def links_of(self, sessions: set[SessionId]) -> list[LinkId]:
        return [link for link, (session, _, _) in self.places.items() if session in sessions]

    def a_window_moves(self, data: st.DataObject) -> None:
        frames = data.draw(st.sampled_from([0, 1, 2, 3, 5, 8]))
        session = data.draw(st.sampled_from(sorted(self.windows)))
        peer = self.windows[session][1]
        peer.limit, peer.used = frames, []
        self.turn(Window(session, frames))

    def room_changes(self, data: st.DataObject) -> None:
        room = data.draw(st.sampled_from([-1, 0, 1, 20, 60, 90]))
        connection = data.draw(st.sampled_from(sorted(self.rooms)))
        peer = self.rooms[connection]
        peer.limit, peer.used = room, []
        self.turn(Room(connection, room))

    def all_have_plenty(self, data: st.DataObject) -> None:
        commands: list[Command] = []
        for session, (_, peer) in self.windows.items():
            peer.limit, peer.used = 1 << 40, []
            commands.append(Window(session, 1 << 40))
        for connection, peer in self.rooms.items():
            peer.limit, peer.used = 1 << 40, []
            commands.append(Room(connection, 1 << 40))
        self.turn(*commands)

    # --- links --------------------------------------------------------------------------------------------------

    def place(self, data: st.DataObject, name: str, *, incoming: bool) -> SessionId | None:
        """A session that has no link of this name and role yet: the peer's checks see to that."""
        taken = {s for s, n, role in self.places.values() if n == name and role == incoming}
        free = [session for session in sorted(self.windows) if session not in taken]
        return data.draw(st.sampled_from(free)) if free else None

    def a_producer_attaches(self, data: st.DataObject) -> None:
        name = data.draw(NAMES)
        session = self.place(data, name, incoming=True)
        if session is not None:
            self.attach_producer(session, name, data.draw(SOURCES))

    def attach_producer(self, session: SessionId, name: str, address: str) -> None:
        link, effects = self.rig.attach_producer(address, session=session, name=name)
        assert [e.address for e in effects if isinstance(e, ProducerAttached)] == [address]
        self.senders[link] = Sender(address)
        self.places[link] = (session, name, True)
        self.judge(effects)

    def a_consumer_attaches(self, data: st.DataObject) -> None:
        name = data.draw(NAMES)
        session = self.place(data, name, incoming=False)
        if session is not None:
            copies = data.draw(SOMETIMES)
            settled = data.draw(SOMETIMES)
            self.attach_consumer(session, name, data.draw(SOURCES), copies=copies, settled=settled)

    def attach_consumer(
        self, session: SessionId, name: str, address: str, *, copies: bool, settled: bool
    ) -> None:
        link, effects = self.rig.attach_consumer(
            address, session=session, name=name, copies=copies, settled=settled
        )
        assert [e.copies for e in effects if isinstance(e, ConsumerAttached)] == [copies]
        connection, window = self.windows[session]
        self.takers[link] = Taker(
            link,
            self.queues[address],
            window,
            self.rooms[connection],
            FRAME,
            copies,
            settled or copies,
        )
        self.places[link] = (session, name, False)
        self.judge(effects)

    def a_link_goes(self, data: st.DataObject) -> None:
        closed = data.draw(st.booleans())
        link = data.draw(st.sampled_from(sorted(self.places)))
        self.forget(link, failed=False)
        self.turn(Detach(link, closed=closed))

    # --- messages -----------------------------------------------------------------------------------------------

    def messages_come(self, data: st.DataObject) -> None:
        settled = data.draw(SOMETIMES)
        kinds = data.draw(st.lists(KINDS, min_size=1, max_size=4))
        able = sorted(link for link, sender in self.senders.items() if sender.granted)
        link = data.draw(st.sampled_from(able))
        sender = self.senders[link]
        kinds = kinds[: sender.granted]
        sender.granted -= len(kinds)
        queue = self.queues[sender.address]
        payloads = [message(text, durable=durable, ttl=ttl) for text, durable, ttl in kinds]
        for payload, (_, durable, ttl) in zip(payloads, kinds, strict=True):
            expires = self.rig.now + ttl if ttl else 0
            if durable:
                self.in_batch.append((link, sender.next, sender.address, queue.next))
                sender.unstored += 1
            queue.add(payload, durable=durable, expires=expires, now=self.rig.now)
            self.unanswered.add((link, sender.next))
            sender.next += 1
        self.turn(self.rig.publishing(link, *payloads, settled=settled))

    def a_delivery_is_aborted(self, data: st.DataObject) -> None:
        able = sorted(link for link, sender in self.senders.items() if sender.granted)
        link = data.draw(st.sampled_from(able))
        self.senders[link].granted -= 1
        self.judge(self.rig.unpublished(link, 1))

    def the_store_keeps_up_to(self, data: st.DataObject) -> None:
        count = data.draw(st.integers(1, len(self.pending)))
        done, self.pending = self.pending[:count], self.pending[count:]
        for _, waiting in done:
            for link, _, address, sequence in waiting:
                self.queues[address].find(sequence).state = "ready"
                if link in self.senders:
                    self.senders[link].unstored -= 1
        for queue in self.queues.values():
            queue.expire(self.rig.now)
        self.turn(Stored(done[-1][0]))

    def a_flow(self, data: st.DataObject) -> None:
        credit = data.draw(st.sampled_from([4, 3, 2, 1, 0]))
        drain = data.draw(SOMETIMES)
        link = data.draw(st.sampled_from(sorted(self.takers)))
        taker = self.takers[link]
        taker.credit = credit
        taker.drains = taker.drains + 1 if drain else 0
        self.turn(Credit(link, credit, drain=drain))

    def an_outcome(self, data: st.DataObject) -> None:
        outcome = data.draw(OUTCOMES)
        holders = {item.owner for queue in self.queues.values() for item in queue.items}
        able = sorted(link for link in self.takers if link in holders) or sorted(self.takers)
        link = data.draw(st.sampled_from(able))
        taker = self.takers[link]
        held = [item.sequence for item in taker.queue.items if item.owner == link]
        chosen = data.draw(st.lists(st.sampled_from(held), min_size=1, max_size=4)) if held else []
        # Settled already, or never sent.
        chosen += data.draw(st.lists(st.integers(1, 9), max_size=1))
        taker.queue.settle(taker, outcome, chosen)
        taker.queue.expire(self.rig.now)
        self.turn(Settle(link, outcome, [Place(each) for each in chosen]))

    def time_passes(self, data: st.DataObject) -> None:
        self.judge(self.rig.move_to(self.rig.now + data.draw(st.integers(1, 2))))

    # --- always -------------------------------------------------------------------------------------------------

    @invariant()
    def queues_agree(self) -> None:
        real = {queue.name: queue for queue in self.rig.broker.queues()}
        for name, model in self.queues.items():
            queue = real.get(name)
            if queue is None:  # Never made, or deleted when it was idle (LC-1).
                assert not model.items, "an accepted message is never lost"
                assert not any(taker.queue is model for taker in self.takers.values())
                model.__init__()  # type: ignore[misc]  # The next one of this name starts anew.
                continue
            states = {"storing": 0, "ready": 1, "leased": 3}
            found = [(entry.sequence, entry.state) for entry in queue.lane.entries()]
            assert found == [(item.sequence, states[item.state]) for item in model.items]
            assert queue.stats.values() == (
                model.added,
                model.acknowledged,
                model.expired,
                model.killed,
                0,
                0,
            )

    @invariant()
    def the_store_holds_what_is_durable(self) -> None:
        kept: set[tuple[int, int]] = set()
        for record in self.rig.records:
            if isinstance(record, Put):
                kept.add((record.queue, record.sequence))
            elif isinstance(record, Delete):
                kept.remove((record.queue, record.sequence))
        real = {queue.name: queue.id for queue in self.rig.broker.queues()}
        durable = {
            (real[name], item.sequence)
            for name, model in self.queues.items()
            for item in model.items
            if item.durable
        }
        assert kept == durable

    @invariant()
    def answers_and_grants_are_due(self) -> None:
        waiting = {(link, number) for _, batch in self.pending for link, number, _, _ in batch}
        assert self.unanswered == waiting, "each number is answered once, when it is kept"
        for sender in self.senders.values():
            assert 0 <= sender.granted <= CREDIT - sender.unstored
            if sender.granted <= LOW:
                assert sender.granted == CREDIT - sender.unstored


class CrampedMachine(BrokerMachine):
    """The same where segments have four slots and entries are dealt by threes, so that all happens at the edges."""

    def __init__(self) -> None:
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(ready, "SEGMENT_BITS", 2)
        self.patch.setattr(ready, "INSORT_MAX", 2)
        self.patch.setattr(dispatch, "CHUNK", 3)
        super().__init__()

    def teardown(self) -> None:
        self.patch.undo()


# A run of 60 turns costs what a hundred of other examples cost: fewer runs, in a campaign too.
RUNS = settings(max_examples=settings().max_examples // 4, stateful_step_count=60)
TestBroker = BrokerMachine.TestCase
TestBroker.settings = RUNS
TestCramped = CrampedMachine.TestCase
TestCramped.settings = RUNS
