"""How far a run has come with the tasks of its queue, in words: "12 of 40 tasks so far, 85.0 MB/s, about 30 s of merging left".

Nothing is promised for the commits that follow the merges. So the time left is that of the merges alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from compaction_pipeline.core.words import bytes_text, count_text, duration_text

_SOON = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast tasks end: so many tasks, with so many bytes of data files, in the time `elapsed`. It counts no time without tasks."""

    tasks: int = 0
    merged_bytes: int = 0
    elapsed: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True)
class Asked:
    """Of the `tasks` that a run was asked for, `done` have ended, and the run ends with them. It has also ended `others` of the queue."""

    done: int
    tasks: int
    others: int = 0


def progress_text(done: int, open_tasks: int, pace: Pace, asked: Asked | None = None) -> str:
    """Say how many of all tasks are done, how fast they were merged, and how long the open ones will take at this pace.

    `done` are the tasks that this run has ended, and `open_tasks` those that wait or are being merged, also those that were planned since
    the run began. With `asked` the time left is that of the tasks which the run was asked for. Before the first second is over, nothing is
    said about speed.
    """
    if asked is None:
        text = f"{done:,} of {count_text(done + open_tasks, 'task')} so far"
    else:
        own_open = asked.tasks - asked.done
        text = f"{asked.done:,} of {count_text(asked.tasks, 'task')} of this run"
        others_open = max(0, open_tasks - own_open)
        text += f" ({asked.others:,} of others done, {others_open:,} open)" if asked.others or others_open else ""
        open_tasks = own_open
    if pace.elapsed < _SOON:
        return text
    seconds = pace.elapsed.total_seconds()
    if pace.merged_bytes:
        text += f", {bytes_text(round(pace.merged_bytes / seconds))}/s"
    if pace.tasks and open_tasks:
        left = timedelta(seconds=round(seconds / pace.tasks * open_tasks))
        text += f", about {duration_text(max(left, _SOON))} of merging left"
    return text


def ended_text(done: int, failed: int) -> str:
    """Say that all tasks of a run have ended: `done` tasks, `failed` of them without success."""
    tasks = count_text(done, "task")
    return f"all {tasks} ended, {failed:,} failed" if failed else f"all {tasks} merged"
