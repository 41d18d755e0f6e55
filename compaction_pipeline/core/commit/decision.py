"""What one attempt puts in: which tasks survive, and which delete files go in which snapshot.

Merges go into a REPLACE snapshot, conversions into an `overwrite` snapshot after it: other rewriters look for new deletes only
in `overwrite` and `delete` snapshots, and a conversion inside a REPLACE let one of them bring a deleted row back.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from compaction_pipeline.core.commit.dangling_deletes import dangling_deletes, is_needed
from compaction_pipeline.core.commit.head import DataIndex, HeadFiles
from compaction_pipeline.core.commit.validation import OutputsOf, PathsIn, validate
from compaction_pipeline.core.ids import TaskId
from compaction_pipeline.core.queue.task import CompactionTask, TaskAction
from compaction_pipeline.core.tables.data_file import LiveFile


@dataclass(frozen=True, slots=True)
class CommitDecision:
    """The tasks of each kind that go in, the conflicts by task id, and the delete files that each snapshot drops."""

    merges: tuple[CompactionTask, ...]
    drops: tuple[CompactionTask, ...]
    conversions: tuple[CompactionTask, ...]
    conflicts: Mapping[TaskId, str]
    dropped_by_replace: tuple[LiveFile, ...]
    dropped_by_overwrite: tuple[LiveFile, ...]

    @property
    def survivors(self) -> tuple[CompactionTask, ...]:
        """Every task that goes in."""
        return (*self.merges, *self.drops, *self.conversions)

    @property
    def replaces(self) -> bool:
        """There is a REPLACE snapshot to make."""
        return bool(self.merges or self.drops)


def decide(tasks: Sequence[CompactionTask], head: HeadFiles, outputs_of: OutputsOf, paths_in: PathsIn) -> CommitDecision:
    """Validate, salvage, and decide afresh which delete files go."""
    conflicts = dict(validate(tasks, head, outputs_of, paths_in))
    valid = [task for task in tasks if task.task_id not in conflicts]
    merges = [task for task in valid if task.work.action is TaskAction.MERGE]
    drops = [task for task in valid if task.work.action is TaskAction.DROP_DELETES]
    conversions = [task for task in valid if task.work.action is TaskAction.CONVERT]
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
                conflicts[task.task_id] = "none of its delete files can go: they are gone already, or needed again"
        drops = [task for task in drops if task.task_id not in conflicts]
        if not merges and not drops:
            gone = ()
    gone_paths = {delete.path for delete in gone}
    left = {path: delete for path, delete in head.deletes.items() if path not in gone_paths}

    conversions = _releasing(conversions, left, data, paths_in, readable, conflicts)
    converted = _converted(conversions)
    gone_later: tuple[LiveFile, ...] = ()
    if conversions:
        # Only what the conversions are about; the rest was decided by the snapshot before, if there was one.
        candidates = list(left.values()) if not (merges or drops) else [left[path] for path in converted if path in left]
        candidates = [delete for delete in candidates if delete.path not in head.duplicate_deletes]
        gone_later = dangling_deletes(candidates, data, paths_in, readable, converted)
    return CommitDecision(tuple(merges), tuple(drops), tuple(conversions), conflicts, gone, gone_later)


def _converted(conversions: Sequence[CompactionTask]) -> Mapping[str, frozenset[str]]:
    paths: dict[str, set[str]] = defaultdict(set)
    for task in conversions:
        for delete in task.work.converts:
            paths[delete].update(file.path for file in task.work.inputs)
    return {delete: frozenset(inputs) for delete, inputs in paths.items()}


def _releasing(
    conversions: list[CompactionTask],
    deletes: Mapping[str, LiveFile],
    data: DataIndex,
    paths_in: PathsIn,
    readable: frozenset[str],
    conflicts: dict[TaskId, str],
) -> list[CompactionTask]:
    """The largest set of conversions each of which lets all its delete files go; the others are put among `conflicts`.

    A conversion whose delete file stays only adds a file. Failing one takes its data files from the converted ones, which may keep
    the delete of another: so until nothing changes.
    """
    while True:
        converted = _converted(conversions)
        staying = {
            path
            for path, inputs in converted.items()
            # A delete that the REPLACE before just dropped, or that another commit dropped, is gone as wanted.
            if path in deletes and is_needed(deletes[path], data, paths_in, readable, inputs)
        }
        failing = {task.task_id: path for task in conversions if (path := next((p for p in task.work.converts if p in staying), None))}
        if not failing:
            return conversions
        for task_id, path in failing.items():
            conflicts[task_id] = f"{path} cannot go: a data file that is not converted in this commit still needs it"
        conversions = [task for task in conversions if task.task_id not in failing]
