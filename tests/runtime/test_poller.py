"""Who is ready: interest follows what was asked last, and a number that is used again has a new owner."""

import socket
from collections.abc import Iterator

import pytest

from amqpbroker.base.ids import Millis
from amqpbroker.runtime.poller import READ, WRITE, Poller

NOW = Millis(7)


@pytest.fixture
def poller() -> Iterator[Poller]:
    made = Poller()
    yield made
    made.close()


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair()
    with one, other:
        yield one, other


class Told:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.masks: list[int] = []

    def ready(self, mask: int, now: Millis) -> None:
        assert now == NOW
        self.masks.append(mask)


def wait(poller: Poller) -> int:
    ready = poller.wait(0)
    for take, mask in ready:
        take(mask, NOW)
    return len(ready)


Pair = tuple[socket.socket, socket.socket]


def test_readable_and_writable_are_told_to_the_owner(poller: Poller, pair: Pair) -> None:
    told = Told()
    poller.watch(pair[0].fileno(), READ, told.ready)
    assert wait(poller) == 0
    pair[1].send(b"x")
    wait(poller)
    poller.watch(pair[0].fileno(), READ | WRITE, told.ready)
    wait(poller)
    poller.watch(pair[0].fileno(), WRITE, told.ready)
    wait(poller)
    assert told.masks == [READ, READ | WRITE, WRITE]


def test_no_events_forget(poller: Poller, pair: Pair) -> None:
    told = Told()
    fd = pair[0].fileno()
    pair[1].close()  # A hang-up would be told for ever.
    poller.watch(fd, READ, told.ready)
    poller.watch(fd, 0, told.ready)
    poller.watch(fd, 0, told.ready)
    poller.forget(fd)
    assert wait(poller) == 0
    assert len(poller) == 0


def test_a_number_that_is_used_again_belongs_to_the_new_owner(poller: Poller) -> None:
    first, second = Told(), Told()
    one, other = socket.socketpair()
    fd = one.fileno()
    poller.watch(fd, READ, first.ready)
    one.close()
    other.close()
    one, other = socket.socketpair()
    assert one.fileno() == fd
    poller.watch(fd, READ, second.ready)
    other.send(b"x")
    wait(poller)
    assert (first.masks, second.masks) == ([], [READ])
    poller.forget(fd)
    one.close()
    other.close()


def test_a_wait_ends_by_its_time(poller: Poller) -> None:
    assert poller.wait(1) == []
