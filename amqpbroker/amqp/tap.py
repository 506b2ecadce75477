"""What stands between a peer and Proton, which says too little: control frames checked, and rewritten on the way out.

Incoming: each check of the table in docs/seams.md, section 4, that concerns a control frame; the frame walker does the
rest. Outgoing: Proton has no words for default-outcome, capabilities and echo, so Open and Attach are written anew
(Proton's frame tells channel and handle only), and a Flow for an outgoing link is made from the session's.
Must not know the engine, nor keep state: what was seen lives in the peer and its sessions.
"""

from collections.abc import Callable, Iterator
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from amqpbroker.amqp.codes import ATTACH, BEGIN, FLOW, OPEN
from amqpbroker.amqp.performatives import (
    Attach,
    Begin,
    Detach,
    Flow,
    Open,
    decode_performative,
    encode_performative,
    frame,
)
from amqpbroker.base.errors import (
    ERRANT_LINK,
    FRAMING_ERROR,
    HANDLE_IN_USE,
    ILLEGAL_STATE,
    INVALID_FIELD,
    NOT_ALLOWED,
    RESOURCE_LIMIT_EXCEEDED,
    UNATTACHED_HANDLE,
    WINDOW_VIOLATION,
    Refusal,
)

if TYPE_CHECKING:
    from amqpbroker.amqp.session import Session
    from amqpbroker.amqp.settings import PeerSettings

MAX_FRAME_SIZE_MIN: Final = 512  # [2.7.1]
# A refused link stays until its peer has detached, which a bad one never does: so many times links_max, and its
# session is ended.
REFUSED_LINKS_FACTOR: Final = 2
NAME_BYTES_MAX: Final = 1_024
UNMAPPED_HANDLE_MIN: Final = 1 << 31  # Proton's -1 and -2, in the place of a handle.

Rewrite = Callable[[int, bytes], bytes]  # (channel, body) -> the new body of that frame


class Scope(Enum):
    """What a fault ends."""

    CONNECTION = "connection"
    SESSION = "session"


class Fault(NamedTuple):
    """A control frame that must not reach Proton, and what to tell its sender."""

    scope: Scope
    refusal: Refusal


class LinkFlow(NamedTuple):
    """The link fields of a Flow that we send."""

    handle: int
    delivery_count: int
    credit: int
    drain: bool


def check_open(opening: Open, channel: int, *, is_open: bool) -> Fault | None:
    """Client-needs B0: what Proton lets through of a bad Open."""
    if channel != 0:
        return _close(FRAMING_ERROR, f"open on channel {channel}, not 0")
    if is_open:
        return _close(ILLEGAL_STATE, "a second open")
    if opening.container_id == "":
        return _close(INVALID_FIELD, "open with an empty container-id")
    if opening.max_frame_size < MAX_FRAME_SIZE_MIN:
        return _close(
            INVALID_FIELD, f"max-frame-size {opening.max_frame_size} is below {MAX_FRAME_SIZE_MIN}"
        )
    return None


def check_begin(
    begin: Begin, channel: int, sessions: dict[int, "Session"], channel_max: int
) -> Fault | None:
    """A Begin must open a free channel within the limit (B2.15)."""
    if channel > channel_max:
        return _close(FRAMING_ERROR, f"channel {channel} is above channel-max {channel_max}")
    if channel in sessions:
        return _close(NOT_ALLOWED, f"channel {channel} is in use")
    if begin.remote_channel is not None:
        return _close(INVALID_FIELD, "remote-channel answers a begin that was not sent")
    return None


def check_channel(channel: int, sessions: dict[int, "Session"]) -> Fault | None:
    """What belongs to a session comes on a channel that was begun."""
    return None if channel in sessions else _close(NOT_ALLOWED, f"no such channel: {channel}")


def check_detach(detach: Detach, session: "Session") -> Fault | None:
    """A Detach must name an attached handle (B3.3)."""
    if detach.handle in session.links:
        return None
    return _end(UNATTACHED_HANDLE, f"no such handle: {detach.handle}")


def check_attach(
    attach: Attach, session: "Session", links_of_peer: int, settings: "PeerSettings"
) -> Fault | None:
    """An Attach must use a free handle and a free name (B3.2, B13.1)."""
    if attach.handle > settings.handle_max:
        return _close(
            FRAMING_ERROR, f"handle {attach.handle} is above handle-max {settings.handle_max}"
        )
    if attach.handle in session.links:
        return _end(HANDLE_IN_USE, f"handle {attach.handle} is attached")
    if len(attach.name.encode()) > NAME_BYTES_MAX:
        return _close(INVALID_FIELD, f"the link name is longer than {NAME_BYTES_MAX} bytes")
    if session.has_link(attach.name, incoming=not attach.role):
        # Proton would close the whole connection.
        return _end(ERRANT_LINK, f"link {attach.name:.100} is attached in this session")
    if len(session.links) > session.handle_max:
        text = f"no handle is left for our answer: the peer's handle-max is {session.handle_max}"
        return _end(RESOURCE_LIMIT_EXCEEDED, text)
    if links_of_peer >= REFUSED_LINKS_FACTOR * settings.links_max:
        return _end(RESOURCE_LIMIT_EXCEEDED, "too many links were refused and not detached")
    return None


