"""The store that keeps nothing."""

import pytest

from amqpbroker.base.ids import BatchNumber
from amqpbroker.engine.records import Batch, Store
from amqpbroker.store.memory import MemoryStore


def test_the_newest_batch_is_told_once() -> None:
    store: Store = MemoryStore()
    assert store.take_stored() is None
    store.submit(Batch(BatchNumber(1), []))
    store.submit(Batch(BatchNumber(2), []))
    assert store.take_stored() == 2
    assert store.take_stored() is None
    store.close()


def test_batches_come_in_order() -> None:
    store = MemoryStore()
    store.submit(Batch(BatchNumber(2), []))
    with pytest.raises(AssertionError):
        store.submit(Batch(BatchNumber(1), []))
