"""Who is there: connections, sessions and links, by number and by name. Must not know the rules of addresses."""

from amqpbroker.base.ids import ConnectionId, LinkId, Millis, SessionId
from amqpbroker.engine.connection import Connection, LinkKey, Session
from amqpbroker.engine.consumer import Consumer
from amqpbroker.engine.credit import Producer
from amqpbroker.engine.dispatch import unpark
from amqpbroker.engine.message import Entry
from amqpbroker.engine.outcome import Rule
from amqpbroker.engine.queue import Queue
from amqpbroker.engine.turn import Turn

Link = Producer | Consumer


class Links:
    """The registry of all that is attached."""

    __slots__ = ("_turn", "by_key", "connections", "consumers", "producers", "sessions")

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self.connections: dict[ConnectionId, Connection] = {}
        self.sessions: dict[SessionId, Session] = {}
        self.producers: dict[LinkId, Producer] = {}
        self.consumers: dict[LinkId, Consumer] = {}
        self.by_key: dict[LinkKey, LinkId] = {}

    def find(self, link: LinkId) -> Link | None:
        """The link, when it is attached."""
        return self.producers.get(link) or self.consumers.get(link)

    def of_session(self, session: Session) -> list[Link]:
        """Its links in order of attaching."""
        found = [self.find(link) for link in session.links]
        return [link for link in found if link is not None]

    def add(self, link: Link) -> None:
        """It is attached; its address or queue knows it as well."""
        link.session.links[link.link] = None
        self.by_key[link.key] = link.link
        if isinstance(link, Producer):
            self.producers[link.link] = link
            if link.address is not None:
                link.address.producers[link.link] = None
        else:
            self.consumers[link.link] = link
            link.queue.add_consumer(link)

    def remove(self, link: Link) -> None:
        """It is gone from everywhere but its leases, which are the caller's."""
        del link.session.links[link.link]
        if self.by_key.get(link.key) == link.link:
            del self.by_key[link.key]
        if isinstance(link, Producer):
            del self.producers[link.link]
            if link.address is not None:
                del link.address.producers[link.link]
        else:
            del self.consumers[link.link]
            link.queue.remove_consumer(link)
            unpark(link)

    def end(self, links: list[Link], rule: Rule, now: Millis) -> None:
        """These are gone; what they leased goes back to its places before anything is offered, at once per queue."""
        returned: dict[Queue, list[Entry]] = {}
        for link in links:
            self.remove(link)
            if isinstance(link, Consumer):
                returned.setdefault(link.queue, []).extend(link.leases.values())
                link.leases = {}
        for queue, entries in returned.items():
            if entries:
                queue.give_back(entries, rule, now)
            self._turn.touch(queue)

    def check(self) -> None:
        """Each link is known wherever it must be, and nowhere else."""
        links: dict[LinkId, Link] = {**self.producers, **self.consumers}
        assert len(links) == len(self.producers) + len(self.consumers)
        by_session = {link for session in self.sessions.values() for link in session.links}
        assert by_session == links.keys()
        assert {links[link].key: link for link in self.by_key.values()} == self.by_key
        assert len(self.by_key) == len(links)
        for session in self.sessions.values():
            assert session.connection.sessions[session.id] is session
            assert self.connections[session.connection.id] is session.connection
        for link, consumer in self.consumers.items():
            assert consumer.queue.consumers[link] is consumer
        for link, producer in self.producers.items():
            assert producer.address is None or link in producer.address.producers
            assert producer.unstored >= 0
