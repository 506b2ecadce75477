"""What one listener grants each peer: sizes, counts and times, as plain numbers.

Filled from `listeners:` of the configuration file, whose words the names follow with the unit last. The
defaults are those of a broker started without a file. Must not know where a value came from.

Named tuples, here and in the other settings: dataclasses loads inspect and compiles, a tenth of a start.
"""

from typing import NamedTuple

from amqpbroker.base.units import KIB, MIB


class PeerSettings(NamedTuple):
    """The limits of every connection that one listener accepts."""

    container_id: str  # Of our Open: the broker's name.
    max_frame_size: int = 64 * KIB  # Advertised in Open; >= 512 [2.7.1].
    channel_max: int = 2047  # Highest channel number, so that a connection has 2048 sessions.
    handle_max: int = 4095  # Highest handle number of one session.
    links_max: int = 8192  # Of one connection, over all its sessions.
    idle_timeout_ms: int = 60_000  # Without a byte from the peer; half is advertised. 0: never.
    handshake_timeout_ms: int = 10_000  # From accept to the peer's Open.
    max_message_size: int = 100 * MIB  # 0: unlimited [2.7.3].
    incoming_window_bytes: int = 128 * MIB  # Of a session; in frames it is // max_frame_size, >= 1.
    incoming_bytes_max: int = 32 * MIB  # Received and not yet stored, per connection.
    outgoing_buffer: int = 1 * MIB  # Bytes waiting for a slow socket before dispatch stops.
    bare_amqp: bool = True  # A peer may leave out the SASL layer: it is anonymous.
    credit: int = 1000  # Granted to a producer's link.
    credit_low: int = 300  # Refilled at this mark; < credit.

    @property
    def partial_bytes_max(self) -> int:
        """Bytes of messages in progress on one connection, over all its links; 0: unlimited.

        One message of the largest size can always come to its end, so without a limit on that there is none here.
        """
        if not self.max_message_size:
            return 0
        return max(self.incoming_bytes_max, self.max_message_size)
