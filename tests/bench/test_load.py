"""The load client's own checks (does it see what it claims to see?) and the maths of the tables."""

import json
import random
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from proton import Endpoint, Event, Message, Sender
from proton.handlers import MessagingHandler
from proton.reactor import Container

from bench import client, report
from bench.brokers import free_port
from bench.compare import Rounds, Variant, ratio_of
from bench.targets import Target, judge

Tamper = Callable[[list[Message]], list[Message]]

COUNT = 20
A, B = Variant("a", "w"), Variant("b", "w")


def run_load(*options: object, text: str | None = None) -> tuple[int, dict[str, object]]:
    command = [str(client.build()), *map(str, options)]
    done = subprocess.run(
        command, input=text, capture_output=True, text=True, timeout=30, check=False
    )
    return done.returncode, json.loads(done.stdout)


# --- The histogram ---


def test_percentiles_are_within_one_percent_of_the_sorted_list() -> None:
    chance = random.Random(7)
    values = sorted(int(10 ** chance.uniform(0, 9)) for _ in range(5_000))
    _, printed = run_load("--histogram", text=" ".join(map(str, values)))
    found = printed["latency_us"]
    assert isinstance(found, dict)
    for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99_9", 0.999)):
        exact = values[round(share * len(values)) - 1] / 1000
        assert found[name] == pytest.approx(exact, rel=0.01, abs=0.1)
    assert found["max"] == pytest.approx(values[-1] / 1000, abs=0.1)


@pytest.mark.parametrize("value", [0, 1, 127, 128, 255, 256, 1 << 40, (1 << 64) - 1])
def test_no_value_falls_beside_the_buckets(value: int) -> None:
    _, printed = run_load("--histogram", text=str(value))
    found = printed["latency_us"]
    assert isinstance(found, dict)
    assert found["p50"] == pytest.approx(value / 1000, rel=0.01, abs=0.1)


# --- The checks, against a queue that keeps COUNT messages and sends them on as it was told ---


class Queue(MessagingHandler):
    """One producer, one consumer; `tamper` chooses what is sent on."""

    def __init__(self, url: str, tamper: Tamper, listening: threading.Event) -> None:
        super().__init__(prefetch=1000)
        self._url, self._tamper, self._listening = url, tamper, listening
        self._kept: list[Message] = []
        self._sender: Sender | None = None
        self._sent = False

    def on_start(self, event: Event) -> None:
        self.acceptor = event.container.listen(self._url)
        self._listening.set()

    def on_link_opening(self, event: Event) -> None:
        link = event.link
        assert link is not None
        link.source.copy(link.remote_source)
        link.target.copy(link.remote_target)
        if isinstance(link, Sender):
            self._sender = link

    def on_message(self, event: Event) -> None:
        self._kept.append(event.message)
        self._send_on()

    def on_sendable(self, event: Event) -> None:
        self._send_on()

    def _send_on(self) -> None:
        if self._sent or self._sender is None or len(self._kept) < COUNT:
            return
        if not self._sender.state & Endpoint.REMOTE_ACTIVE or self._sender.credit < COUNT:
            return
        self._sent = True
        for message in self._tamper(self._kept):
            self._sender.send(message)


@contextmanager
def queue(tamper: Tamper) -> Iterator[str]:
    url = f"127.0.0.1:{free_port()}"
    listening = threading.Event()
    container = Container(Queue(url, tamper, listening))
    thread = threading.Thread(target=container.run)
    thread.start()
    assert listening.wait(10)
    try:
        yield f"amqp://{url}"
    finally:
        container.stop()
        thread.join(10)


def through_queue(tamper: Tamper) -> tuple[int, dict[str, object]]:
    with queue(tamper) as url:
        options = ("--producers", 1, "--consumers", 1, "--messages", COUNT, "--timeout", 1)
        return run_load("--url", url, *options)


def test_a_faithful_queue_passes() -> None:
    code, result = through_queue(lambda kept: kept)
    assert (code, result["received"], result["accepted"]) == (0, COUNT, COUNT)


def test_a_lost_message_is_a_gap() -> None:
    code, result = through_queue(lambda kept: kept[:5] + kept[6:])
    assert (code, result["gaps"], result["stalled"]) == (3, 1, True)


def test_a_message_sent_twice_is_a_duplicate() -> None:
    code, result = through_queue(lambda kept: [*kept[:6], kept[5], *kept[6:]])
    assert (code, result["duplicates"]) == (1, 1)


def test_a_message_behind_its_successor_is_an_order_error() -> None:
    code, result = through_queue(lambda kept: [*kept[:5], kept[6], kept[5], *kept[7:]])
    assert (code, result["order_errors"], result["gaps"]) == (1, 1, 0)


# --- The maths ---


def test_a_ratio_is_the_median_of_the_pairs_and_not_of_the_medians() -> None:
    ratio = ratio_of([(2.0, 1.0), (30.0, 10.0), (4.0, 1.0)])
    assert ratio is not None
    assert (ratio.median, ratio.low, ratio.high) == (3.0, 2.5, 3.5)
    assert ratio.spread == pytest.approx(1 / 3)
    assert ratio.is_wide


def test_there_is_no_ratio_without_a_pair() -> None:
    assert ratio_of([]) is None
    assert Rounds({A: [{"cpu_us": 1.0}]}).ratio(A, B, "cpu_us") is None


def test_a_target_is_judged_by_its_ratio_or_by_its_figure() -> None:
    rounds = Rounds({A: [{"cpu_us": 3.0, "rate": 5.0}], B: [{"cpu_us": 2.0, "rate": 4.0}]})
    targets = (
        Target("cpu", "cpu_us", A, 1.5, B),
        Target("cpu", "cpu_us", A, 1.4, B),
        Target("rate", "rate", A, 1.0, B, at_least=True),
        Target("figure", "cpu_us", A, 2.9),
        Target("nowhere", "start_s", A, 1.0),
    )
    assert [verdict.is_met for verdict in judge(targets, rounds)] == [
        True,
        False,
        True,
        False,
        False,
    ]


@pytest.mark.parametrize(
    ("pairs", "outcome"),
    [
        ([(1.0, 1.0)] * 4, "met"),
        ([(1.6, 1.0)] * 4, "not met"),
        ([(1.0, 1.0), (1.2, 1.0), (1.8, 1.0), (2.0, 1.0)], "undecided (wide)"),
        ([(0.4, 1.0), (0.6, 1.0), (0.8, 1.0), (1.0, 1.0)], "met (wide)"),
    ],
)
def test_a_bound_inside_a_wide_spread_is_undecided(
    pairs: list[tuple[float, float]], outcome: str
) -> None:
    rounds = Rounds({A: [{"cpu_us": a} for a, _ in pairs], B: [{"cpu_us": b} for _, b in pairs]})
    assert judge([Target("cpu", "cpu_us", A, 1.5, B)], rounds)[0].outcome == outcome


def test_numbers_stand_to_the_right_and_words_to_the_left() -> None:
    lines = report.aligned([["name", "n"], ["a", "1"], ["long", "1,000"]]).split("\n")
    assert lines == ["name      n", "a         1", "long  1,000"]
