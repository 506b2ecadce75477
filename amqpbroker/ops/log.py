"""The log: one line per state change, as text or JSON, on standard error.

`EVENTS` is the one table of what may be said. The names are stable: alerts and searches are written against them.
A WARNING is something that an operator can act on, and its meaning says what to do. Neither passwords nor message
bodies are ever given as fields. Must not know who says something: the runtime hands on what the engine, the
peers and the store noted.
"""

import json
import logging
import re
import sys
import time
from collections.abc import Mapping
from logging import DEBUG, ERROR, INFO, WARNING
from typing import NamedTuple, TextIO

EVENTS: dict[str, tuple[int, str]] = {
    # the process
    "broker_started": (INFO, "ready: every listener is open"),
    "broker_stopping": (INFO, "asked to stop: listeners are closed, output is drained"),
    "broker_stopped": (INFO, "stopped in order"),
    "broker_broken": (ERROR, "the engine's state may be wrong: exit 70; please report the stack"),
    "settings_stock": (INFO, "no file was given; what that means"),
    "driver_pure": (WARNING, "slower without these twins: run `make setup` with a C compiler"),
    # listeners
    "listener_up": (INFO, "connections are accepted here"),
    "listener_down": (INFO, "no more connections are accepted here"),
    "listener_full": (WARNING, "max_connections is reached: raise it, or find who opens so many"),
    "listener_failed": (WARNING, "cannot accept; out of descriptors: raise the limit (ulimit -n)"),
    # the store
    "store_memory": (INFO, "durable messages live in memory: a restart loses them"),
    # queues; not at INFO, since a client that opens a link per message makes one per message
    "queue_created": (DEBUG, "a queue exists now; automatic: made on demand, ends when idle"),
    "queue_deleted": (DEBUG, "a queue is gone"),
    # connections
    "peer_opened": (INFO, "a connection is open"),
    "peer_fault": (INFO, "a peer broke the rules: its session or link is ended; why"),
    "peer_closing": (INFO, "we close a connection; why"),
    "peer_closed": (INFO, "a connection is gone; why"),
    "peer_failed": (ERROR, "our mistake: this connection is closed; please report the stack"),
}

PLAIN = re.compile(r"[^\s\"\\=\x00-\x1f\x7f]+")  # What a text value may be without quotes.
LEVELS = {"debug": DEBUG, "info": INFO, "warning": WARNING, "error": ERROR}
FORMATS = ("text", "json")

_log = logging.getLogger("amqpbroker")


class LogSettings(NamedTuple):
    """How much is said, and in which form."""

    level: str = "info"  # A key of LEVELS.
    format: str = "text"  # One of FORMATS.


def set_up(settings: LogSettings, stream: TextIO | None = None) -> None:
    """Send the log to `stream` (standard error). For a program's start only: a host's own set-up is replaced."""
    output = logging.StreamHandler(stream if stream is not None else sys.stderr)
    output.setFormatter(JsonLine() if settings.format == "json" else TextLine())
    root = logging.getLogger()
    root.handlers[:] = [output]
    root.setLevel(WARNING)  # Of libraries, only what somebody should act on.
    _log.setLevel(LEVELS[settings.level])


def log_note(
    event: str, fields: Mapping[str, object], *, failure: BaseException | None = None
) -> None:
    """Say that `event` of EVENTS happened, at the level given there; with `failure`, its stack too."""
    level = EVENTS.get(event, (INFO, ""))[0]
    if _log.isEnabledFor(level):
        extra = {"event": event, "fields": dict(fields)}
        _log.log(level, event, exc_info=failure, extra=extra)


def timestamp(record: logging.LogRecord) -> str:
    """When it happened: UTC, to the millisecond, as RFC 3339 has it."""
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{seconds}.{int(record.msecs):03d}Z"


def said(record: logging.LogRecord) -> tuple[str, dict[str, object]]:
    """Event and fields of a record; what did not come by log_note is `other`, with its text as a field."""
    event = getattr(record, "event", None)
    if isinstance(event, str):
        return event, getattr(record, "fields", {})
    return "other", {"logger": record.name, "text": record.getMessage()}


class TextLine(logging.Formatter):
    """`time LEVEL event=… key=value …`; values that could be mistaken are quoted as JSON strings."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, and the lines of a stack after it."""
        event, fields = said(record)
        words = [timestamp(record), record.levelname, f"event={event}"]
        words += [f"{key}={text_value(value)}" for key, value in fields.items()]
        line = " ".join(words)
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonLine(logging.Formatter):
    """One JSON object per line: time, level, event, then the fields; a stack as one string."""

    def format(self, record: logging.LogRecord) -> str:
        """The object, without a line break inside."""
        event, fields = said(record)
        line: dict[str, object] = {"time": timestamp(record), "level": record.levelname.lower()}
        line["event"] = event
        line.update((key, value) for key, value in fields.items() if key not in line)
        if record.exc_info:
            line["stack"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


def text_value(value: object) -> str:
    """A value as one word: true, false, null, numbers and plain text as they are, all else quoted."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = str(value)
    # A name from a peer must not be able to start a line of its own or to forge a field.
    return text if PLAIN.fullmatch(text) else json.dumps(text)
