"""Makes files and folders that only their owner may open, because the state database holds the credentials of catalogs."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

_FILE_MODE = 0o600
_FOLDER_MODE = 0o700
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def make_private_folder(folder: Path) -> None:
    """Make a folder that only its owner may enter. An existing folder loses the rights of others.

    Raises OSError when the folder cannot be made.
    """
    folder.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
    if not folder.stat().st_mode & stat.S_ISVTX:
        # A folder with the sticky bit, such as /tmp, is shared by all users, so its mode stays.
        _tighten(folder, _FOLDER_MODE)


def make_private_file(path: Path) -> None:
    """Make an empty file that only its owner may open, unless the file exists. SQLite gives its -wal and -shm files the same mode."""
    # When the folder cannot be written, SQLite reports it later.
    with suppress(OSError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, _FILE_MODE))


def tighten_database(path: Path) -> None:
    """Take the rights of others from a SQLite database, its -wal and -shm files and its backup copies."""
    if not path.stat().st_mode & _OTHERS:
        return
    # The database itself comes last. If this process is killed before that, the next start still sees that there is work to do.
    for file in (*path.parent.glob(f"{path.name}-*"), *path.parent.glob(f"{path.name}.backup-*"), path):
        _tighten(file, _FILE_MODE)


def _tighten(path: Path, mode: int) -> None:
    # A file (such as -wal) may vanish meanwhile. It may also belong to another user, and then only that user may change its mode.
    with suppress(OSError):
        if path.stat().st_mode & _OTHERS:
            path.chmod(mode)
