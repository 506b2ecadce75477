"""What must be reached, as a table, and the groups of runs that show it."""

from collections.abc import Iterable
from dataclasses import dataclass

from bench.compare import Ratio, Rounds, Variant, Watch


@dataclass(frozen=True)
class Target:
    """A bound on a figure of `subject`: on its ratio to `reference`, or on the figure itself without one."""

    text: str
    figure: str
    subject: Variant
    limit: float
    reference: Variant | None = None
    at_least: bool = False  # the bound is a lower one

    @property
    def watch(self) -> Watch | None:
        """The ratio it rests on."""
        return None if self.reference is None else (self.subject, self.reference, self.figure)


@dataclass(frozen=True)
class Verdict:
    """What was measured for a target; value None when it was not."""

    target: Target
    value: float | None
    ratio: Ratio | None

    @property
    def outcome(self) -> str:
        """In words; a bound between the quartiles of a wide ratio is neither kept nor missed."""
        if self.value is None:
            return "not measured"
        ratio = self.ratio
        if ratio is None or not ratio.is_wide:
            return "met" if self.is_met else "not met"
        if ratio.low <= self.target.limit <= ratio.high:
            return "undecided (wide)"
        return f"{'met' if self.is_met else 'not met'} (wide)"

    @property
    def is_met(self) -> bool:
        """Whether the bound holds for the median."""
        if self.value is None:
            return False
        if self.target.at_least:
            return self.value >= self.target.limit
        return self.value <= self.target.limit


@dataclass(frozen=True)
class Group:
    """Targets whose variants are interleaved with each other. Fewer rounds where a run starts a process."""

    name: str
    targets: tuple[Target, ...]
    rounds: int = 7

    def variants(self) -> list[Variant]:
        """Each variant once, references before their subjects."""
        both = ((t.reference, t.subject) for t in self.targets)
        return list(dict.fromkeys(v for pair in both for v in pair if v is not None))

    def watched(self) -> list[Watch]:
        """The ratios that must not be wide."""
        return [target.watch for target in self.targets if target.watch is not None]


def cpu(subject: Variant, reference: Variant, limit: float) -> Target:
    """A bound on CPU per message in terms of another variant."""
    return Target(f"CPU: {subject} / {reference}", "cpu_us", subject, limit, reference)


def beats(subject: str, reference: str, workload: str) -> tuple[Target, Target]:
    """Rate and CPU better than the other broker's."""
    ours, theirs = Variant(subject, workload), Variant(reference, workload)
    rate = Target(f"rate: {ours} / {theirs}", "rate", ours, 1.0, theirs, at_least=True)
    return rate, cpu(ours, theirs, 1.0)


BASE = Variant("ours", "1p1c-100")

GROUPS = (
    Group(
        "proto-fast",
        (
            cpu(BASE, Variant("proto_fast", "1p1c-100"), 1.6),
            cpu(Variant("ours", "1p1c-1k"), Variant("proto_fast", "1p1c-1k"), 1.45),
        ),
    ),
    Group(
        "proto-lmdb",
        (
            cpu(Variant("ours-pure", "1p1c-100"), Variant("proto_lmdb", "1p1c-100"), 1.8),
            cpu(Variant("ours-pure", "1p1c-1k"), Variant("proto_lmdb", "1p1c-1k"), 1.8),
        ),
    ),
    Group(
        "shape",
        (
            cpu(Variant("ours", "4p4c-100"), BASE, 1.2),
            cpu(Variant("ours", "64q-100"), BASE, 1.2),
            cpu(Variant("ours", "1p1c-idle"), BASE, 1.1),
        ),
    ),
    Group("artemis", (*beats("ours", "artemis", "1p1c-100"), *beats("ours", "artemis", "1p1c-1k"))),
    Group(
        "idle",
        (
            Target(
                "% of a core, 1,000 connections", "idle_percent", Variant("ours", "idle-1000"), 1.0
            ),
        ),
        rounds=1,
    ),
    Group(
        "memory",
        (
            Target(
                "bytes beyond a queued message's own",
                "beyond_bytes",
                Variant("ours", "fill-drain"),
                400,
            ),
            Target("KiB per idle connection", "connection_kib", Variant("ours", "connections"), 48),
        ),
        rounds=3,
    ),
    Group("start", (Target("s to first accepted", "start_s", Variant("ours", "start"), 0.3),)),
)


def judge(targets: Iterable[Target], rounds: Rounds) -> list[Verdict]:
    """What the runs say about each target."""
    verdicts = []
    for target in targets:
        if target.reference is None:
            value = rounds.middle(target.subject, target.figure)
            verdicts.append(Verdict(target, value, None))
        else:
            ratio = rounds.ratio(target.subject, target.reference, target.figure)
            verdicts.append(Verdict(target, None if ratio is None else ratio.median, ratio))
    return verdicts
