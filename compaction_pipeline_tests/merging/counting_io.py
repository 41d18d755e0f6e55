"""A FileIO that counts, for tests that give a table or a merge the name of its FileIO (`py-io-impl`)."""

from __future__ import annotations

from typing import ClassVar

from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO


class CountingIO(PyArrowFileIO):
    """PyArrow's FileIO. `opened` holds the path of each file that is read, once each time. Who counts clears it first."""

    opened: ClassVar[list[str]] = []

    def new_input(self, location: str) -> PyArrowFile:
        self.opened.append(location)
        return super().new_input(location)


COUNTING = {"py-io-impl": f"{__name__}.CountingIO"}
"""The properties of a table or a merge whose files are counted."""
