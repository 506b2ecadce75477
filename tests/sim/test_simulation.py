"""Seeded worlds: whatever the network, the disk and the clock do, every accepted message has exactly one end."""

import os
import sys
import time
from itertools import count

import pytest

from tests.sim.world import World

WORLDS = 40  # Of an ordinary run, which takes some ten seconds.


def run(seed: int) -> World:
    world = World(seed)
    try:
        world.run()
    except Exception as error:
        logs = "\n".join(
            f"--- {client.name}\n" + "\n".join(client.raw.transcript[-30:])
            for client in world.clients
        )
        error.add_note(f"AMQPBROKER_SIM_SEED={seed} repeats it; step {world.steps}\n{logs}")
        raise
    return world


@pytest.mark.timeout(0)
def test_the_books_balance() -> None:
    """With AMQPBROKER_SIM_SECONDS new worlds for so long; AMQPBROKER_SIM_SEED is the first one's seed."""
    seconds = float(os.environ.get("AMQPBROKER_SIM_SECONDS", "0"))
    given = os.environ.get("AMQPBROKER_SIM_SEED")
    first = int(given) if given else (time.time_ns() >> 10 if seconds else 0)
    sys.stdout.write(f"first seed {first}\n")
    worlds = steps = deliveries = accepted = 0
    ends_at = time.monotonic() + seconds
    for seed in count(first):
        if worlds >= WORLDS if not seconds else time.monotonic() >= ends_at:
            break
        world = run(seed)
        worlds += 1
        steps += world.steps
        deliveries += world.deliveries
        accepted += world.accepted
    told = f"{worlds} worlds, {steps} steps, {accepted} accepted, {deliveries} delivered"
    sys.stdout.write(f"{told}\n")
    assert deliveries > 10 * worlds, "worlds in which nothing happens prove nothing"
