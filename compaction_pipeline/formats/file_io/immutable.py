"""Keeps the bytes of metadata files in memory, by path. These files never change, and one command reads the same manifest several times."""

from __future__ import annotations

import re
from collections import OrderedDict
from threading import Lock
from typing import Any

HELD_BYTES = 32 * 1024 * 1024
"""A process keeps at most this many bytes. A file that is larger than an eighth of this is not kept."""
_UNIQUE = re.compile(
    r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}|snap-\d{15,}-|[0-9a-f]{12}-\d+-[0-9a-f]{8}-m\d+\.avro", re.IGNORECASE
)
_METADATA = (".avro", ".metadata.json", ".metadata.json.gz", ".gz.metadata.json")


def is_unique(path: str) -> bool:
    """Whether a file's name is never used again: it holds a UUID, the id of a snapshot, or the name of one of our commits."""
    return _UNIQUE.search(path.rsplit("/", 1)[-1]) is not None


class ImmutableFiles:
    """Keeps the files that were read last, up to a number of bytes. Only metadata files with unique names are kept."""

    def __init__(self, held_bytes: int = HELD_BYTES) -> None:
        self._limit = held_bytes
        self._held: OrderedDict[tuple[object, str], Any] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()

    def get(self, bucket: object, path: str) -> Any | None:
        """The bytes of a file of this bucket. None if they are not kept."""
        with self._lock:
            data = self._held.get((bucket, path))
            if data is not None:
                self._held.move_to_end((bucket, path))
            return data

    def keep(self, bucket: object, path: str, data: Any) -> None:
        """Keep the bytes of a file that was read or written whole."""
        if not path.endswith(_METADATA) or not is_unique(path) or len(data) > self._limit // 8:
            return
        with self._lock:
            self._drop((bucket, path))
            self._held[bucket, path] = data
            self._bytes += len(data)
            while self._bytes > self._limit:
                self._drop(next(iter(self._held)))

    def forget(self, *paths: str) -> None:
        """Forget files, so that the next reader looks at the storage again: their content made no sense, or they were deleted."""
        gone = frozenset(paths)
        with self._lock:
            for key in [key for key in self._held if key[1] in gone]:
                self._drop(key)

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._held.clear()
            self._bytes = 0

    def _drop(self, key: tuple[object, str]) -> None:
        data = self._held.pop(key, None)
        self._bytes -= len(data) if data is not None else 0


immutable_files = ImmutableFiles()
"""The metadata files that this process keeps. One command loads a table, and makes its FileIO, many times."""
