"""Small files of one task: each read once, whole, and before it is asked for, so that many wait for the store at the same time."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

_AT_ONCE = 32


class ReadAhead:
    """Files in the order in which they were announced, within a bound of bytes.

    `read` gives a file's bytes by path and size. What was read stays as long as there is room: a file may be opened twice.
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
        """Bytes up to which a file is small."""
        return self._most // 8

    @property
    def held_bytes(self) -> int:
        """Bytes of the files that were begun and not yet let go of."""
        return self._bytes

    def expect(self, files: Iterable[tuple[str, int]]) -> None:
        """Files that will be asked for, (path, bytes) each, in about this order; large ones are left out.

        Those whose read has failed are read again.
        """
        for path in [path for path, (_, future) in self._begun.items() if future.done() and future.exception() is not None]:
            self._forget(path)
        for path, size in files:
            if size <= self.largest and path not in self._begun:
                self._waiting[path] = size
        self._begin_more()

    def get(self, path: str, size: int) -> Any:
        """The bytes of a small file. Raises what `read` raises."""
        self._waiting.pop(path, None)
        known = self._begun.get(path)
        if known is None or known[0] != size:
            self._forget(path)
            self._make_room(size)
            self._begin(path, size)
        _, future = self._begun[path]
        self._used.add(path)
        self._begin_more()
        try:
            return future.result()
        except BaseException:
            # Asked for again, it is read again.
            self._forget(path)
            raise

    def forget(self, path: str) -> None:
        """Read the file again when it is asked for again."""
        self._forget(path)

    def close(self) -> None:
        """Let go of everything; reads that have not begun do not begin."""
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
        """Let go of files that were asked for already, oldest first; whether there is room now."""
        for path in [path for path in self._begun if path in self._used]:
            if self._bytes + size <= self._most:
                break
            self._forget(path)
        return self._bytes + size <= self._most

    def _forget(self, path: str) -> None:
        known = self._begun.pop(path, None)
        self._used.discard(path)
        self._bytes -= known[0] if known is not None else 0
