"""Sessions: windows, handles, channels, echoes, and what an End leaves behind (client-needs B3 and B13.2 to B13.5)."""

import gc
import resource
import sys
from typing import Any

import pytest

from amqpbroker.amqp.settings import PeerSettings
from tests.amqp.bystander import Bystander
from tests.amqp.cuts import CUTS, Cut
from tests.amqp.memory import SETTINGS, MemoryBroker, MemoryWire
from tests.raw.client import RawClient, at_least, error
from tests.raw.frames import Frame, decode_sections, message

SMALL = PeerSettings(
    container_id="broker", max_frame_size=4096, incoming_window_bytes=16 * 4096, credit=1000
)


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker()


@pytest.fixture(params=CUTS)
def client(broker: MemoryBroker, request: pytest.FixtureRequest) -> RawClient:
    return broker.client(request.param)


def all_of(client: RawClient) -> list[Frame]:
    frames = []
    while (read := client.read_frame(0)) is not None:
        frames.append(read)
    return frames


def names(frames: list[Frame]) -> list[str]:
    return [read.name for read in frames]


def put(broker: MemoryBroker, *bodies: bytes) -> None:
    client = broker.client().opened(container_id="put").begun().producer("q")
    for body in bodies:
        client.transfer(message(body)).wait_for("disposition", state="accepted")
    client.close().wait_for("close")


def bodies(frames: list[Frame]) -> list[Any]:
    return [decode_sections(read.payload)["data"] for read in frames if read.name == "transfer"]


# --- windows --------------------------------------------------------------------------------------


@pytest.mark.rule("B3.1")
def test_a_begin_is_answered_on_a_channel_of_ours_that_names_the_peers(client: RawClient) -> None:
    client.opened()
    answer = client.begin(7).expect("begin", remote_channel=7)
    assert answer.incoming_window == SETTINGS.incoming_window_bytes // SETTINGS.max_frame_size
    assert answer.channel != 7  # The lowest free one: a client must look at remote-channel.
    client.begin(3).wait_for("begin", remote_channel=3)


@pytest.mark.rule("B3.1")
def test_exactly_as_many_frames_leave_as_the_window_has(
    broker: MemoryBroker, client: RawClient
) -> None:
    # Bug case 6.
    put(broker, *[b"%d" % number for number in range(10)])
    client.opened().begun(incoming_window=3).consumer("q")
    client.credit(100, next_incoming_id=0, incoming_window=3)
    assert names(all_of(client))[-3:] == ["transfer"] * 3
    client.flow(next_incoming_id=3, incoming_window=0)
    assert all_of(client) == []
    client.flow(next_incoming_id=3, incoming_window=1)
    assert names(all_of(client)) == ["transfer"]
    client.flow(next_incoming_id=3, incoming_window=3)  # One of the three is on its way.
    assert names(all_of(client)) == ["transfer"] * 2
    client.flow(next_incoming_id=6, incoming_window=2**32 - 1)
    assert names(all_of(client)) == ["transfer"] * 4


@pytest.mark.rule("B3.1")
def test_the_window_counts_frames_and_not_messages(broker: MemoryBroker, client: RawClient) -> None:
    put(broker, b"l" * 2_000, b"s")
    client.opened(max_frame_size=512).begun(incoming_window=2).consumer("q")
    client.credit(9, incoming_window=2)
    assert names(all_of(client))[-2:] == ["transfer"] * 2
    client.flow(next_incoming_id=2, incoming_window=3)
    transfers = all_of(client)
    assert [bool(read.more) for read in transfers] == [True, True, False]
    client.flow(next_incoming_id=5, incoming_window=3)
    assert bodies(all_of(client)) == [b"s"]


@pytest.mark.rule("B3.1", "B12")
def test_a_flow_for_transfers_that_were_never_sent_ends_the_session(
    broker: MemoryBroker, client: RawClient
) -> None:
    # Bug case 6.
    put(broker, b"a")
    client.opened().begun().consumer("q").credit(5)
    client.flow(next_incoming_id=6)
    client.wait_for("end", error=error("amqp:session:window-violation"))
    client.end().begin().wait_for("begin", remote_channel=0)
    client.consumer("q", handle=0).credit(5)
    assert bodies(all_of(client)) == [b"a"]


