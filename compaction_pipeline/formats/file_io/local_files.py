"""Files on this host's file system, and what is read of the end of any file."""

from __future__ import annotations

import errno
import os
import re
import stat
from dataclasses import dataclass
from urllib.parse import urlsplit

_PLAIN = re.compile(r"(?:file://)?(/[A-Za-z0-9._~%=+@:,/-]*)")
"""Paths that need not be divided as URLs. Nearly all are such, and an expiry divides each path that it deletes."""


@dataclass(frozen=True)
class Tail:
    """The last bytes of a file, the size of the whole file, and its version.

    Two files of one path and size may differ; their versions differ then. The version is None where the storage tells none.
    """

    data: bytes
    size: int
    version: str | None


def local_path(path: str) -> str | None:
    """The path on this host's file system; None for a file that lies elsewhere."""
    plain = _PLAIN.fullmatch(path)
    if plain is not None:
        return plain.group(1)
    if path.startswith("/"):
        return path
    parts = urlsplit(path)
    return parts.path if parts.scheme == "file" and parts.netloc in ("", "localhost") else None


def plain_path(path: str) -> str | None:
    """The same for a path of which nothing is cut off and that takes no step up; None for any other one, which PyArrow has to open."""
    plain = _PLAIN.fullmatch(path)
    return None if plain is None or "/." in path else plain.group(1)


def local_version(path: str) -> str:
    """The version of a local file: when it was written last. Raises OSError.

    Its inode would tell more, but some network file systems give a file another one on each host.
    """
    return _version(os.lstat(path))


def check_regular(path: str) -> None:
    """Raises OSError for a link, a folder, a device, or a pipe: to open a pipe would wait for ever."""
    if not stat.S_ISREG(os.lstat(path).st_mode):
        raise IsADirectoryError(errno.EISDIR, "a link, a folder or a device, and no file of its own", path)


def local_tail(path: str, length: int) -> Tail:
    """The last `length` bytes of a local file. Raises OSError, also for a link."""
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as stream:
        found = os.fstat(stream.fileno())
        stream.seek(max(0, found.st_size - length))
        return Tail(stream.read(length), found.st_size, _version(found))


def _version(found: os.stat_result) -> str:
    return f"{found.st_mtime_ns} ns"
