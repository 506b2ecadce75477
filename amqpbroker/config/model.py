"""What may stand in a configuration file, section by section, with the built-in defaults.

The words and the defaults are the contract's; `later` has what is not built yet (config/contract.py).
Imported only when a file is given. Must not know files or places.
"""

from typing import Annotated, ClassVar

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic_core import InitErrorDetails

from amqpbroker.base.units import KIB, MIB
from amqpbroker.config.contract import NOT_YET, Section
from amqpbroker.config.values import (
    COUNT_MAX,
    UINT_MAX,
    Bind,
    Flag,
    Word,
    choice,
    count,
    did_you_mean,
    duration,
    or_unlimited,
    shown,
    size,
    wrong,
)
from amqpbroker.ops.log import FORMATS, LEVELS

# The default: what can be verified is offered.
MECHANISMS = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN", "ANONYMOUS")
MECHANISMS_LATER = ("EXTERNAL", "OAUTHBEARER", "XOAUTH2")
DAY_MS = 86_400_000

EITHER_STORE = ("lmdb", "memory")  # With data_dir null nothing is kept, whatever the kind.

Complaints = list[tuple[tuple[str | int, ...], str]]
"""What is wrong inside a value: where, and what."""


def read_mechanisms(value: object) -> list[str]:
    """`[ANONYMOUS]`, or the default list, of which only ANONYMOUS can be verified without users."""
    if not isinstance(value, list):
        raise wrong(f"must be a list, is {shown(value)}")
    if value in (["ANONYMOUS"], list(MECHANISMS)):
        return ["ANONYMOUS"]
    for one in value:
        if one not in (*MECHANISMS, *MECHANISMS_LATER):
            raise wrong(
                f"{shown(one)} is not known{did_you_mean(str(one), MECHANISMS + MECHANISMS_LATER)}"
            )
    raise wrong(f"{NOT_YET}; supported: [ANONYMOUS]")


def read_routing(value: object) -> list[str]:
    """`anycast` or `[anycast]`."""
    kinds = value if isinstance(value, list) else [value]
    if kinds == ["anycast"]:
        return ["anycast"]
    for one in kinds:
        if one not in ("anycast", "multicast"):
            raise wrong(
                f"{shown(one)} is not known{did_you_mean(str(one), ('anycast', 'multicast'))}"
            )
    raise wrong(f"{', '.join(map(str, kinds)) or 'none'}: {NOT_YET}; supported: anycast")


def distinct(key: str) -> AfterValidator:
    """A list of sections in which no two have the same `key`."""

    def check(sections: list[Section]) -> list[Section]:
        seen: dict[object, int] = {}
        found: Complaints = []
        for number, section in enumerate(sections):
            value = getattr(section, key)
            first = seen.setdefault(value, number)
            is_any_port = key == "bind" and str(value).endswith(":0")
            if first != number and not is_any_port:
                found.append(((number, key), f"{shown(value)} is given twice, first in [{first}]"))
        raise_all(found)
        return sections

    return AfterValidator(check)


def raise_all(found: Complaints) -> None:
    """Complain about all of `found` at once; nothing when there is nothing."""
    if found:
        details = [
            InitErrorDetails(type=wrong(text), loc=where, input=None) for where, text in found
        ]
        raise ValidationError.from_exception_data("settings", details)


class BrokerSection(Section):
    """`broker:`."""

    later: ClassVar = {
        "data_dir": None
    }  # The contract's default, ./data, would promise what memory cannot keep.

    name: Word | None = None  # None: the host's.
    shutdown_grace: Annotated[int, duration(0, DAY_MS)] = 5_000


