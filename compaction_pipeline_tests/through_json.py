"""A queue that sends each value through JSON, as HTTP would: it writes the value as JSON and reads it back by its type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter

from compaction_pipeline.core.ids import AttemptId, TaskId
from compaction_pipeline.core.queue.assignment import Assignment, EndedAttempt
from compaction_pipeline.core.queue.ports.work import TaskQueue
from compaction_pipeline.core.queue.task import CompactionTask, TaskStatus
from compaction_pipeline.core.work.ends import EndReason
from compaction_pipeline.core.work.result import MergeResult, UsedSoFar


def through_json(kind: Any, value: Any) -> Any:
    """The value after it was written as JSON by pydantic and read back."""
    adapter: TypeAdapter[Any] = TypeAdapter(kind)
    return adapter.validate_json(adapter.dump_json(value))


class QueueThroughJson:
    """A `TaskQueue` that passes all calls on to another one, with arguments and results through JSON."""

    def __init__(self, queue: TaskQueue) -> None:
        self._queue = queue

    def waits(self, queue: str | None, task_ids: Sequence[TaskId] | None = None) -> bool:
        return self._queue.waits(queue, task_ids)

    def poll(self, owner: str, queue: str | None, task_ids: Sequence[TaskId] | None = None) -> Assignment | EndedAttempt | None:
        polled: Assignment | EndedAttempt | None = through_json(Assignment | EndedAttempt | None, self._queue.poll(owner, queue, task_ids))
        return polled

    def renew(self, attempt_ids: Sequence[AttemptId], used: Mapping[AttemptId, UsedSoFar] | None = None) -> Sequence[AttemptId]:
        told = through_json(Mapping[str, UsedSoFar] | None, used)
        return tuple(through_json(Sequence[str], self._queue.renew(through_json(Sequence[str], attempt_ids), told)))

    def complete(self, task: CompactionTask, result: MergeResult) -> TaskStatus:
        status = self._queue.complete(through_json(CompactionTask, task), through_json(MergeResult, result))
        return TaskStatus(through_json(TaskStatus, status))

    def give_back(self, owner: str, end_reason: EndReason, reason: str) -> None:
        self._queue.give_back(owner, through_json(EndReason, end_reason), reason)
