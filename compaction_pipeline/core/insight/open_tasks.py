"""The open tasks in words. Every page and every command uses these words, so that the same state never gets two names."""

from __future__ import annotations

from datetime import datetime

from compaction_pipeline.core.queue.open_work import OpenTasks


def waits_for_commit(merged: int, due_at: datetime | None = None) -> str:
    """Say how many merged tasks wait for the commit, for example "317 merged tasks wait for the commit".

    `due_at` is when the commit interval of the table ends. The commit is due then at the latest.
    """
    text = "1 merged task waits for the commit" if merged == 1 else f"{merged:,} merged tasks wait for the commit"
    return text if due_at is None else f"{text}, which is due at {due_at:%H:%M:%S} UTC at the latest"


def open_tasks_text(tasks: OpenTasks, due_at: datetime | None = None) -> str:
    """Say how many tasks wait, are being merged, and wait for the commit; for example "2 tasks wait, 1 is being merged".

    `due_at` is when the commit is due, if they are the tasks of one table and that is known.
    """
    parts = []
    if tasks.waiting:
        parts.append("1 task waits" if tasks.waiting == 1 else f"{tasks.waiting:,} tasks wait")
    if tasks.merging:
        parts.append("1 task is being merged" if tasks.merging == 1 else f"{tasks.merging:,} tasks are being merged")
    if tasks.paused:
        parts.append("1 task waits for `resume`" if tasks.paused == 1 else f"{tasks.paused:,} tasks wait for `resume`")
    if tasks.failed:
        parts.append("1 failed task is tried again later" if tasks.failed == 1 else f"{tasks.failed:,} failed tasks are tried again later")
    if tasks.merged:
        parts.append(waits_for_commit(tasks.merged, due_at))
    return ", ".join(parts) or "no task is open"
