"""One short world: the real peers, switchboard and engine; a network, a disk and a clock that a seed decides.

    World(seed).run()

Every step is judged as it happens (client.py); at the end all connections end, one consumer per queue takes what is
left, and the books must balance to the message.
"""

import gc
from random import Random

from amqpbroker.amqp.settings import PeerSettings
from amqpbroker.base.ids import Millis
from amqpbroker.engine.settings import BrokerSettings
from tests.amqp.memory import MemoryBroker
from tests.amqp.scenes import SlowStore
from tests.raw.frames import accepted
from tests.sim.books import Books, Message, QueueBook
from tests.sim.client import Consumer, Link, Producer, Session, SimClient
from tests.sim.network import some_bytes

QUEUES = ("q", "r", "s")
EVERYTHING = 1 << 40
SETTLES = 2_000  # Rounds that quiet may take; a world that needs more does not come to rest.
FAULTS = ("peer_failed", "peer_fault")


class World:
    """Everything of one seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random = Random(seed)
        frame = random.choice((512, 1024, 4096))
        credit = random.choice((1, 2, 10, 40))
        self.idle_ms = random.choice((0, 0, 20_000))
        settings = PeerSettings(
            container_id="broker",
            max_frame_size=frame,
            incoming_window_bytes=frame * random.choice((1, 2, 8, 100)),
            incoming_bytes_max=random.choice((1, 2_000, 1 << 20)),
            outgoing_buffer=random.choice((40, 600, 5_000, 1 << 20)),
            handshake_timeout_ms=1 << 40,
            idle_timeout_ms=self.idle_ms,
            credit=credit,
            credit_low=random.randrange(credit),
        )
        self.store = SlowStore()
        self.broker = MemoryBroker(
            settings,
            BrokerSettings(),
            self.store,
        )
        self.books = Books()
        self.attached: dict[tuple[str, str, bool], Link] = {}
        self.owners: list[Link] = []  # Links for which a dynamic node was made.
        self.clients: list[SimClient] = []
        self.former: list[SimClient] = []
        self.steps = 0
        self.deliveries = 0
        self.accepted = 0
        self._names = 0

    def fresh(self, kind: str) -> str:
        self._names += 1
        return f"{kind}{self._names}"

    def some_queue(self) -> QueueBook:
        dynamic = [each for each in self.books.queues.values() if each.is_dynamic]
        if dynamic and self.random.random() < 0.2:
            return self.random.choice(dynamic)
        return self.books.queue(self.random.choice(QUEUES))

    # --- the books, as the broker reads ----------------------------------------------------------------------------

    def unlink(self, link: Link, *, ends_node: bool, counts: bool = False) -> None:
        """The broker has forgotten the link: what its client held comes back."""
        if not link.is_attached:
            return
        link.is_attached = False
        queue = link.queue
        if queue is None or not isinstance(link, Consumer):
            return
        if link.settled:
            queue.losses += link.limit - link.count + (link.partial is not None)
        elif not link.copies:
            queue.has_returns = True
            for message in queue.kept():
                is_held = message.holder is link
                message.failures_max += counts
                message.failures_min += counts and is_held
                if is_held:
                    message.holder = None
        if link.is_owner and ends_node:
            self._end_node(queue)

    def _end_node(self, queue: QueueBook) -> None:
        queue.end()
        for link in self.attached.values():
            if link.queue is queue:
                link.is_attached = False

    def end_nodes_of(self, session: Session) -> None:
        """The broker has ended a session: what was made in it goes, also when its link had left it."""
        for owner in self.owners:
            if owner.session is session and owner.queue is not None:
                self._end_node(owner.queue)

    def disconnect(self, client: SimClient, *, clean: bool) -> None:
        """The broker has seen the end of a connection."""
        client.wire.unhear()
        for link in list(self.attached.values()):
            if link.client is client:
                self.unlink(link, ends_node=True, counts=not clean)
        for owner in self.owners:
            if owner.client is client and owner.queue is not None:
                self._end_node(owner.queue)

    # --- steps ----------------------------------------------------------------------------------------------------

    def run(self, steps: int = 150) -> None:
        """All of it; raises where something is wrong."""
        for _ in range(self.random.randrange(2, 7)):
            self.clients.append(SimClient(self, self.fresh("container")))
        for _ in range(steps):
            self.step()
            if self.random.random() < 0.01:
                self.quiesce()
        self.finish()

    def step(self) -> None:
        self.steps += 1
        random = self.random
        for client in random.sample(self.clients, random.randrange(len(self.clients) + 1)):
            self._act(client)
            if random.random() < 0.7:
                client.read()
                client.open_windows()
        self._trouble()
        for client in random.sample(self.clients, random.randrange(len(self.clients) + 1)):
            client.wire.carry_up(some_bytes(random))
        if random.random() < 0.5:
            self.store.finish(random.choice((1, 2, None)))
        self.turn()
        for client in self.clients:
            if random.random() < 0.7:
                client.wire.carry_down(some_bytes(random))
        if random.random() < 0.05:
            self._advance(random.choice((1, 100, 3_000, 9_000)))
        self._replace()

    def turn(self) -> None:
        self.broker.turn()
        for note in self.broker.notes:
            assert note.event not in FAULTS, f"{note.event}: {dict(note.fields)}"
        self.broker.notes.clear()
        for client in self.clients:
            peer = client.wire.peer
            if peer is not None:
                bound = self.broker.settings.outgoing_buffer + 70_000
                assert peer.outbox.size <= bound, f"{client.name}: {peer.outbox.size} bytes wait"

    def _act(self, client: SimClient) -> None:
        if client.state != "open":
            return
        random = self.random
        session = random.choice(client.sessions or [client.begin()])
        if session.is_ending:
            if len(client.sessions) < 3:
                client.begin()
            return
        if len(client.links) < 4 and random.random() < 0.5:
            self._attach(client, session)
            return
        links = [link for link in client.links if link.is_usable]
        for link in random.sample(links, min(len(links), 2)):
            self._use(client, link)
        client.settle(session)
        chance = random.random()
        if chance < 0.005:
            client.close()
        elif chance < 0.01:
            client.end(session)
        elif chance < 0.02 and len(client.sessions) < 3:
            client.begin()

    def _attach(self, client: SimClient, session: Session) -> None:
        random = self.random
        if random.random() < 0.5:
            client.attach_producer(session, None if random.random() < 0.2 else self.some_queue())
        elif random.random() < 0.15:
            client.attach_consumer(session, None)
        else:
            client.attach_consumer(session, self.books.queue(random.choice(QUEUES)))

    def _use(self, client: SimClient, link: Link) -> None:
        random = self.random
        if random.random() < 0.03:
            client.detach(link, closed=random.random() < 0.7)
        elif isinstance(link, Producer):
            client.send(link)
        elif isinstance(link, Consumer) and random.random() < 0.5:
            client.credit(link, drain=random.random() < 0.3)

    def _trouble(self) -> None:
        """Sockets stall, connections break."""
        random = self.random
        client = random.choice(self.clients)
        chance = random.random()
        if chance < 0.03:
            client.drop(random.choice((0, 0, 1, 7, 100, EVERYTHING)))
        elif chance < 0.06:
            client.wire.is_down_stalled = not client.wire.is_down_stalled
        elif chance < 0.09:
            client.wire.is_up_stalled = not client.wire.is_up_stalled

    def _advance(self, ms: int) -> None:
        broker = self.broker
        broker.now = Millis(broker.now + ms)
        for client in self.clients:
            peer = client.wire.peer
            if not self.idle_ms or peer is None or not client.is_open_at_broker:
                continue
            if broker.now - client.wire.heard_at >= self.idle_ms and not client.may_be_idle:
                if peer._waits_for_store:
                    client.wire.heard_at = broker.now
                    continue
                client.may_be_idle = True
                self.disconnect(client, clean=False)
        self.turn()
        for client in self.clients:
            if client.state == "open":
                client.raw.empty()

    def _replace(self) -> None:
        """Who is gone comes again, sometimes under the name of one who is still there."""
        random = self.random
        for client in [each for each in self.clients if each.state == "closed"]:
            client.wire.drop(0)
            self.clients.remove(client)
            self.former.append(client)
        if len(self.clients) < 2 or (len(self.clients) < 8 and random.random() < 0.05):
            names = [each.container for each in (*self.clients, *self.former)]
            old = random.choice(names) if random.random() < 0.5 else self.fresh("container")
            self.clients.append(SimClient(self, old))

    # --- rest -----------------------------------------------------------------------------------------------------

    def quiesce(self) -> None:
        """Let all that is on its way arrive; then nobody may be owed anything."""
        for client in self.clients:
            client.wire.is_up_stalled = client.wire.is_down_stalled = False
        for _ in range(SETTLES):
            moved = False
            for client in self.clients:
                moved |= not client.wire.is_up_idle
                client.wire.carry_up(EVERYTHING)
            moved |= bool(self.store.batches)
            self.store.finish()
            self.turn()
            for client in self.clients:
                moved |= client.wire.carry_down(EVERYTHING) > 0
                moved |= client.read()
                client.open_windows()
            if not moved:
                break
        else:
            raise AssertionError("the world does not come to rest")
        self._judge_rest()

    def _judge_rest(self) -> None:
        for client in self.clients:
            if client.state == "open":
                self._judge_client(client)
        for name, queue in self.books.queues.items():
            if queue.is_alive:
                self._judge_depth(name, queue)

    def _judge_client(self, client: SimClient) -> None:
        for session in client.sessions:
            assert session.send_end > session.sent, f"{client.name}: the broker's window is shut"
            for owner, message in session.outstanding.values():
                is_over = not owner.is_attached or owner.is_detaching or owner.message is message
                assert is_over, f"{client.name}: no answer for {message}"
            told = [each for each in session.unsettled.values() if each.is_told]
            assert not told, f"{client.name}: {len(told)} outcomes are not settled"
        for link in client.links:
            if not link.is_usable or not link.is_attached:
                continue
            if isinstance(link, Producer):
                assert link.limit > link.count or link.message is not None, f"{link} has no credit"
            elif isinstance(link, Consumer):
                assert not link.is_draining, f"{link}: the drain is not answered"
                assert link.partial is None, f"{link}: half a delivery"
                self._judge_consumer(link)

    def _judge_consumer(self, link: Consumer) -> None:
        if link.limit <= link.count or link.queue is None or not link.queue.is_alive:
            return
        for message in link.queue.kept():
            if message.has_expired(self.broker.now) or message.queue.losses:
                continue
            if link.copies:
                # What others held meanwhile need not be shown to a browser that has passed it (N-9).
                was_held = message.was_delivered or link.queue.has_returns
                is_owed = not was_held and message not in link.browsed
            else:
                is_owed = message.holder is None and link not in message.refusers
            assert not is_owed, f"{link} has credit, and {message} waits"

    def _judge_depth(self, name: str, queue: QueueBook) -> None:
        kept = queue.kept()
        expired = sum(message.has_expired(self.broker.now) for message in kept)
        depth = self.broker.queue(name).count() if self.broker.has_queue(name) else 0
        low = len(kept) - expired - queue.losses
        assert low <= depth <= len(kept), f"{name}: {depth} entries, {low} to {len(kept)} in books"

    # --- the end --------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Everybody goes; one consumer per queue takes what is left, in order; nothing stays in memory."""
        if self.random.random() < 0.5:
            self.quiesce()
        for client in self.clients:
            if client.state == "open" and self.random.random() < 0.5:
                client.close()
            else:
                client.drop(self.random.choice((0, 5, EVERYTHING)))
        self.quiesce()
        assert not self.broker.switchboard.peers, "a peer lives on"
        for queue in list(self.books.queues.values()):
            if queue.is_alive:
                self._drain(queue)
        self.quiesce()
        assert not list(self.broker.engine.queues()), "a queue lives on"
        self._judge_memory()

    def _drain(self, queue: QueueBook) -> None:
        self.clients = [SimClient(self, self.fresh("container"))]
        client = self.clients[0]
        link = None
        while link is None or link.copies or link.settled or link.second:
            if link is not None:
                client.detach(link)
            link = client.attach_consumer(client.sessions[0], queue)
        client._cut_short = lambda link: None  # type: ignore[method-assign]
        self.quiesce()
        taken = []
        while True:
            before = self.deliveries
            link.limit = link.count + 20
            client._flow(
                link.session, handle=link.handle, delivery_count=link.count, link_credit=20
            )
            self.quiesce()
            for number, each in list(link.session.unsettled.items()):
                taken.append(each.message)
                client.raw.disposition(number, channel=link.session.channel, state=accepted())
                del link.session.unsettled[number]
                client.mark(lambda told=each: client._judged([told], accepted()))  # type: ignore[misc]
            self.quiesce()
            if self.deliveries == before:
                break
        client.close()
        self.quiesce()
        self._judge_drained(queue, taken)

    def _judge_drained(self, queue: QueueBook, taken: list[Message]) -> None:
        last: dict[str, int] = {}
        for message in taken:
            assert last.get(message.producer, -1) < message.number, f"{message} is out of order"
            last[message.producer] = message.number
        missing = [each for each in queue.kept() if not each.has_expired(self.broker.now)]
        assert len(missing) <= queue.losses, f"lost: {missing}"

    def _judge_memory(self) -> None:
        self.former += self.clients
        ghosts = [client.wire.ghost for client in self.former]
        for client in self.former:
            assert client.wire.peer is None, f"{client.name} was not ended"
        gc.collect()
        alive = [ghost for ghost in ghosts if ghost() is not None]
        assert not alive, f"{len(alive)} of {len(ghosts)} finished peers are still in memory"
