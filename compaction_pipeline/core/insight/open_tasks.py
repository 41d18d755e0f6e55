"""The open tasks in words. Every page and every command uses these words, so that the same state never gets two names."""

from __future__ import annotations

from compaction_pipeline.core.queue.open_work import OpenTasks


def waits_for_commit(merged: int) -> str:
    """Say how many merged tasks wait for the commit, for example "317 merged tasks wait for the commit"."""
    return "1 merged task waits for the commit" if merged == 1 else f"{merged:,} merged tasks wait for the commit"


def open_tasks_text(tasks: OpenTasks) -> str:
    """Say how many tasks wait, are being merged, and wait for the commit; for example "2 tasks wait, 1 is being merged"."""
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
        parts.append(waits_for_commit(tasks.merged))
    return ", ".join(parts) or "no task is open"
