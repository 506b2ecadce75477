"""The exchange before AMQP: protocol headers and SASL [2.2, 5.3], in front of a Transport that has no SASL.

Sans-IO: bytes in by `receive`, bytes out by `take_output`, then `is_done` with the bytes that came after.
Proton must never see a SASL header, since it would take a second one and offer what it likes (PROTON_FACTS 6); so the
exchange also takes the AMQP header off, and the peer feeds Proton exactly one of its own.
"""

from collections.abc import Callable
from typing import Final

from amqpbroker.amqp.codes import SASL_FRAME
from amqpbroker.amqp.performatives import (
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    decode_performative,
    encode_performative,
    frame,
)
from amqpbroker.base.codec import DecodeError, Symbol, UByte

AMQP_HEADER: Final = b"AMQP\x00\x01\x00\x00"
SASL_HEADER: Final = b"AMQP\x03\x01\x00\x00"
FRAME_MAX: Final = 16 * 1024  # 512 by the letter of [5.3.1]; OAuth tokens need 4 to 8 KiB (B1.13).
# Before login a peer may pipeline its first frames (B1.10), no more than this.
BYTES_MAX: Final = 64 * 1024
OUTCOME_OK: Final = 0
OUTCOME_AUTH: Final = 1


class Exchange:
    """One peer's way from its first byte to AMQP. ANONYMOUS is what it can verify so far."""

    def __init__(self, *, bare_allowed: bool) -> None:
        self._bare_allowed = bare_allowed  # A client may skip SASL: it is anonymous then (B1.1).
        self._bytes = bytearray()
        self._output = bytearray()
        # A function, not a bound method: an exchange that is over must not keep itself.
        self._read: Callable[[Exchange], bool] = Exchange._read_first_header
        self.is_done = False
        self.failure = ""  # Why the socket is shut once the output is out; "" while all is well.

    def receive(self, data: bytes) -> None:
        """Take what arrived; afterwards ask `is_done`, `failure` and `take_output`."""
        self._bytes += data
        while not self.is_done and not self.failure and self._read(self):
            pass
        if not self.is_done and len(self._bytes) > BYTES_MAX:
            self.failure = f"more than {BYTES_MAX} bytes before the login was complete"

    def take_output(self) -> bytes:
        """What the peer must be told, once."""
        output = bytes(self._output)
        self._output.clear()
        return output

    def take_rest(self) -> bytes:
        """The bytes after the AMQP header; for the frame walker, when done."""
        rest = bytes(self._bytes)
        self._bytes.clear()
        return rest

    # Each reader returns whether it got on and another may try.

    def _read_first_header(self) -> bool:
        head = bytes(self._bytes[:8])
        if SASL_HEADER.startswith(head) or (self._bare_allowed and AMQP_HEADER.startswith(head)):
            if len(head) < len(SASL_HEADER):
                return False
        else:
            # The supported header, then the end of the connection [2.2]; never a hang (B1.2).
            self._output += SASL_HEADER
            self.failure = f"unsupported protocol header {head.hex(' ')}"
            return False
        del self._bytes[:8]
        if head == AMQP_HEADER:
            self.is_done = True
            return False
        self._output += SASL_HEADER
        self._send(SaslMechanisms(sasl_server_mechanisms=(Symbol("ANONYMOUS"),)))
        self._read = Exchange._read_init
        return True

    def _read_init(self) -> bool:
        size = self._frame_size()
        if size == 0:
            return False
        raw = bytes(self._bytes[:size])
        del self._bytes[:size]
        try:
            init, _ = decode_performative(raw, raw[4] * 4)
        except DecodeError as error:
            self.failure = f"undecodable SASL frame: {error}"
            return False
        if not isinstance(init, SaslInit):
            # Only init may come from a client here (B1.11).
            self.failure = f"unexpected {type(init).__name__} in the SASL exchange"
            return False
        if init.mechanism != "ANONYMOUS":
            self._send(SaslOutcome(code=UByte(OUTCOME_AUTH)))
            self.failure = f"mechanism {init.mechanism!r:.40} is not offered"
            return False
        self._send(SaslOutcome(code=UByte(OUTCOME_OK)))
        self._read = Exchange._read_amqp_header
        return True

    def _read_amqp_header(self) -> bool:
        head = bytes(self._bytes[:8])
        if not AMQP_HEADER.startswith(head):
            self._output += AMQP_HEADER
            self.failure = f"expected the AMQP header after the login, got {head.hex(' ')}"
            return False
        if len(head) < len(AMQP_HEADER):
            return False
        del self._bytes[:8]
        self.is_done = True
        return False

    def _frame_size(self) -> int:
        """Size of the whole SASL frame that is there; 0 when it is not whole or not to be had."""
        if len(self._bytes) < 8:
            return 0
        size = int.from_bytes(self._bytes[:4], "big")
        data_offset = self._bytes[4] * 4
        if not 8 <= data_offset < size <= FRAME_MAX or self._bytes[5] != SASL_FRAME:
            # Empty frames and AMQP frames are not allowed here either (B1.11).
            self.failure = f"not a SASL frame of at most {FRAME_MAX} bytes"
            return 0
        return size if len(self._bytes) >= size else 0

    def _send(self, performative: SaslMechanisms | SaslOutcome) -> None:
        self._output += frame(0, encode_performative(performative), SASL_FRAME)
