"""One type for each kind of id, so that the type checker finds an id of the wrong kind."""

from __future__ import annotations

from typing import NewType

TaskId = NewType("TaskId", str)
"""The id of a CompactionTask; unique in the state database."""
AttemptId = NewType("AttemptId", str)
"""The id of one attempt of a task. It is part of the names of the files that the attempt writes, and is never used twice."""
RecordId = NewType("RecordId", str)
"""The id of a CompactionRecord. The names of its commit's metadata files and the summaries of its snapshots contain it."""
