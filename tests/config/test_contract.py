"""Keys of the contract: those that are read, those that are not built yet, and those that nobody knows."""

from typing import ClassVar

import pytest

from amqpbroker.config.contract import Section, weed
from amqpbroker.config.document import Problem, parse, plain
from amqpbroker.config.model import File


class Inner(Section):
    later: ClassVar = {"speed": "unlimited", "wait": "5 min", "room": "1 MiB"}

    width: int = 1


class Outer(Section):
    later: ClassVar = {
        "store": {"kind": ("lmdb", "memory"), "deep": {"x": 1}},
        "users": [],
        "roles": {},
        "ratio": 1.0,
        "on": True,
        "off": False,
    }

    name: str
    inner: Inner = Inner()
    many: list[Inner] = []  # noqa: RUF012


def weeded(text: str) -> tuple[object, list[str]]:
    problems: list[Problem] = []
    table = parse(text.encode(), "f", {}, problems)
    weed(table, Outer, (), problems)
    return plain(table), [str(problem).removeprefix("f:") for problem in problems]


def test_known_keys_stay() -> None:
    text = "name: a\ninner: {width: 2}\nmany: [{width: 3}]"
    assert weeded(text) == ({"name": "a", "inner": {"width": 2}, "many": [{"width": 3}]}, [])


def test_null_is_not_set() -> None:
    assert weeded("name: null\ninner: null") == ({"name": None}, [])


@pytest.mark.parametrize(
    "text",
    [
        "store: {kind: memory}",
        "store: {kind: lmdb, deep: {x: 1}}",
        "store: {}",
        "users: []",
        "roles: {}",
        "ratio: 1",
        '"on": true',
        "inner: {speed: -1, wait: 300 s, room: 1048576}",
        "many: [{wait: 5 min}]",
    ],
)
def test_a_key_not_built_yet_may_state_its_default(text: str) -> None:
    assert weeded(text)[1] == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "store: {kind: sqlite}",
            '1:15: store.kind: not supported yet; only its default may stand here: "lmdb" or "memory"',
        ),
        ("store: memory", "1:8: store: not supported yet"),
        (
            "store: {deep: {x: true}}",
            "1:19: store.deep.x: not supported yet; only its default may stand here: 1",
        ),
        ("users: [a]", "1:8: users: not supported yet; only its default may stand here: []"),
        ("roles: {a: b}", "1:8: roles: not supported yet"),
        ('"off": 0', "1:8: off: not supported yet; only its default may stand here: false"),
        (
            "many: [{}, {speed: 5}]",
            '1:20: many[1].speed: not supported yet; only its default may stand here: "unlimited"',
        ),
        ("nam: a", "1:1: nam: unknown key, did you mean name?"),
        ("store: {knd: x}", "1:9: store.knd: unknown key, did you mean kind?"),
        ("inner: {zzz: x}", "1:9: inner.zzz: unknown key; inner has room, speed, wait, width"),
    ],
)
def test_all_else_is_refused(text: str, problem: str) -> None:
    assert weeded(text)[1] == [problem]


def test_no_key_is_both_read_and_not_built_yet() -> None:
    sections: list[type[Section]] = [File]
    for section in sections:
        assert not section.model_fields.keys() & section.later.keys()
        sections += [one for one in Section.__subclasses__() if one not in sections]
