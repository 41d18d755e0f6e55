"""Lists files below a location, to find leftovers. PyIceberg's FileIO cannot, but PyArrow's file systems and our HDFS can."""

from __future__ import annotations

from collections.abc import Iterator

from pyarrow.fs import FileSelector, FileType
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import PyArrowFileIO

from compaction_pipeline.formats.file_io import hdfs_files
from compaction_pipeline.formats.file_io.hdfs_clients import SCHEMES as HDFS


def files_under(io: FileIO, location: str, *, recursive: bool = True) -> Iterator[str]:
    """The full paths of the files below `location`, in the form that the table uses. Empty if there is no such folder."""
    base = location.rstrip("/")
    # PyArrow opens the same location with the same properties, whichever FileIO the catalog chose.
    scheme, netloc, path = PyArrowFileIO.parse_location(base, io.properties)
    if scheme in HDFS:
        for below, *_ in hdfs_files.listed_files(io.properties, base, recursive=recursive):
            yield f"{base}/{below}"
        return
    filesystem = PyArrowFileIO(io.properties).fs_by_scheme(scheme, netloc)
    for info in filesystem.get_file_info(FileSelector(path, recursive=recursive, allow_not_found=True)):
        if info.type == FileType.File:
            yield base + info.path[len(path.rstrip("/")) :]
