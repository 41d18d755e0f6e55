"""The one way by which files of tables are deleted. Before each deletion it asks whether the catalog or the table forbids it.

PyIceberg deletes files by itself too: old metadata after a commit, and manifests of attempts that failed. `Transaction` and the other
callers of its commits let it ask as well, by `let_pyiceberg_ask`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from pyiceberg.table import Table

from compaction_pipeline.core.tables.deletion_ban import DELETE_ENABLED_KEY, would_go
from compaction_pipeline.core.tables.deletion_ban import why_no_deletion as _why
from compaction_pipeline.formats.file_io.object_io import ObjectFileIO

_DELETES_AT_ONCE = 8
_OF_OTHER_STORE = "_compaction_forbidden_by_other_store"
"""The attribute of a loaded store that says why another store of its table forbids deletions."""

_logger = logging.getLogger(__name__)


class FileKept(PermissionError):
    """The catalog or the table forbids deletions. The file is still there."""


def why_no_deletion(*stores: Table) -> str | None:
    """Return why no file of a table may be deleted, as its catalog or its properties say; None when files may be deleted.

    `stores` are all stores of the table: what one of them forbids is forbidden in both stores of a keyed table. Nothing is asked: what
    counts is what the catalog answered when the stores were loaded.
    """
    reasons = (_of_store(store) or getattr(store, _OF_OTHER_STORE, None) for store in stores)
    return next((reason for reason in reasons if reason is not None), None)


def share_ban(*stores: Table) -> None:
    """Let what one store of a keyed table forbids hold in the others, also where one of them is alone at hand later: when a commit to it
    is given up, and when PyIceberg deletes old metadata after it."""
    for store in stores:
        reasons = (_of_store(other) for other in stores if other is not store)
        forbid_deletion(store, next((reason for reason in reasons if reason is not None), None))


def forbid_deletion(store: Table, why: str | None) -> None:
    """Note on a loaded store why its table forbids deletions, whatever the store itself says; None when nothing else forbids them."""
    setattr(store, _OF_OTHER_STORE, why)


def _of_store(store: Table) -> str | None:
    return _why(store.metadata.properties, store.catalog.properties, store.io.properties)


def failed_deletes(table: Table, paths: Sequence[str], *beside: Table) -> Mapping[str, OSError]:
    """Delete these files of a store. Return the error of each that is still there, or may be.

    `beside` are the other stores of the table. When deletions are forbidden, each file has a FileKept.
    """
    why = why_no_deletion(table, *beside)
    if why is not None:
        _kept(why, paths)
        return {path: FileKept(why) for path in paths}
    io = table.io
    if isinstance(io, ObjectFileIO):
        return io.delete_many(paths)

    def failure(path: str) -> OSError | None:
        try:
            io.delete(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            return error
        except Exception as error:  # A FileIO may raise anything for a path that it does not understand.
            return OSError(f"{type(error).__name__}: {error}")
        return None

    with ThreadPoolExecutor(_DELETES_AT_ONCE) as pool:
        return {path: error for path, error in zip(paths, pool.map(failure, paths), strict=True) if error is not None}


def delete_quietly(table: Table, paths: Iterable[str], *beside: Table) -> None:
    """Delete files of a store that nothing names. A file that cannot or may not be deleted stays: the caller's own error matters more."""
    named = list(paths)
    why = why_no_deletion(table, *beside)
    if why is not None:
        _kept(why, named)
        return
    for path in named:
        try:
            table.io.delete(path)
        except Exception:
            continue


def with_ban(properties: Mapping[str, str], *stores: Table) -> dict[str, str]:
    """Return the properties with which a worker opens the files of a table, with the ban of deletions, if there is one."""
    return dict(properties) if why_no_deletion(*stores) is None else {**properties, DELETE_ENABLED_KEY: "false"}


def let_pyiceberg_ask(table: Table) -> None:
    """Keep PyIceberg from deleting a file by this table, while deletions are forbidden.

    PyIceberg deletes by `table.io`. Each load of a table makes another one, so call this before each commit.
    """
    why = why_no_deletion(table)
    if why is not None:
        setattr(table.io, "delete", partial(_refuse, why))  # noqa: B010


def _refuse(why: str, location: Any) -> None:
    path = location if isinstance(location, str) else location.location
    _kept(why, [path])
    raise FileKept(why)


def _kept(why: str, paths: Sequence[str]) -> None:
    if paths:
        _logger.info("%s", would_go(why, paths))
