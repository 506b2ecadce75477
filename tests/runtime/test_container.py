"""Proton's own way of working, in our container: alone and with the broker's loop driving."""

import os
import resource
from collections.abc import Callable, Iterator

import pytest
from proton import Connection, Event, Handler, Message
from proton._reactor import Acceptor
from proton.handlers import MessagingHandler
from proton.reactor import ApplicationEvent, Container, EventInjector

from amqpbroker.runtime.container import BrokerContainer, SelectableWatch
from amqpbroker.runtime.poller import Poller
from tests.runtime.loops import PATIENCE_S, Echo, read_exactly

MESSAGES = 100


def ours(event: Event) -> BrokerContainer:
    """The event's container, which Proton's types know as its own."""
    assert isinstance(event.container, BrokerContainer)
    return event.container


def connection_of(event: Event) -> Connection:
    assert event.connection is not None
    return event.connection


class Sink(MessagingHandler):
    """A listener's side: takes what it is sent."""

    def __init__(self) -> None:
        super().__init__()
        self.bodies: list[object] = []
        self.opened = 0

    def on_connection_opening(self, event: Event) -> None:
        self.opened += 1

    def on_message(self, event: Event) -> None:
        self.bodies.append(event.message.body)


class Source(MessagingHandler):
    """Listens with a Sink, sends to it in the same container, and stops when all is accepted."""

    listening: Acceptor

    def __init__(self, host: str = "localhost") -> None:
        super().__init__()
        self.host = host
        self.sink = Sink()
        self.sent = 0
        self.accepted = 0
        self.failure: object = None

    def on_start(self, event: Event) -> None:
        listening = ours(event).listen(f"{self.host}:0", handler=self.sink)
        self.listening = listening
        connection = event.container.connect(f"{self.host}:{listening.port}", handler=self)
        event.container.create_sender(connection, "q")

    def on_sendable(self, event: Event) -> None:
        sender = event.sender
        assert sender is not None
        while sender.credit and self.sent < MESSAGES:
            sender.send(Message(body=self.sent))
            self.sent += 1

    def on_accepted(self, event: Event) -> None:
        self.accepted += 1
        if self.accepted == MESSAGES:
            connection_of(event).close()
            self.listening.close()

    def on_transport_error(self, event: Event) -> None:
        self.failure = event.transport and event.transport.condition


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]"])
def test_a_message_goes_from_connect_to_listen(host: str) -> None:
    source = Source(host)
    BrokerContainer(source).run()
    assert source.failure is None
    assert source.sink.bodies == list(range(MESSAGES))


def test_a_container_has_all_that_protons_has_and_makes_tls_when_it_is_asked_for() -> None:
    stock, ours = Container(), BrokerContainer()
    own = {"poller", "_selector", "_turn"}
    assert set(vars(ours)) - own == set(vars(stock)) - {"ssl"}
    for name in (
        "trigger",
        "allow_insecure_mechs",
        "allowed_mechs",
        "sasl_enabled",
        "user",
        "password",
    ):
        assert getattr(ours, name) == getattr(stock, name)
    assert type(ours.global_handler) is type(stock.global_handler)
    assert type(ours.ssl) is type(stock.ssl)
    assert ours.ssl is ours.ssl
    ours.close()


def test_the_stock_container_agrees_on_what_works() -> None:
    # What is shown above is Proton's behaviour, not ours: the same handlers, its own container.
    class Stock(Source):
        def on_start(self, event: Event) -> None:
            self.listening = event.container.listen("127.0.0.1:0")
            port = self.listening._selectable.getsockname()[1]
            event.container.create_sender(event.container.connect(f"127.0.0.1:{port}"), "q")

        def on_message(self, event: Event) -> None:
            self.sink.on_message(event)

    source = Stock()
    Container(source).run()
    assert source.sink.bodies == list(range(MESSAGES))


class Ticks(Handler):
    """Counts timer tasks."""

    def __init__(self, then: Callable[[Event], None]) -> None:
        self.order: list[int] = []
        self.then = then

    def at(self, number: int) -> Handler:
        ticks = self

        class Tick(Handler):
            def on_timer_task(self, event: Event) -> None:
                ticks.order.append(number)
                if len(ticks.order) == 3:
                    ticks.then(event)

        return Tick()


def test_timers_fire_in_order_and_a_cancelled_one_does_not() -> None:
    ticks = Ticks(lambda _event: None)
    container = BrokerContainer(MessagingHandler())
    container.start()
    container.schedule(0.03, ticks.at(3))
    container.schedule(0.01, ticks.at(1))
    container.schedule(0.02, ticks.at(9)).cancel()
    container.schedule(0.02, ticks.at(2))
    container.timeout = PATIENCE_S
    while container.process():
        pass
    assert ticks.order == [1, 2, 3]


