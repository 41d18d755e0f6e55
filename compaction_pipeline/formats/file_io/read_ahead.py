"""Reads the small files of one task whole, once, before they are asked for.

So the task waits for many answers of the store at the same time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

_AT_ONCE = 32


class ReadAhead:
    """Reads files in the order in which they were announced, within a limit of bytes.

    `read` gives the bytes of a file by its path and size. A file that was read is kept as long as there is room, because it may be opened
    twice.
    """

    def __init__(self, read: Callable[[str, int], Any], most_bytes: int) -> None:
        self._read = read
        self._most = most_bytes
        self._waiting: OrderedDict[str, int] = OrderedDict()
        self._begun: OrderedDict[str, tuple[int, Future[Any]]] = OrderedDict()
        self._used: set[str] = set()
        self._bytes = 0
        self._pool: ThreadPoolExecutor | None = None

    @property
    def largest(self) -> int:
        """The size in bytes up to which a file is small."""
        return self._most // 8

    @property
    def held_bytes(self) -> int:
        """The bytes of all files whose read has begun and that have not been released."""
        return self._bytes

    def expect(self, files: Iterable[tuple[str, int]]) -> None:
        """Announce files, as (path, bytes), in about the order in which they will be asked for. Large files are left out.

        A file whose read has failed is read again.
        """
        for path in [path for path, (_, future) in self._begun.items() if future.done() and future.exception() is not None]:
            self.forget(path)
        for path, size in files:
            if size <= self.largest and path not in self._begun:
                self._waiting[path] = size
        self._begin_more()

    def get(self, path: str, size: int) -> Any:
        """The bytes of a small file. Raises the error of `read`."""
        self._waiting.pop(path, None)
        known = self._begun.get(path)
        if known is None or known[0] != size:
            self.forget(path)
            self._make_room(size)
            self._begin(path, size)
        _, future = self._begun[path]
        self._used.add(path)
        self._begin_more()
        try:
            return future.result()
        except BaseException:
            # If the file is asked for again, it is read again.
            self.forget(path)
            raise

    def forget(self, path: str) -> None:
        """Release a file, so that it is read again when it is asked for."""
        known = self._begun.pop(path, None)
        self._used.discard(path)
        self._bytes -= known[0] if known is not None else 0

    def close(self) -> None:
        """Release everything. Reads that have not begun will not begin."""
        self._waiting.clear()
        self._begun.clear()
        self._used.clear()
        self._bytes = 0
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None

    def _begin_more(self) -> None:
        while self._waiting:
            path, size = next(iter(self._waiting.items()))
            if self._bytes + size > self._most and not self._make_room(size):
                return
            del self._waiting[path]
            self._begin(path, size)

    def _begin(self, path: str, size: int) -> None:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="read-ahead")
        self._begun[path] = size, self._pool.submit(self._read, path, size)
        self._bytes += size

    def _make_room(self, size: int) -> bool:
        """Release files that were asked for already, oldest first. Returns whether there is room now."""
        for path in [path for path in self._begun if path in self._used]:
            if self._bytes + size <= self._most:
                break
            self.forget(path)
        return self._bytes + size <= self._most