class ListenerSection(Section):
    """One of `listeners:`."""

    later: ClassVar = {
        "anycast_prefix": ["queue://"],
        "multicast_prefix": ["topic://"],
        "allow_insecure_plain": True,
        "drain_timeout": "60 s",
        "tls": None,
        "websocket": None,
    }

    name: Word
    bind: Bind
    sasl: Annotated[list[str], BeforeValidator(read_mechanisms)] = ["ANONYMOUS"]  # noqa: RUF012
    bare_amqp: Flag = True
    max_frame_size: Annotated[int, size(512, UINT_MAX)] = 64 * KIB  # [2.7.1]
    channel_max: Annotated[int, count(0, 65_535)] = 2047
    idle_timeout: Annotated[int | None, or_unlimited(duration(1))] = 60_000
    handshake_timeout: Annotated[int, duration(1)] = 10_000
    max_connections: Annotated[int | None, or_unlimited(count(1))] = 10_000
    max_message_size: Annotated[int | None, or_unlimited(size(1))] = 100 * MIB
    incoming_window: Annotated[int, size(512), Field(validate_default=True)] = 128 * MIB
    incoming_bytes_max: Annotated[int, size(1)] = 32 * MIB
    outgoing_buffer: Annotated[int, size(1)] = 1 * MIB
    credit: Annotated[int, count(1)] = 1000
    credit_low: Annotated[int, count(0), Field(validate_default=True)] = 300
    tcp_nodelay: Flag = True
    backlog: Annotated[int, count(1, 65_535)] = 1024

    @field_validator("incoming_window")
    @classmethod
    def _holds_a_frame(cls, value: int, info: ValidationInfo) -> int:
        frame = info.data.get("max_frame_size", 0)
        if value < frame:  # Proton would close the connection at its first frame.
            raise wrong(f"must be at least max_frame_size ({frame}), is {value}")
        return value

    @field_validator("credit_low")
    @classmethod
    def _is_below_credit(cls, value: int, info: ValidationInfo) -> int:
        credit = info.data.get("credit", COUNT_MAX)
        if value >= credit:
            raise wrong(f"must be below credit ({credit}), is {value}")
        return value


class LoggingSection(Section):
    """`logging:`."""

    level: Annotated[str, choice(*LEVELS)] = "info"
    format: Annotated[str, choice(*FORMATS)] = "text"


def read_match(value: object) -> str:
    """The pattern `#`."""
    if value == "#":
        return "#"
    if isinstance(value, str) and value:
        raise wrong(f'patterns other than "#" are {NOT_YET}')
    raise wrong(f"must be a pattern, is {shown(value)}")


class AddressSettingsSection(Section):
    """One of `address_settings:`."""

    later: ClassVar = {
        "node": "any",
        "default_routing": "anycast",
        "auto_delete_queues_message_count": 0,
        "redelivery_delay": "0 s",
        "redelivery_delay_multiplier": 1.0,
        "redelivery_collision_avoidance_factor": 0.0,
        "max_redelivery_delay": None,
        "max_delivery_attempts": 10,
        "dead_letter_address": None,
        "auto_create_dead_letter_resources": False,
        "dead_letter_queue_prefix": "DLQ.",
        "dead_letter_queue_suffix": "",
        "send_to_dla_on_no_route": False,
        "dead_letter_strategy": None,
        "expiry_address": None,
        "expiry_delay": None,
        "min_expiry_delay": None,
        "max_expiry_delay": None,
        "no_expiry": False,
        "auto_create_expiry_resources": False,
        "expiry_queue_prefix": "EXP.",
        "expiry_queue_suffix": "",
        "retroactive_message_count": 0,
        "max_size_bytes": "unlimited",
        "max_size_messages": "unlimited",
        "max_size_bytes_reject_threshold": "unlimited",
        "address_full_policy": "page",
        "cursor": {"queue": "store", "durable_subscriber": "store", "subscriber": "store"},
        "memory_limit": "unlimited",
        "cursor_memory_high_water_mark": 70,
        "max_page_size": 200,
        "use_cache": True,
        "lazy_dispatch": False,
        "strict_order_dispatch": False,
        "dispatch_policy": "round_robin",
        "producer_flow_control": True,
        "pending_message_limit": "unlimited",
        "default_ring_size": "unlimited",
        "default_last_value_queue": False,
        "default_last_value_key": None,
        "default_non_destructive": False,
        "default_exclusive_queue": False,
        "default_max_consumers": "unlimited",
        "default_purge_on_no_consumers": False,
        "default_group_mode": "standard",
        "default_group_buckets": "unlimited",
        "default_group_rebalance": False,
        "default_group_first_key": None,
        "default_consumers_before_dispatch": 0,
        "default_delay_before_dispatch": None,
        "default_queue": {},
    }

    match: Annotated[str, BeforeValidator(read_match)]
    auto_create_addresses: Flag = True
    auto_create_queues: Flag = True
    auto_delete_queues: Flag = True
    auto_delete_queues_delay: Annotated[int, duration()] = 0
    auto_delete_addresses: Flag = True


