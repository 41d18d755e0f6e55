"""The report of a worker that merged changes into a base store is believed when it is true, and not when it cannot be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from compaction_pipeline.core.queue.task import CompactionTask
from compaction_pipeline.core.tables.data_file import FileContent, OutputFile
from compaction_pipeline.core.tables.keyed.tree import ROOT
from compaction_pipeline.core.tables.table import TableLayout
from compaction_pipeline.core.work.result import MergeResult
from compaction_pipeline_tests.keyed.base_merges import Choices, layout_of_table, run, task_of
from compaction_pipeline_tests.keyed.change_logs import ChangeLog, row
from compaction_pipeline_tests.works import report_problem


def merged(tmp_path: Path) -> tuple[CompactionTask, MergeResult, TableLayout]:
    """A task with a file that stays, its true report, and the layout of its table."""
    log = ChangeLog(tmp_path)
    large, small = log.base_rows(1, 0, [row(1), row(2), row(3)]), log.base_rows(1, 0, [row(4), row(5)])
    log.commit_base(large, small)
    sequence = log.commit(log.changes(1, "I", 0, [(row(6), 1)]), log.changes(1, "ED", 0, [(row(1), 2), (row(4), 3)]))
    log.commit(log.changes(1, "I", 0, [(row(7), 1)]))
    task = task_of(log, sequence, ROOT, (), Choices(marked=[large.path]))
    return task, run(log, task), layout_of_table(log)


def test_the_report_of_a_merge_is_believed(tmp_path: Path) -> None:
    task, result, layout = merged(tmp_path)
    assert (result.rows_read, result.rows_kept, result.rows_written, result.rows_deleted_by_equality) == (6, 2, 2, 2)
    assert report_problem(task, result, layout) is None


def _renamed(true: MergeResult) -> OutputFile:
    return replace(_positions(true), path=_positions(true).path[: -len("00001.parquet")] + "00099.parquet")


def _named(before: str, after: str, kind: FileContent) -> Callable[[MergeResult], MergeResult]:
    """The report in which the names of these files have another part. The names of base files decide which changes reach their rows."""

    def lie(true: MergeResult) -> MergeResult:
        outputs = [
            replace(each, path="/".join((folder, name.replace(before, after, 1)))) if each.content is kind else each
            for each in true.outputs
            for folder, _, name in [each.path.rpartition("/")]
        ]
        assert tuple(outputs) != true.outputs
        return replace(true, outputs=tuple(outputs))

    return lie


def _positions(result: MergeResult) -> OutputFile:
    return next(output for output in result.outputs if output.content is FileContent.POSITION_DELETES)


LIES: list[tuple[str, Callable[[MergeResult], MergeResult]]] = [
    ("8 rows were read, but the data files of the task hold 5 to 7", lambda true: replace(true, rows_read=8, rows_written=4)),
    ("4 rows stay in their files, but the files that stay hold 3", lambda true: replace(true, rows_kept=4, rows_written=0)),
    ("a count of rows is negative", lambda true: replace(true, rows_kept=-1)),
    ("2 must be written, but 1 were", lambda true: replace(true, rows_written=1)),
    ("two of its files hold positions of one data file", lambda true: replace(true, outputs=(*true.outputs, _renamed(true)))),
    ("which the task does not keep", lambda true: _with(true, replace(_positions(true), referenced_data_file=true.outputs[0].path))),
    ("positions of a data file of fewer rows", lambda true: _with(true, replace(_positions(true), record_count=4))),
    ("its files hold 1 rows, but 2 were written", lambda true: replace(true, outputs=(*true.outputs[1:],))),
    ("holds EQUALITY_DELETES, but this task writes DATA and POSITION_DELETES",
     lambda true: _with(true, replace(_positions(true), content=FileContent.EQUALITY_DELETES))),
    ("tells transaction 9, but rows of the task come after 0 to 1", _named("4-B-1-", "4-B-9-", FileContent.DATA)),
    ("tree node 0", _named("4-B-1-", "0-B-1-", FileContent.DATA)),
    ("is not one that this attempt", _named("4-B-1-", "4-I-1-", FileContent.DATA)),
    ("is not one that this attempt", _named("4-B-1-00000-", "4-B-1-00001-", FileContent.DATA)),
    ("tells another node than", _named("1-PD-1-", "2-PD-1-", FileContent.POSITION_DELETES)),
    ("the folder of its partition", lambda true: _with(true, replace(_positions(true), path="/" + _positions(true).path))),
    ("by which this task does not sort it", lambda true: _with(true, replace(_positions(true), sort_order_id=0))),
]  # fmt: skip


def _with(true: MergeResult, positions: OutputFile) -> MergeResult:
    return replace(true, outputs=(*(each for each in true.outputs if each.content is FileContent.DATA), positions))


@pytest.mark.parametrize(("problem", "lie"), LIES, ids=[problem for problem, _ in LIES])
def test_a_report_that_cannot_be_true_is_not_believed(problem: str, lie: Callable[[MergeResult], MergeResult], tmp_path: Path) -> None:
    task, result, layout = merged(tmp_path)
    assert problem in str(report_problem(task, lie(result), layout))
