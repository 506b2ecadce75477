"""Proton Python, in this process: its blocking client and its reactor."""

# Proton says that an event may lack what this kind of event has, and says nothing of close().
# mypy: disable-error-code="union-attr, no-untyped-call"

import threading
import time
from collections.abc import Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest
from proton import (
    Condition,
    Described,
    Link,
    Message,
    Timeout,
    int32,
    symbol,
    timestamp,
    ulong,
)
from proton._delivery import Delivery, DispositionType
from proton._endpoints import Receiver, Sender
from proton._events import Event
from proton.handlers import IncomingMessageHandler, MessagingHandler
from proton.reactor import AtMostOnce, Container, Copy, Filter, ReceiverOption, Selector
from proton.utils import (
    BlockingConnection,
    BlockingReceiver,
    LinkDetached,
    SendException,
    SyncRequestResponse,
)

pytestmark = pytest.mark.interop

PATIENCE_S = 10  # For what must happen; a loaded machine is slow.
NOTHING_S = 0.1  # For what must not happen.

Body = bytes | str | dict[Any, Any] | list[Any] | int | float | UUID | Described | None
"""As proton.Message has it."""


# --- how the tests talk -------------------------------------------------------------------------------------------


@pytest.fixture
def connection(broker: str) -> Iterator[BlockingConnection]:
    connection = BlockingConnection(broker, timeout=PATIENCE_S)
    yield connection
    connection.close()


@pytest.fixture
def other(broker: str) -> Iterator[BlockingConnection]:
    connection = BlockingConnection(broker, timeout=PATIENCE_S)
    yield connection
    connection.close()


@pytest.fixture
def queue() -> str:
    return f"proton-{uuid4()}"


def send(connection: BlockingConnection, queue: str, *bodies: Body) -> None:
    sender = connection.create_sender(queue, name=str(uuid4()))
    for body in bodies:
        sender.send(Message(body=body))
    sender.close()


def settle(receiver: BlockingReceiver, state: DispositionType, **how: object) -> None:
    """Settle the oldest delivery that is not settled; `how` are attributes of its local disposition."""
    assert receiver.fetcher is not None
    delivery = receiver.fetcher.unsettled.popleft()
    for name, value in how.items():
        setattr(delivery.local, name, value)
    delivery.update(state)
    delivery.settle()


def expect_nothing(receiver: BlockingReceiver) -> None:
    with pytest.raises(Timeout):
        receiver.receive(NOTHING_S)


def drained(
    connection: BlockingConnection, receiver: BlockingReceiver, credit: int
) -> list[object]:
    """The bodies that come for `credit` and a drain. The receiver must not renew credit itself: made with credit=0."""
    receiver.link.drain(credit)
    connection.wait(lambda: not receiver.link.credit, timeout=PATIENCE_S, msg="the drain")
    fetcher = receiver.fetcher
    assert fetcher is not None
    bodies = []
    while fetcher.has_message:
        bodies.append(body_of(fetcher.pop()))
        if fetcher.unsettled:
            receiver.accept()
    return bodies


def body_of(message: Message) -> object:
    """A copy: Proton gives bytes as a memoryview of memory that ends with the message."""
    body: object = message.body
    return bytes(body) if isinstance(body, memoryview) else body


def left(connection: BlockingConnection, queue: str) -> list[object]:
    """The bodies that a receiver which was not there before finds in the queue."""
    receiver = connection.create_receiver(queue, credit=0)
    bodies = drained(connection, receiver, 1000)
    receiver.close()
    return bodies


class Script(MessagingHandler):
    """A reactor's handler that opens a connection and must end within the patience."""

    def __init__(self, broker: str, *, prefetch: int = 10) -> None:
        super().__init__(prefetch=prefetch)
        self.broker = broker
        self.late = False

    def run(self) -> None:
        Container(self).run()
        assert not self.late, "nothing happened any more"

    def on_start(self, event: Event) -> None:
        self.timer = event.container.schedule(PATIENCE_S, self)
        self.connection = event.container.connect(self.broker, reconnect=False)
        self.begin(event.container)

    def begin(self, container: Container) -> None:
        raise NotImplementedError

    def on_timer_task(self, event: Event) -> None:
        self.late = True
        self.connection.close()

    def finish(self) -> None:
        self.timer.cancel()
        self.connection.close()


