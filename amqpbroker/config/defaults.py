"""What a broker started without a file is: one listener on this machine only, everything in memory."""

import socket

from amqpbroker.amqp.settings import PeerSettings
from amqpbroker.engine.settings import BrokerSettings
from amqpbroker.runtime.settings import ListenerSettings, ServeSettings

LISTENER_NAME = "amqp"
LISTENER_BIND = "localhost:5672"


def default_name() -> str:
    """The broker's name when none is given: the host's, so that peers can tell brokers apart."""
    return socket.gethostname() or "amqpbroker"


def default_settings() -> ServeSettings:
    """The settings of `amqpbroker serve` without a file. Reads nothing."""
    listener = ListenerSettings(
        name=LISTENER_NAME, bind=LISTENER_BIND, peer=PeerSettings(container_id=default_name())
    )
    return ServeSettings(listeners=(listener,), broker=BrokerSettings())
