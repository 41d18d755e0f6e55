"""Files under a location, for finding leftovers. PyIceberg's FileIO cannot list; the file systems under it can."""

from __future__ import annotations

from collections.abc import Iterator

from pyarrow.fs import FileSelector, FileType
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import PyArrowFileIO


def files_under(io: FileIO, location: str, *, recursive: bool = True) -> Iterator[str]:
    """Full paths of the files under `location`, as the table names them; none when there is no such folder."""
    base = location.rstrip("/")
    # Whatever FileIO the catalog chose, PyArrow opens the same location by the same properties.
    scheme, netloc, path = PyArrowFileIO.parse_location(base, io.properties)
    filesystem = PyArrowFileIO(io.properties).fs_by_scheme(scheme, netloc)
    for info in filesystem.get_file_info(FileSelector(path, recursive=recursive, allow_not_found=True)):
        if info.type == FileType.File:
            yield base + info.path[len(path.rstrip("/")) :]
