"""Types of ids, so that one kind is never passed for another."""

from __future__ import annotations

from typing import NewType

TaskId = NewType("TaskId", str)
"""Of a CompactionTask; unique in the state database."""
AttemptId = NewType("AttemptId", str)
"""Of one attempt of a task; part of the names of the files that the attempt writes, and never used twice."""
RecordId = NewType("RecordId", str)
"""Of a CompactionRecord; part of the names of the metadata files of its commit, and in the summary of its snapshots."""
