"""Configuration files in, the frozen settings of each package out; or all that is wrong with them at once.

Several files, or the *.yaml files of a folder in the order of their names, are merged: mappings key by key with the
later file's word, lists one after the other. The environment comes in here and nowhere else.
Must not open anything but the files named.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path as FilePath

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from amqpbroker.amqp.settings import PeerSettings
from amqpbroker.base.ids import Millis
from amqpbroker.config.contract import weed
from amqpbroker.config.defaults import default_name
from amqpbroker.config.document import (
    BYTES_MAX,
    Item,
    Leaf,
    Listing,
    Place,
    Problem,
    Table,
    merge,
    parse,
    plain,
)
from amqpbroker.config.model import AddressSection, File, ListenerSection
from amqpbroker.config.values import COUNT_MAX, shown
from amqpbroker.engine.settings import (
    AddressSettings,
    BrokerSettings,
    DeclaredAddress,
    QueueSettings,
)
from amqpbroker.ops.log import LogSettings
from amqpbroker.runtime.settings import ListenerSettings, ServeSettings


class ConfigError(Exception):
    """The files cannot be used; the text has one line for each problem."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = sorted(set(problems), key=lambda one: (one.place, str(one)))
        super().__init__("\n".join(str(problem) for problem in self.problems))


def load_files(
    names: Iterable[str | os.PathLike[str]], environment: Mapping[str, str] = os.environ
) -> ServeSettings:
    """The settings that the files, merged in order, stand for; ConfigError with all that is wrong."""
    problems: list[Problem] = []
    merged: Item | None = None
    for file in _expand(names, problems):
        data = _read(file, problems)
        if data is not None:
            table = parse(data, str(file), environment, problems)
            merged = table if merged is None else merge(merged, table)
    assert merged is None or isinstance(merged, Table)
    if merged is None:
        raise ConfigError(problems)
    weed(merged, File, (), problems)
    try:
        file_model = File.model_validate(plain(merged))
    except ValidationError as error:
        told = {problem.place for problem in problems}  # One complaint about a value is enough.
        located = (_located(detail, merged) for detail in error.errors(include_url=False))
        problems += [problem for problem in located if problem.place not in told]
        raise ConfigError(problems) from None
    if problems:
        raise ConfigError(problems)
    return settings_of(file_model)


def _expand(names: Iterable[str | os.PathLike[str]], problems: list[Problem]) -> Iterable[FilePath]:
    """The files themselves, and for a folder its *.yaml files by name."""
    for name in names:
        path = FilePath(name)
        if not path.is_dir():
            yield path
            continue
        inside = sorted(path.glob("*.yaml"))
        if not inside:
            problems.append(Problem(Place(str(path)), (), "a folder without *.yaml files"))
        yield from inside


def _read(file: FilePath, problems: list[Problem]) -> bytes | None:
    try:
        with file.open("rb") as opened:
            return opened.read(BYTES_MAX + 1)
    except OSError as error:
        problems.append(Problem(Place(str(file)), (), f"cannot be read: {error.strerror}"))
        return None


# --- From pydantic's complaint to a line of the file ---

SENTENCES = {
    "missing": "missing",
    "model_type": "must be a mapping, is {}",
    "dict_type": "must be a mapping, is {}",
    "list_type": "must be a list, is {}",
    "string_type": "must be text, is {}",
    "too_short": "must not be empty",
}


def _located(detail: ErrorDetails, root: Item) -> Problem:
    """The problem, at the deepest thing of its path that is in the file."""
    item, place = root, root.place
    path: list[str | int] = []
    for part in detail["loc"]:
        if isinstance(item, Table) and part in item.entries:
            item = item.entries[str(part)]
        elif isinstance(item, Listing) and isinstance(part, int) and part < len(item.items):
            item = item.items[part]
        else:
            if isinstance(item, Table):
                path.append(part)  # Left out: missing, or its default does not fit the rest.
            break
        path.append(part)
        place = item.place
    sentence = SENTENCES.get(detail["type"], detail["msg"])
    value = item.value if isinstance(item, Leaf) else detail["input"]
    return Problem(
        place, tuple(path), sentence.format(shown(value)) if "{}" in sentence else sentence
    )


# --- From models to settings ---


def settings_of(file: File) -> ServeSettings:
    """The frozen settings that a valid file stands for."""
    name = file.broker.name or default_name()
    return ServeSettings(
        listeners=tuple(_listener(one, name) for one in file.listeners),
        broker=_broker(file),
        shutdown_grace_ms=file.broker.shutdown_grace,
        logging=LogSettings(level=file.logging.level, format=file.logging.format),
    )


def _listener(section: ListenerSection, container_id: str) -> ListenerSettings:
    peer = PeerSettings(
        container_id=container_id,
        max_frame_size=section.max_frame_size,
        channel_max=section.channel_max,
        idle_timeout_ms=_or(section.idle_timeout, 0),
        handshake_timeout_ms=section.handshake_timeout,
        max_message_size=_or(section.max_message_size, 0),
        incoming_window_bytes=section.incoming_window,
        incoming_bytes_max=section.incoming_bytes_max,
        outgoing_buffer=section.outgoing_buffer,
        bare_amqp=section.bare_amqp,
        credit=section.credit,
        credit_low=section.credit_low,
    )
    return ListenerSettings(
        name=section.name,
        bind=section.bind,
        peer=peer,
        backlog=section.backlog,
        tcp_nodelay=section.tcp_nodelay,
        max_connections=_or(section.max_connections, COUNT_MAX),
    )


def _or(limit: int | None, unlimited: int) -> int:
    """`limit`, or how a settings class says that there is none."""
    return unlimited if limit is None else limit


def _broker(file: File) -> BrokerSettings:
    rules = AddressSettings()
    for one in file.address_settings:  # At most one, until there are patterns.
        rules = AddressSettings(
            auto_create_addresses=one.auto_create_addresses,
            auto_create_queues=one.auto_create_queues,
            auto_delete_queues=one.auto_delete_queues,
            auto_delete_queues_delay=Millis(one.auto_delete_queues_delay),
            auto_delete_addresses=one.auto_delete_addresses,
        )
    return BrokerSettings(
        addresses=tuple(_address(one) for one in file.addresses),
        address=rules,
    )


def _address(section: AddressSection) -> DeclaredAddress:
    if not section.queues:
        return DeclaredAddress(name=section.name)
    queue = section.queues[0]
    return DeclaredAddress(
        name=section.name,
        queue=QueueSettings(name=queue.name or section.name, durable=queue.durable),
    )
