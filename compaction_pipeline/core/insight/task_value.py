"""Tasks and attempts as programs read them: in the answers of commands and of the HTTP service."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from compaction_pipeline.core.capacity.ledger import UNKNOWN
from compaction_pipeline.core.insight.plain import plain
from compaction_pipeline.core.queue.task import CompactionTask, TaskAttempt


def task_value(task: CompactionTask) -> dict[str, object]:
    """Return the JSON value of a task. Its lists of files are left out."""
    return {
        "task": task.task_id,
        "table": str(task.table),
        "node": str(task.work.node),
        "type": task.work.type.value,
        "action": task.work.action.value,
        "status": task.status.value,
        "attempt": task.attempt,
        "owner": task.owner,
        "started_at": plain(task.started_at),
        "input_files": task.work.files_read,
        "input_bytes": task.work.input_bytes,
        "delete_files": len(task.work.deletes),
        "reason": task.reason,
        "record": task.record_id,
    }


def whole_value(
    task: CompactionTask, attempts: Iterable[TaskAttempt] | None = None, page: Callable[[str], str | None] = lambda application: None
) -> dict[str, object]:
    """Return the JSON value of a task with its attempts in figures, and all its times. With `attempts` it lists these too.

    `page` returns the address of the page of a Spark application; None when there is none.
    """
    return {
        **task_value(task),
        "queue": task.queue,
        "failures": task.failures,
        "losses": task.losses,
        "max_attempts": task.max_attempts,
        "reason_code": plain(task.end_reason),
        **{name: plain(moment) for name, moment in task.times.items()},
        **({"attempts": [_attempt_value(attempt, page) for attempt in attempts]} if attempts is not None else {}),
    }


def _attempt_value(attempt: TaskAttempt, page: Callable[[str], str | None]) -> dict[str, object]:
    value, used = plain(attempt), plain(attempt.used or UNKNOWN)
    assert isinstance(value, dict)
    assert isinstance(used, dict)
    return {**{name: each for name, each in value.items() if name != "used"}, **used, "application_url": page(attempt.application)}
