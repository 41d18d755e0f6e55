"""Judges the report of a merge: by its rules alone, then by the footers of its files."""

from __future__ import annotations

from collections.abc import Mapping

from compaction_pipeline.core.errors import MergeRefused
from compaction_pipeline.core.queue.report import metrics_problem, report_problem
from compaction_pipeline.core.queue.task import CompactionTask
from compaction_pipeline.core.tables.table import TableLayout
from compaction_pipeline.core.work.result import MergeResult
from compaction_pipeline.merging.reported.describe import describe


def judge(task: CompactionTask, result: MergeResult, layout: TableLayout, file_io: Mapping[str, str]) -> MergeResult:
    """Return the result as it may be committed: what the footers of its files tell is read from them.

    `layout` is that of the table (of the base store, for a keyed one), and `file_io` opens its files. A failed result is returned as it is.
    Raises MergeRefused when the report cannot be true, OutputUnusable when a file cannot be used for a reason that may not be the worker's
    fault, and StorageUnavailable when the storage does not answer.
    """
    problem = report_problem(task, result, layout)
    if problem is not None:
        raise MergeRefused(problem)
    described = describe(task, result.told(), layout, file_io)
    problem = metrics_problem(task, described, layout)
    if problem is not None:
        # The footer may hold such bounds: its statistics are the worker's too.
        raise MergeRefused(problem)
    return described
