"""What most tests of links begin with: a client that produces or consumes, and what it reads."""
# ruff: noqa: ANN401  # Fields of an attach may be anything.

from itertools import count
from typing import Any

from amqpbroker.base.ids import BatchNumber
from amqpbroker.engine.records import Batch
from tests.amqp.memory import MemoryBroker
from tests.raw.client import RawClient
from tests.raw.frames import Frame, decode_sections

OUTCOMES = [
    "amqp:accepted:list",
    "amqp:rejected:list",
    "amqp:released:list",
    "amqp:modified:list",
]

PART = 60_000  # Of a message, per frame.

_containers = count()


class SlowStore:
    """A store whose disk does not come to an end with a batch until it is told."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []  # Submitted and not yet stored.
        self._newest: BatchNumber | None = None

    def submit(self, batch: Batch) -> None:
        self.batches.append(batch)

    def take_stored(self) -> BatchNumber | None:
        newest, self._newest = self._newest, None
        return newest

    def close(self) -> None:
        """No test ends it."""

    def finish(self, most: int | None = None) -> None:
        """The `most` oldest batches, or all, are stored now."""
        done = self.batches[:most]
        self.batches = self.batches[len(done) :]
        if done:
            self._newest = done[-1].number


def session(broker: MemoryBroker, container: str | None = None, **begin: Any) -> RawClient:
    """A client of a container of its own, with one session."""
    container = container or f"client-{next(_containers)}"
    return broker.client().opened(container_id=container).begun(**begin)


def producer(broker: MemoryBroker, address: str | None = "q", **attach: Any) -> RawClient:
    """A client whose handle 0 sends to `address`, and that has its credit."""
    client = session(broker).producer(address, **attach)
    client.wait_for("attach", role=True)
    client.wait_for("flow", handle=0)
    return client


def send(client: RawClient, payload: bytes, handle: int = 0) -> RawClient:
    """A message of any size, in frames that fit."""
    for at in range(0, len(payload), PART):
        client.transfer(payload[at : at + PART], handle, more=at + PART < len(payload))
    return client


def put(broker: MemoryBroker, *payloads: bytes, address: str = "q") -> None:
    """Messages on a queue, from a client that goes again."""
    client = producer(broker, address)
    for payload in payloads:
        send(client, payload).wait_for("disposition", state="accepted", settled=True)
    client.close().wait_for("close", error=None)


def consumer(
    broker: MemoryBroker, address: str = "q", *, credit: int = 0, **attach: Any
) -> RawClient:
    """A client whose handle 0 receives from `address`, with `credit`."""
    client = session(broker).consumer(address, **attach)
    client.wait_for("attach", role=False)
    if credit:
        client.credit(credit)
    return client


def frames_of(client: RawClient) -> list[Frame]:
    """All that the broker has said by now."""
    frames = []
    while (frame := client.read_frame(0)) is not None:
        frames.append(frame)
    return frames


def body(frame: Frame) -> Any:
    """The body of a delivery: its data or its value."""
    sections = decode_sections(frame.payload)
    return sections.get("data", sections.get("value"))


def delivered(client: RawClient) -> list[Any]:
    """The bodies of what was delivered by now."""
    transfers = [frame for frame in frames_of(client) if frame.name == "transfer"]
    assert not any(frame.more for frame in transfers)
    return [body(frame) for frame in transfers]


def drain(client: RawClient, credit: int, at: int = 0, **fields: Any) -> list[Frame]:
    """Ask for the credit back at delivery-count `at`; the deliveries before the answer, and the answer."""
    client.credit(credit, delivery_count=at, drain=True, **fields)
    frames: list[Frame] = []
    while not frames or frames[-1].name != "flow":
        frame = client.read_frame(0)
        assert frame is not None, f"no answer to the drain\n{client.log()}"
        frames.append(frame)
    answer = frames[-1]
    assert answer.drain is True
    assert answer.link_credit == 0
    assert answer.delivery_count == (at + credit) % 2**32
    return frames
