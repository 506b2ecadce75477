"""What is done to a broker, and the figures that come of it.

All traffic is unsettled (at least once), credit 1000, frames of 64 KiB, and transient unless said otherwise.
A *shared* workload runs many times on one process, which no other workload touches: what one leaves behind must not be
charged to another. Seen: on one process for all, 1p1c-100 rose from 6 to 13 us beside 1p1c-idle, whose ratio to it
then read 0.4. A *fresh* one starts a process for each run, since a warm process would hide what it measures.
"""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from bench import client, process
from bench.brokers import Recipe, Running
from bench.process import Usage, now, pause

Figures = dict[str, float]
Options = tuple[object, ...]

KIB = 1024
FILL = 300_000  # messages
IDLE_SECONDS = 30.0  # Two heartbeats of each connection at the usual idle time-out of 60 s.
SETTLE_SECONDS = 1.0  # After connecting or filling: what was put off is done by then.
LOOK_SECONDS = 0.1  # Between two looks at whether a broker rests.
QUIET_LOOKS = 10  # In a row: garbage is collected when a broker was idle for a while, not at once.
REST_SHARE = 0.05  # of a core
SETTLE_LIMIT = 10.0  # seconds; a broker that is busy by itself is measured as it is.
FROM_LOAD = {"rate": "rate", "load_us": "load_cpu_us", "ahead": "ahead_max"}
TOUCH = ("--producers", 1, "--consumers", 1, "--messages", 2_000)  # Loads code and grows buffers.


@dataclass(frozen=True)
class Shared:
    """Messages through a process that keeps running, one for each variant.

    `idle` connections stay open beside it all the time; `gone` ones came and went before the first message.
    """

    name: str
    about: str
    options: Options
    messages: int
    idle: int = 0
    gone: int = 0

    def set_up(self, broker: Running, stack: ExitStack) -> None:
        """Other connections first, then as many messages as this broker needs before a figure counts."""
        if self.gone:
            with ExitStack() as visit:
                hold(visit, broker.url, self.gone)
        if self.idle:
            hold(stack, broker.url, self.idle)
        client.run(broker.url, self._options(broker.warm_up))

    def measure(self, broker: Running, share: float) -> Figures:
        """One run of `share` of its messages."""
        with client.running(broker.url, self._options(int(self.messages * share))) as load:
            return measured(load, broker.usage)

    def _options(self, messages: int) -> list[object]:
        queue = f"bench.{self.name}"
        return [*self.options, "--messages", messages, "--address", queue, *client.fresh_run()]


@dataclass(frozen=True)
class Fresh:
    """Something done to a process of its own."""

    name: str
    about: str
    measure: Callable[[Recipe, float], Figures]  # the share as above


Workload = Shared | Fresh


def measured(load: client.Load, usage: Callable[[], Usage | None]) -> Figures:
    """The figures of one load, CPU sampled from its go to its last message."""
    load.wait_ready()
    settle(usage)
    before = usage()
    load.go()
    result = load.result()
    after = usage()
    figures: Figures = {name: result[key] for name, key in FROM_LOAD.items()}
    if before is not None and after is not None:
        figures["cpu_us"] = (after.cpu - before.cpu) / result["messages"] * 1e6
        figures["memory_mib"] = after.memory / KIB**2
    for name, stamp in (("latency_us", "p50_us"), ("latency_us", "p99_us")):
        if name in result:
            figures[stamp] = result[name][stamp.removesuffix("_us")]
    return figures


def settle(usage: Callable[[], Usage | None]) -> None:
    """Return when the broker rests: what it still does for the run before must not count for this one.

    Seen once in four: 0.8 s of CPU in the 5 s after 2,000 connections had closed.
    """
    quiet, deadline = 0, now() + SETTLE_LIMIT
    while quiet < QUIET_LOOKS and now() < deadline:
        before = usage()
        pause(LOOK_SECONDS)
        after = usage()
        if before is None or after is None:
            return
        at_rest = after.cpu - before.cpu < REST_SHARE * (after.at - before.at)
        quiet = quiet + 1 if at_rest else 0


def hold(stack: ExitStack, url: str, connections: int) -> None:
    """Keep idle connections open, with one session each, until `stack` ends."""
    load = stack.enter_context(client.running(url, ["--idle", connections]))
    load.wait_ready()
    stack.callback(load.go)  # Its result comes at once; then it closes.


def fill_and_drain(recipe: Recipe, share: float) -> Figures:
    """A backlog built up and taken away; memory per message between the two."""
    count = int(FILL * share)
    with recipe.running() as broker:
        client.run(broker.url, [*TOUCH, "--address", "bench.touch", *client.fresh_run()])
        same: list[object] = ["--messages", count, "--address", "bench.fill", *client.fresh_run()]
        empty = usage_of(broker)
        fill = client.run(broker.url, ["--producers", 1, *same])
        pause(SETTLE_SECONDS)
        full = usage_of(broker)
        drain = client.run(broker.url, ["--consumers", 1, *same])
        drained = usage_of(broker)
    per_message = (full.memory - empty.memory) / count
    return {
        "fill_rate": fill["rate"],
        "fill_us": (full.cpu - empty.cpu) / count * 1e6,
        "drain_rate": drain["rate"],
        "drain_us": (drained.cpu - full.cpu) / count * 1e6,
        "beyond_bytes": per_message - fill["message_bytes"],
    }


