"""Bytes come out as they went in, however they are cut."""

from hypothesis import given
from hypothesis import strategies as st

from amqpbroker.amqp.outbox import Outbox


@given(st.lists(st.one_of(st.binary(max_size=9), st.integers(1, 12))))
def test_what_is_written_is_what_was_appended(steps: list[bytes | int]) -> None:
    outbox = Outbox()
    appended = b""
    written = b""
    for step in steps:
        if isinstance(step, bytes):
            outbox.append(step)
            appended += step
        else:
            view = outbox.view()
            piece = bytes(view[:step])
            outbox.written(len(piece))
            written += piece
        assert outbox.size == len(appended) - len(written)
    assert written + bytes(outbox.view()) == appended


def test_an_empty_outbox_has_an_empty_view() -> None:
    outbox = Outbox()
    outbox.append(b"")
    assert bytes(outbox.view()) == b""
    outbox.written(0)
    assert outbox.size == 0