def too_many_links(links_of_peer: int, settings: "PeerSettings") -> Refusal | None:
    """Why a peer gets no more links, if it has its share; the link alone is refused (B12)."""
    if links_of_peer < settings.links_max:
        return None
    text = f"the connection has its {settings.links_max} links already"
    return Refusal(RESOURCE_LIMIT_EXCEEDED, text)


def check_flow(
    session: "Session", next_incoming_id: int | None, next_outgoing_id: int, taken: int
) -> Fault | None:
    """A Flow's ids must fit what was sent, either way (bug case 6, B0); `taken`: frames since the window was set."""
    if not session.has_sent(next_incoming_id):
        sent = session.frames_sent
        return _end(
            WINDOW_VIOLATION,
            f"next-incoming-id {next_incoming_id} but only {sent} transfers were sent",
        )
    if session.is_rewound(next_outgoing_id, taken):
        return _end(
            WINDOW_VIOLATION,
            f"next-outgoing-id {next_outgoing_id} is behind the transfers that came",
        )
    return None


def _close(condition: str, description: str) -> Fault:
    return Fault(Scope.CONNECTION, Refusal(condition, description))


def _end(condition: str, description: str) -> Fault:
    return Fault(Scope.SESSION, Refusal(condition, description))


# --- outgoing: chunks of whole control frames, as pumped from Proton ------------------------------------------------


def local_channel(chunk: bytes, code: int) -> int:
    """The channel of the frame with this code, which is in the chunk."""
    return next(
        int.from_bytes(chunk[start + 6 : start + 8], "big")
        for start, _, found in _frames(chunk)
        if found == code
    )


def with_open(chunk: bytes, opening: Open) -> bytes:
    """The chunk with our Open in the place of Proton's."""
    return _replaced(chunk, OPEN, lambda _channel, _body: encode_performative(opening))


def with_begin(chunk: bytes, handle_max: int) -> bytes:
    """The chunk with our handle-max in Proton's Begin; Proton has no word for it (B3.2)."""

    def rewritten(_channel: int, body: bytes) -> bytes:
        begin, _ = decode_performative(body)
        assert isinstance(begin, Begin)
        begin.handle_max = handle_max
        return encode_performative(begin)

    return _replaced(chunk, BEGIN, rewritten)


def with_attach(chunk: bytes, attach: Attach) -> bytes:
    """The chunk with our Attach in the place of Proton's, whose handle it takes."""

    def rewritten(_channel: int, body: bytes) -> bytes:
        written, _ = decode_performative(body)
        assert isinstance(written, Attach)
        attach.handle = written.handle
        return encode_performative(attach)

    return _replaced(chunk, ATTACH, rewritten)


def with_link_flow(chunk: bytes, channel: int, link: LinkFlow) -> bytes:
    """The chunk with the link's fields in the session Flow of `channel`."""

    def rewritten(written_on: int, body: bytes) -> bytes:
        if written_on != channel:
            return body
        flow, _ = decode_performative(body)
        assert isinstance(flow, Flow)
        flow.handle = link.handle
        flow.delivery_count = link.delivery_count
        flow.link_credit = link.credit
        flow.drain = link.drain
        return encode_performative(flow)

    return _replaced(chunk, FLOW, rewritten)


def without_ghosts(chunk: bytes) -> bytes:
    """The chunk, whose flows name no link that is detached: what they say of the session stands.

    Proton tells of the session's window in a flow for the link whose delivery it settles, also when its handle is
    given back; the peer would end the session for a handle that it does not know (test_steal.py).
    """

    def rewritten(_channel: int, body: bytes) -> bytes:
        flow, _ = decode_performative(body)
        assert isinstance(flow, Flow)
        if flow.handle is None or flow.handle < UNMAPPED_HANDLE_MIN:
            return body
        flow.handle = flow.delivery_count = flow.link_credit = flow.available = None
        flow.drain = False
        return encode_performative(flow)

    return _replaced(chunk, FLOW, rewritten)


def _frames(chunk: bytes) -> Iterator[tuple[int, int, int]]:
    """(start, end, performative code) of each frame; Proton writes descriptors as smallulong."""
    start = 0
    while start < len(chunk):
        end = start + int.from_bytes(chunk[start : start + 4], "big")
        body = start + 4 * chunk[start + 4]
        yield start, end, chunk[body + 2] if body < end else -1
        start = end


def _replaced(chunk: bytes, code: int, rewrite: Rewrite) -> bytes:
    parts: list[bytes] = []
    for start, end, found in _frames(chunk):
        if found != code:
            parts.append(chunk[start:end])
            continue
        channel = int.from_bytes(chunk[start + 6 : start + 8], "big")
        body = chunk[start + 4 * chunk[start + 4] : end]
        parts.append(frame(channel, rewrite(channel, body)))
    return b"".join(parts)
