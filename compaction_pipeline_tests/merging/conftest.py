"""Two laws of all tests of the kernel. The report of each merge that succeeds is believed (`merging/reported/`). What the footers of its
files tell is exactly what the kernel itself says of them.

A rule about reports that refuses what the kernel writes would stop all compaction of the tables that it concerns.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from compaction_pipeline.core.queue.task import CompactionTask, MergeResult
from compaction_pipeline.core.tables.table import TableLayout
from compaction_pipeline.merging import kernel
from compaction_pipeline.merging.reading.file_access import FileAccess
from compaction_pipeline.merging.reported.judge import judge


def without_versions(result: MergeResult) -> MergeResult:
    """The result without what only the storage tells."""
    return replace(result, outputs=tuple(replace(output, version=None) for output in result.outputs))


@pytest.fixture(autouse=True)
def every_honest_report_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at the result of each merge."""
    merged = kernel._merged

    def judged(task: CompactionTask, layout: TableLayout, files: FileAccess, *others: Any) -> MergeResult:
        # Tests of the kernel alone leave the attempt away.
        held = task if task.attempt_id is not None else replace(task, attempt_id="attempt")
        result = merged(held, layout, files, *others)
        if result.error is None:
            judged_result = judge(held, result.told(), layout, files.properties)
            assert without_versions(judged_result) == result
        return result if held is task else replace(result, attempt_id=task.current_attempt_id)

    monkeypatch.setattr(kernel, "_merged", judged)
