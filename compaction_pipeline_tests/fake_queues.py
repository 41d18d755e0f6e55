"""A fake of the reader of queues, over any store of tasks. It passes the behaviour suite of the real reader."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime

from compaction_pipeline.core.commit.record import CompactionRecord
from compaction_pipeline.core.queue.ports import TaskStore
from compaction_pipeline.core.queue.queue_work import EndedWork, MergedWork, QueueWork
from compaction_pipeline.core.queue.task import CompactionTask, TaskStatus
from compaction_pipeline.core.work.result import EndReason


class FakeQueueReader:
    def __init__(
        self, tasks: TaskStore, is_paused: Callable[[CompactionTask], bool], records: Callable[[], Iterable[CompactionRecord]]
    ) -> None:
        self._records = records
        self._tasks = tasks
        self._is_paused = is_paused

    def waiting(self) -> Sequence[str]:
        return tuple(sorted({task.queue for task in self._waiting()}))

    def works(self, since: datetime) -> Mapping[str, QueueWork]:
        everything, works = self._tasks.tasks(), {}
        for queue in {task.queue for task in everything}:
            tasks = [task for task in everything if task.queue == queue]
            waiting = [task for task in self._waiting() if task.queue == queue]
            merged = [task for task in tasks if task.prepared_at is not None and task.prepared_at >= since]
            status = [task.status for task in tasks]
            retrying = sum(task.waits_for_retry for task in tasks)
            work = QueueWork(
                queue,
                pending=len(waiting),
                paused=status.count(TaskStatus.PENDING) - len(waiting),
                executing=status.count(TaskStatus.EXECUTING),
                prepared=status.count(TaskStatus.PREPARED),
                retrying=retrying,
                failed=status.count(TaskStatus.FAILED) - retrying,
                waiting_since=min((task.waiting_since or task.created_at for task in waiting), default=None),
                merged=len(merged),
                merged_bytes=sum(task.work.input_bytes for task in merged),
                refused_reports=sum(
                    attempt.end_reason is EndReason.REPORT_REFUSED and attempt.ended_at is not None and attempt.ended_at >= since
                    for task in tasks
                    for attempt in self._tasks.attempts(task.task_id)
                ),
            )
            if work != QueueWork(queue):
                works[queue] = work
        return works

    def merged_by(self, since: datetime) -> Mapping[str, MergedWork]:
        found: dict[str, MergedWork] = {}
        for task in self._tasks.tasks():
            for attempt in self._tasks.attempts(task.task_id):
                if attempt.end_reason is EndReason.MERGED and attempt.ended_at is not None and attempt.ended_at >= since:
                    before = found.get(attempt.owner, MergedWork())
                    found[attempt.owner] = MergedWork(before.tasks + 1, before.size_bytes + task.work.input_bytes)
        return found

    def ended(self, after: datetime, until: datetime) -> EndedWork:
        attempts: Counter[tuple[str, EndReason]] = Counter()
        merged: Counter[str] = Counter()
        for task in self._tasks.tasks():
            for attempt in self._tasks.attempts(task.task_id):
                if attempt.end_reason is not None and attempt.ended_at is not None and after < attempt.ended_at <= until:
                    attempts[task.queue, attempt.end_reason] += 1
                    merged[task.queue] += task.work.input_bytes if attempt.end_reason is EndReason.MERGED else 0
        ends = (record for record in self._records() if record.ended_at is not None and after < record.ended_at <= until)
        return EndedWork(dict(attempts), dict(+merged), dict(Counter(record.status.value for record in ends)))

    def _waiting(self) -> list[CompactionTask]:
        return [task for task in self._tasks.tasks(statuses=(TaskStatus.PENDING,)) if not self._is_paused(task)]
