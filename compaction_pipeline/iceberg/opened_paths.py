"""What a FileIO opens for the text of a path. It is not always what the text seems to say.

PyIceberg reads a path with a scheme as a URL. It cuts off what follows `?` or `#`, and so opens another file. File systems follow links,
and macOS does not tell upper from lower case. Each rule about a file that may be deleted compares what is opened.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from urllib.parse import urlparse

from compaction_pipeline.core.errors import OutputUnusable
from compaction_pipeline.formats.file_io.local_files import local_path

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[A-Za-z0-9._-]*(/[A-Za-z0-9._~%=+@:,/-]*)?")
"""Paths of which nothing is dropped and nothing is cut off. Nearly all are such, and dividing them as URLs was a fifth of an expiry."""
_BEHIND_HOST = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(//[^/]*)?")


def opened_name(path: str) -> str:
    """The name of the file that a FileIO opens for a path, in lower case. Two paths of one file have one name, but for links."""
    return _opened(path).rstrip("/").rsplit("/", 1)[-1].casefold()


def opens_elsewhere(location: str) -> bool:
    """Whether a FileIO opens another place than this location of a table: the text holds `?` or `#` behind a scheme."""
    return _opened(location) != (_BEHIND_HOST.sub("", location) if _SCHEME.match(location) else location)


def _opened(path: str) -> str:
    """What is opened, without scheme and host. The same function as PyIceberg's divides a URL: it drops line ends and tabs too."""
    if not _SCHEME.match(path):
        return path
    plain = _PLAIN.fullmatch(path)
    if plain is not None:
        return plain.group(1) or ""
    try:
        return urlparse(path).path
    except ValueError:
        # Nothing is opened then.
        return path


def opens_what_it_says(path: str) -> bool:
    """Whether a FileIO opens the file that the text of a path names."""
    plain = _PLAIN.fullmatch(path)
    if plain is not None:
        return bool(plain.group(1)) and not path.endswith("/")
    return not opens_elsewhere(path) and opened_name(path) == path.rpartition("/")[2].casefold() != ""


def check_no_link(path: str, location: str, inputs: Iterable[str]) -> None:
    """Check that a merged file on this host is a file of its own, which nothing else opens. Raises OutputUnusable.

    A link would bring another file's rows into the table, and lose them when that file is removed. `location` is the folder of the data
    files, which may itself be reached by links. So may the folder of a partition, if an `input` of the task lies there too. Files that lie
    elsewhere are not looked at: object stores have no links. Raises OSError.
    """
    local, folder = local_path(path), local_path(location)
    if local is None or folder is None:
        return
    found = os.lstat(local)
    if not stat.S_ISREG(found.st_mode):
        raise OutputUnusable(f"its output {path} is no file of its own: it is a link or a folder")
    if found.st_nlink > 1:
        raise OutputUnusable(f"its output {path} has {found.st_nlink} names on storage: it may be another file of the table")
    below = os.path.relpath(local, folder)
    real = os.path.realpath(local)
    known = {os.path.dirname(os.path.realpath(each)) for each in map(local_path, inputs) if each is not None}
    if real != os.path.join(os.path.realpath(folder), below) and os.path.dirname(real) not in known:
        raise OutputUnusable(f"its output {path} lies behind a link: it is the file {real}")
