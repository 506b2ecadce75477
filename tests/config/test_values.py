"""Each kind of value reads what is meant and says what to write instead."""

from typing import Annotated

import pytest
from pydantic import BeforeValidator, TypeAdapter, ValidationError

from amqpbroker.config.values import (
    Bind,
    Flag,
    Word,
    choice,
    count,
    did_you_mean,
    duration,
    or_unlimited,
    shown,
    size,
)


def read(kind: object, value: object) -> object:
    adapter: TypeAdapter[object] = TypeAdapter(kind)  # type: ignore[arg-type]
    return adapter.validate_python(value)


def complaint(kind: object, value: object) -> str:
    with pytest.raises(ValidationError) as caught:
        read(kind, value)
    return caught.value.errors()[0]["msg"]


SIZE = Annotated[int, size(512, 2**32 - 1)]
DURATION = Annotated[int, duration(1)]
COUNT = Annotated[int, count(1)]


@pytest.mark.parametrize(
    ("value", "number"), [(65536, 65536), ("64 KiB", 65536), ("1 MB", 1_000_000)]
)
def test_sizes(value: object, number: int) -> None:
    assert read(SIZE, value) == number


@pytest.mark.parametrize(
    ("value", "number"), [("500 ms", 500), ("30 s", 30_000), ("5 min", 300_000)]
)
def test_durations(value: object, number: int) -> None:
    assert read(DURATION, value) == number


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (SIZE, 511, "must be at least 512 bytes, is 511"),
        (SIZE, "5 GiB", "must be at most 4294967295 bytes"),
        (SIZE, "unlimited", "must have a limit"),
        (SIZE, -1, "must have a limit"),
        (SIZE, True, "must be a size"),
        (SIZE, 1.5, "must be a size"),
        (SIZE, "64 KiBs", "is no unit"),
        (DURATION, 5, "the unit is missing: write 5 s"),
        (DURATION, "0 s", "must be at least 1 ms, is 0"),
        (DURATION, "soon", "write it as"),
        (DURATION, [], "write it as"),
        (COUNT, "many", 'must be a whole number, is "many"'),
        (COUNT, True, "must be a whole number, is true"),
        (COUNT, 0, "must be at least 1, is 0"),
        (COUNT, -5, "must have a limit"),
        (Flag, "yes", "must be true or false"),
        (Flag, 1, "must be true or false, is 1"),
        (Word, 5, "must be text, is 5"),
        (Word, "", "must not be empty"),
        (Word, "a\nb", "control characters"),
        (Word, "\ud800", "control characters"),
        (Bind, "localhost", "is not host:port"),
        (Bind, "localhost:99999", "is not host:port"),
        (Bind, ":5672", "is not host:port"),
        (Bind, "::1:5672", "in brackets: [::1]:port"),
        (Bind, "unix:", "needs a path"),
        (Bind, "unix:" + "x" * 104, "at most 103 bytes"),
        (Bind, 5672, "must be text"),
    ],
)
def test_complaints(kind: object, value: object, text: str) -> None:
    assert text in complaint(kind, value)


@pytest.mark.parametrize(
    "bind", ["localhost:5672", "*:0", "[::1]:5672", "10.0.0.1:65535", "unix:/run/a.sock"]
)
def test_binds(bind: str) -> None:
    assert read(Bind, bind) == bind


@pytest.mark.parametrize("value", ["unlimited", -1, -5.5])
def test_no_limit(value: object) -> None:
    for kind in (count(1), size(1), duration(1)):
        assert read(Annotated[int | None, or_unlimited(kind)], value) is None


def test_choices_know_what_is_there_what_comes_and_what_was_meant() -> None:
    kind = Annotated[str, choice("info", "error", later=("trace",))]
    assert read(kind, "info") == "info"
    assert complaint(kind, "trace") == "trace: not supported yet; supported: info, error"
    assert complaint(kind, "eror") == '"eror" is not known, did you mean error?'
    assert complaint(kind, []) == "must be one of info, error, is a list"


def test_without_a_near_word_all_are_named() -> None:
    assert did_you_mean("zzz", ["b", "a"]) == "; known here: a, b"


def test_braces_in_a_value_are_not_a_template() -> None:
    assert "{x}" in complaint(Annotated[str, choice("a")], "{x}")


def test_what_is_quoted_is_short() -> None:
    assert len(shown("x" * 1000)) < 70
    assert shown(None) == "null"
    assert shown({}) == "a mapping"
    assert isinstance(size(1), BeforeValidator)
