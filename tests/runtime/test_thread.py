"""A broker inside the test's own process."""

import signal
import socket
import threading

import pytest
from proton import Message
from proton.utils import BlockingConnection

from amqpbroker.amqp.settings import PeerSettings
from amqpbroker.amqp.switchboard import EngineBroken
from amqpbroker.engine.settings import BrokerSettings
from amqpbroker.runtime.endpoints import ListenError
from amqpbroker.runtime.settings import ListenerSettings, ServeSettings
from amqpbroker.runtime.thread import BrokerThread
from tests.runtime.loops import PATIENCE_S


def settings(bind: str) -> ServeSettings:
    listener = ListenerSettings(name="amqp", bind=bind, peer=PeerSettings(container_id="test"))
    return ServeSettings((listener,), BrokerSettings(), shutdown_grace_ms=100)


def test_a_message_goes_through() -> None:
    with BrokerThread() as broker:
        connection = BlockingConnection(broker.url, timeout=PATIENCE_S)
        connection.create_sender("q").send(Message(body="hello"))
        received = connection.create_receiver("q").receive(timeout=PATIENCE_S)
        assert received.body == "hello"
        connection.close()


def test_it_takes_no_signals_and_leaves_no_thread() -> None:
    before = signal.getsignal(signal.SIGTERM), threading.active_count()
    with BrokerThread() as broker:
        assert signal.getsignal(signal.SIGTERM) == before[0]
        port = broker.port
    assert threading.active_count() == before[1]
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), PATIENCE_S)


def test_it_ends_with_clients_connected() -> None:
    with BrokerThread() as broker:
        client = socket.create_connection(("127.0.0.1", broker.port), PATIENCE_S)
    assert client.recv(1) == b""
    client.close()


def test_two_run_side_by_side() -> None:
    with BrokerThread() as one, BrokerThread() as other:
        assert one.port != other.port


def test_a_taken_port_is_told_to_who_starts_it() -> None:
    with BrokerThread() as broker, pytest.raises(ListenError, match="in use"):
        BrokerThread(settings(f"127.0.0.1:{broker.port}")).start()


def test_any_address_has_a_url_that_can_be_used() -> None:
    with BrokerThread(settings("*:0")) as broker:
        assert broker.url == f"amqp://127.0.0.1:{broker.port}"


def test_stop_is_idempotent_and_needs_no_start() -> None:
    broker = BrokerThread()
    broker.stop()
    broker.start()
    broker.stop()
    broker.stop()


def test_stop_tells_what_broke_it() -> None:
    def breaks() -> None:
        raise EngineBroken("test")

    broker = BrokerThread()
    broker.start()
    assert broker._loop is not None
    broker._loop.call(breaks)
    with pytest.raises(EngineBroken):
        broker.stop()
