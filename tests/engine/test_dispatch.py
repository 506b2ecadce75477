"""Who gets what: round robin, bounds, drains, browsers."""

import pytest

from amqpbroker.engine.commands import RELEASED, Credit, Window
from amqpbroker.engine.effects import Drained, Transfer
from tests.engine.rig import Rig, kinds, message, of, taken

SIZE = len(message("1"))


@pytest.mark.rule("Q-2")
def test_two_consumers_take_turns() -> None:
    rig = Rig()
    one, two = rig.consumer(credit=1), rig.consumer(credit=1)
    effects = rig.publish(rig.producer(), "A", "B", "C")
    assert taken(effects, one) == ["A"]
    assert taken(effects, two) == ["B"]


def test_a_run_is_cut_once_per_link_and_in_turn() -> None:
    rig = Rig()
    links = [rig.consumer(credit=100) for _ in range(3)]
    effects = rig.publish(rig.producer(), *"abcdefgh")
    assert [taken(effects, link) for link in links] == [list("adg"), list("beh"), list("cf")]
    assert len(of(effects, Transfer)) == 3


def test_a_pass_starts_after_the_one_that_was_served_last() -> None:
    rig = Rig()
    links = [rig.consumer(credit=100) for _ in range(3)]
    producer = rig.producer()
    served = []
    for text in ("a", "b", "c", "d"):
        (transfer,) = of(rig.publish(producer, text), Transfer)
        served.append(links.index(transfer.link))
    assert served == [0, 1, 2, 0]
    effects = rig.publish(producer, "e", "f")
    assert [taken(effects, link) for link in links] == [[], ["e"], ["f"]]
    assert taken(rig.publish(producer, "g"), links[0]) == ["g"]


def test_whoever_has_more_credit_gets_the_rest() -> None:
    rig = Rig()
    little, much = rig.consumer(credit=1), rig.consumer(credit=9)
    effects = rig.publish(rig.producer(), *"abcde")
    assert taken(effects, little) == ["a"]
    assert taken(effects, much) == list("bcde")


@pytest.mark.rule("B5.9", "B5.12")
def test_credit_is_honoured_to_the_message_and_may_be_taken_back() -> None:
    rig = Rig()
    consumer = rig.consumer(credit=2)
    producer = rig.producer()
    assert taken(rig.publish(producer, *"abc")) == ["a", "b"]
    assert taken(rig.credit(consumer, 3)) == ["c"]
    rig.credit(consumer, 0)
    assert taken(rig.publish(producer, "d")) == []


@pytest.mark.rule("B3.1", "B5.18")
def test_dispatch_stops_when_the_window_is_used_up_and_goes_on_when_it_opens() -> None:
    rig = Rig()
    session = rig.session(frames=2, frame_bytes=SIZE)
    consumer = rig.consumer(session=session, credit=10)
    effects = rig.publish(rig.producer(), *"abcde")
    assert taken(effects, consumer) == ["a", "b"]
    assert taken(rig.window(session, 0)) == []
    assert taken(rig.window(session, 1)) == ["c"]
    assert taken(rig.window(session, 100)) == ["d", "e"]


def test_a_large_entry_starts_when_one_frame_is_left() -> None:
    rig = Rig()
    session = rig.session(frames=1, frame_bytes=10)
    rig.consumer(session=session, credit=10)
    large = "l" * 100
    assert taken(rig.publish(rig.producer(), large, "m")) == [large]


def test_a_large_entry_uses_all_its_frames() -> None:
    rig = Rig()
    session = rig.session(frames=5, frame_bytes=10)
    rig.consumer(session=session, credit=10)
    three_frames = "l" * (30 - len(message("")) - 5)
    effects = rig.publish(rig.producer(), three_frames, three_frames, three_frames)
    assert len(taken(effects)) == 2
    assert taken(rig.window(session, 3)) == [three_frames]
    assert taken(rig.publish(rig.producer(), "m")) == []


def test_dispatch_stops_when_the_connection_has_no_room() -> None:
    rig = Rig()
    connection = rig.connection(room=SIZE + 1)
    rig.consumer(session=rig.session(connection), credit=10)
    other = rig.consumer(credit=1)
    effects = rig.publish(rig.producer(), *"abcd")
    assert taken(effects, other) == ["b"]
    assert len(taken(effects)) == 3
    assert taken(rig.room(connection, 0)) == []
    assert taken(rig.room(connection, 1)) == ["d"]


