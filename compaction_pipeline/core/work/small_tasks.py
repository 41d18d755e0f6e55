"""Decides which tasks a run merges in its own process, although it could start a Spark of its own for them.

A start of Spark costs more CPU than the merge of a small task. So a run puts it off until it has a task that is not small, or until its
small tasks have taken about as long as a start would. It never spends more than twice what the better choice would have cost.
"""

from __future__ import annotations

from datetime import timedelta

from compaction_pipeline.core.work.work import Work

SMALL_BYTES = 64 * 1024 * 1024
"""A task that reads fewer bytes is small. Its merge takes a second or two, and little memory."""
START = timedelta(seconds=10)
"""About what a start of Spark costs."""


def is_small(work: Work) -> bool:
    """Return whether the data files, change files and delete files that the task reads are few bytes together."""
    return work.input_bytes + sum(file.file_size_bytes for file in work.deletes) < SMALL_BYTES


def starts_spark(work: Work, spent: timedelta) -> bool:
    """Return whether Spark is started for this task. `spent` is how long the merges of small tasks have taken this process so far."""
    return not is_small(work) or spent >= START
