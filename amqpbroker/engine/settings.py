"""What the engine is told about itself, as frozen values. Filled from broker-wide keys and `address_settings:`.

The names are those of the configuration file, with the unit last. Must not know where a value came from.
"""

from typing import NamedTuple

from amqpbroker.base.ids import Millis


class AddressSettings(NamedTuple):
    """How one address and the queues on it behave."""

    auto_create_addresses: bool = True
    auto_create_queues: bool = True
    auto_delete_queues: bool = True
    auto_delete_queues_delay: Millis = Millis(0)
    auto_delete_addresses: bool = True


class QueueSettings(NamedTuple):
    """A queue that is declared."""

    name: str
    durable: bool = True


class DeclaredAddress(NamedTuple):
    """An address that exists from the start and is never deleted by itself."""

    name: str
    queue: QueueSettings | None = None  # None: made on first use where auto_create_queues allows.


class BrokerSettings(NamedTuple):
    """The whole engine."""

    addresses: tuple[DeclaredAddress, ...] = ()
    address: AddressSettings = AddressSettings()  # Of every address.
    # Names of dynamic nodes start so; no other node may, so a dead one is never made again (B11.6).
    dynamic_prefix: str = "tmp."
    dynamic_nodes_max: int = 1000  # Of one connection (B11.8); a JMS client has one per requestor.

    def of_address(self, name: str) -> AddressSettings:  # noqa: ARG002 - patterns are matched here.
        """The settings in force for the address `name`."""
        return self.address
