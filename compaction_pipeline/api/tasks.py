"""Routes of tasks: what waits, runs and has ended, and what a person may do about it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query
from pydantic import BaseModel

from compaction_pipeline.api.problems import ANSWERS
from compaction_pipeline.api.security import Guard
from compaction_pipeline.core.access.token import Role
from compaction_pipeline.core.ids import TaskId
from compaction_pipeline.core.insight.task_value import whole_value
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.work.ends import EndReason
from compaction_pipeline.core.work.kinds import CompactionType, TaskAction
from compaction_pipeline.services.insight.read_tasks import ReadTasks
from compaction_pipeline.services.queue.steer_tasks import SteerTasks

MOST_TASKS = 1_000

_TaskId = Annotated[str, Path(max_length=200)]


class TaskAnswer(BaseModel):
    """A task. `failures` and `losses` count its attempts, and at most `max_attempts` may fail. Times that have not come are null.

    A task that is FAILED and has a `retry_at` is tried again at that time. `reason_code` says how the last attempt ended.
    """

    task: str
    table: str
    node: str
    type: CompactionType
    action: TaskAction
    status: TaskStatus
    attempt: int
    owner: str | None
    input_files: int
    input_bytes: int
    delete_files: int
    reason: str | None
    reason_code: EndReason | None
    record: str | None
    queue: str
    failures: int
    losses: int
    max_attempts: int
    created_at: datetime | None
    waiting_since: datetime | None
    started_at: datetime | None
    failed_at: datetime | None
    retry_at: datetime | None
    prepared_at: datetime | None
    committed_at: datetime | None
    ended_at: datetime | None


class AttemptAnswer(BaseModel):
    """One try of a task: who held it, when it began, when and how it ended, and why. Both ends are null while it runs.

    `claimed` is the end that its optimizer reported, when nobody else had seen it and the attempt therefore counts as FAILED.
    `application` is the id of its Spark application, as its worker says; it is "" when none is known. `application_url` is the page of it,
    where COMPACTION_SPARK_APPLICATION_URL is set.

    What it has used is what its worker tells; while it runs, what it told last. Null is unknown. `is_cut` says that it told more than is
    possible.
    """

    attempt_id: str
    task_id: str
    number: int
    owner: str
    started_at: datetime
    ended_at: datetime | None
    end_reason: EndReason | None
    reason: str | None
    claimed: EndReason | None
    application: str
    cpu_seconds: float | None
    overhead_cpu_seconds: float | None
    peak_memory_bytes: int | None
    bytes_read: int | None
    bytes_written: int | None
    is_cut: bool
    application_url: str | None


class TaskDetail(TaskAnswer):
    """A task with all its attempts, the first one first."""

    attempts: list[AttemptAnswer]


def task_routes(tasks: ReadTasks, steer: SteerTasks, guard: Guard) -> APIRouter:
    """The routes below `/api/v1` about tasks."""
    routes = APIRouter(tags=["tasks"], responses=ANSWERS)
    reader, admin = [Depends(guard.needs(Role.READER))], [Depends(guard.needs())]

    @routes.get("/tasks", dependencies=reader)
    def list_tasks(
        table: Annotated[str | None, Query(max_length=2_000)] = None,
        status: Annotated[tuple[TaskStatus, ...], Query(max_length=len(TaskStatus))] = (),
        limit: Annotated[int, Query(ge=1, le=MOST_TASKS)] = 20,
    ) -> list[TaskAnswer]:
        """Tasks of all tables, or of one, newest first. Without `status` these are the tasks that have not ended."""
        identifier = TableIdentifier.parse(table) if table is not None else None
        return [TaskAnswer.model_validate(whole_value(task)) for task in tasks.tasks(identifier, status, limit)]

    @routes.get("/tasks/{task_id}", dependencies=reader)
    def one_task(task_id: _TaskId) -> TaskDetail:
        """One task, its times, and its attempts with their times and ends."""
        return TaskDetail.model_validate(whole_value(*tasks.task(TaskId(task_id)), tasks.application_page))

    @routes.post("/tasks/{task_id}/retry", dependencies=admin)
    def retry(task_id: _TaskId) -> TaskAnswer:
        """Try a failed task again now, instead of at its `retry_at`."""
        [task] = steer.retry([TaskId(task_id)])
        return TaskAnswer.model_validate(whole_value(task))

    @routes.post("/tasks/{task_id}/cancel", dependencies=admin)
    def cancel(task_id: _TaskId, running: bool = False) -> TaskAnswer:
        """Cancel a task that waits. With `running`, also one that runs: its worker learns it at its next heartbeat, and stops the merge.

        The next tick may plan the same files again. A pause of the table keeps it from that.
        """
        [task] = steer.cancel([TaskId(task_id)], running=running)
        return TaskAnswer.model_validate(whole_value(task))

    return routes
