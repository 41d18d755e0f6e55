"""A large object as a seekable file with few requests.

The bytes that are needed next are fetched ahead, and close ranges are fetched together.
"""

from __future__ import annotations

import io
from collections.abc import Sequence

import pyarrow as pa

from compaction_pipeline.formats.file_io.stored_file import StoredFile

_TAIL_BYTES = 64 * 1024
"""The first read of a Parquet reader: the footer, usually all of it."""
_SPAN_BYTES = 16 * 1024 * 1024
"""A longer range is fetched as several ranges at once."""
_GAP_BYTES = 128 * 1024
"""To read over a gap of this size costs less than another request."""


class RangedFile:
    """Reads an object of `size` bytes. `hold` fetches ranges ahead. Reading anything else is a request of its own."""

    def __init__(self, file: StoredFile, size: int) -> None:
        self.closed = False
        self._file = file
        self._size = size
        self._at = 0
        self._tail: tuple[int, pa.Buffer] | None = None
        # Pairs of (start, buffer), in ascending order.
        self._held: list[tuple[int, pa.Buffer]] = []

    def size(self) -> int:
        return self._size

    def hold(self, spans: Sequence[tuple[int, int]], most_bytes: int) -> None:
        """Fetch each (start, length), and release what was held before. If all of it is more than `most_bytes`, nothing is held."""
        wanted = _joined([(start, length) for start, length in spans if length > 0 and start >= 0 and start + length <= self._size])
        if sum(length for _, length in wanted) > most_bytes:
            self._held = []
            return
        if all(self._found(start, length) is not None for start, length in wanted):
            return
        self._held = []
        parts = [part for span in wanted for part in _parted(*span)]
        for (start, length), buffer in zip(parts, self._file.read_spans(parts), strict=True):
            if buffer.size != length:
                raise OSError(f"only {buffer.size} of {length} bytes could be read at byte {start}")
            self._held.append((start, buffer))

    def read(self, length: int = -1) -> bytes:
        return self.read_buffer(length).to_pybytes()  # type: ignore[no-any-return]

    def read_buffer(self, length: int = -1) -> pa.Buffer:
        """The next bytes as a `pyarrow.Buffer`. The buffer is shorter if the file ends first."""
        left = max(self._size - self._at, 0)
        length = left if length < 0 else min(length, left)
        found = self._found(self._at, length)
        if found is None:
            found = self._read(self._at, length)
        self._at += found.size
        return found

    def _read(self, start: int, length: int) -> pa.Buffer:
        tail = max(self._size - _TAIL_BYTES, 0)
        if start < tail:
            return self._file.read(start, length)
        if self._tail is None:
            self._tail = tail, self._file.read(tail, self._size - tail)
        return self._tail[1].slice(start - tail, length)

    def _found(self, start: int, length: int) -> pa.Buffer | None:
        """These bytes as a buffer, if they are held; otherwise None. Adjacent buffers are joined into a copy."""
        for first, buffer in (*self._held, *([self._tail] if self._tail is not None else [])):
            if first <= start and start + length <= first + buffer.size:
                return buffer.slice(start - first, length)
        pieces, at = [], start
        for first, buffer in self._held:
            if first <= at < min(first + buffer.size, start + length):
                pieces.append(buffer.slice(at - first, min(first + buffer.size, start + length) - at))
                at += pieces[-1].size
        return pa.py_buffer(b"".join(memoryview(piece) for piece in pieces)) if pieces and at == start + length else None

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def flush(self) -> None:
        """Do nothing: the file is only read."""

    def close(self) -> None:
        self.closed = True
        self._held = []
        self._tail = None


def _joined(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The ranges in ascending order. Ranges that lie close together become one."""
    joined: list[tuple[int, int]] = []
    for start, length in sorted(spans):
        if joined and start - sum(joined[-1]) <= _GAP_BYTES:
            first, before = joined[-1]
            joined[-1] = first, max(before, start + length - first)
        else:
            joined.append((start, length))
    return joined


def _parted(start: int, length: int) -> list[tuple[int, int]]:
    return [(at, min(_SPAN_BYTES, start + length - at)) for at in range(start, start + length, _SPAN_BYTES)]
