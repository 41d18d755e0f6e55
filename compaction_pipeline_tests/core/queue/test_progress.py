"""The progress of a run says what is done, how fast, and how long the rest of the merges will take."""

from __future__ import annotations

from datetime import timedelta

import pytest

from compaction_pipeline.core.queue.progress import Pace, ended_text, progress_text


@pytest.mark.parametrize(
    ("done", "open_tasks", "pace", "text"),
    [
        (0, 12, (0, 0, 0), "0 of 12 tasks so far"),
        (1, 0, (1, 5_000_000, 0.5), "1 of 1 task so far"),
        (12, 28, (12, 850_000_000, 10), "12 of 40 tasks so far, 85.0 MB/s, about 23 s of merging left"),
        (40, 0, (40, 850_000_000, 10), "40 of 40 tasks so far, 85.0 MB/s"),
        (0, 3, (0, 0, 20), "0 of 3 tasks so far"),
        (2, 4, (2, 0, 20), "2 of 6 tasks so far, about 40 s of merging left"),
        (1000, 1, (1000, 10**9, 100), "1,000 of 1001 tasks so far, 10.0 MB/s, about 1 s of merging left"),
        (62, 28, (2, 0, 1), "62 of 90 tasks so far, about 14 s of merging left"),
    ],
)
def test_progress_in_words(done: int, open_tasks: int, pace: tuple[int, int, float], text: str) -> None:
    tasks, merged_bytes, seconds = pace
    assert progress_text(done, open_tasks, Pace(tasks, merged_bytes, timedelta(seconds=seconds))) == text


def test_the_end_of_all_tasks_says_whether_any_failed() -> None:
    assert ended_text(1, 0) == "all 1 task merged"
    assert ended_text(40, 2) == "all 40 tasks ended, 2 failed"
