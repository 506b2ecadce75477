"""The batch of a turn."""

from amqpbroker.engine.journal import Journal
from amqpbroker.engine.records import Meta


def test_a_turn_without_records_has_no_batch() -> None:
    assert Journal().close() is None


def test_batches_are_numbered_and_start_empty() -> None:
    journal = Journal()
    for number in (1, 2):
        record = Meta("key", None)
        journal.records.append(record)
        batch = journal.close()
        assert batch is not None
        assert (batch.number, batch.records) == (number, [record])
        assert journal.records == []
