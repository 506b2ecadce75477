"""The driver on its compiled data path, which is handed Proton's own functions as addresses."""

from typing import cast

from cproton_ffi import ffi, lib

from amqpbroker.amqp.driver.control import Control, Link
from amqpbroker.amqp.driver.pure import PureDriver
from amqpbroker.amqp.driver.values import Pointer, address_of

# What the twin calls, and the events that it must tell apart.
FUNCTIONS = """
    pn_collector_peek pn_collector_pop pn_event_type pn_event_context pn_delivery pn_delivery_abort
    pn_delivery_aborted pn_delivery_link pn_delivery_local_state pn_delivery_partial pn_delivery_pending
    pn_delivery_readable pn_delivery_remote_state pn_delivery_settle pn_delivery_settled pn_delivery_tag
    pn_delivery_update pn_link_advance pn_link_recv pn_link_send
    pn_transport_capacity pn_transport_peek pn_transport_pop pn_transport_push
"""
EVENTS = "PN_DELIVERY PN_LINK_REMOTE_OPEN PN_SESSION_REMOTE_OPEN"


def _compiled() -> type[PureDriver] | None:
    """The driver with its data path in C; None when the twin is not built."""
    try:
        from amqpbroker.amqp import _driver
    except ImportError:
        return None
    _driver.init(
        {name: address_of(ffi.addressof(lib, name)) for name in FUNCTIONS.split()},
        {name: getattr(lib, name) for name in EVENTS.split()},
    )

    class CompiledDriver(_driver.DataPath, Control):
        """The driver with its data path in C."""

        def _new_link(self, slot: int, session: int, handle: Pointer, *, incoming: bool) -> Link:
            return _driver.Link(slot, session, handle, address_of(handle), incoming=incoming)

    return cast("type[PureDriver]", CompiledDriver)  # One interface.


CompiledDriver = _compiled()
