"""Lists the files below a folder with their sizes and times, one page after the other: the whole listing or an error, never a part.

A listing that lacks a file deletes nothing by itself. But it may lack the one file that tells of another table.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from datetime import datetime, timezone

from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileType
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import PyArrowFileIO

from compaction_pipeline.core.errors import StorageUnavailable, TableRefused
from compaction_pipeline.core.upkeep.orphan_rules import ListedFile
from compaction_pipeline.core.upkeep.paths import folder_path
from compaction_pipeline.formats.file_io import hdfs_files
from compaction_pipeline.formats.file_io.hdfs_clients import SCHEMES as HDFS
from compaction_pipeline.formats.file_io.object_io import listed_objects
from compaction_pipeline.formats.file_io.s3_stores import SCHEMES, S3Bucket, s3_bucket
from compaction_pipeline.iceberg.failures import translated
from compaction_pipeline.iceberg.opened_paths import opens_elsewhere


def listed_files(io: FileIO, location: str) -> Iterator[ListedFile]:
    """Yield the files below a folder, with paths that begin as `location` does. Nothing if there is no such folder.

    `t2` is not below `t`. Raises TableRefused for a location that a FileIO does not open as it is written, and StorageUnavailable, also
    after some files, when the storage does not tell the rest.
    """
    base = location.rstrip("/")
    if not base or opens_elsewhere(location):
        raise TableRefused(f"the files of {location!r} cannot be listed: a FileIO opens another place by this text; move the table")
    with translated(f"the files below {location}"):
        scheme, netloc, path = PyArrowFileIO.parse_location(base, io.properties)
        bucket = s3_bucket(io.properties, netloc) if scheme in SCHEMES else None
        if bucket is not None:
            files = _of_bucket(bucket, path.partition("/")[2])
        elif scheme == "file":
            files = _of_host(path)
        elif scheme in HDFS:
            files = hdfs_files.listed_files(io.properties, base)
        else:
            # PyArrow opens the same location with the same properties, whichever FileIO the catalog chose.
            files = _of_file_system(PyArrowFileIO(io.properties).fs_by_scheme(scheme, netloc), path)
        for below, size, modified_at, version in files:
            yield ListedFile(f"{base}/{below}", size, modified_at, version)


def real_folder(location: str) -> str | None:
    """The same folder of this host without links; None for any other folder, and where there is no link."""
    folder = folder_path(location)
    real = os.path.realpath(folder.path) if folder.scheme == "file" else folder.path
    return None if real == folder.path else f"file://{real}"


_Found = tuple[str, int, datetime, str | None]
"""The path below the folder, the size in bytes, the time of the last change, and the ETag where there is one."""


def _of_bucket(bucket: S3Bucket, folder: str) -> Iterator[_Found]:
    prefix = f"{folder}/" if folder else ""
    for found in listed_objects(bucket, prefix):
        # Programs that show folders put an empty object at the folder's own name. The client drops the slash at its end.
        if f"{found['path']}/" != prefix:
            yield _below(found["path"], prefix), found["size"], found["last_modified"], found["e_tag"]


def _of_host(folder: str) -> Iterator[_Found]:
    """Files of this host. Links are left out: what they lead to has a path of its own, or is none of this folder's.

    A file that was copied may have the time of its original. The time at which it got its name here is later, and then counts.
    """
    waiting = [folder] if os.path.isdir(folder) else []
    prefix = f"{folder.rstrip('/')}/"
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
        for entry in found:
            if entry.is_dir(follow_symlinks=False):
                waiting.append(entry.path)
                continue
            told = entry.stat(follow_symlinks=False)
            if stat.S_ISREG(told.st_mode):
                changed = datetime.fromtimestamp(max(told.st_mtime, told.st_ctime), timezone.utc)
                yield _below(entry.path, prefix), told.st_size, changed, None


def _of_file_system(filesystem: FileSystem, folder: str) -> Iterator[_Found]:
    """One folder after the other, because PyArrow holds what it lists at once."""
    prefix = f"{folder.rstrip('/')}/"
    waiting = [folder]
    while waiting:
        current = waiting.pop()
        # Only the first folder may be absent. Another one was listed a moment ago.
        for info in filesystem.get_file_info(FileSelector(current, recursive=False, allow_not_found=current == folder)):
            if info.type == FileType.Directory:
                waiting.append(info.path)
            elif info.type == FileType.File:
                yield _below(info.path, prefix), *_size_and_time(info), None


def _size_and_time(info: FileInfo) -> tuple[int, datetime]:
    if info.size is None or info.mtime is None:
        raise StorageUnavailable(f"the storage tells no size or no time of {info.path}: nobody can tell how old it is")
    return info.size, info.mtime


def _below(path: str, prefix: str) -> str:
    if not path.startswith(prefix):
        raise StorageUnavailable(f"the storage was asked for files below {prefix} and told of {path}: its answer cannot be trusted")
    return path[len(prefix) :]
