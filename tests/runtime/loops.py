"""A loop with echoing peers, turned by the test or by a thread of its own; and clients that never wait for ever."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

from amqpbroker.runtime.clock import Clock, SystemClock
from amqpbroker.runtime.container import BrokerContainer
from amqpbroker.runtime.listener import Listener
from amqpbroker.runtime.loop import Loop
from amqpbroker.runtime.settings import ListenerSettings
from tests.runtime.fakes import PEER, EchoBoard

PATIENCE_S = 10.0  # A test that waits longer than this for anything has failed.


class Echo:
    """A loop of echoing peers and its board; closed with its clients when the test ends (conftest.py)."""

    made: ClassVar[list["Echo"]] = []

    def __init__(
        self,
        bind: str = "127.0.0.1:0",
        *,
        clock: Clock | None = None,
        container: BrokerContainer | None = None,
        max_connections: int = 10_000,
        grace_ms: int = 1_000,
    ) -> None:
        boards: list[EchoBoard] = []
        self.clients: list[socket.socket] = []

        def make(wakeup: object) -> EchoBoard:
            boards.append(EchoBoard(wakeup))  # type: ignore[arg-type]
            return boards[0]

        self.loop = Loop(
            make, clock or SystemClock(), shutdown_grace_ms=grace_ms, container=container
        )
        self.board = boards[0]
        self.made.append(self)
        self.listener: Listener = self.loop.listen(
            ListenerSettings(name="test", bind=bind, peer=PEER, max_connections=max_connections)
        )

    def close(self) -> None:
        """Give every socket back."""
        self.loop.close()
        for client in self.clients:
            client.close()

    def client(self, host: str = "127.0.0.1") -> socket.socket:
        """A connected client, which gives up after PATIENCE_S."""
        made = socket.create_connection((host, self.listener.port), PATIENCE_S)
        self.clients.append(made)
        return made

    def unix_client(self, path: Path) -> socket.socket:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.clients.append(made)
        made.settimeout(PATIENCE_S)
        made.connect(str(path))
        return made

    def turn_until(self, met: Callable[[], bool], turns: int = 10_000) -> None:
        """Turn by hand until `met`; each turn must have something to do, or the loop's wake-up is asked."""
        for _ in range(turns):
            if met():
                return
            self.loop.wakeup.wake()
            self.loop.turn()
        raise AssertionError(f"not met after {turns} turns")


@contextmanager
def running(echo: Echo) -> Iterator[Echo]:
    """The loop, turning in a thread; stopped and joined at the end. What broke it is raised."""
    broken: list[BaseException] = []

    def run() -> None:
        try:
            echo.loop.run()
        except BaseException as error:  # noqa: BLE001  Raised again by the test's thread.
            broken.append(error)

    thread = threading.Thread(target=run, name="loop")
    thread.start()
    try:
        yield echo
    finally:
        echo.loop.call(echo.loop.stop_now)
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
        if broken:
            raise broken[0]


def read_all(client: socket.socket) -> bytes:
    """Everything until the other side ends."""
    whole = bytearray()
    while data := client.recv(65_536):
        whole += data
    return bytes(whole)


def read_exactly(client: socket.socket, count: int) -> bytes:
    """`count` bytes."""
    whole = bytearray()
    while len(whole) < count:
        data = client.recv(count - len(whole))
        assert data, f"ended after {len(whole)} of {count} bytes"
        whole += data
    return bytes(whole)
