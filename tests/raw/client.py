"""A peer that writes whatever a test asks for: AMQP 1.0 frame by frame, right or wrong.

    with RawClient("127.0.0.1", 5672) as client:
        client.header().open(container_id="c").begin().attach(name="l", target={"address": "q"})
        client.expect("open")
        client.expect("begin", remote_channel=0)
        assert client.expect("attach", name="l", role=True).max_message_size is None
        client.expect("flow", link_credit=at_least(1))
        client.transfer(message(b"hello"))
        client.expect("disposition", first=0, state="accepted", settled=True)
        client.close().expect("close", error=None)
        client.expect_closed()

All that writes returns the client, so that calls chain; each writes at once, or all together inside
`with client.pipelined():`. Any field may be wrong: `client.flow(handle=raw("56 00"))`, `client.begin(list_size=2)`;
`client.send(frame(...), b"...")` writes anything. See tests/raw/frames.py for the words.

Defaults make the usual short: names count handles, delivery-ids and tags; None is null, and a field that is left
out where there is no default is absent. Whatever fails shows the whole transcript.
"""
# ruff: noqa: ANN401  # An AMQP value may be anything.

import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Protocol, Self

from tests.raw.frames import (
    AMQP_HEADER,
    SASL_HEADER,
    Composite,
    Frame,
    Undecodable,
    decode_frame,
    empty_frame,
    frame,
)

TIMEOUT = 5.0  # Seconds to wait for a frame. Reached only by a test that fails.
QUIET = 0.2  # Seconds in which nothing must come. Every expect_nothing takes them.
RECEIVE_SIZE = 65536

_COUNTED: Any = object()  # A field that the client fills in.


class Wire(Protocol):
    """Where bytes go and come from; a test may bring its own, in memory."""

    def send(self, data: bytes, /) -> None:
        """Write all of it. Raises OSError when the peer is gone."""

    def recv(self, timeout: float, /) -> bytes | None:
        """What comes within `timeout` seconds: None is nothing, b"" the end of the stream.

        In memory there is nothing to wait for: None at once.
        """

    def close(self) -> None:
        """Let go."""


class SocketWire:
    def __init__(self, host: str, port: int) -> None:
        self.socket = socket.create_connection((host, port), TIMEOUT)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, data: bytes) -> None:
        self.socket.settimeout(TIMEOUT)
        self.socket.sendall(data)

    def recv(self, timeout: float) -> bytes | None:
        # Zero would mean non-blocking, which raises another error.
        self.socket.settimeout(max(timeout, 0.001))
        try:
            return self.socket.recv(RECEIVE_SIZE)
        except TimeoutError:
            return None
        except ConnectionError:
            return b""

    def close(self) -> None:
        self.socket.close()


class Link:
    """What the client counts for one handle."""

    def __init__(self) -> None:
        self.tags = 0
        self.more = False


