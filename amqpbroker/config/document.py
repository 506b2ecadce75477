"""A YAML file as plain values, each with its place, so that every complaint can say file:line:column.

PyYAML parses; what a value means is decided here, by YAML 1.2's core rules: `no`, `on`, `1:30`, `0777` and dates
stay text. Refused: tags, keys given twice, more than one document, and files that are large, deep or grow large
by aliases. `$VAR`, `${VAR}` and `${VAR:-default}` in values are expanded; `$$` is a plain `$`.
Must not know which keys there are.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import yaml

BYTES_MAX = 1 << 20  # PyYAML reads some 100 KB a second; a file of this size is no configuration.
# The contract is 7 deep; PyYAML recurses, and Python's own limit is a crash away above 900.
DEPTH_MAX = 32
NODES_MAX = 100_000  # Counted after alias expansion: nine levels of nine aliases are 387 million.

INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})")
BASED = re.compile(r"0o[0-7]{1,20}|0x[0-9a-fA-F]{1,15}")
FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
# An octal number for some readers, a decimal one for others: text.
ZERO_LED = re.compile(r"[-+]?0[0-9]+")
WORDS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
VARIABLE = re.compile(r"\$(?:(\$)|\{(\w+)(?::-([^}]*))?\}|([A-Za-z_]\w*))")

Scalar = str | int | float | bool | None


class Place(NamedTuple):
    """Where something stands; lines and columns count from 1. Line 0: the file as a whole."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


Path = tuple[str | int, ...]