def test_two_sessions_of_one_connection_share_its_room() -> None:
    rig = Rig()
    connection = rig.connection(room=3 * SIZE)
    for _ in range(2):
        rig.consumer(session=rig.session(connection), credit=10)
    assert len(taken(rig.publish(rig.producer(), *"abcdef"))) == 3


def test_order_holds_where_the_window_cuts_a_run() -> None:
    rig = Rig()
    session = rig.session(frames=3)
    consumer = rig.consumer(session=session, credit=400)
    producer = rig.producer()
    texts = [str(number) for number in range(300)]
    got = taken(rig.publish(producer, *texts))
    while len(got) < 300:
        got += taken(rig.window(session, 7))
    assert got == texts
    assert rig.queue().consumers[consumer].credit == 100


# --- drains -----------------------------------------------------------------------------------------------------


@pytest.mark.rule("B5.10")
def test_a_drain_sends_what_there_is_and_gives_back_the_rest() -> None:
    rig = Rig()
    consumer = rig.consumer()
    rig.publish(rig.producer(), "a")
    effects = rig.credit(consumer, 5, drain=True)
    assert kinds(effects) == ["Transfer", "Drained"]
    assert taken(rig.publish(rig.producer(), "b")) == []


@pytest.mark.rule("B5.10")
def test_the_answer_to_a_drain_does_not_wait_for_the_end_of_the_turn() -> None:
    rig = Rig()
    consumer = rig.consumer()
    rig.broker.apply(Credit(consumer, 5, drain=True), rig.now)
    assert kinds(rig.broker.take_effects()) == ["Drained"]


@pytest.mark.rule("B5.11")
@pytest.mark.parametrize("credit", [0, 5])
def test_a_drain_of_an_empty_queue_is_answered_each_time(credit: int) -> None:
    rig = Rig()
    consumer = rig.consumer()
    for _ in range(3):
        assert kinds(rig.credit(consumer, credit, drain=True)) == ["Drained"]


@pytest.mark.rule("B5.10")
def test_a_drain_that_uses_up_its_credit_is_answered() -> None:
    rig = Rig()
    consumer = rig.consumer()
    rig.publish(rig.producer(), "a", "b", "c")
    assert kinds(rig.credit(consumer, 2, drain=True)) == ["Transfer", "Drained"]
    assert kinds(rig.credit(consumer, 0, drain=True)) == ["Drained"]


def test_credit_after_a_drain_cycle_is_new_credit() -> None:
    """Bug case 14: credit given after a drain cycle must take effect, a hundred times."""
    rig = Rig()
    producer = rig.producer()
    consumer = rig.consumer()
    for _ in range(100):
        assert kinds(rig.credit(consumer, 10, drain=True)) == ["Drained"]
        rig.credit(consumer, 10)
        effects = rig.publish(producer, "1", "2", "3")
        assert taken(effects) == ["1", "2", "3"]
        rig.settle(consumer, of(effects, Transfer)[0].sequences)


def test_a_drain_waits_for_room_and_is_answered_once() -> None:
    rig = Rig()
    connection = rig.connection(room=1)
    consumer = rig.consumer(session=rig.session(connection))
    rig.publish(rig.producer(), "a", "b")
    assert kinds(rig.credit(consumer, 5, drain=True)) == ["Transfer"]
    assert rig.room(connection, 0) == []
    effects = rig.room(connection, 1000)
    assert kinds(effects) == ["Transfer", "Drained"]
    assert taken(effects) == ["b"]
    assert rig.room(connection, 1000) == []


def test_a_drain_that_waits_is_answered_when_others_have_taken_all() -> None:
    rig = Rig()
    connection = rig.connection(room=0)
    consumer = rig.consumer(session=rig.session(connection))
    other = rig.consumer()
    rig.publish(rig.producer(), "a")
    assert rig.credit(consumer, 5, drain=True) == []
    effects = rig.credit(other, 1)
    assert taken(effects, other) == ["a"]
    assert [each.link for each in of(effects, Drained)] == [consumer]


def test_two_drains_that_wait_are_two_answers() -> None:
    rig = Rig()
    session = rig.session(frames=0)
    consumer = rig.consumer(session=session)
    rig.publish(rig.producer(), "a")
    assert rig.credit(consumer, 5, drain=True) == rig.credit(consumer, 5, drain=True) == []
    assert kinds(rig.window(session, 10)) == ["Transfer", "Drained", "Drained"]


