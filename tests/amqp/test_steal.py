"""One name, attached again elsewhere: the new link wins (client-needs B13.1, bug case 109)."""

from typing import Any

import pytest

from amqpbroker.amqp.settings import PeerSettings
from tests.amqp.cuts import CUTS, Cut
from tests.amqp.memory import MemoryBroker
from tests.amqp.scenes import frames_of
from tests.raw.client import RawClient, error
from tests.raw.frames import Frame, decode_sections, message

STOLEN = error("amqp:link:stolen")
SMALL_WINDOW = PeerSettings(container_id="broker", max_frame_size=512, incoming_window_bytes=2048)


@pytest.fixture
def broker() -> MemoryBroker:
    broker = MemoryBroker()
    client = broker.client().opened(container_id="put").begun().producer("q")
    for body in (b"a", b"b", b"c"):
        client.transfer(message(body)).wait_for("disposition", state="accepted")
    client.close().wait_for("close")
    return broker


@pytest.fixture(params=CUTS)
def old(broker: MemoryBroker, request: pytest.FixtureRequest) -> RawClient:
    """A connection of the container with the consumer `s`, which holds all three messages."""
    client = broker.client(request.param).opened(container_id="c").begun()
    client.consumer("q", name="s").credit(9)
    assert bodies(client.receive(3)) == [b"a", b"b", b"c"]
    return client


def bodies(frames: list[Frame]) -> list[Any]:
    return [decode_sections(read.payload)["data"] for read in frames]


def all_of(client: RawClient) -> list[str]:
    names = []
    while (read := client.read_frame(0)) is not None:
        names.append(read.name)
    return names


@pytest.mark.rule("B13.1", "B12")
def test_a_link_attached_again_on_another_connection_wins(
    broker: MemoryBroker, old: RawClient
) -> None:
    new = broker.client().opened(container_id="c").begun()
    new.consumer("q", name="s").credit(9)
    again = new.receive(3)
    assert bodies(again) == [b"a", b"b", b"c"]
    assert again[0].payload == message(b"a")  # Not counted: nothing has failed.
    detach = old.expect("detach", error=STOLEN)
    assert detach.error["description"]
    # What the loser says meanwhile is void, and its session lives.
    old.disposition(0, last=2, state="accepted").credit(5, delivery_count=3, next_incoming_id=3)
    old.detach(0).consumer("q2", handle=0, name="t").wait_for("attach", name="t")
    new.disposition(0, last=2, state="released").credit(9, delivery_count=3, next_incoming_id=3)
    assert bodies(new.receive(3)) == [b"a", b"b", b"c"]
    assert "detach" not in all_of(old)


@pytest.mark.rule("B13.1")
def test_a_link_attached_again_on_another_session_wins(old: RawClient) -> None:
    old.begin(1).consumer("q", name="s", channel=1).credit(9, channel=1, next_incoming_id=None)
    assert old.wait_for("detach", error=STOLEN).channel == 0
    frames = old.receive(3)
    assert bodies(frames) == [b"a", b"b", b"c"]
    assert {read.channel for read in frames} == {1}
    old.detach(0).end(0).wait_for("end", error=None)


@pytest.mark.rule("B13.1")
def test_a_stalled_loser_keeps_nothing(broker: MemoryBroker, old: RawClient) -> None:
    # Its network has died without a word; the client comes again.
    old.wire.is_stalled = True  # type: ignore[attr-defined]
    new = broker.client().opened(container_id="c").begun()
    new.consumer("q", name="s").credit(9)
    assert bodies(new.receive(3)) == [b"a", b"b", b"c"]
    old.wire.close()
    new.disposition(0, last=2, state="accepted")
    assert not broker.has_queue("q") or broker.queue("q").stats.added == 3
    broker.advance(0)
    assert len(broker.switchboard.peers) == 1


