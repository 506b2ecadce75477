"""Writes docs/rules.md: which test shows which rule, by the `@pytest.mark.rule(...)` marks of all tests.

`--check` writes nothing and fails when the page is not what it would write. The marks are read from the syntax tree:
so nothing is imported, and a test that only runs elsewhere is listed as well.
"""

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "rules.md"

SECTIONS = {
    "B0": "what Proton alone lets through, or answers wrongly",
    "B1": "protocol headers, SASL",
    "B2": "connections",
    "B3": "sessions, windows, flow",
    "B4": "producers' links",
    "B5": "consumers' links",
    "B6": "filters",
    "B7": "subscriptions",
    "B8": "outcomes, redelivery",
    "B9": "transactions",
    "B10": "messages and their sections",
    "B11": "dynamic nodes",
    "B12": "error conditions",
    "B13": "a link's life",
    "B14": "transports",
    "9": "redelivery: which outcome counts",
    "10": "addresses",
    "11": "counters",
    "AD": "addresses and routing",
    "AF": "full addresses",
    "AS": "address settings",
    "C": "cursors",
    "CP": "consumer priority",
    "D": "redelivery, dead letters",
    "DF": "default filters",
    "DV": "diverts",
    "E": "expiry",
    "EX": "examples",
    "F": "filters in force",
    "FD": "flow to disk",
    "FQ": "fully qualified names",
    "GR": "message groups",
    "H": "held and scheduled messages",
    "LC": "when queues and addresses end",
    "LV": "last value",
    "N": "browsing",
    "P": "priority",
    "PF": "producer flow control",
    "Q": "standard queues",
    "R": "rings",
    "RA": "retroactive addresses",
    "RJ": "rejecting",
    "RP": "replay",
    "SO": "sorted queues",
    "SU": "subscriptions",
    "T": "time to live",
    "W": "wildcards",
    "case": "bug reports about other brokers, replayed",
}
"""What the rules of one prefix are about. A new prefix needs a line here."""

HEAD = """\
# Rules

Which test shows which rule of the specification this project was written from, by its number. `make rules` writes
this page from the tests' `@pytest.mark.rule(...)` marks; a rule that is not here has no test yet. One test by its
name: `make test ARGS=tests/…::test_…`.
"""


def prefix_of(rule: str) -> str:
    """B5.11 -> B5, GR-4 -> GR, 9.3 -> 9, case 16 -> case."""
    return re.split(r"[-. ]", rule, maxsplit=1)[0]


def order_of(rule: str) -> list[tuple[int, int, str]]:
    """Letters by letter, numbers by size, and cases last."""
    parts = re.findall(r"\d+|[A-Za-z]+", rule)
    key = [(1, int(part), "") if part.isdigit() else (0, 0, part) for part in parts]
    return [(int(rule.startswith("case")), 0, ""), *key]


def marks_in(node: ast.AST) -> Iterator[str]:
    """The rules named by every `….mark.rule("…", …)` in an expression."""
    for call in ast.walk(node):
        if not isinstance(call, ast.Call) or not ast.unparse(call.func).endswith("mark.rule"):
            continue
        for argument in call.args:
            if not isinstance(argument, ast.Constant) or not isinstance(argument.value, str):
                sys.exit(f"line {call.lineno}: a rule is named by a plain string")
            yield argument.value


def marked(body: list[ast.stmt], inherited: set[str]) -> Iterator[tuple[str, str]]:
    """(rule, test) of each test in a module or class; a mark of either is a mark of all its tests."""
    for node in body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
            inherited = inherited | set(marks_in(node.value))
    for node in body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        rules = inherited.union(*map(marks_in, node.decorator_list))
        if isinstance(node, ast.ClassDef):
            for rule, test in marked(node.body, rules):
                yield rule, f"{node.name}::{test}"
        elif node.name.startswith("test_"):
            for rule in rules:
                yield rule, node.name


def page() -> str:
    """The whole of docs/rules.md."""
    tests: defaultdict[str, set[str]] = defaultdict(set)
    for path in ROOT.glob("tests/**/test_*.py"):
        file = path.relative_to(ROOT).as_posix()
        for rule, test in marked(ast.parse(path.read_text(), filename=file).body, set()):
            tests[rule].add(f"{file}::{test}")
    parts = [HEAD]
    for prefix, rules in groupby(sorted(tests, key=order_of), prefix_of):
        if prefix not in SECTIONS:
            sys.exit(f"{prefix}: say in SECTIONS of scripts/rules.py what these rules are about")
        parts.append(f"\n## {prefix}: {SECTIONS[prefix]}\n\n| rule | test |\n|---|---|\n")
        parts += [f"| {rule} | `{test}` |\n" for rule in rules for test in sorted(tests[rule])]
    return "".join(parts)


def main() -> None:
    """Write the page, or check it."""
    written = page()
    if "--check" not in sys.argv:
        PAGE.write_text(written)
    elif not PAGE.exists() or PAGE.read_text() != written:
        sys.exit("docs/rules.md is not what the tests' marks say: run `make rules`")


if __name__ == "__main__":
    main()
