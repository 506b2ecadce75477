"""What take() gives: flat records, and how neighbours of one kind become one. Must not know Proton.

Tuples, not classes: the compiled data path makes the same ones, and a run of a hundred messages is one of them.
"""

from typing import Any

from amqpbroker.amqp.codes import ACCEPTED, RELEASED

Record = tuple[Any, ...]

# Tags of the records of take(); docs/seams.md section 3 has the rest of each record.
SESSION_OPENED = 1
LINK_OPENED = 2
MESSAGES = 3
ABORTED = 4
OVERSIZE = 5
OUTCOMES = 6
CROWDED = 7

# Outcomes that are only a code. 0 stands for "settled without a state".
PLAIN = frozenset({0, ACCEPTED, RELEASED})


class Records(list[Record]):
    """The records of one take(), with neighbours of one kind put together."""

    __slots__ = ("_payloads", "_run")

    def __init__(self, held: list[Record]) -> None:
        super().__init__(held)
        # Link and settled of the last record, if MESSAGES.
        self._run: tuple[int, bool] | None = None
        self._payloads: list[bytes | bytearray] = []  # That record's.

    def message(self, link: int, number: int, payload: bytes | bytearray, settled: bool) -> None:  # noqa: FBT001
        """A complete message; the numbers of a run go on by themselves."""
        if self._run != (link, settled):
            self._run = (link, settled)
            self._payloads = []
            self.append((MESSAGES, link, number, self._payloads, settled))
        self._payloads.append(payload)

    def outcome(self, link: int, code: int, tag: int, detail: Any) -> None:  # noqa: ANN401
        """What a consumer said about one delivery."""
        self._run = None
        last = self[-1] if self else None
        if (
            last is not None
            and last[0] == OUTCOMES
            and last[1] == link
            and last[2] == code
            and last[4] == detail
        ):
            last[3].append(tag)
        else:
            self.append((OUTCOMES, link, code, [tag], detail))

    def aborted(self, link: int) -> None:
        """A delivery that its producer took back."""
        self._run = None
        if self and self[-1][:2] == (ABORTED, link):
            self[-1] = (ABORTED, link, self[-1][2] + 1)
        else:
            self.append((ABORTED, link, 1))

    def other(self, record: Record | None) -> None:
        """A record that stands alone; None is none."""
        if record is not None:
            self._run = None
            self.append(record)