# --- messages -----------------------------------------------------------------------------------------------------


def test_messages_arrive_in_the_order_they_were_sent(
    connection: BlockingConnection, queue: str
) -> None:
    send(connection, queue, *range(200))
    assert left(connection, queue) == list(range(200))


KEPT = ["body", "durable", "priority", "id", "user_id", "subject", "reply_to", "correlation_id"]
KEPT += ["content_type", "creation_time", "group_id", "group_sequence", "properties", "annotations"]


@pytest.mark.parametrize("durable", [True, False])
def test_what_a_message_says_is_kept(
    connection: BlockingConnection, queue: str, *, durable: bool
) -> None:
    sent = Message(
        body={"text": "Grüße, 世界 🐇", "list": [1, 2.5, None, True], "bytes": b"\0\xff"},
        durable=durable,
        priority=7,
        id=ulong(2**64 - 1),
        user_id=b"me",
        subject="subject",
        reply_to="answers",
        correlation_id=UUID(int=1),
        content_type=symbol("text/plain"),
        creation_time=1_700_000_000.0,
        group_id="group",
        group_sequence=7,
        properties={"long": 2**40, "int": int32(-1), "when": timestamp(0), "nothing": None},
        annotations={symbol("x-opt-mine"): "kept"},
    )
    connection.create_sender(queue).send(sent)
    received = connection.create_receiver(queue).receive()
    for name in KEPT:
        assert getattr(received, name) == getattr(sent, name), name
    assert received.delivery_count == 0


