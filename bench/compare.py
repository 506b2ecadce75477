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

# Below the room that the tightest bound leaves (1.10). No quiet machine was at hand to find the floor: with a
# load average of 5 on two cores a broker against itself spread by 0.26 to 0.35 (8 pairs, 60,000 messages) and
# by 0.19 (14 pairs, 200,000), which decides little. Measure it where you are: --brokers ours,ours-again.
MARGIN = 0.08
EXTRA = 2.0  # Bounds the time; what is wide after that is marked.
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
    """Run the variants in rounds, one process for each, and more rounds while a watched ratio is wide."""
    rounds = Rounds()
    with ExitStack() as stack:
        brokers = start_shared(stack, variants, plan)
        done = 0
        while done < plan.rounds or (
            done < plan.rounds * EXTRA and any_wide(rounds, watched) and plan.rounds > 1
        ):
            done += 1
            for source, workload in variants:
                variant = Variant(source.name, workload.name)
                figures = run_once(source, workload, brokers.get(variant), plan.share)
                rounds.runs.setdefault(variant, []).append(figures)
                plan.say(f"round {done} {variant}: {brief(figures)}")
    return rounds


def start_shared(
    stack: ExitStack, variants: Sequence[tuple[Source, Workload]], plan: Plan
) -> dict[Variant, Running]:
    """A process, set up and warm, for each variant whose workload keeps one."""
    brokers: dict[Variant, Running] = {}
    for source, workload in variants:
        if isinstance(workload, Fresh):
            continue
        variant = Variant(source.name, workload.name)
        plan.say(f"set up {variant}")
        brokers[variant] = stack.enter_context(source.running())
        workload.set_up(brokers[variant], stack)
    return brokers


def run_once(source: Source, workload: Workload, broker: Running | None, share: float) -> Figures:
    """One run of one variant."""
    if not isinstance(workload, Fresh):
        assert broker is not None
        return workload.measure(broker, share)
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
