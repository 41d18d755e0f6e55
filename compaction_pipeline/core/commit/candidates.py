"""The tasks that one attempt may put in, with their merged files as the head would list them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from compaction_pipeline.core.ids import TaskId
from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.core.work.merged import MergedWork
from compaction_pipeline.core.work.work import Work


@dataclass(frozen=True, slots=True)
class Candidates:
    """The tasks of an attempt. `outputs` has the merged files of those that fit the head, and `unfit` the reason of each other task."""

    tasks: Sequence[MergedWork[Work]]
    outputs: Mapping[TaskId, Sequence[LiveFile]]
    unfit: Mapping[TaskId, str]

    @property
    def fitting(self) -> Sequence[MergedWork[Work]]:
        """Return the tasks whose outputs fit the head."""
        return [task for task in self.tasks if task.task_id in self.outputs]

    def outputs_of(self, task: MergedWork[Work]) -> Sequence[LiveFile]:
        """Return the outputs of a task that fits, as the commit would add them."""
        return self.outputs[task.task_id]

    def others_than(self, tasks: Iterable[MergedWork[Work]]) -> Sequence[MergedWork[Work]]:
        """Return the tasks that are not among these."""
        ids = {task.task_id for task in tasks}
        return [task for task in self.tasks if task.task_id not in ids]
