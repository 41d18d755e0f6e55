"""Opens, creates and deletes the files of a table. Its errors say what is wrong, and with which file.

Files on a local disk are opened by path. All others are opened by PyIceberg's public FileIO; for S3 and HDFS, by one of ours.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import urlparse

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO, load_file_io

from compaction_pipeline.core.errors import FileUnreadable, MergeDenied, MergeFailed, StoreBusy
from compaction_pipeline.core.storage_failures import StorageFailure, advice, needs_a_person, storage_failure
from compaction_pipeline.core.tables.deletion_ban import DELETE_ENABLED_KEY, forbids_deletion
from compaction_pipeline.core.tables.kinds import CHANGE_STORE_IO
from compaction_pipeline.file_io.object_io import OBJECT_FILE_IO
from compaction_pipeline.formats.file_io.hdfs_files import HdfsOutput
from compaction_pipeline.formats.file_io.local_files import Tail, check_regular, local_path, local_tail
from compaction_pipeline.formats.file_io.object_io import ObjectFileIO, ObjectOutput
from compaction_pipeline.formats.file_io.ranges import RangedFile
from compaction_pipeline.formats.file_io.read_ahead import ReadAhead

ChosenColumns = Callable[[pq.ParquetFile], list[str]]
"""Names the columns of a file that are read as Arrow dictionaries."""
_MOST_AHEAD_BYTES = 64 * 1024 * 1024
_LOOK_ROWS = 4096
_LOOK_BYTES = 1024 * 1024

_logger = logging.getLogger(__name__)


class FileAccess:
    """The files of a table. `written` holds the paths that were created so far, in order.

    Small files on an object store are read whole, once, before they are needed. `memory_bytes` is the limit of the task, and a sixteenth of
    it holds such files. Call `close` at the end.

    `held` has whole files by path. They are not read from storage. At most `hold_bytes` of small files that are created on an object store
    are added to it, so that somebody else need not read them either.

    In a task on a keyed table, files below `change_location` are opened with the properties of the change store, if `file_io` has any.
    Once `canceled` is true, no file is opened or created: MergeFailed is raised instead.
    """

    def __init__(
        self,
        file_io: Mapping[str, str],
        location: str,
        memory_bytes: int = 1 << 30,
        change_location: str | None = None,
        canceled: Callable[[], bool] = lambda: False,
        *,
        held: Mapping[str, bytes] | None = None,
        hold_bytes: int = 0,
    ) -> None:
        self._canceled = canceled
        of_change = {key.removeprefix(CHANGE_STORE_IO): value for key, value in file_io.items() if key.startswith(CHANGE_STORE_IO)}
        self._properties = {key: value for key, value in file_io.items() if not key.startswith(CHANGE_STORE_IO)}
        self._of_change = of_change
        self._location = location
        self._io: FileIO | None = None
        self._below_change = f"{change_location.rstrip('/')}/" if change_location is not None and of_change else None
        self._change_io = _file_io(of_change, change_location or location) if of_change else None
        self._ahead = ReadAhead(self._whole, min(memory_bytes // 16, _MOST_AHEAD_BYTES))
        self.written: list[str] = []
        self.held: dict[str, bytes] = dict(held or {})
        self._hold_bytes = hold_bytes

    @property
    def properties(self) -> Mapping[str, str]:
        """The properties with which the files are opened. They may hold secrets."""
        return dict(self._properties)

    @property
    def io(self) -> FileIO:
        """The FileIO of the table's location. It is made at the first use."""
        if self._io is None:
            self._io = _file_io(self._properties, self._location)
        return self._io

    def _io_of(self, path: str) -> FileIO:
        """The FileIO that opens this file."""
        of_change = self._change_io is not None and self._below_change is not None and path.startswith(self._below_change)
        return self._change_io if of_change and self._change_io is not None else self.io

    def expect(self, files: Iterable[tuple[str, int]]) -> None:
        """Announce files that will be read, as (path, bytes). Small ones are fetched in parallel."""
        self._ahead.expect((path, size) for path, size in files if self._local(path) is None and path not in self.held)

    @contextmanager
    def parquet(
        self, path: str, size: int | None = None, *, read_ahead_bytes: int = 0, dictionaries: ChosenColumns | None = None
    ) -> Iterator[tuple[pq.ParquetFile, Any]]:
        """An open `pyarrow.parquet.ParquetFile`, and the stream that it reads. Raises MergeFailed when the file is missing, unreadable or
        not Parquet.

        `size` is the number of bytes that the manifest names; without it the store is asked. With `read_ahead_bytes` > 0, column chunks are
        streamed through buffers of that size and not read whole. `dictionaries` chooses the columns of the file that are read as Arrow
        dictionaries.
        """
        with in_words(f"file {path}", "footer unreadable", path):
            source = self._opened(path, size)
        try:
            with in_words(f"file {path}", "footer unreadable", path):
                options = {"buffer_size": read_ahead_bytes, "coerce_int96_timestamp_unit": "us", "pre_buffer": False}
                try:
                    file = pq.ParquetFile(source, **options)
                except (OSError, pa.ArrowException):
                    # The manifest may name a wrong size. The store knows the true one.
                    known = None if size is None or self._local(path) is not None else self.size(path)
                    if known in (None, size):
                        raise
                    source.close()
                    source = self._opened(path, known)
                    file = pq.ParquetFile(source, **options)
                encoded = dictionaries(file) if dictionaries is not None else []
                if encoded:
                    file = pq.ParquetFile(source, metadata=file.metadata, read_dictionary=encoded, **options)
            yield file, source
        finally:
            with suppress(OSError):
                source.close()

    def _go_on(self) -> None:
        if self._canceled():
            raise MergeFailed("the merge was canceled")

    def _opened(self, path: str, size: int | None) -> Any:
        self._go_on()
        if size is not None and len(self.held.get(path, b"")) == size:
            return pa.BufferReader(self.held[path])
        local = self._local(path)
        if local is not None:
            return pa.OSFile(local, "rb")
        if size is not None and size <= self._ahead.largest:
            return pa.BufferReader(self._ahead.get(path, size))
        io = self._io_of(path)
        found = io.object(path) if isinstance(io, ObjectFileIO) else None
        if found is not None:
            return RangedFile(found, len(found) if size is None else size)
        return io.new_input(path).open(seekable=True)

    def _whole(self, path: str, size: int) -> pa.Buffer:
        io = self._io_of(path)
        found = io.object(path) if isinstance(io, ObjectFileIO) else None
        if found is not None:
            return found.read(0, size)
        with io.new_input(path).open(seekable=True) as stream:
            return pa.py_buffer(stream.read())

    @contextmanager
    def output(self, path: str) -> Iterator[Any]:
        """An open stream that creates the file at `path`. It is closed at the end."""
        self._go_on()
        with in_words(f"new file {path}", "cannot be created"):
            self.written.append(path)
            local = self._local(path)
            if local is not None:
                os.makedirs(os.path.dirname(local), exist_ok=True)
                stream: Any = pa.OSFile(local, "wb")
            else:
                # The name is random, so a request that asks whether it is taken would be wasted.
                stream = self.io.new_output(path).create(overwrite=isinstance(self.io, ObjectFileIO))
        try:
            yield stream
        finally:
            # Write what is still buffered. A full disk may show only here.
            with in_words(f"new file {path}", "cannot be written"):
                stream.close()
            content = stream.content if isinstance(stream, (HdfsOutput, ObjectOutput)) else None
            if content is not None and len(content) <= self._hold_bytes:
                self._hold_bytes -= len(content)
                self.held[path] = content

    def size(self, path: str) -> int:
        """The number of bytes of a file on storage."""
        local = self._local(path)
        return os.path.getsize(local) if local is not None else len(self._io_of(path).new_input(path))

    def tail(self, path: str, size: int, length: int) -> Tail:
        """The last `length` bytes of a file that is said to have `size`. A local file must be a regular one. Raises what the storage
        raises."""
        local = local_path(path)
        if local is not None:
            check_regular(local)
            if self._local(path) is not None:
                return local_tail(local, length)
        io = self._io_of(path)
        known = io.object(path) if isinstance(io, ObjectFileIO) else None
        if known is not None:
            return known.tail(size, length)
        source = io.new_input(path)
        found = len(source)
        with source.open(seekable=True) as opened:
            opened.seek(max(0, found - length))
            return Tail(bytes(opened.read(length)), found, None)

    def look_again(self, path: str) -> None:
        """Read every byte of a file again. Returns if the file is sound. Otherwise it raises; the error may differ from the first one."""
        self._ahead.forget(path)
        self.held.pop(path, None)
        with self.parquet(path, read_ahead_bytes=_LOOK_BYTES) as (file, _), in_words(f"file {path}", "unreadable", path):
            rows = sum(batch.num_rows for batch in file.iter_batches(_LOOK_ROWS, use_threads=False))
            if rows != file.metadata.num_rows:
                raise OSError(f"its footer says {file.metadata.num_rows} rows, but {rows} could be read")

    def delete_written(self) -> None:
        """Delete the files that were created. If some cannot be deleted, upkeep finds and deletes them later, by name.

        While the catalog or the table forbids deletions, they stay.
        """
        if self.written and any(map(forbids_deletion, (self._properties, self._of_change))):
            _logger.info(
                "'%s' is false: %d file(s) stay that a failed attempt wrote: %s", DELETE_ENABLED_KEY, len(self.written), self.written
            )
            self.written.clear()
            return
        for path in self.written:
            with suppress(Exception):
                local = self._local(path)
                if local is not None:
                    os.remove(local)
                else:
                    self.io.delete(path)
        self.written.clear()

    def close(self) -> None:
        """Release the files that were read ahead."""
        self._ahead.close()

    def _local(self, path: str) -> str | None:
        # If the properties name a FileIO (`py-io-impl`), it is used for local files too.
        if _is_chosen(self._properties):
            return None
        if path.startswith("/"):
            return path
        parsed = urlparse(path)
        return path[len("file:") :].removeprefix("//") if parsed.scheme == "file" and parsed.netloc == "" else None


