"""Sizes and durations as people write them: "256 KiB", "30 s". Must not know which setting they are for.

A size without a unit is bytes. A duration without one is refused: seconds and milliseconds are too easily mixed up.
"unlimited", any negative number and null mean no limit, which is None here.
"""

import re
from typing import Final

from amqpbroker.base.ids import Millis

UNLIMITED = "unlimited"

KIB = 1024
MIB = 1024 * KIB

VALUE_MAX = 2**63 - 1
"""What fits a 64-bit number with a sign: 8 EiB, or 292 million years."""

SIZE_UNITS: Final = {
    "B": 1,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": KIB,
    "MiB": MIB,
    "GiB": 2**30,
    "TiB": 2**40,
}
"""Bytes. MB is decimal and MiB binary, as the IEC has it, whatever other brokers make of MB."""

DURATION_UNITS: Final = {"ms": 1, "s": 1_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
"""Milliseconds."""

_QUANTITY = re.compile(
    r"\s*(?P<sign>-?)\s*(?P<number>[0-9]{1,19}(?:\.[0-9]{1,9})?)\s*(?P<unit>[A-Za-z]*)\s*", re.ASCII
)


def parse_size(value: object) -> int | None:
    """Bytes, or None for unlimited; from an int, or text such as "256 KiB" and "10 MB".

    Raises ValueError with a sentence for the operator.
    """
    number, unit = _split(value, "size", "256 KiB")
    if number is None:
        return None
    return _whole(value, number, _factor(unit or "B", SIZE_UNITS, "size"), "bytes")


def parse_duration(value: object) -> Millis | None:
    """Milliseconds, or None for unlimited; from text such as "500 ms", "30 s", "5 min", "1 h".

    Raises ValueError with a sentence for the operator.
    """
    number, unit = _split(value, "duration", "30 s")
    if number is None:
        return None
    if not unit:
        raise ValueError(f"duration {value!r}: unit missing, one of {', '.join(DURATION_UNITS)}")
    return Millis(_whole(value, number, _factor(unit, DURATION_UNITS, "duration"), "milliseconds"))


def _split(value: object, noun: str, example: str) -> tuple[str | None, str]:
    """The number and the unit as written; no number for unlimited."""
    if value is None:
        return None, ""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError(f'{noun} {value!r}: write it as "{example}"')  # noqa: TRY004  # One kind of error for callers.
    if isinstance(value, str) and value.strip().lower() == UNLIMITED:
        return None, ""
    match = _QUANTITY.fullmatch(str(value))
    if match is None:
        raise ValueError(f'{noun} {value!r}: write it as "{example}", or {UNLIMITED}')
    if match["sign"]:
        return None, ""
    return match["number"], match["unit"]


def _factor(unit: str, units: dict[str, int], noun: str) -> int:
    """Case counts for nobody: there are no megabits and no millibytes here."""
    for name, factor in units.items():
        if name.lower() == unit.lower():
            return factor
    raise ValueError(f"{noun}: {unit!r} is no unit, use one of {', '.join(units)}")


def _whole(value: object, number: str, factor: int, noun: str) -> int:
    digits, _, fraction = number.partition(".")
    scale: int = 10 ** len(fraction)
    amount, rest = divmod(int(digits + fraction) * factor, scale)
    if rest:
        raise ValueError(f"{value!r} is not a whole number of {noun}")
    if amount > VALUE_MAX:
        raise ValueError(f"{value!r} is more than {VALUE_MAX} {noun}")
    return amount