@pytest.mark.rule("B0")
def test_a_flow_that_takes_transfers_back_ends_the_session(client: RawClient) -> None:
    client.opened().begun(next_outgoing_id=2**32 - 1).producer("q")
    client.wait_for("flow", link_credit=1000)
    client.transfer(message(b"a")).transfer(message(b"b")).flow(next_outgoing_id=1, echo=True)
    client.wait_for("flow")
    client.flow(next_outgoing_id=0)
    client.wait_for("end", error=error("amqp:session:window-violation"))
    client.end().close().wait_for("close", error=None)


@pytest.mark.rule("B3.1", "B12")
@pytest.mark.parametrize("cut", CUTS)
def test_more_frames_than_our_window_end_the_session_and_not_the_connection(cut: Cut) -> None:
    broker = MemoryBroker(SMALL)
    bystander = Bystander(broker.client)
    wire = broker.wire(cut)
    client = RawClient(wire=wire).opened().begun().begin(1).producer("q").producer("q2", channel=1)
    all_of(client)
    # Within one read, and one session flow was due for it: the window opens only when the peer can know.
    wire.is_stalled = True
    with client.pipelined():
        client.transfer(message(b"x"), more=True)
        for _ in range(16):
            client.transfer(b"", more=True)
    if cut is CUTS[0]:
        wire.is_stalled = False
        end = client.wait_for("end", error=error("amqp:session:window-violation"))
        client.transfer(b"swallowed").detach(0)
        client.end().transfer(message(b"y"), channel=1)
        client.wait_for("disposition", state="accepted")
        assert end.channel == 0
        assert not broker.has_queue("q") or not broker.queue("q").stats.added
    bystander.look()


@pytest.mark.rule("B3.1")
def test_our_window_opens_again_long_before_it_is_used_up() -> None:
    # Bug cases 8 and 19.
    broker = MemoryBroker(SMALL)
    client = broker.client().opened().begun().producer("q")
    client.wait_for("flow", link_credit=1000)
    window = 16
    for number in range(300):
        client.transfer(b"\0\x53\x75\xb0\0\0\1\x2c" if not number else b"x", more=number < 300)
        window -= 1
        for read in all_of(client):
            if read.name == "flow":
                window = read.next_incoming_id + read.incoming_window - (number + 1)
        assert window >= 8, client.log()
    client.transfer(b"x").wait_for("disposition", state="accepted")
    assert broker.queue("q").stats.added == 1


@pytest.mark.rule("B3.1")
def test_thousands_of_messages_pass_one_small_window_both_ways() -> None:
    # Bug case 8.
    broker = MemoryBroker(SMALL)
    client = broker.client().opened().begun(incoming_window=5)
    client.producer("q", snd_settle_mode=1).consumer("q", snd_settle_mode=1)
    client.wait_for("flow", link_credit=1000)
    client.credit(2**31 - 1, handle=1, incoming_window=5)
    seen = 0
    for number in range(5_000):
        client.transfer(message(b"m"), settled=True)
        for read in all_of(client):
            seen += read.name == "transfer"
            window = read.incoming_window if read.name == "flow" else None
            assert window is None or window >= 8
        client.frames.clear()
        client.transcript.clear()
        if number % 4 == 0:
            client.flow(next_incoming_id=seen, incoming_window=5)
    assert seen >= 4_990


# --- handles --------------------------------------------------------------------------------------


@pytest.mark.rule("B3.2")
def test_our_begin_says_the_highest_handle(client: RawClient) -> None:
    client.opened().begin().expect("begin", handle_max=SETTINGS.handle_max)
    client.producer("q", handle=SETTINGS.handle_max).wait_for("flow", link_credit=1000)
    client.transfer(message(b"x"), handle=SETTINGS.handle_max).expect("disposition")


@pytest.mark.rule("B3.2", "B12")
@pytest.mark.parametrize("handle", [SETTINGS.handle_max + 1, 2**32 - 1])
def test_a_handle_above_it_is_a_framing_error(client: RawClient, handle: int) -> None:
    client.opened().begun().producer("q", handle=handle)
    client.wait_for("close", error=error("amqp:connection:framing-error"))
    client.expect_closed()


