"""The contract with Proton: fails, with the reason, when a release moves a name that the container leans on."""

import pytest
from proton import Event
from proton.handlers import MessagingHandler
from proton.reactor import Container

from amqpbroker.runtime import proton_private


def test_no_name_has_moved() -> None:
    moved = proton_private.moved()
    assert not moved, "this Proton lacks names that runtime/container.py leans on:\n" + "\n".join(
        moved
    )


def test_a_moved_name_is_told_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"Reactor._gone": "a test", "IOHandler._selector": "still there"}
    monkeypatch.setattr(proton_private, "NAMES", names)
    assert proton_private.moved() == ["Reactor._gone: a test"]


def test_a_reactor_without_sockets_and_timers_still_stops_by_itself() -> None:
    container = Container(MessagingHandler())
    container.start()
    turns = 0
    while container.process():
        turns += 1
        assert turns < 100


def test_one_more_counted_keeps_the_reactor_going() -> None:
    container = Container(MessagingHandler())
    container.global_handler = _Patient()
    container.start()
    proton_private.count_one_more(container)
    assert all(container.process() for _ in range(20))


def test_waiting_events_and_stop_are_seen() -> None:
    container = Container(MessagingHandler())
    assert not proton_private.has_events(container)
    container.push_event(container, Event.REACTOR_INIT)
    assert proton_private.has_events(container)
    assert not proton_private.is_stopped(container)
    container.stop()
    assert proton_private.is_stopped(container)


class _Patient(proton_private.IOHandler):
    """Does not wait."""

    def on_reactor_quiesced(self, event: Event) -> None:
        event.container.yield_()
