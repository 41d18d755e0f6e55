"""A FileIO that fails as a disk or a store would. Catalog properties choose it like any other FileIO.

The property `file.faults` names the fault and the files that it applies to, for example `disk-full:.avro` or `no-permission:/data/`.
"""

from __future__ import annotations

import errno
import os
from typing import Any

from pyiceberg.io import InputFile, OutputFile
from pyiceberg.io.pyarrow import PyArrowFileIO

FAULTS_PROPERTY = "file.faults"
_WRITE_FAULTS = {"disk-full": errno.ENOSPC, "no-permission": errno.EACCES}
_READ_FAULTS = {"unreadable": errno.EACCES}


class FaultingIO(PyArrowFileIO):
    """PyArrow's FileIO with faults. A file that it refuses to write is never created."""

    def new_output(self, location: str) -> Any:
        output = super().new_output(location)
        number = self._fault(location, _WRITE_FAULTS)
        return output if number is None else _Refused(location, number)

    def new_input(self, location: str) -> Any:
        number = self._fault(location, _READ_FAULTS)
        if number is not None:
            return _RefusedInput(location, number)
        return super().new_input(location)

    def _fault(self, location: str, faults: dict[str, int]) -> int | None:
        kind, _, part = str(self.properties.get(FAULTS_PROPERTY, "")).partition(":")
        return faults[kind] if kind in faults and part in location else None


class _Refused(OutputFile):
    def __init__(self, location: str, number: int) -> None:
        super().__init__(location)
        self._number = number

    def __len__(self) -> int:
        raise FileNotFoundError(self.location)

    def exists(self) -> bool:
        return False

    def to_input_file(self) -> InputFile:
        raise FileNotFoundError(self.location)

    def create(self, overwrite: bool = False) -> Any:
        raise OSError(self._number, os.strerror(self._number), self.location)


class _RefusedInput(InputFile):
    def __init__(self, location: str, number: int) -> None:
        super().__init__(location)
        self._number = number

    def __len__(self) -> int:
        raise OSError(self._number, os.strerror(self._number), self.location)

    def exists(self) -> bool:
        return True

    def open(self, seekable: bool = True) -> Any:
        raise OSError(self._number, os.strerror(self._number), self.location)