def test_timers_fire_while_the_loop_drives() -> None:
    container = BrokerContainer(MessagingHandler())
    echo = Echo(container=container)
    ticks = Ticks(lambda _event: echo.loop.stop_now())
    for number in (1, 2, 3):
        container.schedule(number / 100, ticks.at(number))
    echo.loop.run()
    assert ticks.order == [1, 2, 3]


def test_proton_and_the_broker_share_one_loop() -> None:
    source = Source()
    echo = Echo(container=BrokerContainer(source))
    echo.loop.container.start()
    with echo.client() as client:
        client.sendall(b"hello")
        echo.turn_until(lambda: source.accepted == MESSAGES and bool(echo.board.peers))
        echo.turn_until(lambda: echo.board.receives == 1)
        assert read_exactly(client, 5) == b"hello"


def test_the_brokers_own_listener_makes_no_proton_events() -> None:
    seen: list[str] = []

    class All(Handler):
        def on_unhandled(self, method: str, *args: object) -> None:
            seen.append(method)

    echo = Echo(container=BrokerContainer(All()))
    echo.loop.container.start()
    echo.turn_until(lambda: "on_reactor_init" in seen)
    echo.loop.container.dispatch()
    seen.clear()
    with echo.client() as client:
        client.sendall(b"hello")
        echo.turn_until(lambda: echo.board.receives == 1)
        assert read_exactly(client, 5) == b"hello"
    assert seen == []


def test_stop_by_a_proton_handler_stops_the_loop() -> None:
    class Stopper(MessagingHandler):
        def on_timer_task(self, event: Event) -> None:
            event.container.stop()

    container = BrokerContainer(MessagingHandler())
    echo = Echo(container=container)
    container.schedule(0, Stopper())
    echo.loop.run()


def test_container_run_is_the_loop_when_it_drives() -> None:
    container = BrokerContainer(MessagingHandler())
    echo = Echo(container=container)
    echo.loop.call(echo.loop.stop_now)
    container.run()


def test_an_injected_event_wakes_the_container() -> None:
    injector = EventInjector()

    class Told(MessagingHandler):
        told = False

        def on_start(self, event: Event) -> None:
            event.container.selectable(injector)
            injector.trigger(ApplicationEvent("told"))

        def on_told(self, event: Event) -> None:
            self.told = True
            injector.close()

    handler = Told()
    BrokerContainer(handler).run()
    assert handler.told
    for fd in injector.pipe:
        os.close(fd)


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 5_000
    if before[1] not in (-1, resource.RLIM_INFINITY) and before[1] < wanted:
        pytest.skip("this machine does not let us have enough descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before[0], wanted), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


class Many(MessagingHandler):
    """Opens and closes `count` connections at once."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count
        self.sink = Sink()
        self.opened = 0
        self.highest = 0

    def on_start(self, event: Event) -> None:
        self.listening = ours(event).listen("127.0.0.1:0", handler=self.sink)
        url = f"127.0.0.1:{self.listening.port}"
        for _ in range(self.count):
            event.container.connect(url, reconnect=False, handler=self)

    def on_connection_opened(self, event: Event) -> None:
        self.opened += 1
        assert event.transport is not None
        self.highest = max(self.highest, event.transport._selectable.fileno())
        connection_of(event).close()
        if self.opened == self.count:
            self.listening.close()


@pytest.mark.usefixtures("many_descriptors")
def test_descriptors_beyond_1023_work() -> None:
    fillers = [os.open(os.devnull, os.O_RDONLY) for _ in range(1_100)]
    many = Many(50)
    BrokerContainer(many).run()
    for fd in fillers:
        os.close(fd)
    assert many.highest > 1_023
    assert many.opened == many.sink.opened == 50


@pytest.mark.slow
@pytest.mark.usefixtures("many_descriptors")
def test_sixteen_hundred_connections_at_once_work() -> None:
    many = Many(1_600)
    BrokerContainer(many).run()
    assert many.opened == many.sink.opened == 1_600


def test_the_last_deadline_of_a_selectable_counts() -> None:
    poller = Poller()
    watch = SelectableWatch(poller)
    container = BrokerContainer(MessagingHandler())
    selectable = container.selectable()
    for at in range(1, 5_000):
        selectable.deadline = at
        watch.update(selectable)
    assert watch.next_deadline() == 4_999_000
    assert watch.take_due(5_000.0) == [selectable]
    assert watch.next_deadline() is None
    poller.close()
    container.close()