def connection_memory(recipe: Recipe, share: float) -> Figures:
    """Resident memory per idle connection with one session."""
    count = int(2_000 * share)
    with recipe.running() as broker, ExitStack() as stack:
        client.run(broker.url, [*TOUCH, *client.fresh_run()])
        with ExitStack() as first:
            hold(first, broker.url, 20)
        empty = usage_of(broker)
        hold(stack, broker.url, count)
        pause(SETTLE_SECONDS)
        return {"connection_kib": (usage_of(broker).memory - empty.memory) / count / KIB}


def idle_cpu(recipe: Recipe, share: float) -> Figures:  # noqa: ARG001  A heartbeat has no share.
    """CPU of a broker with 1,000 connections that say nothing but their heartbeats.

    Never shorter than IDLE_SECONDS: they beat together, each 15 s, and 10 s saw none of it (0.00 %).
    """
    with recipe.running() as broker, ExitStack() as stack:
        hold(stack, broker.url, 1_000)
        pause(2 * SETTLE_SECONDS)
        before = usage_of(broker)
        pause(IDLE_SECONDS)
        after = usage_of(broker)
    return {"idle_percent": 100 * (after.cpu - before.cpu) / (after.at - before.at)}


def start_time(recipe: Recipe, share: float) -> Figures:  # noqa: ARG001  A start has no share.
    """Process start to the first accepted message. The client knocks each half millisecond."""
    options = ["--retry", 60, "--producers", 1, "--messages", 1, *client.fresh_run()]
    with recipe.prepared() as place, client.running(place.url, options) as load:
        started = now()
        with place.spawned() as pid:
            load.wait_ready()
            load.go()
            accepted = load.result()["first_accepted_ns"] / 1e9
            used = process.usage(pid).cpu
            load.close()
    return {"start_s": accepted - started, "start_cpu_s": used}


def usage_of(broker: Running) -> Usage:
    """The usage of a process that we started ourselves."""
    usage = broker.usage()
    assert usage is not None
    return usage


def pairs(count: int, *more: object) -> Options:
    """`count` producers and consumers, each on a connection of its own."""
    return ("--producers", count, "--consumers", count, *more)


ALL: tuple[Workload, ...] = (
    Shared("1p1c-100", "1 producer, 1 consumer, 100 B", pairs(1), 200_000),
    Shared("1p1c-1k", "1 producer, 1 consumer, 1 KiB", pairs(1, "--size", KIB), 150_000),
    Shared("4p4c-100", "4 producers, 4 consumers, one queue, 100 B", pairs(4), 200_000),
    Shared(
        "64q-100",
        "64 queues, a pair of connections each, 100 B",
        pairs(64, "--queues", 64),
        256_000,
    ),
    Shared(
        "64q-1c-100",
        "64 queues, their links on one pair of connections, 100 B",
        pairs(64, "--queues", 64, "--links", 64),
        256_000,
    ),
    Shared(
        "1p1c-idle", "as 1p1c-100, 2,000 idle connections beside it", pairs(1), 200_000, idle=2_000
    ),
    Shared(
        "1p1c-gone",
        "as 1p1c-100, after 2,000 connections came and went",
        pairs(1),
        200_000,
        gone=2_000,
    ),
    Shared("durable-100", "1 producer, 1 consumer, 100 B, durable", pairs(1, "--durable"), 100_000),
    Shared(
        "durable-1k",
        "1 producer, 1 consumer, 1 KiB, durable",
        pairs(1, "--durable", "--size", KIB),
        60_000,
    ),
    Shared(
        "settled-100",
        "1 producer, 1 consumer, 100 B, presettled",
        pairs(1, "--presettled"),
        200_000,
    ),
    Shared("ping-pong", "one message in flight, 100 B", pairs(1, "--ahead", 1), 20_000),
    Shared(
        "open-10k",
        "10,000 messages a second, 100 B (open loop)",
        pairs(1, "--rate", 10_000),
        30_000,
    ),
    Fresh("fill-drain", f"fill and drain of {FILL:,}, 100 B", fill_and_drain),
    Fresh("connections", "2,000 idle connections, one session each", connection_memory),
    Fresh("idle-1000", "1,000 idle connections, nothing else", idle_cpu),
    Fresh("start", "process start to first accepted message", start_time),
)
BY_NAME = {workload.name: workload for workload in ALL}
USUAL = tuple(
    workload.name
    for workload in ALL
    if not workload.name.startswith(("durable", "settled", "open"))
)
