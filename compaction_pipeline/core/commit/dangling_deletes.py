"""Which delete files a snapshot no longer needs.

Decided from the data files that will be live in that very snapshot, each with its explicit sequence number, never from a
plan or from a task's inputs: two tasks planned at different sequences around one delete would revive rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from compaction_pipeline.core.commit.head import DataIndex, is_partition_scoped
from compaction_pipeline.core.commit.validation import PathsIn
from compaction_pipeline.core.tables.data_file import FileContent, LiveFile

Converted = Mapping[str, frozenset[str]]
"""Delete path → data files on which the snapshot itself replaces the delete's effect."""


def dangling_deletes(
    deletes: Iterable[LiveFile],
    data: DataIndex,
    paths_in: PathsIn,
    readable: frozenset[str],
    converted: Converted | None = None,
) -> tuple[LiveFile, ...]:
    """The delete files that no data file of the snapshot needs.

    A partition-scoped position delete is needed as long as one path in it is live. Only those of `readable` (paths) are opened
    to see; the others are kept when bucket, sequence and bounds do not say enough: opening all of a table's would make
    every commit as dear as the table is old.
    """
    conversions = converted or {}
    return tuple(delete for delete in deletes if not is_needed(delete, data, paths_in, readable, conversions.get(delete.path, frozenset())))


def is_needed(
    delete: LiveFile, data: DataIndex, paths_in: PathsIn, readable: frozenset[str], converted: frozenset[str] = frozenset()
) -> bool:
    """Some data file still has rows that only this delete file hides, as far as we know; never False by guess."""
    if delete.content is FileContent.EQUALITY_DELETES:
        done = sum(1 for path in converted if data.is_reached(path, delete))
        return data.count_reached_by_equality(delete) > done
    if not is_partition_scoped(delete):
        path = delete.referenced_data_file or ""
        return path not in converted and data.is_reached(path, delete)
    if next(iter(data.may_be_reached_by_positions(delete)), None) is None:
        return False
    held = paths_in(delete) if delete.path in readable else None
    if held is None:
        return True
    return any(path not in converted and data.is_reached(path, delete) for path in held)
