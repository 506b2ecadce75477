"""Sources and targets: what an attach asks for in the engine's words, and the Attach that answers it.

Must not know Proton. The replies state what is in force, not what was wished (client-needs B4.2, B5.3, B5.7).
"""

from typing import Final

from amqpbroker.amqp.performatives import Attach, Coordinator, Released, Source, Target
from amqpbroker.base.codec import Array, Described, Symbol
from amqpbroker.base.errors import (
    INVALID_FIELD,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    PRECONDITION_FAILED,
    Refusal,
)
from amqpbroker.engine.commands import Lifetime, Node, Terminus

ADDRESS_BYTES_MAX: Final = 1_024  # Longer names are no names; they would fill logs and labels.
COPY: Final = Symbol("copy")
MOVE: Final = Symbol("move")

LIFETIMES: Final = {
    0x2B: Lifetime.ON_CLOSE,
    0x2C: Lifetime.ON_NO_LINKS,
    0x2D: Lifetime.ON_NO_MESSAGES,
    0x2E: Lifetime.ON_NO_LINKS_OR_MESSAGES,
    "amqp:delete-on-close:list": Lifetime.ON_CLOSE,
    "amqp:delete-on-no-links:list": Lifetime.ON_NO_LINKS,
    "amqp:delete-on-no-messages:list": Lifetime.ON_NO_MESSAGES,
    "amqp:delete-on-no-links-or-messages:list": Lifetime.ON_NO_LINKS_OR_MESSAGES,
}
NODES: Final = {
    "queue": Node.QUEUE,
    "temporary-queue": Node.QUEUE,
    "topic": Node.TOPIC,
    "temporary-topic": Node.TOPIC,
}
SELECTORS: Final = {
    0x0000468C00000004,
    "apache.org:selector-filter:string",
    "apache.org:jms-selector-filter:string",
}
OUTCOMES: Final = (
    Symbol("amqp:accepted:list"),
    Symbol("amqp:rejected:list"),
    Symbol("amqp:released:list"),
    Symbol("amqp:modified:list"),
)
REJECTED: Final = OUTCOMES[1]


def target_of(attach: Attach, fresh_name: str) -> Terminus | Refusal:
    """Where a producer wants its messages to go; address None is the anonymous terminus (B4.6)."""
    target = attach.target
    if isinstance(target, Coordinator):
        return Refusal(NOT_IMPLEMENTED, "transactions are not supported yet")
    if target is None:
        return Refusal(INVALID_FIELD, "a producer's attach needs a target")
    return _terminus(target, fresh_name, anonymous=True)


def source_of(attach: Attach, fresh_name: str) -> Terminus | Refusal:
    """What a consumer wants to consume."""
    source = attach.source
    if source is None:
        # The look-up of a durable subscription by its link name (B7.6); there are none.
        return Refusal(NOT_FOUND, f"no subscription named {attach.name:.200}")
    if source.distribution_mode not in (None, COPY, MOVE):
        return Refusal(
            INVALID_FIELD, f"distribution-mode is {source.distribution_mode:.40}, not copy or move"
        )
    for value in (source.filter or {}).values():
        if isinstance(value, Described) and value.descriptor in SELECTORS:
            # Left out silently, the consumer would get messages that it must not see.
            return Refusal(NOT_IMPLEMENTED, "selectors are not supported yet")
    return _terminus(source, fresh_name, anonymous=False)


def can_reject(attach: Attach) -> bool:
    """Whether this producer understands `rejected`: it lists it, or lists nothing (RJ-2)."""
    outcomes = attach.source.outcomes if attach.source is not None else ()
    return not outcomes or REJECTED in outcomes


def wants_copies(attach: Attach) -> bool:
    """Whether the consumer asks to browse (B5.4)."""
    return attach.source is not None and attach.source.distribution_mode == COPY