def test_a_flow_without_drain_calls_a_waiting_drain_off() -> None:
    rig = Rig()
    session = rig.session(frames=0)
    consumer = rig.consumer(session=session)
    rig.publish(rig.producer(), "a")
    rig.credit(consumer, 5, drain=True)
    rig.credit(consumer, 5)
    effects = rig.window(session, 10)
    assert kinds(effects) == ["Transfer"]
    assert rig.queue().consumers[consumer].credit == 4


def test_a_drain_does_not_wait_for_what_is_not_stored_yet() -> None:
    rig = Rig()
    consumer = rig.consumer()
    rig.publish(rig.producer(), message("m", durable=True))
    assert kinds(rig.credit(consumer, 5, drain=True)) == ["Drained"]


def test_a_drain_does_not_wait_for_what_has_expired_or_was_refused_here() -> None:
    rig = Rig()
    session = rig.session(frames=0)
    consumer = rig.consumer(session=session)
    rig.publish(rig.producer(), message("m", ttl=1))
    assert rig.credit(consumer, 5, drain=True) == []
    assert kinds(rig.move_to(rig.now + 2)) == []
    assert kinds(rig.do(Window(session, 0), Credit(consumer, 5, drain=True))) == [
        "Drained",
        "Drained",
    ]


# --- browsers ---------------------------------------------------------------------------------------------------


@pytest.mark.rule("N-9", "N-10", "B5.4")
def test_a_browser_gets_copies_and_leaves_no_trace() -> None:
    rig = Rig()
    rig.publish(rig.producer(), "a", "b")
    browser, attached = rig.attach_consumer(copies=True)
    assert getattr(attached[0], "copies", None) is True
    effects = rig.credit(browser, 9)
    assert of(effects, Transfer)[0].settled
    assert taken(effects) == ["a", "b"]
    rig.settle(browser, [1, 2], RELEASED)
    rig.detach(browser)
    consumer = rig.consumer()
    effects = rig.credit(consumer, 9)
    assert of(effects, Transfer)[0].payloads == [message("a"), message("b")]


@pytest.mark.rule("N-9")
def test_a_browser_steps_over_what_is_leased_and_does_not_come_back_to_it() -> None:
    rig = Rig()
    consumer = rig.consumer(credit=1)
    rig.publish(rig.producer(), "a", "b")
    browser = rig.consumer(copies=True)
    assert taken(rig.credit(browser, 9)) == ["b"]
    rig.settle(consumer, [1], RELEASED)
    assert rig.credit(browser, 9) == []


@pytest.mark.rule("N-9")
def test_a_browser_stays_for_new_arrivals_and_sees_what_consumers_take() -> None:
    rig = Rig()
    producer = rig.producer()
    browser = rig.consumer(copies=True, credit=9)
    consumer = rig.consumer(credit=9)
    effects = rig.publish(producer, "a")
    assert taken(effects, browser) == taken(effects, consumer) == ["a"]


@pytest.mark.rule("N-9", "B5.10")
def test_the_end_of_the_queue_is_told_to_a_browser_by_its_drain() -> None:
    rig = Rig()
    rig.publish(rig.producer(), "a", "b", "c")
    browser = rig.consumer(copies=True)
    effects = rig.credit(browser, 2, drain=True)
    assert (taken(effects), kinds(effects)[-1]) == (["a", "b"], "Drained")
    effects = rig.credit(browser, 2, drain=True)
    assert (taken(effects), kinds(effects)[-1]) == (["c"], "Drained")
    assert kinds(rig.credit(browser, 2, drain=True)) == ["Drained"]


def test_a_browser_waits_for_its_window() -> None:
    rig = Rig()
    session = rig.session(frames=1)
    rig.publish(rig.producer(), "a", "b", "c")
    browser = rig.consumer(session=session, copies=True)
    assert kinds(rig.credit(browser, 9, drain=True)) == ["Transfer"]
    effects = rig.window(session, 9)
    assert (taken(effects), kinds(effects)[-1]) == (["b", "c"], "Drained")


def test_a_browser_does_not_pass_what_is_not_stored_yet() -> None:
    rig = Rig()
    browser = rig.consumer(copies=True, credit=9)
    effects = rig.publish(rig.producer(), "a", message("b", durable=True), "c")
    assert taken(effects, browser) == ["a"]
    assert taken(rig.stored(), browser) == ["b", "c"]
