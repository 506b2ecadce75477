"""A client that does everything right while others do not, to see that it is served all the same."""

from collections.abc import Callable
from typing import Self

from tests.raw.client import RawClient
from tests.raw.frames import message


class Bystander:
    """One connection with a producer and a consumer of a queue of its own."""

    def __init__(self, connect: Callable[[], RawClient]) -> None:
        self.passed = 0  # Messages that went through.
        self.client = connect().opened(container_id="bystander").begun()
        self.client.producer("bystander").wait_for("attach", role=True)
        self.client.consumer("bystander", snd_settle_mode=1).wait_for("attach", role=False)

    def look(self) -> Self:
        """A message goes through."""
        client, passed = self.client, self.passed
        payload = message(str(passed).encode())
        client.flow(handle=1, delivery_count=passed, link_credit=1, next_incoming_id=passed)
        client.transfer(payload)
        (delivery,) = client.receive()
        assert delivery.payload == payload, client.log()
        self.passed += 1
        client.transcript.clear()
        client.frames.clear()
        return self

    def stay(self) -> None:
        """A sign of life."""
        self.client.empty()
