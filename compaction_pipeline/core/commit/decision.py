"""Decides what one attempt of a commit puts into the table: which tasks, and which delete files go in which snapshot.

The commit salvages tasks: it leaves out those that conflict with the table's head, and commits the others. Merges go into a
REPLACE snapshot. Conversions go into an `overwrite` snapshot after it, because other programs that rewrite files look for new
deletes only in `overwrite` and `delete` snapshots. If conversions were in a REPLACE snapshot, such a program would miss their deletes and
revive rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from compaction_pipeline.core.commit.dangling_deletes import dangling_deletes, is_needed
from compaction_pipeline.core.commit.head import DataIndex, HeadFiles
from compaction_pipeline.core.commit.validation import OutputsOf, PathsIn, validate
from compaction_pipeline.core.ids import TaskId
from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.core.work.merged import MergedWork, by_kind
from compaction_pipeline.core.work.work import Convert, DropDeletes, Merge, Work


@dataclass(frozen=True, slots=True)
class CommitDecision:
    """The tasks that are committed, by kind; the reason for each task that is left out; and the delete files that each snapshot drops."""

    merges: Sequence[MergedWork[Merge]]
    drops: Sequence[MergedWork[DropDeletes]]
    conversions: Sequence[MergedWork[Convert]]
    conflicts: Mapping[TaskId, str]
    dropped_by_replace: Sequence[LiveFile]
    dropped_by_overwrite: Sequence[LiveFile]

    @property
    def survivors(self) -> Sequence[MergedWork[Work]]:
        """Every task that is committed."""
        return (*self.merges, *self.drops, *self.conversions)

    @property
    def replaces(self) -> bool:
        """Whether the commit makes a REPLACE snapshot."""
        return bool(self.merges or self.drops)


def decide(tasks: Sequence[MergedWork[Work]], head: HeadFiles, outputs_of: OutputsOf, paths_in: PathsIn) -> CommitDecision:
    """Validate the tasks, salvage those without a conflict, and find the delete files that each snapshot can drop."""
    conflicts = dict(validate(tasks, head, outputs_of, paths_in))
    valid = by_kind(task for task in tasks if task.task_id not in conflicts)
    merges, drops, conversions = valid.merges, list(valid.drops), list(valid.conversions)
    removed = {file.path for task in merges for file in task.work.inputs}
    data = DataIndex(
        [
            *(file for path, file in head.data.by_path.items() if path not in removed),
            *(output for task in merges for output in outputs_of(task)),
        ],
        head.layout,
    )
    readable = frozenset(delete.path for task in tasks for delete in task.work.deletes)

    gone: tuple[LiveFile, ...] = ()
    if merges or drops:
        single = [delete for path, delete in head.deletes.items() if path not in head.duplicate_deletes]
        gone = dangling_deletes(single, data, paths_in, readable)
        paths = {delete.path for delete in gone}
        for task in drops:
            if not any(delete.path in paths for delete in task.work.deletes):
                conflicts[task.task_id] = "none of its delete files can be dropped: they are gone already, or data files need them again"
        drops = [task for task in drops if task.task_id not in conflicts]
        if not merges and not drops:
            gone = ()
    gone_paths = {delete.path for delete in gone}
    left = {path: delete for path, delete in head.deletes.items() if path not in gone_paths}

    conversions = _releasing(conversions, left, data, paths_in, readable, conflicts)
    converted = _converted(conversions)
    gone_later: tuple[LiveFile, ...] = ()
    if conversions:
        # A REPLACE snapshot drops the other deletes that nothing needs. Only the deletes of the conversions are left to decide after it.
        candidates = list(left.values()) if not (merges or drops) else [left[path] for path in converted if path in left]
        candidates = [delete for delete in candidates if delete.path not in head.duplicate_deletes]
        gone_later = dangling_deletes(candidates, data, paths_in, readable, converted)
    return CommitDecision(merges, tuple(drops), tuple(conversions), conflicts, gone, gone_later)


def _converted(conversions: Sequence[MergedWork[Convert]]) -> Mapping[str, frozenset[str]]:
    """Return, for the path of each converted delete file, the data files that get new position deletes in its place."""
    paths: dict[str, set[str]] = defaultdict(set)
    for task in conversions:
        for delete in task.work.converts:
            paths[delete].update(file.path for file in task.work.inputs)
    return {delete: frozenset(inputs) for delete, inputs in paths.items()}


def _releasing(
    conversions: list[MergedWork[Convert]],
    deletes: Mapping[str, LiveFile],
    data: DataIndex,
    paths_in: PathsIn,
    readable: frozenset[str],
    conflicts: dict[TaskId, str],
) -> list[MergedWork[Convert]]:
    """Return the conversions whose delete files can all be dropped once they are committed, and put the others among `conflicts`.

    A conversion whose delete file stays would only add a file. When a conversion is left out, its data files still need their
    delete files, and another conversion may share one of these. So the check is repeated until nothing changes. The result is
    the largest set of conversions that can be committed together.
    """
    while True:
        converted = _converted(conversions)
        staying = {
            path
            for path, inputs in converted.items()
            # A path that is not in `deletes` was dropped by the REPLACE snapshot or by another commit: it is gone, as wanted.
            if path in deletes and is_needed(deletes[path], data, paths_in, readable, inputs)
        }
        failing = {task.task_id: path for task in conversions if (path := next((p for p in task.work.converts if p in staying), None))}
        if not failing:
            return conversions
        for task_id, path in failing.items():
            conflicts[task_id] = f"delete file {path} cannot be dropped: a data file that this commit does not convert still needs it"
        conversions = [task for task in conversions if task.task_id not in failing]
