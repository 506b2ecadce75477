"""What a peer is told when it asked wrongly or for too much: a condition and a sentence.

The names are the error conditions of AMQP 1.0 part 2 [2.8.15 to 2.8.18] that the broker uses. Which frame
carries one is decided in amqp/conditions.py, not here.
"""

from typing import NamedTuple

# [2.8.15] amqp-error
INTERNAL_ERROR = "amqp:internal-error"
NOT_FOUND = "amqp:not-found"
DECODE_ERROR = "amqp:decode-error"
RESOURCE_LIMIT_EXCEEDED = "amqp:resource-limit-exceeded"
NOT_ALLOWED = "amqp:not-allowed"
INVALID_FIELD = "amqp:invalid-field"
NOT_IMPLEMENTED = "amqp:not-implemented"
RESOURCE_LOCKED = "amqp:resource-locked"
PRECONDITION_FAILED = "amqp:precondition-failed"
RESOURCE_DELETED = "amqp:resource-deleted"
ILLEGAL_STATE = "amqp:illegal-state"
FRAME_SIZE_TOO_SMALL = "amqp:frame-size-too-small"
# [2.8.16] connection-error
CONNECTION_FORCED = "amqp:connection:forced"
FRAMING_ERROR = "amqp:connection:framing-error"
# [2.8.17] session-error
WINDOW_VIOLATION = "amqp:session:window-violation"
ERRANT_LINK = "amqp:session:errant-link"
HANDLE_IN_USE = "amqp:session:handle-in-use"
UNATTACHED_HANDLE = "amqp:session:unattached-handle"
# [2.8.18] link-error
TRANSFER_LIMIT_EXCEEDED = "amqp:link:transfer-limit-exceeded"
MESSAGE_SIZE_EXCEEDED = "amqp:link:message-size-exceeded"
STOLEN = "amqp:link:stolen"


class Refusal(NamedTuple):
    """Why a peer does not get what it asked for; `description` names the limit and the value."""

    condition: str
    description: str
