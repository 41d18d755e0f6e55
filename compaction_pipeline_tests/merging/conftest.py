"""A law of all tests of the kernel: the report of each merge that succeeds is believed (`core.queue.report`).

A rule about reports that refuses what the kernel writes would stop all compaction of the tables that it concerns.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from compaction_pipeline.core.queue.report import report_problem
from compaction_pipeline.core.queue.task import CompactionTask, MergeResult
from compaction_pipeline.core.tables.table import TableLayout
from compaction_pipeline.merging import kernel


@pytest.fixture(autouse=True)
def every_honest_report_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at the result of each merge."""
    merged = kernel._merged

    def judged(task: CompactionTask, layout: TableLayout, *others: Any) -> MergeResult:
        # Tests of the kernel alone leave the attempt away.
        held = task if task.attempt_id is not None else replace(task, attempt_id="attempt")
        result = merged(held, layout, *others)
        if result.error is None:
            problem = report_problem(held, result, layout)
            assert problem is None, problem
        return result if held is task else replace(result, attempt_id=task.current_attempt_id)

    monkeypatch.setattr(kernel, "_merged", judged)
