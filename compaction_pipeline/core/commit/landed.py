"""Decides which tasks an earlier commit put in, from the files that it added and removed."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from compaction_pipeline.core.errors import assert_never
from compaction_pipeline.core.ids import TaskId
from compaction_pipeline.core.work.merged import MergedWork
from compaction_pipeline.core.work.work import Convert, DropDeletes, Merge, RewriteChanges, ToBase, Work


def went_in(tasks: Iterable[MergedWork[Work]], added: Collection[str], removed: Collection[str]) -> set[TaskId]:
    """Return those of a commit's tasks that went in. `added` and `removed` are the paths of the files that the commit added and removed."""
    return {task.task_id for task in tasks if _went_in(task, added, removed)}


def _went_in(task: MergedWork[Work], added: Collection[str], removed: Collection[str]) -> bool:
    work, outputs = task.work, task.result.outputs if task.result is not None else ()
    match work:
        case Merge() | RewriteChanges():
            return all(file.path in removed for file in work.inputs)
        case DropDeletes():
            return any(delete.path in removed for delete in work.deletes)
        case ToBase():
            return any(output.path in added for output in outputs) or any(file.path in removed for file in work.rewritten)
        case Convert():
            return all(output.path in added for output in outputs) if outputs else any(path in removed for path in work.converts)
        case _:
            return assert_never(work)