class RawClient:
    """One connection; see the module's docstring."""

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        wire: Wire | None = None,
        timeout: float = TIMEOUT,
    ) -> None:
        self.wire: Wire = SocketWire(host, port) if wire is None else wire
        self.timeout = timeout
        self.transcript: list[str] = []
        self.frames: list[Frame] = []  # All that were read, headers and empty ones too.
        self.is_closed = False  # The peer closed the stream.
        self._input = bytearray()
        self._pushed_back: list[Frame] = []
        self._pipeline: list[bytes] | None = None
        self._delivery_ids: dict[int, int] = {}  # The next one of each channel.
        self._outgoing_ids: dict[int, int] = {}  # Likewise; each frame of a delivery takes one.
        self._links: dict[tuple[int, int], Link] = {}
        self._handles: dict[int, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.wire.close()

    # --- writing -----------------------------------------------------------------------------------------------------

    def send(self, *pieces: bytes) -> Self:
        """Write bytes in one go; frames among them are shown in the transcript."""
        for piece in pieces:
            self.transcript.append(f"-> {_shown(piece)}")
        if self._pipeline is not None:
            self._pipeline += pieces
        else:
            self.wire.send(b"".join(pieces))
        return self

    @contextmanager
    def pipelined(self) -> Iterator[Self]:
        """All that is written inside goes out in one write at its end."""
        assert self._pipeline is None, "pipelined within pipelined"
        self._pipeline = []
        try:
            yield self
            data = b"".join(self._pipeline)
        finally:
            self._pipeline = None
        self.wire.send(data)

    def header(self, data: bytes = AMQP_HEADER) -> Self:
        return self.send(data)

    def sasl_header(self) -> Self:
        return self.send(SASL_HEADER)

    def sasl_anonymous(self) -> Self:
        """Log in; the AMQP header is next."""
        self.sasl_header()
        mechanisms = self.expect("sasl_mechanisms").sasl_server_mechanisms
        assert "ANONYMOUS" in mechanisms, self._failure(f"mechanisms are {mechanisms}")
        self.performative("sasl_init", mechanism="ANONYMOUS", initial_response=b"raw")
        self.expect("sasl_outcome", code=0)
        return self

    def sasl_plain(self, user: str, password: str) -> Self:
        """Log in; the AMQP header is next."""
        self.sasl_header()
        self.expect("sasl_mechanisms")
        response = f"\0{user}\0{password}".encode()
        self.performative("sasl_init", mechanism="PLAIN", initial_response=response)
        self.expect("sasl_outcome", code=0)
        return self

    def performative(self, name: str, /, **fields: Any) -> Self:
        """Any performative, with no field but those named; what `frame` takes is taken."""
        return self.send(frame(name, **fields))

    def open(self, **fields: Any) -> Self:
        return self.performative("open", **{"container_id": "raw", **fields})

    def begin(self, channel: int = 0, **fields: Any) -> Self:
        defaults = {"next_outgoing_id": 0, "incoming_window": 2048, "outgoing_window": 2048}
        fields = {**defaults, **fields}
        if _is_int(fields["next_outgoing_id"]):
            self._outgoing_ids[channel] = fields["next_outgoing_id"]
        return self.performative("begin", channel=channel, **fields)

    def attach(
        self, name: Any = _COUNTED, role: Any = "sender", *, channel: int = 0, **fields: Any
    ) -> Self:
        """A link: `role` "sender" or "receiver" (or any value), the next handle, both termini there."""
        handle = fields.setdefault("handle", self._handles.get(channel, 0))
        if isinstance(handle, int):
            self._handles[channel] = handle + 1
            self._links[channel, handle] = Link()
        if name is _COUNTED:
            name = f"link-{channel}-{handle}"
        defaults: dict[str, Any] = {"source": {}, "target": {}}
        if role == "sender":
            defaults["initial_delivery_count"] = 0
        role = {"sender": False, "receiver": True}.get(role, role)
        fields = {"name": name, "role": role, **defaults, **fields}
        return self.performative("attach", channel=channel, **fields)

    def producer(self, address: str | None, **fields: Any) -> Self:
        """Attach a link that sends to `address`."""
        return self.attach(role="sender", **{"target": {"address": address}, **fields})

    def consumer(self, address: str | None, **fields: Any) -> Self:
        """Attach a link that receives from `address`; see `credit`."""
        return self.attach(role="receiver", **{"source": {"address": address}, **fields})

    def flow(self, channel: int = 0, **fields: Any) -> Self:
        """A session flow; with `handle` a link's."""
        defaults = {
            "next_incoming_id": 0,
            "incoming_window": 2048,
            "next_outgoing_id": self._outgoing_ids.get(channel, 0),
            "outgoing_window": 2048,
        }
        return self.performative("flow", channel=channel, **{**defaults, **fields})

    def credit(self, link_credit: int, handle: int = 0, **fields: Any) -> Self:
        """A receiving link's credit; delivery-count 0 unless told."""
        defaults = {"delivery_count": 0, "link_credit": link_credit}
        return self.flow(handle=handle, **{**defaults, **fields})

    def transfer(
        self,
        payload: bytes = b"",
        handle: Any = 0,
        *,
        channel: int = 0,
        delivery_id: Any = _COUNTED,
        delivery_tag: Any = _COUNTED,
        message_format: Any = _COUNTED,
        **fields: Any,
    ) -> Self:
        """One frame of a delivery; with more=True the next one of this handle continues it."""
        link = self._links.setdefault((channel, handle), Link()) if _is_int(handle) else Link()
        first = not link.more
        if delivery_id is _COUNTED:
            delivery_id = self._delivery_ids.get(channel, 0) if first else None
        if _is_int(delivery_id) and first:
            self._delivery_ids[channel] = (delivery_id + 1) % 2**32
        if delivery_tag is _COUNTED:
            delivery_tag = str(link.tags).encode() if first else None
        if message_format is _COUNTED:
            message_format = 0 if first else None
        self._outgoing_ids[channel] = (self._outgoing_ids.get(channel, 0) + 1) % 2**32
        link.tags += first
        link.more = fields.get("more") is True and fields.get("aborted") is not True
        fields = {
            "handle": handle,
            "delivery_id": delivery_id,
            "delivery_tag": delivery_tag,
            "message_format": message_format,
            **fields,
        }
        return self.performative("transfer", channel=channel, payload=payload, **fields)

    def disposition(self, first: Any = 0, role: Any = "receiver", **fields: Any) -> Self:
        """Settled unless told; `state` is "accepted" or what tests/raw/frames.py makes."""
        role = {"sender": False, "receiver": True}.get(role, role)
        state = fields.get("state")
        if isinstance(state, str):
            fields["state"] = Composite(state)
        fields = {"role": role, "first": first, "settled": True, **fields}
        return self.performative("disposition", **fields)

    def detach(self, handle: Any = 0, **fields: Any) -> Self:
        """closed=True unless told."""
        return self.performative("detach", **{"handle": handle, "closed": True, **fields})

    def end(self, channel: int = 0, **fields: Any) -> Self:
        return self.performative("end", channel=channel, **fields)

    def close(self, **fields: Any) -> Self:
        return self.performative("close", **fields)

    def empty(self, channel: int = 0) -> Self:
        return self.send(empty_frame(channel))

    # --- reading -----------------------------------------------------------------------------------------------------

    def read_frame(self, timeout: float | None = None) -> Frame | None:
        """The next frame of any kind; None when none comes in time or the stream is at its end."""
        if self._pushed_back:
            return self._pushed_back.pop()
        deadline = time.monotonic() + (self.timeout if timeout is None else timeout)
        while True:
            whole = self._take_frame()
            if whole is not None:
                break
            left = deadline - time.monotonic()
            if self.is_closed or not self._receive(max(left, 0.0)):
                return None
        try:
            read = decode_frame(whole)
        except Undecodable as error:
            raise AssertionError(self._failure(f"{error}: {whole.hex(' ')}")) from None
        self.frames.append(read)
        self.transcript.append(f"<- {read}")
        return read

    def expect(self, name: str, /, *, timeout: float | None = None, **fields: Any) -> Frame:
        """The next frame, which must be `name` with these fields (and any others).

        A field is compared with ==, but: a dict is compared field by field with a composite, a str with its kind too
        ("accepted"), a function is asked. `channel` and `payload` are compared as well. Protocol headers and
        empty frames are passed over unless they are asked for ("header", "empty").
        """
        read = self._next(name, timeout)
        wrong = _differences(read, name, fields)
        assert not wrong, self._failure(f"expected {_wanted(name, fields)}: {wrong}")
        return read

    def wait_for(self, name: str, /, *, timeout: float | None = None, **fields: Any) -> Frame:
        """The first frame from here on that is `name` with these fields; those before it are passed over."""
        while True:
            read = self._next(name, timeout, wanted=_wanted(name, fields))
            if not _differences(read, name, fields):
                return read

    def peek(self, timeout: float | None = None) -> Frame | None:
        """The next frame, which the next call reads again."""
        read = self.read_frame(timeout)
        if read is not None:
            self._pushed_back.append(read)
        return read

    def expect_nothing(self, timeout: float = QUIET) -> Self:
        """No frame comes within `timeout` (but empty ones), and the stream stays open."""
        deadline = time.monotonic() + timeout
        while (left := deadline - time.monotonic()) > 0:
            read = self.read_frame(left)
            if read is None:
                break
            assert read.name in ("empty", "header"), self._failure(f"expected nothing, read {read}")
        assert not self.is_closed, self._failure("expected nothing, the stream was closed")
        return self

    def expect_closed(self, timeout: float | None = None) -> Self:
        """The peer closes the stream, without another frame."""
        read = self.read_frame(timeout)
        while read is not None and read.name == "empty":
            read = self.read_frame(timeout)
        assert read is None, self._failure(f"expected the end of the stream, read {read}")
        assert self.is_closed, self._failure("expected the end of the stream, it stays open")
        assert not self._input, self._failure(f"the stream ends in a frame: {self._input.hex(' ')}")
        return self

    def expect_header(self, data: bytes = AMQP_HEADER) -> Self:
        read = self._next("header", None)
        assert read.whole == data, self._failure(f"expected the header {data!r}")
        return self

    # --- shortcuts ---------------------------------------------------------------------------------------------------

    def opened(self, *, sasl: bool = True, **fields: Any) -> Self:
        """Log in, open, and read the peer's Open."""
        if sasl:
            self.sasl_anonymous()
        self.header().open(**fields).expect("open")
        return self

    def begun(self, channel: int = 0, **fields: Any) -> Self:
        """Begin, and read the peer's Begin."""
        self.begin(channel, **fields).expect("begin", remote_channel=channel)
        return self

    def receive(self, count: int = 1, *, timeout: float | None = None) -> list[Frame]:
        """The next `count` deliveries, the frames of each put together in its first one."""
        deliveries = []
        for _ in range(count):
            first = read = self.wait_for("transfer", timeout=timeout)
            payload = read.payload
            while read.more:
                read = self.wait_for("transfer", handle=first.handle, timeout=timeout)
                payload += read.payload
            deliveries.append(first._replace(payload=payload))
        return deliveries

    def log(self) -> str:
        """All that was written and read so far."""
        return "\n".join(self.transcript)

    def _next(self, name: str, timeout: float | None, wanted: str | None = None) -> Frame:
        while True:
            read = self.read_frame(timeout)
            if read is None:
                why = "the stream was closed" if self.is_closed else "nothing came"
                raise AssertionError(self._failure(f"expected {wanted or name}, {why}"))
            if read.name == name or read.name not in ("empty", "header"):
                return read

    def _receive(self, timeout: float) -> bool:
        data = self.wire.recv(timeout)
        if data == b"":
            self.is_closed = True
            self.transcript.append("<- end of stream")
        elif data:
            self._input += data
        return bool(data)

    def _take_frame(self) -> bytes | None:
        if len(self._input) < 8:
            return None
        size = 8 if self._input[:4] == b"AMQP" else int.from_bytes(self._input[:4], "big")
        if len(self._input) < size:
            return None
        size = max(size, 8)  # Shorter is wrong, which decode_frame says.
        whole = bytes(self._input[:size])
        del self._input[:size]
        return whole

    def _failure(self, text: str) -> str:
        return f"{text}\n{self.log()}"


# --- Comparing -----------------------------------------------------------------------------------------------------


def at_least(low: int) -> Callable[[Any], bool]:
    return lambda item: item is not None and item >= low


def anything(item: Any) -> bool:
    """Whatever it is, but not null."""
    return item is not None


def error(condition: str, **fields: Any) -> dict[str, Any]:
    """For error=: expect("end", error=error("amqp:session:window-violation"))."""
    return {"condition": condition, **fields}


def matches(item: Any, wanted: Any) -> bool:
    """Whether a field is what is wanted; see RawClient.expect."""
    if callable(wanted):
        return bool(wanted(item))
    if isinstance(item, Composite) and isinstance(wanted, str):
        return item.kind == wanted
    if isinstance(wanted, Composite) and not (
        isinstance(item, Composite) and item.kind == wanted.kind
    ):
        return False
    if isinstance(item, Composite) and isinstance(wanted, Mapping):
        return all(matches(item.get(name), each) for name, each in wanted.items())
    if isinstance(item, bool) is not isinstance(wanted, bool):
        return False  # 0 is not false.
    return bool(item == wanted)


def _differences(read: Frame, name: str, wanted: Mapping[str, Any]) -> str:
    if read.name != name:
        return f"read {read}"
    known = {**read.fields, "channel": read.channel, "payload": read.payload}
    unknown = set(wanted) - set(known)
    if unknown:
        raise TypeError(f"{name} has no field {sorted(unknown)}")
    return ", ".join(
        f"{field} is {known[field]!r}"
        for field, each in wanted.items()
        if not matches(known[field], each)
    )


def _wanted(name: str, fields: Mapping[str, Any]) -> str:
    return " ".join([name, *(f"{field}={each!r}" for field, each in fields.items())])


def _is_int(item: Any) -> bool:
    return isinstance(item, int) and not isinstance(item, bool)


def _shown(piece: bytes) -> str:
    try:
        return str(decode_frame(piece))
    except Undecodable:
        more = "…" if len(piece) > 64 else ""
        return f"{piece[:64].hex(' ')}{more} ({len(piece)} bytes)"
