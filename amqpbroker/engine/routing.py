"""Addresses and the queues on them: found, made on demand, made for one link, deleted. Must not know links' credit.

A bare name is a queue: the address and a queue of that name are made on first use (AD-5, default_routing anycast).
"""

import json
from collections.abc import Iterator

from amqpbroker.base import errors
from amqpbroker.base.errors import Refusal
from amqpbroker.base.ids import LinkId, QueueId
from amqpbroker.engine.commands import Lifetime, Node, Terminus
from amqpbroker.engine.connection import Session
from amqpbroker.engine.effects import Note
from amqpbroker.engine.journal import Journal
from amqpbroker.engine.queue import Queue
from amqpbroker.engine.records import Meta
from amqpbroker.engine.settings import BrokerSettings


class Refused(Exception):  # noqa: N818 - it is a refusal, not an error.
    """A peer does not get what it asked for. Raised before anything has changed."""

    def __init__(self, condition: str, description: str) -> None:
        super().__init__(description)
        self.refusal = Refusal(condition, description)


class Dynamic:
    """What makes a node dynamic: whose it is and when it ends."""

    __slots__ = ("creator", "is_orphan", "lifetime", "session")

    def __init__(self, creator: LinkId, session: Session, lifetime: Lifetime) -> None:
        self.creator = creator
        self.session = session
        self.lifetime = lifetime
        self.is_orphan = False  # The link that made it was closed, or its session is over.


class Address:
    """A name that links attach to and messages are sent to."""

    __slots__ = ("dynamic", "is_automatic", "name", "producers", "queue")

    def __init__(self, name: str, *, is_automatic: bool, dynamic: Dynamic | None = None) -> None:
        self.name = name
        self.is_automatic = is_automatic
        self.dynamic = dynamic
        self.queue: Queue | None = None
        self.producers: dict[LinkId, None] = {}  # Incoming links whose target it is.

    def is_over(self) -> bool:
        """Whether a dynamic node has come to its end [3.5.10 to 3.5.13]."""
        dynamic = self.dynamic
        if dynamic is None or not dynamic.is_orphan:
            return False
        queue = self.queue
        linked = bool(self.producers) or (queue is not None and bool(queue.consumers))
        filled = queue is not None and queue.count() > 0
        match dynamic.lifetime:
            case Lifetime.ON_CLOSE:
                return True
            case Lifetime.ON_NO_LINKS:
                return not linked
            case Lifetime.ON_NO_MESSAGES:
                return not filled
            case Lifetime.ON_NO_LINKS_OR_MESSAGES:
                return not linked and not filled


