"""YAML in: plain values with places, or problems; never anything else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqpbroker.config.document import (
    BYTES_MAX,
    DEPTH_MAX,
    Place,
    Problem,
    Table,
    merge,
    parse,
    path_text,
    plain,
)


def read(text: str | bytes, **environment: str) -> tuple[object, list[str]]:
    problems: list[Problem] = []
    data = text.encode() if isinstance(text, str) else text
    table = parse(data, "f.yaml", environment, problems)
    return plain(table), [str(problem) for problem in problems]


def value_of(text: str, **environment: str) -> object:
    values, problems = read(f"key: {text}", **environment)
    assert not problems
    assert isinstance(values, dict)
    return values["key"]


@pytest.mark.parametrize(
    "text", ["no", "on", "yes", "Off", "1:30", "0777", "2026-01-01", "1_000", "+.inf", "y"]
)
def test_what_yaml_1_1_took_for_something_else_is_text(text: str) -> None:
    assert value_of(text) == text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("FALSE", False),
        ("~", None),
        ("", None),
        ("null", None),
        ("12", 12),
        ("-3", -3),
        ("0", 0),
        ("0x1F", 31),
        ("0o17", 15),
        ("1.5", 1.5),
        ("2e3", 2000.0),
        (".5", 0.5),
        ('"12"', "12"),
        ("'true'", "true"),
        ("64 KiB", "64 KiB"),
    ],
)
def test_plain_scalars_mean_what_yaml_1_2_says(text: str, value: object) -> None:
    found = value_of(text)
    assert found == value
    assert type(found) is type(value)


def test_a_key_given_twice_is_refused_with_both_places() -> None:
    _, problems = read("a: 1\nb: {c: 1, c: 2}\na: 3\n")
    assert problems == [
        "f.yaml:2:11: b.c: given twice, first in line 2",
        "f.yaml:3:1: a: given twice, first in line 1",
    ]


def test_variables_come_from_the_environment() -> None:
    assert value_of("$PORT", PORT="12") == 12
    assert value_of('"$PORT"', PORT="12") == "12"
    assert value_of("localhost:${PORT:-5672}") == "localhost:5672"
    assert value_of("localhost:${PORT:-5672}", PORT="1") == "localhost:1"
    assert value_of("${EMPTY:-x}", EMPTY="") == "x"
    assert value_of("$$HOME-$5") == "$HOME-$5"


def test_a_variable_that_is_not_set_is_a_problem() -> None:
    assert read("a: [x, $NOPE]")[1] == [
        "f.yaml:1:8: a[1]: environment variable NOPE is not set (a plain $ is written $$)"
    ]


def test_an_alias_is_what_its_anchor_is() -> None:
    assert value_of("{a: &x [1, 2], b: *x}") == {"a": [1, 2], "b": [1, 2]}


def test_an_alias_bomb_is_cut_off() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)]
    _, problems = read("\n".join(lines))
    assert len(problems) == 1
    assert "more than 100000 values" in problems[0]


def test_an_alias_to_itself_is_a_problem() -> None:
    assert read("a: &a [*a]")[1] == ["f.yaml:1:4: a[0]: an alias to something that it is inside of"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: !!python/object/apply:os.system [x]", "f.yaml:1:4: tags are not used here"),
        ("a: !!str 5", "f.yaml:1:4: tags are not used here"),
        ("a: 1\n\tb: 2", "f.yaml:2:1: while scanning for the next token"),
        ("a: [1, 2", "f.yaml:1:9: while parsing a flow sequence"),
        ("a: 1\n---\nb: 2", "f.yaml:2:1: expected a single document"),
        ("- a\n- b", "f.yaml:1:1: the file must be a mapping"),
        ("just text", "f.yaml:1:1: the file must be a mapping"),
        ("? [a]\n: 1", "f.yaml:1:3: a key must be a plain word"),
        ("a: &x {b: 1}\nc: {<<: *x}", "f.yaml:2:5: c: merge keys (<<) are not used here"),
        ('a: "\\Uffffffff"', "f.yaml: not YAML"),
        ("a: \x07", "f.yaml:1:4: character 0x7 is not allowed"),
        (b"a: x\nb: \xff", "f.yaml:2:4: not UTF-8"),
        ("a: " + "[" * (DEPTH_MAX + 1), f"f.yaml:1:{DEPTH_MAX + 3}: nested deeper than"),
        ("a: " + "[" * 100_000, f"f.yaml:1:{DEPTH_MAX + 3}: nested deeper than"),
        ("#" * (BYTES_MAX + 1), "f.yaml: larger than"),
    ],
)
def test_what_is_no_configuration_is_refused_at_its_place(text: str | bytes, problem: str) -> None:
    _, problems = read(text)
    assert len(problems) == 1
    assert problems[0].startswith(problem)


def test_nothing_is_an_empty_mapping() -> None:
    assert read("") == ({}, [])
    assert read("# only a comment\n") == ({}, [])
    assert read(b"\xef\xbb\xbfa: 1") == ({"a": 1}, [])


def test_merging_goes_key_by_key_and_appends_lists() -> None:
    problems: list[Problem] = []
    first = parse(b"a: {x: 1, y: 2}\nl: [1]\ns: {k: v}", "1", {}, problems)
    second = parse(b"a: {y: 3, z: 4}\nl: [2]\ns: no", "2", {}, problems)
    merged = merge(first, second)
    assert plain(merged) == {"a": {"x": 1, "y": 3, "z": 4}, "l": [1, 2], "s": "no"}
    assert isinstance(merged, Table)
    inner = merged.entries["a"]
    assert isinstance(inner, Table)
    assert inner.keys["z"] == Place("2", 1, 11)


def test_paths_read_as_people_write_them() -> None:
    assert path_text(("listeners", 0, "bind")) == "listeners[0].bind"
    assert path_text(()) == ""


@given(
    st.one_of(
        st.binary(), st.text(alphabet="a:{}[]&*!?|>-#%@'\"\\ \n\t$,0x~\x85\ud7ff").map(str.encode)
    )
)
def test_garbage_is_read_or_refused_and_never_anything_else(data: bytes) -> None:
    problems: list[Problem] = []
    assert isinstance(parse(data, "f.yaml", {}, problems), Table)
