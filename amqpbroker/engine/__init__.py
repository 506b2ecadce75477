"""The broker itself: pure, synchronous, single-writer. Commands and `now` in, effects out.

Start reading at broker.py.
"""

__all__: list[str] = []
