"""`python -m bench`: run workloads on brokers, print one table; or check the targets."""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from bench import client, report, workloads
from bench.brokers import OURS, BrokerMissingError, source
from bench.compare import Plan, Rounds, Variant, interleave
from bench.targets import GROUPS, Group, Verdict, judge

QUICK_SHARE = 0.3  # To see that all works and roughly how; not for a verdict.
QUICK_ROUNDS = 3

EXIT_NOT_MET = 1
EXIT_FAILED = 2

EPILOG = """\
brokers: ours, ours-pure, proto_fast, proto_lmdb, artemis, any of them
with -again behind it (a control: what a ratio of 1 looks like here), or NAME=amqp://host:port[#PID] for one that runs.
The first broker is the reference of the ratios.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry out one command line; returns the exit code."""
    options = parse(arguments)
    if options.list:
        print("\n".join(f"{w.name:<12}{w.about}" for w in workloads.ALL))
        return 0
    if options.build:
        print(client.build())
        return 0
    plan = Plan(
        options.rounds or (QUICK_ROUNDS if options.quick else 7),
        QUICK_SHARE if options.quick else 1.0,
        say if options.verbose else lambda _: None,
    )
    try:
        return check_targets(options, plan) if options.targets else measure(options, plan)
    except (BrokerMissingError, client.LoadError, subprocess.CalledProcessError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return EXIT_FAILED


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--brokers", default="ours", help="comma-separated (ours)")
    add("--workloads", default=",".join(workloads.USUAL), help="comma-separated, see --list")
    add(
        "--targets",
        nargs="?",
        const="all",
        metavar="GROUPS",
        help="check the targets: all, or some of " + ", ".join(group.name for group in GROUPS),
    )
    add("--check", action="store_true", help="with --targets: exit code 1 unless all are met")
    add("--rounds", type=int, help="interleaved rounds (7)")
    add("--quick", action="store_true", help=f"a third of the messages, {QUICK_ROUNDS} rounds")
    add("--ours", default=OURS, help="our broker's command line (%(default)s)")
    add("--json", type=Path, metavar="FILE", help="all single runs and medians as JSON")
    add("--verbose", action="store_true", help="each run as it ends, on stderr")
    add("--list", action="store_true", help="the workloads")
    add("--build", action="store_true", help="build the load client and say where it is")
    return parser.parse_args(arguments)


def measure(options: argparse.Namespace, plan: Plan) -> int:
    """Each workload on all brokers, interleaved; one table."""
    sources = [source(name, options.ours) for name in options.brokers.split(",")]
    total = Rounds()
    for name in options.workloads.split(","):
        if name not in workloads.BY_NAME:
            raise BrokerMissingError(f"unknown workload {name!r}, see --list")
        workload = workloads.BY_NAME[name]
        watched = [
            (Variant(s.name, name), Variant(sources[0].name, name), "cpu_us") for s in sources[1:]
        ]
        total.runs.update(interleave([(s, workload) for s in sources], plan, watched).runs)
    print(report.figures_table(total, sources[0].name))
    save(options.json, total, [])
    return 0


def check_targets(options: argparse.Namespace, plan: Plan) -> int:
    """The groups of targets, one after another; both tables."""
    wanted = (
        [group.name for group in GROUPS] if options.targets == "all" else options.targets.split(",")
    )
    total, verdicts = Rounds(), list[Verdict]()
    for group in GROUPS:
        if group.name not in wanted:
            continue
        rounds = run_group(group, options.ours, plan)
        verdicts += judge(group.targets, rounds)
        print(f"{group.name}:\n{report.figures_table(rounds, reference_of(group))}\n", flush=True)
        total.runs.update(rounds.runs)
    print(report.verdicts_table(verdicts))
    save(options.json, total, verdicts)
    return EXIT_NOT_MET if options.check and not all(v.is_met for v in verdicts) else 0


def run_group(group: Group, ours: str, plan: Plan) -> Rounds:
    """A group's variants, interleaved; nothing when a broker of it cannot run here."""
    rounds = min(plan.rounds, group.rounds)
    try:
        sources = {v.broker: source(v.broker, ours) for v in group.variants()}
        variants = [(sources[v.broker], workloads.BY_NAME[v.workload]) for v in group.variants()]
        return interleave(variants, Plan(rounds, plan.share, plan.say), group.watched())
    except (BrokerMissingError, FileNotFoundError) as error:
        print(f"{group.name}: {error}", file=sys.stderr)
        return Rounds()


def reference_of(group: Group) -> str:
    """The broker that the group's ratios refer to."""
    references = [target.reference for target in group.targets if target.reference is not None]
    return references[0].broker if references else "ours"


def save(path: Path | None, rounds: Rounds, verdicts: Sequence[Verdict]) -> None:
    """Everything, for a later look."""
    if path is None:
        return
    runs = [
        {"broker": variant.broker, "workload": variant.workload, "runs": runs}
        for variant, runs in rounds.runs.items()
    ]
    judged = [
        {"target": v.target.text, "limit": v.target.limit, "value": v.value, "met": v.is_met}
        for v in verdicts
    ]
    path.write_text(json.dumps({"variants": runs, "targets": judged}, indent=1) + "\n")


def say(line: str) -> None:
    """One line of progress."""
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
