"""Proton's addresses, texts, conditions and delivery states as Python's values, and back."""

from typing import Any

from cproton_ffi import ffi, lib

from amqpbroker.amqp.codes import MODIFIED, REJECTED

Pointer = Any  # A cffi pointer: the binding has no types.

NULL = ffi.NULL

Condition = tuple[str, str, bytes]
"""Error condition, description and info: an encoded map, or b"" for none."""


def address_of(pointer: Pointer) -> int:
    """What the twin and the tables know a pointer by."""
    return int(ffi.cast("uintptr_t", pointer))


def text_of(chars: Pointer) -> str:
    """A C string; one that is absent is empty."""
    # A peer's text may be broken UTF-8: it is only shown, never compared.
    return "" if chars == NULL else bytes(ffi.string(chars)).decode("utf-8", "replace")


def set_condition(target: Pointer, condition: Condition | None) -> None:
    """Write the condition, if there is one, into Proton's."""
    if condition is None:
        return
    name, description, info = condition
    lib.pn_condition_set_name(target, name.encode())
    lib.pn_condition_set_description(target, description.encode("utf-8", "replace"))
    if info:
        data = lib.pn_condition_info(target)
        decoded = lib.pn_data_decode(data, info, len(info))
        assert decoded == len(info), "the info of a condition is one encoded map"


def _encoded_map(data: Pointer) -> bytes:
    size = 0 if data == NULL else lib.pn_data_encoded_size(data)
    if size <= 0:
        return b""
    chars = ffi.new("char[]", size)
    size = lib.pn_data_encode(data, chars, size)
    encoded = bytes(ffi.buffer(chars, size)) if size > 0 else b""
    return encoded if encoded[:1] in (b"\xc1", b"\xd1") else b""  # [1.6.23] map8, map32.


def outcome_detail(delivery: Pointer, code: int) -> Any:  # noqa: ANN401 - a record's last field
    """What comes with a rejected, a modified or an unknown outcome; the same is set as our answer to it."""
    remote, local = lib.pn_delivery_remote(delivery), lib.pn_delivery_local(delivery)
    if code == REJECTED:
        condition = lib.pn_disposition_condition(remote)
        return text_of(lib.pn_condition_get_name(condition)), text_of(
            lib.pn_condition_get_description(condition)
        )
    if code == MODIFIED:
        failed, elsewhere = (
            lib.pn_disposition_is_failed(remote),
            lib.pn_disposition_is_undeliverable(remote),
        )
        lib.pn_disposition_set_failed(local, failed)
        lib.pn_disposition_set_undeliverable(local, elsewhere)
        return (
            bool(failed),
            bool(elsewhere),
            _encoded_map(lib.pn_disposition_annotations(remote)),
        )
    data = lib.pn_disposition_data(remote)
    if data != NULL:
        lib.pn_data_copy(lib.pn_disposition_data(local), data)
    return None