@pytest.mark.rule("B13.1")
@pytest.mark.parametrize(
    ("container", "name", "role"),
    [("d", "s", "receiver"), ("c", "t", "receiver"), ("c", "s", "sender")],
    ids=["another container", "another name", "another role"],
)
def test_container_name_and_role_make_a_link(
    broker: MemoryBroker, old: RawClient, container: str, name: str, role: str
) -> None:
    other = broker.client().opened(container_id=container).begun()
    other.attach(name, role, source={"address": "q"}, target={"address": "q"})
    other.wait_for("attach", name=name)
    assert all_of(old) == []
    old.disposition(0, last=2, state="accepted").close().wait_for("close", error=None)


@pytest.mark.rule("B13.1")
@pytest.mark.parametrize("cut", CUTS)
def test_a_producers_link_is_stolen_with_a_delivery_half_sent(cut: Cut) -> None:
    broker = MemoryBroker()
    old = broker.client(cut).opened(container_id="c").begun().producer("q", name="p")
    old.wait_for("flow", link_credit=1000)
    old.transfer(message(b"whole")).wait_for("disposition")
    old.transfer(message(b"half"), more=True)
    new = broker.client().opened(container_id="c").begun().producer("q", name="p")
    new.wait_for("flow", link_credit=1000)
    old.wait_for("detach", error=STOLEN)
    old.transfer(b"rest").transfer(message(b"late")).detach(0)  # On their way when it was told.
    new.transfer(message(b"mine")).wait_for("disposition", state="accepted")
    assert broker.queue("q").stats.added == 2
    old.producer("q", name="other", handle=0).wait_for("attach", name="other")
    old.wait_for("flow", link_credit=1000)
    old.transfer(message(b"again"), delivery_id=3).wait_for("disposition", state="accepted")


@pytest.mark.rule("B13.1")
def test_links_may_be_stolen_back_and_forth(broker: MemoryBroker) -> None:
    clients = [broker.client().opened(container_id="c").begun() for _ in range(2)]
    for turn in range(200):
        client = clients[turn % 2]
        client.consumer("q", name="s", handle=0).credit(9, next_incoming_id=None)
        assert bodies(client.receive(3)) == [b"a", b"b", b"c"]
        if turn:
            clients[(turn + 1) % 2].wait_for("detach", error=STOLEN)
            clients[(turn + 1) % 2].detach(0)
    assert len(broker.queue("q").consumers) == 1
    assert len(broker.switchboard._links) == 1


@pytest.mark.parametrize("settled", [False, True])
def test_a_producer_that_lost_its_link_while_sending_hears_of_no_handle_that_is_none(
    settled: bool,
) -> None:
    """Proton tells of the session's window in a flow for the link, whose handle is gone: 4,294,967,294."""
    broker = MemoryBroker(SMALL_WINDOW)
    old = broker.client().opened(container_id="c").begun().producer("q", name="p")
    old.wait_for("flow", handle=0)
    new = broker.client().opened(container_id="c").begun().producer("q", name="p")
    new.wait_for("flow", handle=0)
    old.transfer(message(b"x"), settled=settled).transfer(message(b"y"), settled=settled)
    old.wait_for("detach", error=STOLEN)
    assert old.detach().wait_for("flow").handle is None
    old.transfer(message(b"z"), delivery_id=2, handle=1)  # Nothing is lost of the session's count.
    old.wait_for("end", error=error("amqp:session:unattached-handle"))


def test_a_producer_that_leaves_within_a_message_hears_of_no_handle_that_is_none() -> None:
    broker = MemoryBroker(SMALL_WINDOW)
    client = broker.client().opened(container_id="c").begun().producer("q", name="p")
    client.wait_for("flow", handle=0)
    with client.pipelined():
        client.transfer(b"x", more=True).transfer(b"y", more=True).detach()
    client.wait_for("detach")
    flows = [read for read in frames_of(client) if read.name == "flow"]
    assert all(read.handle is None for read in flows)
