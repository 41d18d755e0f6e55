"""What the open tasks of a table hold, and how much work they are. A task is open until it has ended (`CompactionTask.is_final`)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from compaction_pipeline.core.ids import TaskId
from compaction_pipeline.core.queue.known_task import KnownTask
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.tables.node import TableNode


@dataclass(frozen=True, slots=True)
class InUse:
    """What a new plan of a table must not take, and what it may take only by replacing Pending tasks.

    `paths` are the data files of Executing and Prepared tasks and of FAILED tasks that wait to be tried again. `exclusive_nodes` are the
    nodes on which a MAJOR or FULL runs, or waits to be tried again. A plan takes none of them. `pending` maps the data files of Pending
    tasks to their task ids: a plan may take such a file when it replaces the task. `pending_groups` maps each Pending task that has a task
    group (`Work.group`, not a resource group) to its name: all Pending tasks of a task group are replaced together.

    `waiting` are the Pending tasks of `pending`, by node, for a plan that replaces them only when new files are due. It is empty for a plan
    that replaces them for any new file.

    `failed` and `failed_groups` say the same about FAILED tasks that wait. `failed_nodes` are the exclusive nodes on which nothing runs:
    the FAILED tasks alone make them exclusive.
    """

    paths: frozenset[str] = frozenset()
    exclusive_nodes: frozenset[TableNode] = frozenset()
    pending: Mapping[str, TaskId] = field(default_factory=dict)
    pending_groups: Mapping[TaskId, str] = field(default_factory=dict)
    waiting: Mapping[TableNode, tuple[KnownTask, ...]] = field(default_factory=dict)
    failed: Mapping[str, TaskId] = field(default_factory=dict)
    failed_groups: Mapping[TaskId, str] = field(default_factory=dict)
    failed_nodes: frozenset[TableNode] = frozenset()

    def without_replacing(self, task_ids: Collection[TaskId]) -> InUse:
        """Return the same for a plan that must not replace these Pending tasks."""
        kept = {path: task_id for path, task_id in self.pending.items() if task_id in task_ids}
        return replace(
            self,
            paths=self.paths | kept.keys(),
            pending={path: task_id for path, task_id in self.pending.items() if path not in kept},
            pending_groups={task_id: group for task_id, group in self.pending_groups.items() if task_id not in task_ids},
        )

    def keeping(self, tasks: Iterable[KnownTask]) -> InUse:
        """Return the same for a plan that keeps waiting tasks while the new files of their nodes are not due.

        Only those of `tasks` count that still hold their files as Pending tasks here.
        """
        waiting: dict[TableNode, list[KnownTask]] = defaultdict(list)
        for task in tasks:
            inputs = task.work.inputs
            if task.status is TaskStatus.PENDING and inputs and all(self.pending.get(file.path) == task.task_id for file in inputs):
                waiting[task.work.node].append(task)
        return replace(self, waiting={node: tuple(each) for node, each in waiting.items()})

    def for_person(self) -> InUse:
        """Return the same for the plan of a person, which may replace FAILED tasks that wait as it may replace Pending ones."""
        return replace(
            self,
            paths=self.paths - self.failed.keys(),
            exclusive_nodes=self.exclusive_nodes - self.failed_nodes,
            pending={**self.pending, **self.failed},
            pending_groups={**self.pending_groups, **self.failed_groups},
        )


@dataclass(frozen=True, slots=True)
class PlannedWork:
    """How many tasks of one table are still to be merged, and how many bytes of data files they read.

    Such a task is Pending or Executing, or it is FAILED and waits to be tried again.
    """

    tasks: int = 0
    input_bytes: int = 0


@dataclass(frozen=True, slots=True)
class PreparedWork:
    """The Prepared tasks of one table.

    `tasks` and `input_bytes` count those that no commit has claimed. `claimed` counts the others.
    """

    tasks: int = 0
    input_bytes: int = 0
    claimed: int = 0


@dataclass(frozen=True, slots=True)
class OpenTasks:
    """How many tasks of one table have not ended.

    `waiting` tasks are Pending, and `merging` ones are Executing. `merged` ones are Prepared: they wait for the table's commit, or are in
    it. `paused` ones are Pending too, but have no turn before their table is resumed. `failed` ones wait to be tried again.
    """

    waiting: int = 0
    merging: int = 0
    merged: int = 0
    paused: int = 0
    failed: int = 0

    @property
    def are_any(self) -> bool:
        """Whether the table has an open task."""
        return bool(self.waiting or self.merging or self.merged or self.paused or self.failed)

    @property
    def are_all_merged(self) -> bool:
        """Whether only the commit is left to do. It is False for a table without open tasks."""
        return bool(self.merged) and not self.waiting and not self.merging and not self.paused and not self.failed
