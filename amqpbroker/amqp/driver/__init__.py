"""One connection's Proton objects, worked in batches: bytes in, flat records out, runs of messages and outcomes in.

The only package that touches `cproton_ffi.lib`. What is done per message or per frame (push, pump, take, dispose,
send_run) is the *data path*, and there are two of it: `pure.py`, the reference, and its compiled twin in
`amqp/_driver.pyx`, bound in `compiled.py`. The rest, `control.py`, is shared. Must not know queues, names of nodes or
settings. Reading order: records, control, pure, compiled; `values.py` is looked things up in.
"""

from typing import TYPE_CHECKING

from amqpbroker.amqp.driver.compiled import CompiledDriver
from amqpbroker.amqp.driver.control import StaleSlot
from amqpbroker.amqp.driver.pure import PureDriver
from amqpbroker.amqp.driver.records import (
    ABORTED,
    CROWDED,
    LINK_OPENED,
    MESSAGES,
    OUTCOMES,
    OVERSIZE,
    SESSION_OPENED,
    Record,
)
from amqpbroker.amqp.driver.values import Condition
from amqpbroker.base.twins import PURE_WANTED

__all__ = [
    "ABORTED",
    "COMPILED",
    "CROWDED",
    "LINK_OPENED",
    "MESSAGES",
    "OUTCOMES",
    "OVERSIZE",
    "SESSION_OPENED",
    "CompiledDriver",
    "Condition",
    "Driver",
    "PureDriver",
    "Record",
    "StaleSlot",
]

COMPILED: bool = CompiledDriver is not None and not PURE_WANTED
if TYPE_CHECKING:
    Driver = PureDriver
else:
    Driver = CompiledDriver if COMPILED else PureDriver
