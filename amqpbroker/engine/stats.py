"""What a queue counts: plain ints that only rise (semantics 11). Read by metrics, written by the queue."""


class Stats:
    """Messages since the queue exists; each left by exactly one of the ways after `added`."""

    __slots__ = ("acknowledged", "added", "expired", "killed", "removed", "replaced")

    def __init__(self) -> None:
        self.added = 0  # Every arrival, those that expired on arrival too.
        self.acknowledged = 0  # Accepted by a consumer, or sent settled.
        self.expired = 0  # By TTL, whatever became of them.
        self.killed = 0  # Rejected, or failed too often.
        self.replaced = 0  # Evicted by a ring, a last value or an overflow.
        self.removed = 0  # By management, or with their queue.

    def left(self) -> int:
        """How many of those added are gone."""
        return self.acknowledged + self.expired + self.killed + self.replaced + self.removed

    def values(self) -> tuple[int, ...]:
        """All counters in a fixed order, to compare one moment with another."""
        return (
            self.added,
            self.acknowledged,
            self.expired,
            self.killed,
            self.replaced,
            self.removed,
        )
