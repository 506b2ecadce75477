"""The log: one line per state change, as text or JSON, with stable event names."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LogSettings:
    """How much is said, and in which form."""

    level: str = "info"  # debug, info, warning or error.
    format: str = "text"  # text or json.
