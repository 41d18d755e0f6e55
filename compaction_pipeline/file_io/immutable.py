"""Bytes of metadata files, kept by path: they never change, and one command reads the same manifest several times."""

from __future__ import annotations

import re
from collections import OrderedDict
from threading import Lock
from typing import Any

HELD_BYTES = 32 * 1024 * 1024
"""Most bytes that a process keeps; a file of more than an eighth of it is not kept."""
_UNIQUE = re.compile(
    r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}|snap-\d{15,}-|[0-9a-f]{12}-\d+-[0-9a-f]{8}-m\d+\.avro", re.IGNORECASE
)
_METADATA = (".avro", ".metadata.json", ".metadata.json.gz", ".gz.metadata.json")


def is_unique(path: str) -> bool:
    """Whether a file's name holds a UUID, a snapshot's id or the name of one of our commits: no other file will ever have it."""
    return _UNIQUE.search(path.rsplit("/", 1)[-1]) is not None


class ImmutableFiles:
    """The files read last, within a bound of bytes. Only metadata files whose names are unique are kept."""

    def __init__(self, held_bytes: int = HELD_BYTES) -> None:
        self._limit = held_bytes
        self._held: OrderedDict[tuple[object, str], Any] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()

    def get(self, bucket: object, path: str) -> Any | None:
        """The bytes of a file of this bucket, where they are kept."""
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

    def forget(self, path: str) -> None:
        """The next reader looks at the storage again: what was read did not make sense, or the file was deleted."""
        with self._lock:
            for key in [key for key in self._held if key[1] == path]:
                self._drop(key)

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._held.clear()
            self._bytes = 0

    def _drop(self, key: tuple[object, str]) -> None:
        data = self._held.pop(key, None)
        self._bytes -= len(data) if data is not None else 0
