"""Decides which FAILED tasks that wait go back into the queue."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from compaction_pipeline.core.ids import TaskId
from compaction_pipeline.core.work.merged import MergedWork
from compaction_pipeline.core.work.work import Work


@dataclass(frozen=True, slots=True)
class Retries:
    """What becomes of FAILED tasks whose `retry_at` has come.

    The tasks of `put_back` wait for a worker again. A data file of each task of `outdated` is no longer live, so no commit would take
    the task.
    """

    put_back: tuple[TaskId, ...]
    outdated: tuple[TaskId, ...]


def retries(due: Iterable[MergedWork[Work]], live_paths: Collection[str]) -> Retries:
    """Decide about tasks of one table. `live_paths` are the paths of the data files that are live in the nodes of these tasks.

    A task that reads change files is put back always: a keyed table has no index of files. When a file of it is gone, its attempt finds
    out.
    """
    put_back: list[TaskId] = []
    outdated: list[TaskId] = []
    for task in due:
        is_live = not task.work.is_indexed or all(file.path in live_paths for file in task.work.inputs)
        (put_back if is_live else outdated).append(task.task_id)
    return Retries(tuple(put_back), tuple(outdated))
