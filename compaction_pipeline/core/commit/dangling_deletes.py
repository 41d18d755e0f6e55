"""Finds the dangling delete files of a snapshot: those that no data file of the snapshot needs.

The decision looks at the data files that will be live in the snapshot itself, each with its own sequence number. It never looks
at a plan or at a task's inputs, because that could bring deleted rows back. Example: one task was planned before a delete file was
added, another after it, and only the second applied the delete. Together the tasks rewrite every file that the delete reaches, yet
the first task's output still needs it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from compaction_pipeline.core.commit.head import DataIndex, is_partition_scoped
from compaction_pipeline.core.commit.validation import PathsIn
from compaction_pipeline.core.tables.data_file import FileContent, LiveFile

Converted = Mapping[str, frozenset[str]]
"""Maps the path of a delete file to the data files for which the snapshot adds new position deletes in its place."""


def dangling_deletes(
    deletes: Iterable[LiveFile],
    data: DataIndex,
    paths_in: PathsIn,
    readable: frozenset[str],
    converted: Converted | None = None,
) -> tuple[LiveFile, ...]:
    """Return the delete files that no data file of the snapshot needs.

    A partition-scoped position delete is needed as long as one path in it is live. Only those whose path is in `readable` are
    opened to find out. The others are kept when bucket, sequence number and bounds leave a doubt: if every commit opened all delete
    files of a table, commits would cost more and more as a table gets older.
    """
    conversions = converted or {}
    return tuple(delete for delete in deletes if not is_needed(delete, data, paths_in, readable, conversions.get(delete.path, frozenset())))


def is_needed(
    delete: LiveFile, data: DataIndex, paths_in: PathsIn, readable: frozenset[str], converted: frozenset[str] = frozenset()
) -> bool:
    """Return whether a data file may have rows that only this delete file hides. It is False only when this is certain.

    `converted` are the data files for which the snapshot adds new position deletes in place of this delete file.
    """
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
