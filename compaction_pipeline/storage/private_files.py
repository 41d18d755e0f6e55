"""The state database holds the credentials of catalogs, so its files and their folder are for their owner alone."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

_FILE_MODE = 0o600
_FOLDER_MODE = 0o700
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def make_private_folder(folder: Path) -> None:
    """Make a folder that only its owner may enter; one that is there is tightened. Raises OSError when it cannot be made."""
    folder.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
    if not folder.stat().st_mode & stat.S_ISVTX:
        # A folder with the sticky bit (/tmp) is meant for everybody, whoever calls it home.
        _tighten(folder, _FOLDER_MODE)


def make_private_file(path: Path) -> None:
    """Make an empty file that only its owner may open, where there is none. SQLite gives its -wal and -shm files the same mode."""
    # A folder that cannot be written is SQLite's to report.
    with suppress(OSError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, _FILE_MODE))


def tighten_database(path: Path) -> None:
    """Take the rights of others from a SQLite database, its -wal and -shm files and its backup copies."""
    if not path.stat().st_mode & _OTHERS:
        return
    # The database itself comes last: while it is open to others, the next start looks at all of them again.
    for file in (*path.parent.glob(f"{path.name}-*"), *path.parent.glob(f"{path.name}.backup-*"), path):
        _tighten(file, _FILE_MODE)


def _tighten(path: Path, mode: int) -> None:
    # A file may go meanwhile (-wal does), or be another user's, who alone may change its mode.
    with suppress(OSError):
        if path.stat().st_mode & _OTHERS:
            path.chmod(mode)
