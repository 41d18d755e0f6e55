"""Decides which tasks an earlier commit put in, from the files that it added and removed."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from compaction_pipeline.core.errors import assert_never
from compaction_pipeline.core.ids import TaskId
from compaction_pipeline.core.work.merged import MergedWork
from compaction_pipeline.core.work.work import Convert, DropDeletes, Merge, RewriteChanges, ToBase, Work


def went_in(tasks: Iterable[MergedWork[Work]], added: Collection[str], removed: Collection[str]) -> set[TaskId]:
    """Return those of a commit's tasks that went in. `added` and `removed` are the paths of the files that the commit added and removed."""
    found = set()
    for task in tasks:
        work, outputs = task.work, task.result.outputs if task.result is not None else ()
        match work:
            case Merge() | RewriteChanges():
                landed = all(file.path in removed for file in work.inputs)
            case DropDeletes():
                landed = any(delete.path in removed for delete in work.deletes)
            case ToBase():
                landed = any(output.path in added for output in outputs) or any(file.path in removed for file in work.rewritten)
            case Convert() if outputs:
                landed = all(output.path in added for output in outputs)
            case Convert():
                landed = any(path in removed for path in work.converts)
            case _:
                assert_never(work)
        if landed:
            found.add(task.task_id)
    return found