def _file_io(properties: Mapping[str, str], location: str) -> FileIO:
    # If the properties name a FileIO (`py-io-impl`), it is used.
    return load_file_io(dict(properties), location) if _is_chosen(properties) else ObjectFileIO(dict(properties))


def _is_chosen(properties: Mapping[str, str]) -> bool:
    return properties.get("py-io-impl", OBJECT_FILE_IO) != OBJECT_FILE_IO


@contextmanager
def in_words(what: str, otherwise: str, path: str | None = None) -> Iterator[None]:
    """Turn an error of storage or Arrow into MergeFailed: `<what>: <reason>`. `otherwise` is the reason if the error tells no other.

    `path` is the file that is being read. If it is absent or damaged, the error is FileUnreadable. The error of a busy store is StoreBusy,
    and that of a store that denies access is MergeDenied.
    """
    try:
        yield
    except MergeFailed:
        raise
    except MemoryError as error:
        raise MergeFailed(f"{what}: out of memory; raise 'compaction.task.memory' or the memory of the Spark worker ({error})") from error
    except (OSError, pa.ArrowException, ValueError) as error:
        raise _failure(error, what, otherwise, path) from error


def _failure(error: BaseException, what: str, otherwise: str, path: str | None) -> MergeFailed:
    kind = storage_failure(error)
    text = str(error)
    # Arrow's message quotes the bytes that it could not read.
    first = "".join(one if one.isprintable() else "�" for one in text.splitlines()[0]) if text else ""
    first = first or type(error).__name__
    if needs_a_person(kind):
        return MergeDenied(f"{what}: {advice(kind)} ({first})")
    if kind is StorageFailure.FULL:
        return MergeFailed(f"{what}: disk full; free space, then the task is tried again")
    if kind is StorageFailure.PASSING:
        return StoreBusy(f"{what}: the store did not answer as it should ({first}); see that it runs, then try again")
    if path is None:
        return MergeFailed(f"{what}: {otherwise} ({first})")
    if kind is StorageFailure.ABSENT:
        return FileUnreadable(f"{what}: missing on storage", path, "restore it, or remove its entry from the table's metadata", absent=True)
    return FileUnreadable(f"{what}: {otherwise} ({first})", path, "restore the file, or remove its entry from the table's metadata")
