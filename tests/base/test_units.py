"""Sizes and durations as written in the configuration."""

import pytest

from amqpbroker.base.units import (
    DURATION_UNITS,
    SIZE_UNITS,
    VALUE_MAX,
    parse_duration,
    parse_size,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (0, 0),
        (4096, 4096),
        ("4096", 4096),
        ("256 KiB", 256 * 1024),
        ("256KiB", 256 * 1024),
        ("10 MB", 10_000_000),
        ("10 mb", 10_000_000),
        ("1.5 GiB", 3 * 2**29),
        ("64 GiB", 64 * 2**30),
        ("7 B", 7),
        ("  1 TiB ", 2**40),
        (1024.0, 1024),
    ],
)
def test_a_size_is_read_as_bytes(text: object, expected: int) -> None:
    assert parse_size(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("500 ms", 500),
        ("30 s", 30_000),
        ("5 min", 300_000),
        ("1 h", 3_600_000),
        ("0 s", 0),
        ("1.5s", 1500),
        ("2 d", 172_800_000),
    ],
)
def test_a_duration_is_read_as_milliseconds(text: object, expected: int) -> None:
    assert parse_duration(text) == expected


@pytest.mark.parametrize("text", ["unlimited", " Unlimited ", -1, "-1", "-5 s", None])
def test_unlimited_negative_and_null_mean_no_limit(text: object) -> None:
    assert parse_duration(text) is None
    if text != "-5 s":
        assert parse_size(text) is None


@pytest.mark.parametrize("text", [30, 0, "30", "0", 1.5])
def test_a_duration_without_a_unit_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="unit missing, one of ms, s, min, h, d"):
        parse_duration(text)


@pytest.mark.parametrize(
    "text",
    ["", "much", "1 2", "1,5 MB", "KiB", "1e3", "٣ KiB", True, [], {}, float("nan"), "9" * 500],
)
def test_what_is_no_quantity_is_refused_with_an_example(text: object) -> None:
    with pytest.raises(ValueError, match='write it as "256 KiB"'):
        parse_size(text)
    with pytest.raises(ValueError, match='write it as "30 s"'):
        parse_duration(text)


def test_an_unknown_unit_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="'parsec' is no unit, use one of B, kB"):
        parse_size("3 parsec")
    with pytest.raises(ValueError, match="'m' is no unit, use one of ms, s"):
        parse_duration("3 m")


def test_a_part_of_a_byte_or_millisecond_is_refused() -> None:
    with pytest.raises(ValueError, match="not a whole number of bytes"):
        parse_size("0.5 B")
    with pytest.raises(ValueError, match="not a whole number of bytes"):
        parse_size(1.5)
    with pytest.raises(ValueError, match="not a whole number of milliseconds"):
        parse_duration("0.0005 s")


def test_the_largest_value_fits_64_bits_with_a_sign() -> None:
    assert parse_size(VALUE_MAX) == VALUE_MAX
    with pytest.raises(ValueError, match="is more than"):
        parse_size(VALUE_MAX + 1)
    with pytest.raises(ValueError, match="is more than"):
        parse_duration("9999999999999999999 d")


def test_every_unit_counts_as_it_says() -> None:
    assert all(parse_size(f"1 {unit}") == factor for unit, factor in SIZE_UNITS.items())
    assert all(parse_duration(f"1 {unit}") == factor for unit, factor in DURATION_UNITS.items())