@pytest.mark.rule("B3.2")
def test_no_handle_of_ours_is_above_the_peers_limit(broker: MemoryBroker) -> None:
    client = broker.client().opened().begun(handle_max=2)
    for handle in (40, 30, 20):
        client.producer("q", handle=handle, name=f"l{handle}")
        assert client.wait_for("attach").handle <= 2
    client.producer("q", handle=10, name="l10")
    client.wait_for("end", error=error("amqp:resource-limit-exceeded"))
    client.end().begin(0, handle_max=0).wait_for("begin")
    client.producer("q", handle=5, name="l5").wait_for("attach", handle=0)


def of_an_unknown_handle(name: str, client: RawClient) -> None:
    if name == "flow":
        client.credit(5, handle=9)
    elif name == "transfer":
        client.transfer(message(b"x"), handle=9)
    elif name == "detach":
        client.detach(9)
    else:
        client.wait_for("flow", link_credit=1000)
        client.detach(0).transfer(message(b"x"), handle=0)


@pytest.mark.rule("B0", "B3.3", "B12")
@pytest.mark.parametrize("name", ["flow", "transfer", "detach", "transfer after detach"])
def test_a_handle_that_is_not_attached_ends_the_session_and_no_more(
    broker: MemoryBroker, client: RawClient, name: str
) -> None:
    client.opened().begun().begin(1).producer("q").producer("q", channel=1)
    of_an_unknown_handle(name, client)
    end = client.wait_for("end", error=error("amqp:session:unattached-handle"))
    client.end(0)
    client.transfer(message(b"y"), channel=1).wait_for("disposition", state="accepted")
    assert end.channel == 0
    client.close().wait_for("close", error=None)


@pytest.mark.rule("B12", "B13.1")
def test_a_handle_in_use_ends_the_session(client: RawClient) -> None:
    client.opened().begun().producer("q").consumer("q", handle=0, name="another")
    client.wait_for("end", error=error("amqp:session:handle-in-use"))
    client.end().begin().wait_for("begin")
    client.producer("q", handle=0).wait_for("attach")


@pytest.mark.rule("B0", "B3.3", "B13.1", "B12")
def test_one_name_twice_in_a_session_ends_the_session(client: RawClient) -> None:
    client.opened().begun().producer("q", name="twin").producer("q", name="twin")
    client.wait_for("end", error=error("amqp:session:errant-link"))
    client.end().begin().wait_for("begin")
    client.producer("q", name="twin", handle=0).wait_for("attach", name="twin")


@pytest.mark.rule("B13.1")
def test_one_name_may_be_a_producers_and_a_consumers(client: RawClient) -> None:
    # As Proton's blocking client does.
    client.opened().begun().producer("q", name="same").consumer("q", name="same")
    client.wait_for("attach", role=True, name="same")
    client.wait_for("attach", role=False, name="same")
    client.credit(1, handle=1).transfer(message(b"x"))
    assert bodies(client.receive()) == [b"x"]


@pytest.mark.rule("B3.4")
def test_handles_and_names_may_be_used_again_at_once(broker: MemoryBroker) -> None:
    # Bug case 111, with leases left over each time.
    put(broker, b"a", b"b")
    client = broker.client().opened().begun()
    for turn in range(1_000):
        client.consumer("q", name="again", handle=0).credit(2, next_incoming_id=2 * turn)
        assert bodies(client.receive(2)) == [b"a", b"b"]
        client.detach(0, closed=turn % 2 == 0).expect("detach", error=None)
        client.frames.clear()
        client.transcript.clear()


@pytest.mark.rule("B3.4")
def test_channels_may_be_used_again_at_once(client: RawClient) -> None:
    client.opened()
    for turn in range(10):
        client.begin(4).producer("q", channel=4, handle=0)
        client.transfer(message(b"%d" % turn), channel=4, settled=True, delivery_id=0)
        client.end(4).wait_for("end", error=None)


# --- the end of a session -------------------------------------------------------------------------