def producer_reply(attach: Attach, address: str | None, message_size_max: int) -> Attach:
    """Our Attach to a producer that gets its link; the handle is filled in by the peer."""
    assert isinstance(attach.target, Target)
    wished = attach.target
    target = Target(
        address=address,
        durable=0,
        expiry_policy=wished.expiry_policy,
        timeout=0,
        dynamic=wished.dynamic,
        dynamic_node_properties=wished.dynamic_node_properties,
        capabilities=wished.capabilities,
    )
    return _reply(attach, attach.source, target, message_size_max)


def consumer_reply(attach: Attach, address: str, *, copies: bool) -> Attach:
    """Our Attach to a consumer that gets its link."""
    assert attach.source is not None
    wished = attach.source
    source = Source(
        address=address,
        durable=0,  # A queue keeps no terminus state for its consumers.
        expiry_policy=wished.expiry_policy if wished.expiry_policy != "never" else "link-detach",
        timeout=0,
        dynamic=wished.dynamic,
        dynamic_node_properties=wished.dynamic_node_properties,
        distribution_mode=COPY if copies else MOVE,
        filter=None,  # No filter is honoured yet, and the reply holds the honoured ones (B6.3, F-5).
        default_outcome=Released(),  # Rule D-8.
        outcomes=wished.outcomes or OUTCOMES,
        capabilities=wished.capabilities,
    )
    return _reply(attach, source, attach.target, 0)


def refused_reply(attach: Attach) -> Attach:
    """Our Attach to a link that is refused: its own terminus is null (B4.3, B5.8)."""
    if attach.role:
        return _reply(attach, None, attach.target, 0)
    return _reply(attach, attach.source, None, 0)


def _reply(
    attach: Attach,
    source: Source | None,
    target: Target | Coordinator | None,
    message_size_max: int,
) -> Attach:
    return Attach(
        name=attach.name,
        handle=0,
        role=not attach.role,
        snd_settle_mode=attach.snd_settle_mode,
        rcv_settle_mode=attach.rcv_settle_mode,
        source=source,
        target=target,
        # Mandatory from senders [2.7.3]; ours always starts at 0, as Proton's does.
        initial_delivery_count=0 if attach.role else None,
        max_message_size=message_size_max or None,
    )


def _terminus(wished: Source | Target, fresh_name: str, *, anonymous: bool) -> Terminus | Refusal:
    nodes = {NODES[name] for name in wished.capabilities if name in NODES}
    if len(nodes) > 1:
        return Refusal(PRECONDITION_FAILED, "capabilities name a queue and a topic at once")
    node = nodes.pop() if nodes else Node.ANY
    if wished.dynamic:
        lifetime = _lifetime(wished.dynamic_node_properties or {})
        if isinstance(lifetime, Refusal):
            return lifetime
        return Terminus(None, node, lifetime, fresh_name)
    address = wished.address
    if address is None or address == "":
        if anonymous:
            return Terminus(None, node)
        return Refusal(INVALID_FIELD, "a source needs an address, or dynamic=true")
    if not isinstance(address, str):
        return Refusal(INVALID_FIELD, f"an address is a string, not {type(address).__name__}")
    if len(address.encode()) > ADDRESS_BYTES_MAX:
        return Refusal(INVALID_FIELD, f"the address is longer than {ADDRESS_BYTES_MAX} bytes")
    return Terminus(address, node)


def _lifetime(properties: dict[object, object]) -> Lifetime | Refusal:
    """The lifetime policy of a dynamic node; delete-on-close when none is given (B11.3)."""
    modes = properties.get(Symbol("supported-dist-modes"))
    if not (modes is None or isinstance(modes, Symbol | Array)):
        return Refusal(INVALID_FIELD, "supported-dist-modes holds symbols")
    policy = properties.get(Symbol("lifetime-policy"))
    if policy is None:
        return Lifetime.ON_CLOSE
    if isinstance(policy, Described) and policy.descriptor in LIFETIMES:
        return LIFETIMES[policy.descriptor]
    return Refusal(INVALID_FIELD, "unknown lifetime-policy")
