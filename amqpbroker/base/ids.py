"""The numbers that name things. All are plain ints; the types only keep them apart.

Must not know what the things are.
"""

from typing import NewType

Millis = NewType("Millis", int)
"""A point in broker time, or a span of it, in milliseconds. Points never decrease."""

ConnectionId = NewType("ConnectionId", int)
"""One accepted connection; never reused while the process lives."""

SessionId = NewType("SessionId", int)
"""One session of one connection; never reused while the process lives."""

LinkId = NewType("LinkId", int)
"""One attached link; never reused while the process lives."""

QueueId = NewType("QueueId", int)
"""One queue; stable over restarts, since stored records are keyed by it."""

Sequence = NewType("Sequence", int)
"""An entry's place in the arrival order of its queue; kept for life. First is 1."""

Number = NewType("Number", int)
"""A delivery of one incoming link, counted from 0 in the order of its first transfer."""

BatchNumber = NewType("BatchNumber", int)
"""One batch of records handed to the store; completions arrive in this order. First is 1."""
