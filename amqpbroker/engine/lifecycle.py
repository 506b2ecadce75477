"""When links, nodes and queues end, and what ends with them (LC-1 to LC-3, B11). Deadlines of queues are kept here."""

from amqpbroker.base import errors
from amqpbroker.base.errors import Refusal
from amqpbroker.base.ids import Millis, Number, QueueId
from amqpbroker.engine.connection import Connection, Session
from amqpbroker.engine.deadlines import Deadlines
from amqpbroker.engine.effects import ForceDetach
from amqpbroker.engine.links import Link, Links
from amqpbroker.engine.outcome import LINK_CLOSED, Rule
from amqpbroker.engine.queue import Queue
from amqpbroker.engine.routing import Address, Routing
from amqpbroker.engine.settings import BrokerSettings
from amqpbroker.engine.turn import Turn

EXPIRY = 0  # Kinds of deadline.
IDLE = 1
# Entries looked at in one turn; the rest comes in the next, so that a million that expire together stop nobody.
SWEEP_MAX = 10_000


class Lifecycle:
    """Ends things, and knows when the next one is due."""

    __slots__ = ("_links", "_routing", "_settings", "_turn", "deadlines")

    def __init__(
        self, settings: BrokerSettings, turn: Turn, routing: Routing, links: Links
    ) -> None:
        self._settings = settings
        self._turn = turn
        self._routing = routing
        self._links = links
        self.deadlines: Deadlines[tuple[int, QueueId]] = Deadlines()

    # --- links --------------------------------------------------------------------------------------------------

    def detach(self, link: Link, now: Millis, *, closed: bool) -> None:
        """A link is gone; not closed, it leaves the node that was made for it (B11.4)."""
        self._links.end([link], LINK_CLOSED, now)
        created = link.created
        if created is not None and closed:
            _orphan(created)
            self.review_address(created)
        if link.address is not None and link.address is not created:
            self.review_address(link.address)

    def force_detach(
        self, link: Link, refusal: Refusal, now: Millis, number: Number | None = None
    ) -> None:
        """We end a link; it is forgotten at once."""
        self._turn.effects.append(ForceDetach(link.link, refusal, number))
        self.detach(link, now, closed=True)

    def steal(self, link: Link, now: Millis) -> None:
        """A new link of the same name takes over (B13.1); what was made for the old one stays."""
        refusal = Refusal(errors.STOLEN, f"link {link.key.name!r} was attached anew elsewhere")
        self._turn.effects.append(ForceDetach(link.link, refusal))
        self._links.end([link], LINK_CLOSED, now)

    # --- sessions and connections -------------------------------------------------------------------------------

    def close_session(self, session: Session, now: Millis) -> None:
        """All its links are closed, and the nodes that were made in it left to their lifetimes."""
        links = self._links.of_session(session)
        self._links.end(links, LINK_CLOSED, now)
        del self._links.sessions[session.id]
        del session.connection.sessions[session.id]
        for address in list(session.connection.dynamic.values()):
            if address.dynamic is not None and address.dynamic.session is session:
                _orphan(address)
                self.review_address(address)
        self._review_targets(links)

    def close_connection(self, connection: Connection, rule: Rule, now: Millis) -> None:
        """All its sessions are gone, and every node it made: nobody else may consume from them."""
        links = [
            link
            for session in connection.sessions.values()
            for link in self._links.of_session(session)
        ]
        self._links.end(links, rule, now)
        for session in connection.sessions:
            del self._links.sessions[session]
        connection.sessions = {}
        del self._links.connections[connection.id]
        for address in list(connection.dynamic.values()):
            self.end_node(address)
        self._review_targets(links)

    def _review_targets(self, links: list[Link]) -> None:
        for link in links:
            if link.address is not None:
                self.review_address(link.address)

    # --- nodes and queues ---------------------------------------------------------------------------------------

    def review_address(self, address: Address) -> None:
        """Something has left it: end what nothing keeps."""
        if not self._routing.has(address):
            return
        if address.is_over():
            self.end_node(address)
        elif self._routing.is_expendable(address):
            self._routing.delete(address)

    def end_node(self, address: Address) -> None:
        """A dynamic node ends; links that are still on it are told (LC-3)."""
        refusal = Refusal(errors.RESOURCE_DELETED, f"{address.name} is deleted")
        queue = address.queue
        links: list[Link] = [self._links.producers[link] for link in address.producers]
        if queue is not None:
            links += queue.consumers.values()
        for link in links:
            self._turn.effects.append(ForceDetach(link.link, refusal))
            self._links.remove(link)
        if queue is not None:
            self._delete_queue(address, queue)
        self._routing.delete(address)

    def review_queue(self, queue: Queue, now: Millis) -> None:
        """After it was served: an automatic one that is idle is deleted, now or at idle + delay (LC-1)."""
        address = self._routing.home(queue)
        if address is None:
            return
        if address.dynamic is not None:
            self.review_address(address)
            return
        if queue.consumers or queue.count():
            return
        settings = self._settings.of_address(address.name)
        if not queue.is_automatic or not queue.is_used or not settings.auto_delete_queues:
            return
        if not queue.idle_until:
            queue.idle_until = Millis(now + settings.auto_delete_queues_delay)
        if queue.idle_until <= now:
            self._delete_queue(address, queue)
            self.review_address(address)
        else:
            self.deadlines.set((IDLE, queue.id), queue.idle_until)

    def _delete_queue(self, address: Address, queue: Queue) -> None:
        self.deadlines.cancel((IDLE, queue.id))
        self.deadlines.cancel((EXPIRY, queue.id))
        self._turn.touched.pop(queue.id, None)
        self._routing.delete_queue(address)

    # --- time ---------------------------------------------------------------------------------------------------

    def arm_expiry(self, queue: Queue) -> None:
        """The queue's expiry has changed."""
        at = queue.expiry.next()
        if at is not None and at != queue.sweep_at:
            queue.sweep_at = at
            self.deadlines.set((EXPIRY, queue.id), at)

    def tick(self, now: Millis) -> None:
        """What is due at `now`."""
        for kind, number in self.deadlines.due(now):
            queue = self._routing.queues[number]
            if kind == EXPIRY:
                self._sweep(queue, now)
            self.review_queue(queue, now)

    def _sweep(self, queue: Queue, now: Millis) -> None:
        queue.sweep(now, SWEEP_MAX)
        at = queue.expiry.next()
        if at is None:
            queue.sweep_at = Millis(0)
            return
        queue.sweep_at = max(at, Millis(now + 1))  # What is left of this sweep: in the next turn.
        self.deadlines.set((EXPIRY, queue.id), queue.sweep_at)


def _orphan(address: Address) -> None:
    assert address.dynamic is not None
    address.dynamic.is_orphan = True
    if address.queue is not None:
        address.queue.is_watched = True
