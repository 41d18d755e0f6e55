"""Judges the report of a merge: by its rules alone, then by the footers of its files."""

from __future__ import annotations

from collections.abc import Mapping

from compaction_pipeline.core.errors import MergeRefused
from compaction_pipeline.core.work.merge_input import MergeInput
from compaction_pipeline.core.work.report import metrics_problem, report_problem
from compaction_pipeline.core.work.result import MergeResult
from compaction_pipeline.core.work.work import Work
from compaction_pipeline.merging.reported.describe import describe


def judge(task: MergeInput[Work], result: MergeResult, file_io: Mapping[str, str]) -> MergeResult:
    """Return the result as it may be committed: what the footers of its files tell is read from them.

    `file_io` opens the table's files. A failed result is returned as it is.
    Raises MergeRefused when the report cannot be true, OutputUnusable when a file cannot be used for a reason that may not be the worker's
    fault, and StorageUnavailable when the storage does not answer.
    """
    problem = report_problem(task, result)
    if problem is not None:
        raise MergeRefused(problem)
    described = describe(task, result.told(), file_io)
    problem = metrics_problem(task, described)
    if problem is not None:
        # The footer may hold such bounds: its statistics are the worker's too.
        raise MergeRefused(problem)
    return described
