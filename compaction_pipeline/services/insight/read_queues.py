"""What a person asks about queues: what waits in each, how fast it is merged, and by which optimizers. It reads the state database only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from compaction_pipeline.core.insight.checks.queues import LATELY
from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.core.queue.group import ResourceGroup
from compaction_pipeline.core.queue.instances import start_problem
from compaction_pipeline.core.queue.optimizer import Optimizer
from compaction_pipeline.core.queue.ports.groups import GroupStore
from compaction_pipeline.core.queue.ports.optimizers import OptimizerStore
from compaction_pipeline.core.queue.ports.tasks import QueueReader, TaskStore
from compaction_pipeline.core.queue.queue_work import EndedWork, MergedTotals, QueueWork, takes_tasks
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.services.insight.count_work import CountWork


@dataclass(frozen=True, slots=True)
class Queues:
    """All queues and optimizers as they are at `at`.

    `works` has every queue with tasks or optimizers, by name. Its figures of merges are those of the time `LATELY`. `groups` are all
    groups, by name; a queue whose tasks are older than groups may have none. `optimizers` are those that the state database knows, the
    newest first, `running` says how many tasks each of them merges, and `merged` what each merged in the time `LATELY`.
    """

    at: datetime
    works: tuple[QueueWork, ...]
    groups: Mapping[str, ResourceGroup]
    optimizers: tuple[Optimizer, ...]
    running: Mapping[str, int]
    merged: Mapping[str, MergedTotals]

    @property
    def serving(self) -> tuple[Optimizer, ...]:
        """The optimizers that take tasks."""
        return tuple(optimizer for optimizer in self.optimizers if takes_tasks(optimizer, self.at))

    def work(self, queue: str) -> QueueWork:
        """The work of a queue, also of one without tasks and optimizers."""
        return next((work for work in self.works if work.queue == queue), QueueWork(queue))

    @property
    def all_works(self) -> tuple[QueueWork, ...]:
        """The work of every queue, by name, those of groups without tasks and optimizers included."""
        return tuple(self.work(name) for name in sorted({*self.groups, *(work.queue for work in self.works)}))

    def value(self, work: QueueWork) -> dict[str, object]:
        """The JSON value of a queue. `free` is negative after the capacity was made smaller, or after a table moved to the group.

        `order`, `capacity` and `free` are null for a queue whose group does not exist.
        """
        group = self.groups.get(work.queue)
        return {
            "group": work.queue,
            "order": None if group is None else group.queue.order,
            "capacity": None if group is None else group.queue.capacity,
            "free": None if group is None else group.queue.capacity - work.taken,
            "waiting": work.pending,
            "merging": work.executing,
            "failed": work.retrying,
            "merged": work.prepared,
            "paused": work.paused,
            "held": work.held,
            "refused_reports": work.refused_reports,
            "oldest_wait_seconds": None if work.waiting_since is None else (self.at - work.waiting_since).total_seconds(),
            "optimizers": sum(optimizer.group == work.queue for optimizer in self.serving),
            "slots": self.slots(work.queue),
        }

    def start_problem(self, queue: str) -> str | None:
        """Why the group of a queue gets no optimizers; None when its container does not fail."""
        group = self.groups.get(queue)
        return None if group is None else start_problem(group, self.optimizers)

    def slots(self, queue: str) -> int:
        """How many tasks of a queue its optimizers merge at a time."""
        return sum(optimizer.parallelism for optimizer in self.serving if optimizer.group == queue)


class ReadQueues:
    """Answers questions about queues and optimizers and changes nothing."""

    def __init__(self, queues: QueueReader, groups: GroupStore, optimizers: OptimizerStore, tasks: TaskStore, clock: Clock) -> None:
        self._queues = queues
        self._groups = groups
        self._optimizers = optimizers
        self._tasks = tasks
        self._clock = clock
        self._count_work = CountWork(queues, clock)

    def ended(self) -> EndedWork:
        """What ended since this object was made: attempts, merged bytes and commits."""
        return self._count_work.totals()

    def start_problems(self) -> Mapping[str, str]:
        """Why groups get no optimizers, by group, for those whose container fails."""
        optimizers = self._optimizers.optimizers()
        problems = {group.name: start_problem(group, optimizers) for group in self._groups.groups()}
        return {name: problem for name, problem in problems.items() if problem is not None}

    def queues(self) -> Queues:
        """All queues and optimizers."""
        now = self._clock()
        works = self._queues.works(now - LATELY)
        merged = self._queues.merged_by(now - LATELY)
        optimizers = tuple(reversed(self._optimizers.optimizers()))
        names = sorted({*works, *(optimizer.group for optimizer in optimizers if optimizer.state.is_live)})
        groups = {group.name: group for group in self._groups.groups()}
        executing = self._tasks.tasks(statuses=(TaskStatus.EXECUTING,))
        running = Counter(task.owner for task in executing if task.owner is not None)
        return Queues(now, tuple(works.get(name, QueueWork(name)) for name in names), groups, optimizers, running, merged)
