"""What a file of a store can do that this program accesses itself, without PyArrow."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyiceberg.io import InputFile, OutputFile

from compaction_pipeline.formats.file_io.local_files import Tail


class StoredFile(InputFile, OutputFile):
    """One file. Errors are FileNotFoundError, PermissionError or OSError. Their text holds what the store said."""

    version: str | None = None
    """What tells this content from another one of the same path and size, once the size was asked for. None where the store tells none."""

    @abstractmethod
    def read(self, start: int, length: int) -> pa.Buffer:
        """Read these bytes as a `pyarrow.Buffer`. The buffer is shorter if the file ends first."""

    @abstractmethod
    def read_spans(self, spans: Sequence[tuple[int, int]]) -> list[pa.Buffer]:
        """Read each (start, length) as a buffer, several at once."""

    @abstractmethod
    def tail(self, size: int, length: int) -> Tail:
        """Read the last `length` bytes, if the file has `size` bytes. If not, the size in the answer says so."""

    @abstractmethod
    def delete(self) -> None:
        """Delete the file. A store that tells which files were absent raises FileNotFoundError for one."""


class StoredOutput:
    """A stream that creates a file of a store when it is closed. If an error ends its `with` block, it leaves no file."""

    def __init__(self) -> None:
        self.closed = False
        self.content: bytes | None = None
        """The whole file, once it was created as one part."""
        self._held = bytearray()
        self._position = 0

    @abstractmethod
    def write(self, data: Any) -> int:
        """Take these bytes, and return how many they are."""

    @abstractmethod
    def close(self) -> None:
        """Create the file."""

    @abstractmethod
    def discard(self) -> None:
        """Create no file."""

    def tell(self) -> int:
        return self._position

    def flush(self) -> None:
        """Do nothing: the file is whole when the stream is closed."""

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def __enter__(self) -> StoredOutput:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()
