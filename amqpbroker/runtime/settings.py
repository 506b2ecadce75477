"""What `serve` is told: everything the loop needs to start, as frozen values.

Made by config/load.py from a file, or as they stand by a broker started without one. The loop reads them once.
"""

from typing import NamedTuple

from amqpbroker.amqp.settings import PeerSettings
from amqpbroker.engine.settings import BrokerSettings
from amqpbroker.ops.log import LogSettings


class ListenerSettings(NamedTuple):
    """One place where connections are accepted, and what their peers are granted."""

    name: str
    bind: str  # "host:port", "*:port" (dual stack), "[::1]:port" or "unix:path".
    peer: PeerSettings
    backlog: int = 1024  # Of listen(2); the system may cut it.
    tcp_nodelay: bool = True
    max_connections: int = 10_000  # Of this listener; one more is closed at once.


class ServeSettings(NamedTuple):
    """A whole broker process."""

    listeners: tuple[ListenerSettings, ...]
    broker: BrokerSettings
    shutdown_grace_ms: int = 5_000  # To drain outgoing bytes before Close amqp:connection:forced.
    logging: LogSettings = LogSettings()
