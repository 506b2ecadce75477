"""Interleaved runs and pairwise ratios.

A group of variants (a broker with a workload) runs A B C A B C …, so that what the machine does meanwhile meets all of
them. A ratio is taken within each round and its median counts. Its *spread* is the distance between its quartiles over
its median: above MARGIN the group runs more rounds, up to EXTRA times as many; a ratio that spreads wider even then is
marked, and should not be believed before it was measured on a quieter machine.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from statistics import median, quantiles

from bench.brokers import BrokerMissingError, External, Running, Source
from bench.workloads import Figures, Fresh, Workload

MARGIN = 0.08  # Found by runs of a broker against itself: quiet machines stay below 0.04, two busy cores at 0.07.
EXTRA = 2.0  # A group that has not settled by then will not: the machine has other work.
LOAD_SHARE = 0.5  # A client that costs more than this of what it measures measures itself.


@dataclass(frozen=True)
class Variant:
    """One broker with one workload."""

    broker: str
    workload: str

    def __str__(self) -> str:
        return f"{self.broker} {self.workload}"


@dataclass(frozen=True)
class Ratio:
    """One figure of two variants, pair by pair."""

    median: float
    low: float
    high: float
    spread: float

    @property
    def is_wide(self) -> bool:
        """Whether it spreads beyond the margin."""
        return self.spread > MARGIN


@dataclass
class Rounds:
    """The figures of each variant, one entry per round."""

    runs: dict[Variant, list[Figures]] = field(default_factory=dict)

    def middle(self, variant: Variant, figure: str) -> float | None:
        """The median of a figure; None when it was not measured."""
        values = [run[figure] for run in self.runs.get(variant, ()) if figure in run]
        return median(values) if values else None

    def ratio(self, subject: Variant, reference: Variant, figure: str) -> Ratio | None:
        """A figure of `subject` in terms of `reference`, None when there is no pair of it."""
        pairs = zip(self.runs.get(subject, ()), self.runs.get(reference, ()), strict=False)
        return ratio_of([(a[figure], b[figure]) for a, b in pairs if figure in a and figure in b])


def ratio_of(pairs: Sequence[tuple[float, float]]) -> Ratio | None:
    """Median, quartiles and spread of the pairs' ratios."""
    ratios = [subject / reference for subject, reference in pairs if reference]
    if not ratios:
        return None
    if len(ratios) == 1:
        return Ratio(ratios[0], ratios[0], ratios[0], 0.0)
    low, middle, high = quantiles(ratios, n=4, method="inclusive")
    return Ratio(middle, low, high, (high - low) / middle if middle else 0.0)


@dataclass(frozen=True)
class Plan:
    """How thoroughly a group is run."""

    rounds: int
    share: float = 1.0  # of the messages of a workload
    say: Callable[[str], None] = lambda _: None


Watch = tuple[Variant, Variant, str]  # subject, reference, figure: a ratio that must not be wide


def interleave(
    variants: Sequence[tuple[Source, Workload]], plan: Plan, watched: Sequence[Watch] = ()
) -> Rounds:
    """Run the variants in rounds, on one process per broker, and again while a watched ratio is wide."""
    rounds = Rounds()
    with ExitStack() as stack:
        brokers = start_shared(stack, variants)
        for source, workload in variants:
            if not isinstance(workload, Fresh):
                plan.say(f"warm up {source.name} {workload.name}")
                workload.warm(brokers[source.name])
        done = 0
        while done < plan.rounds or (
            done < plan.rounds * EXTRA and any_wide(rounds, watched) and plan.rounds > 1
        ):
            done += 1
            for source, workload in variants:
                variant = Variant(source.name, workload.name)
                figures = run_once(source, workload, brokers, plan.share)
                rounds.runs.setdefault(variant, []).append(figures)
                plan.say(f"round {done} {variant}: {brief(figures)}")
    return rounds


def start_shared(
    stack: ExitStack, variants: Sequence[tuple[Source, Workload]]
) -> dict[str, Running]:
    """One process for each broker with a shared workload."""
    brokers: dict[str, Running] = {}
    for source, workload in variants:
        if not isinstance(workload, Fresh) and source.name not in brokers:
            brokers[source.name] = stack.enter_context(source.running())
    return brokers


def run_once(
    source: Source, workload: Workload, brokers: dict[str, Running], share: float
) -> Figures:
    """One run of one variant."""
    if not isinstance(workload, Fresh):
        return workload.measure(brokers[source.name], share)
    if isinstance(source, External):
        raise BrokerMissingError(
            f"{workload.name} starts processes of its own: {source.name} cannot"
        )
    return workload.measure(source, share)


def any_wide(rounds: Rounds, watched: Sequence[Watch]) -> bool:
    """Whether a ratio that somebody wants spreads beyond the margin."""
    ratios = (rounds.ratio(*watch) for watch in watched)
    return any(ratio is not None and ratio.is_wide for ratio in ratios)


def brief(figures: Figures) -> str:
    """One run on one line."""
    return " ".join(f"{name}={value:.4g}" for name, value in figures.items())
