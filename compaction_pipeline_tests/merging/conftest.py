"""Two laws of all tests of the kernel. The report of each merge that succeeds is believed (`merging/reported/`). What the footers of its
files tell is exactly what the kernel itself says of them. With COMPACTION_TEST_VERIFY_ROWS=1 there is a third law: the rows of each merge
are those of the same merge done again (`verify-outputs` = `rows`). It takes as long again.

A rule about reports that refuses what the kernel writes would stop all compaction of the tables that it concerns.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest

from compaction_pipeline.core.ids import AttemptId
from compaction_pipeline.core.work.merge_input import MergeInput
from compaction_pipeline.core.work.result import MergeResult
from compaction_pipeline.core.work.work import Work
from compaction_pipeline.merging import kernel
from compaction_pipeline.merging.reading.file_access import FileAccess
from compaction_pipeline.merging.reported.judge import judge
from compaction_pipeline.merging.reported.verify import verify_rows


def without_versions(result: MergeResult) -> MergeResult:
    """The result without what only the storage tells."""
    return replace(result, outputs=tuple(replace(output, version=None) for output in result.outputs))


@pytest.fixture(autouse=True)
def every_honest_report_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at the result of each merge."""
    merged = kernel._merged
    verifying: list[MergeInput[Work]] = []

    def judged(task: MergeInput[Work], files: FileAccess, *others: Any) -> MergeResult:
        # Tests of the kernel alone leave the attempt away.
        held = task if task.attempt_id else replace(task, attempt_id=AttemptId("attempt"))
        result = merged(held, files, *others)
        if result.error is None:
            judged_result = judge(held, result.told(), files.properties)
            assert without_versions(judged_result) == result
            if os.environ.get("COMPACTION_TEST_VERIFY_ROWS") and not verifying:
                verifying.append(held)
                problem = verify_rows(held, judged_result, files.properties)
                verifying.clear()
                assert problem is None, problem
        return result if held is task else replace(result, attempt_id=task.attempt_id)

    monkeypatch.setattr(kernel, "_merged", judged)
