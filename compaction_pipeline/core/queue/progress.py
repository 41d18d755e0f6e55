"""How far a run has come with the tasks of its queue, in words: "12 of 40 tasks, 85.0 MB/s, about 30 s left"."""

from __future__ import annotations

from datetime import timedelta

from compaction_pipeline.core.words import bytes_text, count_text, duration_text

_SOON = timedelta(seconds=1)


def progress_text(done: int, open_tasks: int, merged_bytes: int, elapsed: timedelta) -> str:
    """Say how many of all tasks are done, how fast they were merged, and how long the open ones will take at this pace.

    `done` are the tasks that this run has ended, and `open_tasks` those that wait or are being merged. `merged_bytes` are the bytes of the
    data files that were merged in `elapsed`. Before the first second is over, nothing is said about speed.
    """
    total = done + open_tasks
    text = f"{done:,} of {count_text(total, 'task')}"
    if elapsed < _SOON:
        return text
    if merged_bytes:
        text += f", {bytes_text(round(merged_bytes / elapsed.total_seconds()))}/s"
    if done and open_tasks:
        left = timedelta(seconds=round(elapsed.total_seconds() / done * open_tasks))
        text += f", about {duration_text(max(left, _SOON))} left"
    return text
