"""The open tasks in words. Every page and every command uses these words, so that the same state never gets two names."""

from __future__ import annotations

from compaction_pipeline.core.queue.open_work import OpenTasks


def waits_for_commit(merged: int, due: str = "") -> str:
    """Say how many merged tasks wait for the commit, for example "317 merged tasks wait for the commit".

    `due` says when the commit is due, for example "now"; "" when that is not known.
    """
    text = "1 merged task waits for the commit" if merged == 1 else f"{merged:,} merged tasks wait for the commit"
    return f"{text}, which is due {due}" if due else text


def open_tasks_text(tasks: OpenTasks, due: str = "") -> str:
    """Say how many tasks wait, are being merged, and wait for the commit; for example "2 tasks wait, 1 is being merged".

    `due` says when the commit is due, if they are the tasks of one table and that is known.
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
        parts.append(waits_for_commit(tasks.merged, due))
    return ", ".join(parts) or "no task is open"
