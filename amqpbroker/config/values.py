"""The kinds of values that a configuration file holds: sizes, durations, counts, choices, as pydantic types.

Each reads what the file says and complains in a sentence that says what to write instead.
"""

import difflib
from collections.abc import Callable, Iterable
from typing import Annotated, cast

from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError

from amqpbroker.base import units
from amqpbroker.runtime.endpoints import ListenError, split_bind

UINT_MAX = 2**32 - 1
COUNT_MAX = 2**31 - 1
UNIX_PATH_MAX = 103  # Bytes: sun_path is 108 on Linux, 104 on macOS, both with a closing NUL.


def wrong(text: str) -> PydanticCustomError:
    """The complaint `text`, as pydantic wants it; braces in it are not a template."""
    return PydanticCustomError("wrong", "{text}", {"text": text})


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that was most likely meant."""
    close = difflib.get_close_matches(word, list(known), n=1)
    return close[0] if close else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`, did you mean x?`, or the words that there are."""
    words = list(known)
    close = nearest(word, words)
    return f", did you mean {close}?" if close else f"; known here: {', '.join(sorted(words))}"


def shown(value: object) -> str:
    """A value as it may be quoted in a complaint: short, on one line."""
    names = {list: "a list", dict: "a mapping", bool: str(value).lower(), type(None): "null"}
    text = names.get(type(value)) or (f'"{value}"' if isinstance(value, str) else str(value))
    return text if len(text) <= 60 else text[:57] + '…"'


Reader = Callable[[object], int]
"""Reads a number as it stands in a file. No limit is None: in base/units.py, here, and in the models."""


def count(least: int, most: int = COUNT_MAX) -> BeforeValidator:
    """A whole number in bounds."""

    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise wrong(f"must be a whole number, is {shown(value)}")
        return in_bounds(None if value < 0 else value, least, most)

    return BeforeValidator(read)


def in_bounds(value: int | None, least: int, most: int, unit: str = "") -> int:
    """`value`; complains when it is out of bounds, or no limit."""
    if value is None:
        raise wrong("must have a limit")
    if value < least:
        raise wrong(f"must be at least {least}{unit}, is {value}")
    if value > most:
        raise wrong(f"must be at most {most}{unit}, is {value}")
    return value


def size(least: int = 0, most: int = units.VALUE_MAX) -> BeforeValidator:
    """Bytes: 65536, "64 KiB", "10 MB"."""
    return BeforeValidator(lambda value: in_bounds(read_size(value), least, most, " bytes"))


def read_size(value: object) -> int | None:
    """Bytes of a size as it stands in a file, or None for no limit."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise wrong(f'must be a size such as "64 KiB", is {shown(value)}')
    try:
        return units.parse_size(value)
    except ValueError as error:
        raise wrong(str(error)) from error


def duration(least: int = 0, most: int = COUNT_MAX) -> BeforeValidator:
    """Milliseconds of "500 ms", "30 s", "5 min", "1 h"; a bare number is refused."""
    return BeforeValidator(lambda value: in_bounds(read_duration(value), least, most, " ms"))


def read_duration(value: object) -> int | None:
    """Milliseconds of a duration as it stands in a file, or None for no limit."""
    if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
        raise wrong(f"the unit is missing: write {value} s, or ms, min, h")
    try:
        return units.parse_duration(value)
    except ValueError as error:
        raise wrong(str(error)) from error


def is_unlimited(value: object) -> bool:
    """`unlimited`, or a negative number."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value < 0
    return value == units.UNLIMITED


def or_unlimited(kind: BeforeValidator) -> BeforeValidator:
    """What `kind` reads, or None for no limit."""
    read = cast("Reader", kind.func)
    return BeforeValidator(lambda value: None if is_unlimited(value) else read(value))


def flag(value: object) -> bool:
    """True or false, in YAML 1.2's words only."""
    if not isinstance(value, bool):
        hint = " (yes, no, on, off are plain text in YAML 1.2)" if isinstance(value, str) else ""
        raise wrong(f"must be true or false, is {shown(value)}{hint}")
    return value


def word(value: object) -> str:
    """Text that is not empty, and can be shown: a name with a line break in it is an attack or a mistake."""
    if not isinstance(value, str):
        raise wrong(f"must be text, is {shown(value)}; in quotes it is")
    if not value:
        raise wrong("must not be empty")
    if not value.isprintable():
        raise wrong("must not hold control characters")
    return value


def choice(*known: str, later: Iterable[str] = ()) -> BeforeValidator:
    """One of `known`; those of `later` belong to the contract and are not built yet."""
    not_yet = tuple(later)

    def read(value: object) -> str:
        if value in known:
            return str(value)
        if value in not_yet:
            raise wrong(f"{value}: not supported yet; supported: {', '.join(known)}")
        if isinstance(value, str):
            raise wrong(f"{shown(value)} is not known{did_you_mean(value, (*known, *not_yet))}")
        raise wrong(f"must be one of {', '.join(known)}, is {shown(value)}")

    return BeforeValidator(read)


def read_bind(value: object) -> str:
    """`host:port`, `*:port`, `[address]:port` or `unix:path`, checked as far as a text can be."""
    text = word(value)
    if text.startswith("unix:"):
        path = text.removeprefix("unix:")
        if not path:
            raise wrong("unix: needs a path")
        if len(path.encode()) > UNIX_PATH_MAX:
            raise wrong(f"a socket's path has at most {UNIX_PATH_MAX} bytes")
        return text
    try:
        host, _ = split_bind(text)
    except ListenError as error:
        raise wrong(str(error)) from error
    if ":" in host and not text.startswith("["):
        raise wrong(f"an IPv6 address is written in brackets: [{host}]:port")
    return text


Flag = Annotated[bool, BeforeValidator(flag)]
Word = Annotated[str, BeforeValidator(word)]
Bind = Annotated[str, BeforeValidator(read_bind)]