@pytest.mark.rule("B3.5", "B8.9")
def test_an_end_puts_unsettled_deliveries_back_in_order_and_uncounted(
    broker: MemoryBroker, client: RawClient
) -> None:
    put(broker, *[b"%d" % number for number in range(6)])
    client.opened().begun().begin(1)
    client.consumer("q").credit(4)
    client.consumer("q", name="later", channel=1).credit(9, channel=1)
    client.receive(6)
    client.disposition(1, state="accepted")
    client.end(1).wait_for("end")
    client.end(0).wait_for("end")
    client.begin(2).wait_for("begin")
    client.consumer("q", channel=2, handle=0).credit(9, channel=2)
    again = client.receive(5)
    assert bodies(again) == [b"0", b"2", b"3", b"4", b"5"]
    assert [read.payload for read in again] == [message(body) for body in bodies(again)]


@pytest.mark.rule("B13.2")
@pytest.mark.parametrize("closed", [False, True])
def test_a_detach_puts_all_unsettled_deliveries_back(
    broker: MemoryBroker, client: RawClient, closed: bool
) -> None:
    put(broker, b"a", b"b", b"c")
    client.opened().begun().consumer("q", name="mine").credit(3)
    client.receive(3)
    client.detach(0, closed=closed).wait_for("detach")
    client.disposition(0, last=2, state="accepted")  # Settled after the detach: unknown (B8.14).
    client.consumer("q", name="mine", handle=0, unsettled=None).credit(3, next_incoming_id=3)
    assert bodies(client.receive(3)) == [b"a", b"b", b"c"]


@pytest.mark.rule("B13.3")
@pytest.mark.parametrize("closed", [False, True])
def test_a_link_may_be_detached_before_it_is_answered(client: RawClient, closed: bool) -> None:
    client.opened().begun()
    with client.pipelined():
        client.producer("q").detach(0, closed=closed).consumer("q", handle=0).detach(0)
    frames = [read for read in all_of(client) if read.name in ("attach", "detach")]
    assert names(frames) == ["attach", "detach", "attach", "detach"]
    assert bool(frames[1].closed) == closed
    assert frames[1].error is None


@pytest.mark.rule("B13.4")
def test_a_detach_end_or_close_that_crosses_ours_is_its_answer(broker: MemoryBroker) -> None:
    client = broker.client().opened(container_id="c").begun().producer("q")
    client.wait_for("flow", link_credit=1000)
    with client.pipelined():
        client.transfer(message(b"x"), message_format=9).detach(0)
    client.wait_for("detach", error=error("amqp:not-implemented"))
    assert "detach" not in names(all_of(client))
    with client.pipelined():
        client.detach(8).end()
    client.wait_for("end", error=error("amqp:session:unattached-handle"))
    assert all_of(client) == []
    client.begin().wait_for("begin")
    with client.pipelined():
        client.begin().close()
    client.wait_for("close", error=error("amqp:not-allowed"))
    client.expect_closed()


@pytest.mark.rule("B13.5")
def test_an_attach_comes_before_its_flow_and_that_before_dispositions(client: RawClient) -> None:
    client.opened().begun()
    all_of(client)
    with client.pipelined():
        client.producer("q").transfer(message(b"a"), settled=False)
    # Sent before any credit came: detached, but in this order all the same.
    client.producer("q", name="patient", handle=1).wait_for("attach", name="patient")
    client.wait_for("flow", handle=at_least(0), link_credit=1000)
    client.transfer(message(b"b"), handle=1)
    client.wait_for("disposition", state="accepted")


# --- echo -----------------------------------------------------------------------------------------


@pytest.mark.rule("B0", "B3.6")
def test_an_echo_on_a_session_is_answered_with_its_state(client: RawClient) -> None:
    # Bug case 5.
    client.opened().begun().producer("q")
    client.wait_for("flow", link_credit=1000)
    client.transfer(message(b"x")).wait_for("disposition")
    for _ in range(3):
        client.flow(echo=True)
        client.expect("flow", handle=None, next_incoming_id=1, next_outgoing_id=0)
        assert all_of(client) == []  # Ours asks for no echo: no loop.