def path_text(path: Path) -> str:
    """`listeners[0].bind`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")


class Problem(NamedTuple):
    """One thing that is wrong, and where."""

    place: Place
    path: Path
    text: str

    def __str__(self) -> str:
        return ": ".join(
            part for part in (str(self.place), path_text(self.path), self.text) if part
        )


@dataclass(slots=True)
class Leaf:
    """A scalar."""

    value: Scalar
    place: Place


@dataclass(slots=True)
class Listing:
    """A sequence."""

    items: list["Item"]
    place: Place


@dataclass(slots=True)
class Table:
    """A mapping; `keys` has the places of its keys."""

    entries: dict[str, "Item"]
    place: Place
    keys: dict[str, Place] = field(default_factory=dict)


Item = Leaf | Listing | Table


def plain(item: Item) -> object:
    """The values alone."""
    if isinstance(item, Leaf):
        return item.value
    if isinstance(item, Listing):
        return [plain(one) for one in item.items]
    return {key: plain(value) for key, value in item.entries.items()}


def merge(first: Item, second: Item) -> Item:
    """Both files' settings: mappings key by key, lists one after the other, and else the second's word."""
    if isinstance(first, Table) and isinstance(second, Table):
        merged = Table(dict(first.entries), first.place, first.keys | second.keys)
        for key, value in second.entries.items():
            merged.entries[key] = (
                merge(merged.entries[key], value) if key in merged.entries else value
            )
        return merged
    if isinstance(first, Listing) and isinstance(second, Listing):
        return Listing(first.items + second.items, first.place)
    return second


def parse(data: bytes, file: str, environment: Mapping[str, str], problems: list[Problem]) -> Table:
    """The mapping that a file holds; what is wrong is added to `problems`, and the rest is read all the same."""
    nothing = Table({}, Place(file, 1, 1))
    if len(data) > BYTES_MAX:
        problems.append(Problem(Place(file), (), f"larger than {BYTES_MAX} bytes"))
        return nothing
    try:
        node = _Composer(data.decode("utf-8-sig")).get_single_node()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - data.rfind(b"\n", 0, error.start)
        problems.append(Problem(Place(file, line, column), (), "not UTF-8"))
        return nothing
    except yaml.reader.ReaderError as error:
        before = data.decode("utf-8-sig")[: error.position]
        place = Place(file, before.count("\n") + 1, len(before) - before.rfind("\n"))
        problems.append(Problem(place, (), f"character {error.character:#x} is not allowed"))
        return nothing
    except yaml.MarkedYAMLError as error:
        problems.append(_syntax_problem(error, file))
        return nothing
    except (ValueError, OverflowError) as error:  # PyYAML: "\Uffffffff", %YAML with 5,000 digits.
        problems.append(Problem(Place(file), (), f"not YAML: {error}"))
        return nothing
    if node is None:
        return nothing  # Empty, or comments only: every setting is its default.
    item = _Reader(file, environment, problems).read(node, ())
    if isinstance(item, Table):
        return item
    if item is not None:
        problems.append(Problem(item.place, (), "the file must be a mapping: section, colon, keys"))
    return nothing


def _syntax_problem(error: yaml.MarkedYAMLError, file: str) -> Problem:
    mark = error.problem_mark or error.context_mark
    place = Place(file, mark.line + 1, mark.column + 1) if mark else Place(file)
    text = ", ".join(part for part in (error.context, error.problem) if part)
    return Problem(place, (), text or "not YAML")


class _Composer(yaml.SafeLoader):
    """Composes nodes without giving plain scalars a meaning, and not too deep."""

    yaml_implicit_resolvers = {}  # noqa: RUF012  PyYAML's own name for it.

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        tag = getattr(event, "tag", None)
        if tag not in (None, "!"):
            raise yaml.composer.ComposerError(
                None, None, f"tags are not used here: {tag}", event.start_mark
            )
        if self._depth == DEPTH_MAX:
            raise yaml.composer.ComposerError(
                None, None, f"nested deeper than {DEPTH_MAX}", event.start_mark
            )
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


class _Reader:
    """Turns nodes into items."""

    def __init__(self, file: str, environment: Mapping[str, str], problems: list[Problem]) -> None:
        self._file = file
        self._environment = environment
        self._problems = problems
        self._nodes = 0
        self._above: set[int] = set()  # Nodes that the one being read is inside of.

    def read(self, node: yaml.Node, path: Path) -> Item | None:
        """The item; None when it cannot be told, which has been reported."""
        place = self._place(node)
        self._nodes += 1
        if self._nodes > NODES_MAX:
            if self._nodes == NODES_MAX + 1:
                self._complain(place, path, f"more than {NODES_MAX} values, aliases expanded")
            return None
        if id(node) in self._above:
            self._complain(place, path, "an alias to something that it is inside of")
            return None
        self._above.add(id(node))
        try:
            if isinstance(node, yaml.MappingNode):
                return self._table(node, path, place)
            if isinstance(node, yaml.SequenceNode):
                items = (self.read(one, (*path, number)) for number, one in enumerate(node.value))
                return Listing([item for item in items if item is not None], place)
            assert isinstance(node, yaml.ScalarNode)
            return Leaf(self._scalar(node, path, place), place)
        finally:
            self._above.remove(id(node))

    def _table(self, node: yaml.MappingNode, path: Path, place: Place) -> Table:
        table = Table({}, place)
        for key_node, value_node in node.value:
            at = self._place(key_node)
            if not isinstance(key_node, yaml.ScalarNode):
                self._complain(at, path, "a key must be a plain word")
                continue
            key = str(key_node.value)
            if key == "<<":
                self._complain(at, path, "merge keys (<<) are not used here")
                continue
            if key in table.keys:
                self._complain(
                    at, (*path, key), f"given twice, first in line {table.keys[key].line}"
                )
                continue
            table.keys[key] = at
            value = self.read(value_node, (*path, key))
            if value is not None:
                table.entries[key] = value
        return table

    def _scalar(self, node: yaml.ScalarNode, path: Path, place: Place) -> Scalar:
        text = VARIABLE.sub(lambda match: self._variable(match, path, place), node.value)
        return resolve(text) if node.style is None else text

    def _variable(self, match: re.Match[str], path: Path, place: Place) -> str:
        dollar, braced, default, bare = match.groups()
        if dollar:
            return "$"
        value = self._environment.get(braced or bare)
        if value:
            return value
        if default is not None:
            return str(default)
        if value is None:
            text = f"environment variable {braced or bare} is not set (a plain $ is written $$)"
            self._complain(place, path, text)
        return ""

    def _place(self, node: yaml.Node) -> Place:
        return Place(self._file, node.start_mark.line + 1, node.start_mark.column + 1)

    def _complain(self, place: Place, path: Path, text: str) -> None:
        self._problems.append(Problem(place, path, text))


def resolve(text: str) -> Scalar:
    """What an unquoted scalar means by YAML 1.2's core rules, but a number with a leading zero is text."""
    if text in WORDS:
        return WORDS[text]
    if INTEGER.fullmatch(text):
        return int(text)
    if BASED.fullmatch(text):
        return int(text, 0)
    if FLOAT.fullmatch(text) and not ZERO_LED.fullmatch(text):
        return float(text)
    return text
