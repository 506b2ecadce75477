"""A broker in a thread of somebody's program, made for test suites: a free port, no signals, a clean end.

It leaves the host's switch interval, garbage collector and logging alone.
"""

import threading
from types import TracebackType
from typing import Self

from amqpbroker.amqp.settings import PeerSettings
from amqpbroker.engine.settings import BrokerSettings
from amqpbroker.runtime.loop import Loop, build
from amqpbroker.runtime.settings import ListenerSettings, ServeSettings

GRACE_MS = 200
"""For clients to answer our Close at the end: the client of a test often is not reading any more."""

JOIN_S = 30.0
"""For the thread to end after its grace; more means that the loop hangs, which must be seen."""

ANYWHERE = ("0.0.0.0", "[::]")  # noqa: S104  Compared with, not bound.


def throwaway_settings() -> ServeSettings:
    """A broker on a free port of this machine that keeps nothing."""
    peer = PeerSettings(container_id="amqpbroker")
    listener = ListenerSettings(name="amqp", bind="localhost:0", peer=peer)
    return ServeSettings(listeners=(listener,), broker=BrokerSettings(), shutdown_grace_ms=GRACE_MS)


class BrokerThread:
    """A broker that runs from `start` to `stop`, or for the time of a `with` block.

    with BrokerThread() as broker:
        connection = BlockingConnection(broker.url)
    """

    def __init__(self, settings: ServeSettings | None = None) -> None:
        self._settings = throwaway_settings() if settings is None else settings
        self._loop: Loop | None = None
        self._thread: threading.Thread | None = None
        self._broken: BaseException | None = None
        self._address = ""

    def start(self) -> None:
        """Listen, then run; connections are accepted when this returns. ListenError when a port is taken."""
        assert self._loop is None, "a BrokerThread runs once"
        self._loop = build(self._settings)
        self._address = self._loop.listeners[0].addresses[0]
        self._thread = threading.Thread(target=self._run, name="amqpbroker", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Close every connection and end. Idempotent. Raises what broke the broker, if something did."""
        loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            return
        self._thread = None
        loop.call(loop.stop)
        thread.join(JOIN_S)
        if thread.is_alive():
            raise TimeoutError(f"the broker's thread has not ended within {JOIN_S:.0f} s")
        if self._broken is not None:
            raise self._broken

    @property
    def url(self) -> str:
        """Where clients connect to the first listener, as amqp://host:port."""
        assert self._address, "not started"
        host, _, port = self._address.rpartition(":")
        return f"amqp://{'127.0.0.1' if host in ANYWHERE else host}:{port}"

    @property
    def port(self) -> int:
        """The port of the first listener."""
        assert self._address, "not started"
        return int(self._address.rpartition(":")[2])

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _run(self) -> None:
        assert self._loop is not None
        try:
            self._loop.run()
        except BaseException as error:  # noqa: BLE001  Raised by stop, in the thread of who started it.
            self._broken = error
