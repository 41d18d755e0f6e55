"""Reads, writes, lists and deletes files on HDFS, through the client of `hdfs_clients.py`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
from pyiceberg.io import InputStream, OutputStream

from compaction_pipeline.formats.file_io.hdfs_clients import SCHEMES, HdfsClient, HdfsPlace, hdfs_client, hdfs_place
from compaction_pipeline.formats.file_io.immutable import immutable_files
from compaction_pipeline.formats.file_io.local_files import Tail
from compaction_pipeline.formats.file_io.stored_file import StoredFile, StoredOutput

PART_BYTES = 8 * 1024 * 1024
"""As many bytes are sent by one request while a file is written."""
_READS_AT_ONCE = 8


def hdfs_file(properties: Mapping[str, str], location: str) -> HdfsFile | None:
    """The file at this location; None for another store. Raises ValueError for a path that HDFS does not open as it is written."""
    parts = urlsplit(location)
    if parts.scheme not in SCHEMES:
        return None
    return HdfsFile(location, hdfs_place(properties, parts.scheme, parts.netloc), _path(location, parts.path))


def listed_files(properties: Mapping[str, str], location: str, *, recursive: bool = True) -> Iterator[tuple[str, int, datetime, str]]:
    """Yield the files below a folder: path below it, size in bytes, time of the last change, version. Nothing if there is no such folder.

    Raises PermissionError or OSError, also after some files, when HDFS does not tell the rest.
    """
    parts = urlsplit(location)
    client = hdfs_client(hdfs_place(properties, parts.scheme, parts.netloc))
    base = _path(location, parts.path).rstrip("/")
    waiting = [base or "/"]
    while waiting:
        folder = waiting.pop()
        try:
            entries = client.request("entries", folder, location=location)
        except FileNotFoundError:
            # Only the first folder may be absent. Another one was listed a moment ago.
            if folder == (base or "/"):
                return
            raise
        for path, (size, is_folder, changed_ms) in entries:
            if not path.startswith(f"{base}/"):
                raise OSError(f"HDFS was asked for files below {location} and told of {path}: its answer cannot be trusted")
            if is_folder:
                waiting += [path] if recursive else []
            else:
                yield path[len(base) + 1 :], size, datetime.fromtimestamp(changed_ms / 1000, timezone.utc), _version(changed_ms)


def _path(location: str, path: str) -> str:
    if "?" in location or "#" in location or any(step in (".", "..") for step in path.split("/")):
        raise ValueError(f"{location}: no file on HDFS is opened by a path with '?', '#' or a step '.' or '..'; rename it")
    # Hadoop's own clients do so too.
    return re.sub("/{2,}", "/", f"/{path}")


def _version(changed_ms: int) -> str:
    return f"{changed_ms} ms"


class HdfsFile(StoredFile):
    """One file of HDFS."""

    def __init__(self, location: str, place: HdfsPlace, path: str) -> None:
        super().__init__(location=location)
        self.place = place
        self.path = path
        self._length: int | None = None

    def ask(self, name: str, *arguments: Any) -> Any:
        """The answer to a request about this file."""
        return self.client.request(name, *arguments, location=self.location)

    @property
    def client(self) -> HdfsClient:
        return hdfs_client(self.place)

    def __len__(self) -> int:
        """The size in bytes. It is known if this object wrote the file; otherwise the name node is asked."""
        if self._length is None:
            size, is_folder, changed_ms = self.ask("status", self.path)
            if is_folder:
                raise IsADirectoryError(f"HDFS: it is a folder ({self.location})")
            self._length, self.version = size, _version(changed_ms)
        return self._length

    def exists(self) -> bool:
        try:
            self._length = None
            return len(self) >= 0
        except FileNotFoundError:
            return False

    def open(self, seekable: bool = True) -> InputStream:
        """Read the whole file into memory. This is meant for metadata."""
        data = immutable_files.get(self.place, self.location)
        if data is None:
            data = pa.py_buffer(self.ask("whole", self.path))
            immutable_files.keep(self.place, self.location, data)
        return pa.BufferReader(data)  # type: ignore[no-any-return]

    def read(self, start: int, length: int) -> pa.Buffer:
        return pa.py_buffer(self.ask("read", self.path, start, length) if length > 0 else b"")

    def read_spans(self, spans: Sequence[tuple[int, int]]) -> list[pa.Buffer]:
        if len(spans) < 2:
            return [self.read(*span) for span in spans]
        with ThreadPoolExecutor(min(len(spans), _READS_AT_ONCE), thread_name_prefix="ranges") as pool:
            return list(pool.map(lambda span: self.read(*span), spans))

    def tail(self, size: int, length: int) -> Tail:
        data, (found, is_folder, changed_ms) = self.ask("last", self.path, length)
        if is_folder:
            raise IsADirectoryError(f"HDFS: it is a folder ({self.location})")
        return Tail(data, found, _version(changed_ms))

    def create(self, overwrite: bool = False) -> OutputStream:
        if not overwrite and self.exists():
            raise FileExistsError(f"Cannot create file, already exists: {self.location}")
        return HdfsOutput(self, overwrite)

    def to_input_file(self) -> HdfsFile:
        return self

    def delete(self) -> None:
        self.ask("delete", self.path)

    def written(self, data: bytes | None, length: int) -> None:
        """Note what was written. `data` is the whole content, if it is at hand."""
        self._length = length
        if data is not None:
            immutable_files.keep(self.place, self.location, pa.py_buffer(data))


class HdfsOutput(StoredOutput):
    """A stream that creates a file. A file of one part appears when it is whole. A longer one grows, and is deleted when an error ends the
    `with` block."""

    def __init__(self, file: HdfsFile, overwrite: bool) -> None:
        super().__init__()
        self._file = file
        self._overwrite = overwrite
        # A writer belongs to the process that began it. Another process does not know its number.
        self._client: HdfsClient | None = None
        self._number = 0

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self._held += view
        self._position += len(view)
        if len(self._held) > PART_BYTES:
            self._send()
        return len(view)

    def _ask(self, name: str, *arguments: Any) -> Any:
        if self._client is None:
            raise ValueError("nothing was sent yet")
        return self._client.request(name, *arguments, location=self._file.location)

    def _send(self) -> None:
        if self._client is None:
            client = self._file.client
            self._number = client.request("create", self._file.path, self._overwrite, location=self._file.location)
            self._client = client
        for first in range(0, len(self._held), PART_BYTES):
            self._ask("write", self._number, bytes(self._held[first : first + PART_BYTES]))
        self._held = bytearray()

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        data = bytes(self._held) if self._client is None else None
        try:
            self._send()
            self._ask("close", self._number)
        except BaseException:
            self._delete()
            raise
        self.content = data
        self._file.written(data, self._position)

    def discard(self) -> None:
        """Create no file."""
        self.closed = True
        self._held = bytearray()
        self._delete()

    def _delete(self) -> None:
        """Delete what was begun. When that fails too, upkeep finds the file later by its name."""
        if self._client is None:
            return
        try:
            self._ask("discard", self._number, self._file.path)
        except OSError:
            return
