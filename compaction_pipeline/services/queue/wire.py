"""Builds the use cases of the queue, its workers and optimizers, each on first use."""

from __future__ import annotations

from abc import abstractmethod
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING

from compaction_pipeline.services.wiring import Wiring

if TYPE_CHECKING:
    from compaction_pipeline.core.queue.ports.work import TaskQueue
    from compaction_pipeline.core.tables.table import TableIdentifier
    from compaction_pipeline.services.queue.await_tasks import AwaitTasks
    from compaction_pipeline.services.queue.keep_queue import KeepQueue
    from compaction_pipeline.services.queue.lost_attempts import LostAttempts
    from compaction_pipeline.services.queue.maintain_optimizers import MaintainOptimizers
    from compaction_pipeline.services.queue.manage_groups import ManageGroups
    from compaction_pipeline.services.queue.merge_tasks import MergeTasks
    from compaction_pipeline.services.queue.read_containers import ReadContainers
    from compaction_pipeline.services.queue.serve_optimizers import ServeOptimizers
    from compaction_pipeline.services.queue.serve_tasks import ServeTasks
    from compaction_pipeline.services.queue.share_queues import ShareQueues
    from compaction_pipeline.services.queue.steer_tasks import SteerTasks
    from compaction_pipeline.services.queue.turns import Turns
    from compaction_pipeline.services.queue.work_on_queue import WorkOnQueue


class QueueServices(Wiring):
    """The use cases of the queue."""

    @abstractmethod
    def _note_denied(self, table: TableIdentifier, reason: str) -> bool:
        """Show on a table that its storage denied access, as `PlanTables.note_denied` does. Planning is another column."""

    @abstractmethod
    def _note_use(self) -> None:
        """Note how optimizers are used, as `ReadUse.note` does. What compaction costs is another column."""

    @cached_property
    def _turns(self) -> Turns:
        from compaction_pipeline.services.queue.turns import Turns

        stores = self._stores
        return Turns(stores.groups, stores.optimizers, stores.tasks, stores.tables, stores.catalogs, self.clock, self._settings.task_slots)

    @cached_property
    def serve_tasks(self) -> ServeTasks:
        from compaction_pipeline.services.queue.judge_reports import JudgeReports
        from compaction_pipeline.services.queue.serve_tasks import HandsOut, ServeTasks

        stores, retry_after = self._stores, timedelta(seconds=self._settings.retry_interval_seconds)
        reports = JudgeReports(stores.groups, self._judge, self._verify_rows)
        hands_out = HandsOut(retry_after, self._turns.of, self.spark_application)
        return ServeTasks(stores.tables, stores.tasks, self._committer, self._note_denied, reports, self.clock, hands_out)

    @cached_property
    def _lost_attempts(self) -> LostAttempts:
        from compaction_pipeline.services.queue.lost_attempts import LostAttempts

        stores, settings = self._stores, self._settings
        timeout, retry_after = timedelta(seconds=settings.task_timeout_seconds), timedelta(seconds=settings.retry_interval_seconds)
        return LostAttempts(stores.tasks, stores.optimizers, stores.watchers, timeout, retry_after)

    @cached_property
    def keep_queue(self) -> KeepQueue:
        from compaction_pipeline.services.queue.keep_queue import KeepQueue
        from compaction_pipeline.services.queue.move_tasks import MoveTasks

        stores = self._stores
        moves = MoveTasks(stores.catalogs, stores.tables, stores.tasks, stores.groups, stores.teams)
        return KeepQueue(stores.tables, stores.files, stores.tasks, self._lost_attempts, moves.move, self._note_use, self.clock)

    @cached_property
    def serve_optimizers(self) -> ServeOptimizers:
        from compaction_pipeline.services.queue.admit_optimizers import AdmitOptimizers
        from compaction_pipeline.services.queue.serve_optimizers import ServeOptimizers

        stores = self._stores
        admit = AdmitOptimizers(stores.groups, stores.teams, self.version)
        return ServeOptimizers(stores.optimizers, stores.tokens, stores.tasks, self.serve_tasks, self.clock, self._new_id, admit)

    @cached_property
    def manage_groups(self) -> ManageGroups:
        from compaction_pipeline.services.queue.manage_groups import ManageGroups

        return ManageGroups(self._stores.groups, self._stores.catalogs, self._stores.tables, self._stores.teams, self._containers)

    @cached_property
    def maintain_optimizers(self) -> MaintainOptimizers:
        from compaction_pipeline.services.queue.maintain_optimizers import MaintainOptimizers

        stores, containers = self._stores, self._containers
        return MaintainOptimizers(
            stores.groups, stores.optimizers, stores.queues, stores.teams, stores.scaling, containers, (self.clock, self._new_id)
        )

    @cached_property
    def read_containers(self) -> ReadContainers:
        from compaction_pipeline.services.queue.read_containers import ReadContainers

        return ReadContainers(self._stores.groups, self._containers)

    @cached_property
    def steer_tasks(self) -> SteerTasks:
        from compaction_pipeline.services.queue.steer_tasks import SteerTasks

        return SteerTasks(self._stores.tasks, self.clock)

    @cached_property
    def share_queues(self) -> ShareQueues:
        from compaction_pipeline.services.queue.share_queues import ShareQueues

        stores = self._stores
        return ShareQueues(stores.queues, stores.optimizers, stores.tasks, stores.scaling, stores.watchers, self.clock)

    @cached_property
    def work_on_queue(self) -> WorkOnQueue:
        # With the engine in this process, it merges one task at a time.
        return self.worker(self.serve_tasks, None if self._settings.merge_engine == "in-process" else self._settings.task_slots)

    def worker(self, queue: TaskQueue, slots: int | None) -> WorkOnQueue:
        """A worker that takes tasks from this queue and merges so many at a time. It needs no state database of its own.

        With None, it merges in the caller's thread.
        """
        from compaction_pipeline.services.queue.work_on_queue import WorkOnQueue

        # A worker only measures how long something takes, and an optimizer has no state database that could tell the time.
        clock = self.own_clock
        return WorkOnQueue(queue, self._engine, clock, self._heartbeat, slots, self.on_step, lambda seconds: self.sleep(seconds))

    @cached_property
    def await_tasks(self) -> AwaitTasks:
        from compaction_pipeline.services.queue.await_tasks import AwaitTasks

        return AwaitTasks(self._stores.tables, self._stores.tasks, self._lost_attempts.release, self.clock)

    @cached_property
    def _merge_tasks(self) -> MergeTasks:
        from compaction_pipeline.services.queue.merge_tasks import MergeTasks

        return MergeTasks(self.await_tasks, self.work_on_queue, self.share_queues, self.new_owner)
