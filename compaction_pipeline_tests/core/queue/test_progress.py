"""The progress of a run says what is done, how fast, and how long the rest will take."""

from __future__ import annotations

from datetime import timedelta

import pytest

from compaction_pipeline.core.queue.progress import progress_text


@pytest.mark.parametrize(
    ("done", "open_tasks", "merged_bytes", "seconds", "text"),
    [
        (0, 12, 0, 0, "0 of 12 tasks"),
        (1, 0, 5_000_000, 0.5, "1 of 1 task"),
        (12, 28, 850_000_000, 10, "12 of 40 tasks, 85.0 MB/s, about 23 s left"),
        (40, 0, 850_000_000, 10, "40 of 40 tasks, 85.0 MB/s"),
        (0, 3, 0, 20, "0 of 3 tasks"),
        (2, 4, 0, 20, "2 of 6 tasks, about 40 s left"),
        (1000, 1, 10**9, 100, "1,000 of 1001 tasks, 10.0 MB/s, about 1 s left"),
    ],
)
def test_progress_in_words(done: int, open_tasks: int, merged_bytes: int, seconds: float, text: str) -> None:
    assert progress_text(done, open_tasks, merged_bytes, timedelta(seconds=seconds)) == text
