"""The numbers of performatives [2.7], outcomes [3.4] and SASL frames [5.3.3]: descriptors without their domain, 0.

A compiled twin cannot import a constant for C: `_frames.pyx` and `_driver.pyx` repeat the few they need, and the tests
that run over both twins would tell.
"""

from typing import Final

OPEN: Final = 0x10
BEGIN: Final = 0x11
ATTACH: Final = 0x12
FLOW: Final = 0x13
TRANSFER: Final = 0x14
DISPOSITION: Final = 0x15
DETACH: Final = 0x16
END: Final = 0x17
CLOSE: Final = 0x18
ERROR: Final = 0x1D

RECEIVED: Final = 0x23
ACCEPTED: Final = 0x24
REJECTED: Final = 0x25
RELEASED: Final = 0x26
MODIFIED: Final = 0x27

SOURCE: Final = 0x28
TARGET: Final = 0x29
COORDINATOR: Final = 0x30

SASL_MECHANISMS: Final = 0x40
SASL_INIT: Final = 0x41
SASL_CHALLENGE: Final = 0x42
SASL_RESPONSE: Final = 0x43
SASL_OUTCOME: Final = 0x44

AMQP_FRAME: Final = 0  # Types of frames [2.3.1].
SASL_FRAME: Final = 1
