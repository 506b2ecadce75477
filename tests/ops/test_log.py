"""The log's two forms, and that nothing from outside can forge a line."""

import io
import json
import logging
import re
from collections.abc import Iterator

import pytest

from amqpbroker.ops.log import EVENTS, LogSettings, log_note, set_up

STAMP = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


@pytest.fixture(autouse=True)
def _put_back() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("amqpbroker")
    before = root.handlers[:], root.level, ours.level
    yield
    root.handlers[:] = before[0]
    root.setLevel(before[1])
    ours.setLevel(before[2])


def written(level: str, form: str) -> io.StringIO:
    stream = io.StringIO()
    set_up(LogSettings(level=level, format=form), stream)
    return stream


def test_a_text_line_has_time_level_event_and_fields_in_order() -> None:
    stream = written("info", "text")
    log_note("listener_up", {"listener": "amqp", "port": 5672, "tls": False, "user": None})
    pattern = STAMP + r" INFO event=listener_up listener=amqp port=5672 tls=false user=null\n"
    assert re.fullmatch(pattern, stream.getvalue())


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("two words", '"two words"'),
        ("", '""'),
        ("a=b", '"a=b"'),
        ('say "x"', r'"say \"x\""'),
        ("x\n2026 ERROR event=forged", r'"x\n2026 ERROR event=forged"'),
        ("back\\slash", r'"back\\slash"'),
        ("\x1b[31m", r'"\u001b[31m"'),
        ("\u2028", r'"\u2028"'),
        ("grün", "grün"),
        ("[::1]:5672", "[::1]:5672"),
    ],
)
def test_a_value_that_could_be_mistaken_is_quoted(value: str, shown: str) -> None:
    stream = written("info", "text")
    log_note("peer_opened", {"peer": value})
    assert stream.getvalue().endswith(f" event=peer_opened peer={shown}\n")


def test_a_json_line_is_one_object() -> None:
    stream = written("info", "json")
    log_note("peer_closed", {"peer": "a\nb", "in": 5, "time": "forged", "reason": ValueError("x")})
    assert stream.getvalue().count("\n") == 1
    line = json.loads(stream.getvalue())
    assert re.fullmatch(STAMP, line.pop("time"))
    assert line == {"level": "info", "event": "peer_closed", "peer": "a\nb", "in": 5, "reason": "x"}


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_failure_comes_with_its_stack(form: str) -> None:
    stream = written("info", form)
    try:
        raise RuntimeError("broken")  # noqa: TRY301  It needs a stack.
    except RuntimeError as error:
        log_note("peer_failed", {"peer": "x"}, failure=error)
    assert "RuntimeError: broken" in stream.getvalue()
    assert "Traceback" in stream.getvalue()


def test_levels_are_in_the_table_and_the_level_decides() -> None:
    stream = written("warning", "text")
    log_note("peer_opened", {})
    log_note("listener_full", {"max": 5})
    assert "peer_opened" not in stream.getvalue()
    assert " WARNING event=listener_full max=5" in stream.getvalue()


def test_what_libraries_say_is_shown_from_warning_on() -> None:
    stream = written("debug", "text")
    logging.getLogger("other").info("chatter")
    logging.getLogger("other").warning("odd %s", "thing")
    assert re.fullmatch(
        STAMP + r' WARNING event=other logger=other text="odd thing"\n', stream.getvalue()
    )


def test_setting_up_twice_does_not_say_all_twice() -> None:
    written("info", "text")
    stream = written("info", "text")
    log_note("peer_opened", {})
    assert stream.getvalue().count("peer_opened") == 1


def test_an_event_outside_the_table_is_said_all_the_same() -> None:
    stream = written("info", "text")
    log_note("never_heard_of", {})
    assert " INFO event=never_heard_of\n" in stream.getvalue()


def test_names_are_words_and_a_warning_says_what_to_do() -> None:
    for name, (level, meaning) in EVENTS.items():
        assert re.fullmatch(r"[a-z]+(_[a-z]+)+", name)
        if level == logging.WARNING:
            assert re.search(r"[:;] ", meaning), f"{name}: what is the operator to do?"
