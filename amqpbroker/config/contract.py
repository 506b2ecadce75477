"""Which keys there are: those that a model reads, and those of the contract that are not built yet.

A key that is not built yet may state its default, so that a file that spells everything out still loads; any other
value is refused, since the broker would not do what the file says. An unknown key is refused with the nearest known.
"""

from collections.abc import Mapping
from typing import ClassVar, get_args

from pydantic import BaseModel, ConfigDict
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from amqpbroker.config.document import Item, Leaf, Listing, Path, Problem, Table, path_text, plain
from amqpbroker.config.values import (
    is_unlimited,
    nearest,
    read_duration,
    read_size,
    shown,
)

NOT_YET = "not supported yet"


class Section(BaseModel):
    """A mapping of the file; `later` has the keys that are not built yet, with their defaults.

    A default that is a tuple is any of its values.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    later: ClassVar[Mapping[str, object]] = {}


def weed(table: Table, model: type[Section], path: Path, problems: list[Problem]) -> None:
    """Take out of `table` all keys that `model` does not read, and report those that must not be there."""
    for key in list(table.keys):
        here = (*path, key)
        if key in model.model_fields:
            _weed_known(table, key, model.model_fields[key], here, problems)
            continue
        item = table.entries.pop(key, None)
        if key in model.later:
            if item is not None:
                _check_default(item, model.later[key], here, problems)
        else:
            known = [*model.model_fields, *model.later]
            text = f"unknown key{_meant(key, known, path)}"
            problems.append(Problem(table.keys[key], here, text))


def _weed_known(
    table: Table, key: str, field: FieldInfo, path: Path, problems: list[Problem]
) -> None:
    item = table.entries.get(key)
    inner = _section_in(field.annotation)
    if isinstance(item, Leaf) and item.value is None and not field.is_required():
        del table.entries[key]  # null: not set.
    elif item is not None and inner is not None:
        _weed_item(item, inner, path, problems)


def _weed_item(item: Item, model: type[Section], path: Path, problems: list[Problem]) -> None:
    if isinstance(item, Table):
        weed(item, model, path, problems)
    elif isinstance(item, Listing):
        for number, one in enumerate(item.items):
            if isinstance(one, Table):
                weed(one, model, (*path, number), problems)


def _section_in(annotation: object) -> type[Section] | None:
    """The section that a field's type is, holds in a list, or allows."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation
    return next((found for one in get_args(annotation) if (found := _section_in(one))), None)


def _check_default(item: Item, default: object, path: Path, problems: list[Problem]) -> None:
    """Report what `item` says other than `default`, a key that is not built yet."""
    if isinstance(default, dict) and default and isinstance(item, Table):
        for key, inner in item.entries.items():
            if key in default:
                _check_default(inner, default[key], (*path, key), problems)
            else:
                text = f"unknown key{_meant(key, default, path)}"
                problems.append(Problem(item.keys[key], (*path, key), text))
    elif not _is_same(plain(item), default):
        stated = (
            ""
            if isinstance(default, dict)
            else f"; only its default may stand here: {_yaml(default)}"
        )
        problems.append(Problem(item.place, path, NOT_YET + stated))


def _is_same(value: object, default: object) -> bool:
    if isinstance(default, tuple):
        return value in default
    if type(value) is type(default) and value == default:
        return True
    if is_unlimited(default):
        return is_unlimited(value)
    if isinstance(value, bool) or isinstance(default, bool):
        return False
    if isinstance(value, int | float) and isinstance(default, int | float):
        return value == default
    return any(_reads_same(read, value, default) for read in (read_duration, read_size))


def _reads_same(read: object, value: object, default: object) -> bool:
    assert callable(read)
    try:
        return bool(read(value) == read(default))
    except PydanticCustomError:
        return False


def _yaml(default: object) -> str:
    if isinstance(default, tuple):
        return " or ".join(_yaml(one) for one in default)
    return str(default).replace("'", '"') if isinstance(default, list) else shown(default)


def _meant(key: str, known: Mapping[str, object] | list[str], path: Path) -> str:
    close = nearest(key, known)
    if close:
        return f", did you mean {close}?"
    where = path_text(path) or "the file"
    return f"; {where} has {', '.join(sorted(known))}"
