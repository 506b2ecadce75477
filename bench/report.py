"""The tables. Plain text, columns aligned; a figure that was not measured leaves its place empty."""

from collections.abc import Iterable, Sequence

from bench.compare import LOAD_SHARE, Rounds, Variant
from bench.targets import Verdict

# figure -> (heading, digits after the point), in the order of the columns
COLUMNS = {
    "rate": ("msg/s", 0),
    "cpu_us": ("CPU us", 2),
    "p50_us": ("p50 us", 0),
    "p99_us": ("p99 us", 0),
    "ahead": (
        "ahead",
        0,
    ),  # most messages sent and not received: how deep the queue was, and what was on its way
    "load_us": ("load us", 2),
    "memory_mib": ("MiB", 0),
    "fill_rate": ("fill/s", 0),
    "fill_us": ("fill us", 2),
    "drain_rate": ("drain/s", 0),
    "drain_us": ("drain us", 2),
    "beyond_bytes": ("B beyond", 0),
    "connection_kib": ("KiB/conn", 1),
    "idle_percent": ("idle %", 2),
    "start_s": ("start s", 3),
    "start_cpu_s": ("start CPU s", 3),
}
RATIO = "CPU ratio"


def figures_table(rounds: Rounds, reference: str) -> str:
    """One line per variant: medians, and the ratio of its CPU per message to the reference broker's."""
    used = [f for f in COLUMNS if any(f in run for runs in rounds.runs.values() for run in runs)]
    head = ["workload", "broker", "runs", *(COLUMNS[f][0] for f in used), RATIO, "quartiles"]
    lines = [head]
    for variant, runs in rounds.runs.items():
        cells = [cell(rounds.middle(variant, figure), COLUMNS[figure][1]) for figure in used]
        ratio = rounds.ratio(variant, Variant(reference, variant.workload), "cpu_us")
        quartiles = "" if ratio is None else f"{ratio.low:.2f}..{ratio.high:.2f}"
        if ratio is not None and ratio.is_wide:
            quartiles += " wide"
        middle = None if ratio is None else ratio.median
        lines.append(
            [variant.workload, variant.broker, str(len(runs)), *cells, cell(middle, 2), quartiles]
        )
    return "\n".join([aligned(lines), *notes(rounds)])


def notes(rounds: Rounds) -> Iterable[str]:
    """Runs whose client cost too much of what it measured."""
    for variant in rounds.runs:
        load, cpu = rounds.middle(variant, "load_us"), rounds.middle(variant, "cpu_us")
        if load is not None and cpu is not None and load > cpu * LOAD_SHARE and in_bulk(variant):
            yield f"{variant}: the load client used {load / cpu:.0%} of the broker's CPU"


def in_bulk(variant: Variant) -> bool:
    """Whether the client can batch: one message in flight costs each side its system calls."""
    return not variant.workload.startswith(("ping", "open"))


def verdicts_table(verdicts: Sequence[Verdict]) -> str:
    """One line per target: the bound, what was measured, whether it is met."""
    lines = [["target", "bound", "measured", "quartiles", ""]]
    for verdict in verdicts:
        bound = f"{'>=' if verdict.target.at_least else '<='} {verdict.target.limit:g}"
        ratio = verdict.ratio
        quartiles = "" if ratio is None else f"{ratio.low:.2f}..{ratio.high:.2f}"
        lines.append(
            [verdict.target.text, bound, cell(verdict.value, 3), quartiles, verdict.outcome]
        )
    return aligned(lines)


def cell(value: float | None, digits: int) -> str:
    """A number for a table; nothing for None."""
    return "" if value is None else f"{value:,.{digits}f}"


def aligned(lines: Sequence[Sequence[str]]) -> str:
    """Columns: the first one to the left, numbers to the right."""
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    words = [
        not any(line[i][:1].isdigit() for line in lines[1:]) or i == 0 for i in range(len(widths))
    ]
    return "\n".join(
        "  ".join(
            text.ljust(width) if is_word else text.rjust(width)
            for text, width, is_word in zip(line, widths, words, strict=True)
        ).rstrip()
        for line in lines
    )