@pytest.mark.parametrize("size", [0, 64 * 1024, 8 << 20])
def test_a_body_of_any_size_is_kept(connection: BlockingConnection, queue: str, size: int) -> None:
    body = bytes(range(256)) * (size // 256)
    send(connection, queue, body)
    assert left(connection, queue) == [body]


def test_an_expired_message_is_not_delivered(connection: BlockingConnection, queue: str) -> None:
    sender = connection.create_sender(queue)
    sender.send(Message(body="short", ttl=0.05))
    sender.send(Message(body="long", ttl=60))
    time.sleep(0.2)
    receiver = connection.create_receiver(queue)
    message = receiver.receive()
    assert message.body == "long"
    assert 0 < message.ttl <= 60
    receiver.accept()
    expect_nothing(receiver)


PROPERTIES = bytes.fromhex("005373c004 01 a10161")  # message-id "a" in a list8
ANNOTATIONS = bytes.fromhex("005372c1 08 02 a304782d6162 43")  # {:"x-ab": uint0}
TWO_DATA_SECTIONS = bytes.fromhex("005375a003616263 005375b000000000")
FOOTER = bytes.fromhex("005378c10100")


class RawBytes(Script):
    """Sends bytes as one message and keeps the bytes that come back, or the outcome when none do."""

    def __init__(self, broker: str, queue: str, payload: bytes) -> None:
        super().__init__(broker)
        # It would decode the message, and fail where the broker must not.
        self.handlers = [
            one for one in self.handlers if not isinstance(one, IncomingMessageHandler)
        ]
        self.queue = queue
        self.payload = payload
        self.received: bytes | None = None
        self.outcome: DispositionType | int | None = None
        self.refusal: Condition | None = None

    def begin(self, container: Container) -> None:
        self.sender = container.create_sender(self.connection, self.queue)
        container.create_receiver(self.connection, self.queue)

    def on_sendable(self, event: Event) -> None:
        if self.outcome is None and not self.sender.unsettled:
            self.sender.delivery("tag")
            self.sender.stream(self.payload)
            self.sender.advance()

    def on_delivery(self, event: Event) -> None:
        delivery = event.delivery
        assert delivery is not None
        if event.link.is_receiver:
            if not delivery.partial:
                self.received = event.link.recv(delivery.pending)
        elif delivery.updated:
            self.outcome = delivery.remote_state
            self.refusal = delivery.remote.condition
        if self.received is not None or self.outcome == Delivery.REJECTED:
            self.finish()


def test_the_bytes_of_a_message_are_not_changed(broker: str, queue: str) -> None:
    payload = ANNOTATIONS + PROPERTIES + TWO_DATA_SECTIONS + FOOTER
    script = RawBytes(broker, queue, payload)
    script.run()
    assert script.received == payload


def test_sections_out_of_order_are_rejected(broker: str, queue: str) -> None:
    script = RawBytes(broker, queue, TWO_DATA_SECTIONS + PROPERTIES)
    script.run()
    assert script.outcome == Delivery.REJECTED
    assert script.refusal is not None
    assert script.refusal.name == "amqp:decode-error"


# --- outcomes -----------------------------------------------------------------------------------------------------


def test_released_goes_back_to_its_place_and_does_not_count(
    connection: BlockingConnection, queue: str
) -> None:
    send(connection, queue, "a", "b")
    receiver = connection.create_receiver(queue)
    for _ in range(3):
        message = receiver.receive()
        assert (message.body, message.delivery_count) == ("a", 0)
        settle(receiver, Delivery.RELEASED)
    receiver.close()
    assert left(connection, queue) == ["a", "b"]


def test_modified_with_delivery_failed_counts(connection: BlockingConnection, queue: str) -> None:
    send(connection, queue, "a", "b")
    receiver = connection.create_receiver(queue)
    for count in range(3):
        message = receiver.receive()
        assert (message.body, message.delivery_count) == ("a", count)
        settle(receiver, Delivery.MODIFIED, failed=True)
    receiver.close()
    assert left(connection, queue) == ["a", "b"]


def test_undeliverable_here_goes_elsewhere_with_its_annotations(
    connection: BlockingConnection, queue: str
) -> None:
    send(connection, queue, "a")
    first = connection.create_receiver(queue)
    first.receive()
    settle(
        first, Delivery.MODIFIED, undeliverable=True, annotations={symbol("x-opt-why"): "because"}
    )
    expect_nothing(first)
    message = connection.create_receiver(queue, name="second").receive()
    assert (message.body, message.delivery_count) == ("a", 0)
    assert message.annotations == {"x-opt-why": "because"}


def test_rejected_does_not_come_back(connection: BlockingConnection, queue: str) -> None:
    send(connection, queue, "a", "b")
    receiver = connection.create_receiver(queue)
    receiver.receive()
    settle(receiver, Delivery.REJECTED, condition=Condition("amqp:decode-error", "on purpose"))
    assert receiver.receive().body == "b"
    receiver.accept()
    receiver.close()
    assert left(connection, queue) == []


def test_what_a_closed_receiver_had_not_settled_comes_back_in_order(
    connection: BlockingConnection, queue: str
) -> None:
    send(connection, queue, "a", "b", "c")
    receiver = connection.create_receiver(queue, credit=10)
    assert [receiver.receive().body for _ in range(3)] == ["a", "b", "c"]
    assert receiver.fetcher is not None
    receiver.fetcher.unsettled.rotate(-1)
    settle(receiver, Delivery.ACCEPTED)
    receiver.close()
    assert left(connection, queue) == ["a", "c"]


def test_settled_messages_are_answered_by_nobody(
    connection: BlockingConnection, queue: str
) -> None:
    sender = connection.create_sender(queue, options=AtMostOnce())
    assert sender.link.remote_snd_settle_mode == Link.SND_SETTLED
    sender.send(Message(body="a"))
    receiver = connection.create_receiver(queue, options=AtMostOnce())
    assert receiver.link.remote_snd_settle_mode == Link.SND_SETTLED
    assert receiver.receive().body == "a"
    receiver.close()
    assert left(connection, queue) == []


# --- credit, drain, browsing --------------------------------------------------------------------------------------


def test_drain_gives_what_there_is_and_is_answered_each_time(
    connection: BlockingConnection, queue: str
) -> None:
    send(connection, queue, "a", "b")
    receiver = connection.create_receiver(queue, credit=0)
    assert drained(connection, receiver, 10) == ["a", "b"]
    assert drained(connection, receiver, 1) == []
    assert drained(connection, receiver, 5) == []
    send(connection, queue, "c")
    assert drained(connection, receiver, 5) == ["c"]


class Browse(ReceiverOption):
    """As Copy, and the receiver says that it will not settle."""

    def apply(self, link: Link) -> None:
        assert isinstance(link, Receiver)
        Copy().apply(link)
        AtMostOnce().apply(link)


@pytest.mark.parametrize("option", [Copy(), Browse()], ids=["unsettled", "settled"])
def test_browsing_takes_nothing(
    connection: BlockingConnection, queue: str, option: ReceiverOption
) -> None:
    send(connection, queue, "a", "b")
    browser = connection.create_receiver(queue, credit=0, options=option)
    assert drained(connection, browser, 10) == ["a", "b"]
    send(connection, queue, "c")
    assert browser.receive().body == "c"
    browser.close()
    assert left(connection, queue) == ["a", "b", "c"]


def test_two_receivers_take_turns(
    connection: BlockingConnection, other: BlockingConnection, queue: str
) -> None:
    receivers = [one.create_receiver(queue, credit=10) for one in (connection, other)]
    for receiver in receivers:
        expect_nothing(receiver)  # The client writes its credit only when it waits.
    send(connection, queue, *range(6))
    for receiver in receivers:
        assert len([receiver.receive().body for _ in range(3)]) == 3


class Flood(Script):
    """Sends as fast as credit comes and receives with a prefetch."""

    COUNT = 5000

    def __init__(self, broker: str, queue: str) -> None:
        super().__init__(broker, prefetch=100)
        self.queue = queue
        self.sent = 0
        self.received: list[int] = []

    def begin(self, container: Container) -> None:
        container.create_receiver(self.connection, self.queue)
        container.create_sender(self.connection, self.queue)

    def on_sendable(self, event: Event) -> None:
        while event.sender.credit and self.sent < self.COUNT:
            event.sender.send(Message(body=self.sent))
            self.sent += 1

    def on_message(self, event: Event) -> None:
        self.received.append(event.message.body)
        if len(self.received) == self.COUNT:
            self.finish()


def test_a_flood_arrives_in_order(broker: str, queue: str) -> None:
    script = Flood(broker, queue)
    script.run()
    assert script.received == list(range(Flood.COUNT))


# --- nodes --------------------------------------------------------------------------------------------------------


class Echo(Script):
    """Answers requests through the anonymous terminus until its queue is asked to stop."""

    def __init__(self, broker: str, queue: str) -> None:
        super().__init__(broker)
        self.queue = queue

    def begin(self, container: Container) -> None:
        container.create_receiver(self.connection, self.queue)
        self.replies: Sender = container.create_sender(self.connection, None)

    def on_message(self, event: Event) -> None:
        request = event.message
        if request.body == "stop":
            self.finish()
            return
        self.replies.send(
            Message(
                address=request.reply_to,
                correlation_id=request.correlation_id,
                body=request.body.upper(),
            )
        )


def test_a_reply_comes_through_a_dynamic_queue(
    broker: str, connection: BlockingConnection, queue: str
) -> None:
    echo = Echo(broker, queue)
    server = threading.Thread(target=echo.run)
    server.start()
    client = SyncRequestResponse(connection, queue)
    assert client.reply_to
    assert [client.call(Message(body=word)).body for word in ("one", "two")] == ["ONE", "TWO"]
    send(connection, queue, "stop")
    server.join(PATIENCE_S)
    assert not server.is_alive()
    assert not echo.late


def test_a_dynamic_queue_is_its_connections_own_and_ends_with_its_link(
    connection: BlockingConnection, other: BlockingConnection
) -> None:
    receiver = connection.create_receiver(None, dynamic=True)
    address = receiver.link.remote_source.address
    assert address is not None
    send(other, address, "a")
    assert receiver.receive().body == "a"
    with pytest.raises(LinkDetached) as locked:
        other.create_receiver(address)
    assert locked.value.condition == "amqp:resource-locked"
    receiver.close()
    with pytest.raises(LinkDetached) as missing:
        connection.create_receiver(address)
    assert missing.value.condition == "amqp:not-found"


def test_a_sender_without_an_address_reaches_each_queue(
    connection: BlockingConnection, queue: str
) -> None:
    for end in ("-1", "-2"):
        connection.create_receiver(queue + end).close()
    sender = connection.create_sender(None)
    sender.send(Message(address=f"{queue}-1", body="a"))
    sender.send(Message(address=f"{queue}-2", body="b"))
    with pytest.raises(SendException) as nowhere:
        sender.send(Message(body="lost"))
    assert nowhere.value.state == Delivery.REJECTED
    sender.send(Message(address=f"{queue}-1", body="c"))
    assert left(connection, f"{queue}-1") == ["a", "c"]
    assert left(connection, f"{queue}-2") == ["b"]


def test_a_selector_is_refused_and_the_connection_lives(
    connection: BlockingConnection, queue: str
) -> None:
    with pytest.raises(LinkDetached) as refused:
        connection.create_receiver(queue, options=Selector("colour = 'red'"))
    assert refused.value.condition == "amqp:not-implemented"
    send(connection, queue, "a")
    assert left(connection, queue) == ["a"]


def test_an_unknown_filter_is_left_out_of_the_answer(
    connection: BlockingConnection, queue: str
) -> None:
    unknown = Filter({symbol("mine"): Described(symbol("example:unknown-filter:string"), "x")})
    receiver = connection.create_receiver(queue, options=unknown)
    described = receiver.link.remote_source.filter
    described.rewind()
    assert not described.next() or not described.get_dict()


# --- links and sessions -------------------------------------------------------------------------------------------


def test_links_come_and_go(connection: BlockingConnection, queue: str) -> None:
    for n in range(100):
        send(connection, queue, n)
        receiver = connection.create_receiver(queue, name="same")
        assert receiver.receive().body == n
        receiver.accept()
        receiver.close()


class Sessions(Script):
    """Opens and closes sessions, one after another, each with a link."""

    COUNT = 300

    def __init__(self, broker: str, queue: str) -> None:
        super().__init__(broker)
        self.queue = queue
        self.ended = 0

    def begin(self, container: Container) -> None:
        """The first session waits for the connection."""

    def on_connection_opened(self, event: Event) -> None:
        self.another()

    def another(self) -> None:
        session = self.connection.session()
        session.open()
        receiver = session.receiver("link")
        receiver.source.address = self.queue
        receiver.open()

    def on_link_opened(self, event: Event) -> None:
        event.session.close()

    def on_session_closed(self, event: Event) -> None:
        event.session.free()
        self.ended += 1
        if self.ended == self.COUNT:
            self.finish()
        else:
            self.another()


def test_sessions_come_and_go(broker: str, queue: str) -> None:
    script = Sessions(broker, queue)
    script.run()
    assert script.ended == Sessions.COUNT


class ManyLinks(Script):
    """Holds many links of one session at once."""

    COUNT = 500

    def __init__(self, broker: str, queue: str) -> None:
        super().__init__(broker, prefetch=0)
        self.queue = queue
        self.opened = 0

    def begin(self, container: Container) -> None:
        for n in range(self.COUNT):
            container.create_receiver(self.connection, f"{self.queue}-{n % 10}", name=f"{n}")

    def on_link_opened(self, event: Event) -> None:
        self.opened += 1
        if self.opened == self.COUNT:
            self.finish()


def test_a_session_has_many_links(broker: str, queue: str) -> None:
    script = ManyLinks(broker, queue)
    script.run()
    assert script.opened == ManyLinks.COUNT
