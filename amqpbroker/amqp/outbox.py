"""Bytes on their way to a socket, in the order in which they were made."""

from collections import deque


class Outbox:
    """A queue of chunks that is read and written off from the front."""

    __slots__ = ("_chunks", "_offset", "size")

    def __init__(self) -> None:
        self._chunks: deque[bytes] = deque()
        self._offset = 0  # Written of the first chunk.
        self.size = 0  # Bytes that wait.

    def append(self, chunk: bytes) -> None:
        """Put bytes at the end; an empty chunk is none."""
        if chunk:
            self._chunks.append(chunk)
            self.size += len(chunk)

    def view(self) -> memoryview:
        """All that waits; empty when nothing does. Good until the next call of anything here."""
        if not self._chunks:
            return memoryview(b"")
        if len(self._chunks) > 1:
            # One call to the system is worth more than the copy: a turn makes a few small chunks.
            joined = b"".join(self._chunks)[self._offset :]
            self._chunks.clear()
            self._chunks.append(joined)
            self._offset = 0
        return memoryview(self._chunks[0])[self._offset :]

    def written(self, count: int) -> None:
        """Take `count` bytes off the front; they must lie in the last view."""
        assert 0 <= count <= len(self._chunks[0]) - self._offset if self._chunks else count == 0
        self.size -= count
        self._offset += count
        if self._chunks and self._offset == len(self._chunks[0]):
            self._chunks.popleft()
            self._offset = 0