class Routing:
    """All addresses and queues."""

    __slots__ = ("_addresses", "_homes", "_journal", "_next_queue", "_settings", "queues")

    def __init__(self, settings: BrokerSettings, journal: Journal) -> None:
        self._settings = settings
        self._journal = journal
        self._addresses: dict[str, Address] = {}
        self._next_queue = QueueId(1)
        self.queues: dict[QueueId, Queue] = {}
        self._homes: dict[QueueId, Address] = {}
        for declared in settings.addresses:
            address = Address(declared.name, is_automatic=False)
            self._addresses[declared.name] = address
            if declared.queue is not None:
                durable = declared.queue.durable
                self._add_queue(address, declared.queue.name, durable=durable, is_automatic=False)

    def __iter__(self) -> Iterator[Address]:
        return iter(self._addresses.values())

    def has(self, address: Address) -> bool:
        """Whether this address, not only one of its name, exists."""
        return self._addresses.get(address.name) is address

    def home(self, queue: Queue) -> Address | None:
        """The address of a queue; None when the queue is deleted."""
        return self._homes.get(queue.id)

    # --- found or made ------------------------------------------------------------------------------------------

    def target(self, name: str, node: Node) -> Address:
        """The address a producer or a message names, with a queue. Raises Refused."""
        if node is Node.TOPIC:
            raise Refused(errors.NOT_IMPLEMENTED, f"{name}: this broker has no topics yet")
        if not name:
            raise Refused(errors.INVALID_FIELD, "an address of no characters")
        address = self._addresses.get(name)
        if address is None:
            address = self._make(name)
        self.queue_of(address)
        return address

    def source(self, name: str | None, node: Node, session: Session) -> tuple[Address, Queue]:
        """The queue a consumer names. Raises Refused; of a dynamic node to all but its own connection (B11.5)."""
        if name is None:
            raise Refused(errors.NOT_FOUND, "no source, and no subscription of this link's name")
        address = self.target(name, node)
        dynamic = address.dynamic
        if dynamic is not None and dynamic.session.connection is not session.connection:
            raise Refused(
                errors.RESOURCE_LOCKED, f"{name}: only the connection that made it may consume"
            )
        return address, self.queue_of(address)

    def queue_of(self, address: Address) -> Queue:
        """Its queue, made when there is none and that is allowed. Raises Refused."""
        if address.queue is not None:
            return address.queue
        if not self._settings.of_address(address.name).auto_create_queues:
            raise Refused(errors.NOT_FOUND, f"{address.name}: no queue of this name")
        return self._add_queue(address, address.name, durable=True, is_automatic=True)

    def _make(self, name: str) -> Address:
        settings = self._settings.of_address(name)
        if name.startswith(self._settings.dynamic_prefix):
            raise Refused(errors.NOT_FOUND, f"{name}: no such node, or it is deleted already")
        if not settings.auto_create_addresses or not settings.auto_create_queues:
            raise Refused(errors.NOT_FOUND, f"{name}: no address of this name")
        address = Address(name, is_automatic=True)
        self._addresses[name] = address
        return address

    def make_dynamic(self, terminus: Terminus, link: LinkId, session: Session) -> Address:
        """A node for one link (AD-8). Raises Refused."""
        assert terminus.lifetime is not None
        if terminus.node is Node.TOPIC:
            raise Refused(errors.NOT_IMPLEMENTED, "this broker has no dynamic topics yet")
        owned = session.connection.dynamic
        most = self._settings.dynamic_nodes_max
        if len(owned) >= most:
            raise Refused(
                errors.RESOURCE_LIMIT_EXCEEDED, f"a connection may have {most} dynamic nodes"
            )
        name = terminus.fresh_name
        if not name.startswith(self._settings.dynamic_prefix):
            name = self._settings.dynamic_prefix + name
        assert name not in self._addresses, "fresh names are fresh"
        address = Address(
            name, is_automatic=False, dynamic=Dynamic(link, session, terminus.lifetime)
        )
        self._addresses[name] = owned[name] = address
        self._add_queue(address, name, durable=False, is_automatic=False)
        return address

    def _add_queue(
        self, address: Address, name: str, *, durable: bool, is_automatic: bool
    ) -> Queue:
        queue = Queue(
            self._next_queue, name, self._journal, durable=durable, is_automatic=is_automatic
        )
        self._next_queue = QueueId(self._next_queue + 1)
        self.queues[queue.id] = queue
        self._homes[queue.id] = address
        address.queue = queue
        self._note("queue_created", queue)
        return queue

    def _note(self, event: str, queue: Queue) -> None:
        fields: dict[str, object] = {"queue": queue.name, "automatic": queue.is_automatic}
        self._journal.notes.append(Note(event, fields))

    # --- remembered and deleted ---------------------------------------------------------------------------------

    def remember(self, address: Address, queue: Queue) -> None:
        """Write the queue's name before its first durable entry: one that never had any needs no record."""
        if queue.is_remembered:
            return
        queue.is_remembered = True
        self._journal.records += [
            Meta(f"queue/{queue.id}", _value({"address": address.name, "name": queue.name})),
            Meta("next-queue-id", _value(self._next_queue)),
        ]

    def delete_queue(self, address: Address) -> None:
        """The queue and all in it are gone; its links are the caller's."""
        queue = address.queue
        assert queue is not None
        del self.queues[queue.id]
        del self._homes[queue.id]
        address.queue = None
        self._note("queue_deleted", queue)
        if queue.is_remembered:
            self._journal.records.append(Meta(f"queue/{queue.id}", None))

    def delete(self, address: Address) -> None:
        """The name is gone."""
        del self._addresses[address.name]
        if address.dynamic is not None:
            address.dynamic.session.connection.dynamic.pop(address.name, None)

    def is_expendable(self, address: Address) -> bool:
        """Whether nothing keeps an address that made itself (LC-2)."""
        settings = self._settings.of_address(address.name)
        return (
            address.is_automatic
            and settings.auto_delete_addresses
            and address.queue is None
            and not address.producers
        )

    def check(self) -> None:
        """Addresses and queues know each other."""
        homes = {each.queue.id: each for each in self if each.queue is not None}
        assert homes == self._homes
        assert homes.keys() == self.queues.keys()
        for name, address in self._addresses.items():
            assert address.name == name
            if address.dynamic is not None:
                assert address.dynamic.session.connection.dynamic[name] is address


def _value(facts: object) -> bytes:
    """Canonical JSON, led by the version of its form."""
    return json.dumps([1, facts], sort_keys=True, separators=(",", ":")).encode()
