"""How what a client writes may reach the broker: one read, a byte a read, or pieces of any size."""

import random
from collections.abc import Callable

Cut = Callable[[bytes], list[bytes]]


def whole(data: bytes) -> list[bytes]:
    return [data]


def byte_by_byte(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


def randomly(data: bytes) -> list[bytes]:
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # noqa: T201  Shown when the test fails.
    source = random.Random(seed)
    pieces = []
    while data:
        size = source.randint(1, 40)
        pieces.append(data[:size])
        data = data[size:]
    return pieces


CUTS: tuple[Cut, ...] = (whole, byte_by_byte, randomly)