class QueueSection(Section):
    """One of an address's `queues:`."""

    later: ClassVar = {
        "filter": None,
        "priorities": 10,
        "sort_key": None,
        "last_value_key": None,
        "ring_size": None,
        "max_depth_messages": "unlimited",
        "max_depth_bytes": "unlimited",
        "overflow_policy": "none",
        "flow_resume_limit": 80,
        "groups": {
            "mode": None,
            "key": None,
            "default_group": "qpid.no-group",
            "rebalance": None,
            "rebalance_pause_dispatch": False,
            "first_key": None,
            "buckets": None,
        },
        "non_destructive": None,
        "minimum_message_ttl": None,
        "maximum_message_ttl": None,
        "default_filters": [],
        "hold_on_publish": False,
        "message_durability": "default",
        "exclusive": "none",
        "single_active_consumer": None,
        "max_live_consumers": "unlimited",
        "max_consumers": None,
        "consumers_before_dispatch": None,
        "delay_before_dispatch": None,
        "purge_on_no_consumers": None,
        "expiry_policy": "delete",
        "alternate": None,
        "enabled": True,
        "paused": False,
    }

    name: Word | None = None  # None: the address's.
    routing: Annotated[str, choice("anycast", later=("multicast",))] = "anycast"
    durable: Flag = True
    type: Annotated[str, choice("standard", later=("priority", "sorted", "last_value"))] | None = (
        None
    )


def at_most_one(queues: list[QueueSection]) -> list[QueueSection]:
    """An address with one queue, until addresses route to several."""
    if len(queues) > 1:
        raise wrong(f"more than one queue on an address: {NOT_YET}")
    return queues


class AddressSection(Section):
    """One of `addresses:`."""

    name: Word
    routing: Annotated[list[str], BeforeValidator(read_routing)] = ["anycast"]  # noqa: RUF012
    queues: Annotated[list[QueueSection], AfterValidator(at_most_one)] = []  # noqa: RUF012


STOCK_LISTENER = ListenerSection(name="amqp", bind="localhost:5672")


class File(Section):
    """A whole file, or several merged."""

    later: ClassVar = {
        "http": {"bind": "localhost:8161", "tls": None, "authenticate": True},
        "metrics": {
            "per_queue": {"enabled": True, "max": 500, "include": [".*"], "exclude": ["^tmp\\."]}
        },
        "security": {"users": [], "anonymous_role": None, "roles": {}, "sole_connection": "refuse"},
        "store": {
            "kind": EITHER_STORE,
            "map_size": "64 GiB",
            "disk_free_min": "1 GiB",
            "memory_max": "128 MiB",
            "temporary_max": "16 GiB",
            "persist_delivery_count_before_delivery": False,
        },
        "transactions": {"timeout": "5 min", "max_messages": 100_000, "max_bytes": "256 MiB"},
        "delivery": {
            "rejected": "dead_letter",
            "clean_detach_counts": False,
            "due_messages": "arrival",
            "origin_properties": False,
            "expiry_scan_period": "30 s",
        },
        "wildcards": {"delimiter": ".", "single": "*", "any": "#", "literal_markers": None},
        "diverts": [],
        "retroactive": {"internal_prefix": "$.artemis.internal."},
    }

    broker: BrokerSection = BrokerSection()
    listeners: Annotated[
        list[ListenerSection],
        Field(min_length=1),
        distinct("name"),
        distinct("bind"),
    ] = [STOCK_LISTENER]  # noqa: RUF012
    logging: LoggingSection = LoggingSection()
    address_settings: Annotated[list[AddressSettingsSection], distinct("match")] = []  # noqa: RUF012
    addresses: Annotated[list[AddressSection], distinct("name")] = []  # noqa: RUF012