@pytest.mark.rule("B0", "B3.6")
def test_an_echo_on_a_consumers_link_is_answered_with_its_state(client: RawClient) -> None:
    client.opened().begun().producer("q").consumer("q", handle=1)
    client.wait_for("flow", link_credit=1000)
    client.credit(7, handle=1).transfer(message(b"x"))
    client.receive()
    client.wait_for("disposition")
    for _ in range(3):
        client.credit(7, handle=1, next_incoming_id=1, echo=True)
        answer = client.expect("flow", delivery_count=1, link_credit=6)
        assert not answer.drain
        assert not answer.echo
        assert answer.handle is not None
        assert all_of(client) == []


@pytest.mark.rule("B0", "B3.6")
def test_an_echo_on_a_producers_link_is_answered_with_its_state(client: RawClient) -> None:
    client.opened().begun().producer("q")
    credit = client.wait_for("flow", link_credit=1000)
    client.transfer(message(b"x")).wait_for("disposition")
    for _ in range(3):
        client.flow(handle=0, delivery_count=1, echo=True)
        client.expect("flow", handle=credit.handle, delivery_count=1, link_credit=999)
        assert all_of(client) == []


@pytest.mark.rule("B3.6")
def test_a_thousand_echoes_cost_a_thousand_flows_and_nothing_stays(broker: MemoryBroker) -> None:
    client = broker.client().opened().begun().consumer("q")
    client.wait_for("attach")
    with client.pipelined():
        for _ in range(1_000):
            client.credit(5, echo=True)
    answers = all_of(client)
    assert names(answers) == ["flow"] * 1_000
    assert answers[-1].link_credit == 5


# --- many -----------------------------------------------------------------------------------------


@pytest.mark.rule("B3.7")
def test_a_connection_may_have_500_sessions_with_links_in_each(broker: MemoryBroker) -> None:
    client = broker.client().opened()
    for channel in range(500):
        with client.pipelined():
            client.begin(channel).producer("q", channel=channel, handle=0, name=f"p{channel}")
        client.wait_for("flow", link_credit=1000)
    for channel in (0, 250, 499):
        client.transfer(message(b"x"), channel=channel)
        client.wait_for("disposition", state="accepted")
    assert broker.queue("q").stats.added == 3


def memory_kib() -> int:
    """Peak memory in use."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak // 1024 if sys.platform == "darwin" else peak


def churn(kind: str, client: RawClient) -> None:
    """One turn that ends as it began."""
    with client.pipelined():
        client.begin().producer("q", handle=0).consumer("q", handle=1).credit(3, handle=1)
        if kind == "ends well":
            client.transfer(message(b"x" * 200), settled=True).end()
        elif kind == "ends with leases":
            client.transfer(message(b"x" * 200), settled=True).detach(0).end()
        else:  # Bug case 126: ended by us, for an error of the peer's.
            client.attach("missing", "receiver", source=None, handle=3).detach(9).detach(0).end()
    client.wait_for("end")
    while client.read_frame(0) is not None:
        pass
    client.frames.clear()
    client.transcript.clear()


@pytest.mark.rule("B3.7")
@pytest.mark.parametrize("kind", ["ends well", "ends with leases", "is ended for an error"])
def test_sessions_that_come_and_go_leave_nothing(broker: MemoryBroker, kind: str) -> None:
    client = broker.client().opened()
    assert isinstance(client.wire, MemoryWire)
    for _ in range(100):
        churn(kind, client)
        drain_queue(broker)
    gc.collect()
    objects, memory = len(gc.get_objects()), memory_kib()
    for _ in range(400):
        churn(kind, client)
        drain_queue(broker)
    broker.notes.clear()
    gc.collect()
    assert len(gc.get_objects()) - objects < 40
    assert memory_kib() - memory < 1_024
    assert len(broker.switchboard._links) == 0
    amqp = client.wire.peer._amqp
    assert amqp is not None
    assert not amqp._links
    assert not amqp._sessions
    assert not amqp.driver.links


def drain_queue(broker: MemoryBroker) -> None:
    """Take the messages that the turn left."""
    broker.notes.clear()
    if not broker.has_queue("q"):
        return
    client = broker.client().opened(container_id="drain").begun()
    client.consumer("q", snd_settle_mode=1).credit(99, drain=True).wait_for("flow", drain=True)
    client.close().wait_for("close")
