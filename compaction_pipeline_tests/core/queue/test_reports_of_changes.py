"""Which reports about a merge of changes into a base store are believed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from compaction_pipeline.core.queue.report import report_problem
from compaction_pipeline.core.queue.task import ChangeSpan, CompactionTask, CompactionType, Digest, MergeResult, TaskAction, TaskWork
from compaction_pipeline.core.tables.data_file import FileContent, OutputFile
from compaction_pipeline_tests import builders

FOLDER = "s3://lake/db/t/data"
SPAN = ChangeSpan((builders.data("ins", rows=10),), (builders.data("del", rows=5),), 3, 7, 1, marked=("stays",))


def task(span: ChangeSpan | None = SPAN, action: TaskAction = TaskAction.TO_BASE) -> CompactionTask:
    inputs = (builders.data("goes", rows=100), builders.data("stays", rows=50))
    work = TaskWork(builders.node(), CompactionType.MAJOR, action, inputs, (), 0, 10**6, 10**5, changes=span)
    return builders.task("t1", work=work, attempt_id="a1")


def output(kind: FileContent, rows: int, about: str | None = None) -> OutputFile:
    path = f"{FOLDER}/1-{kind.value}-7-00000-0-t1-a1.parquet"
    return OutputFile(path, kind, 0, builders.partition(), 100, rows, referenced_data_file=about)


DATA, POSITIONS = output(FileContent.DATA, 105), output(FileContent.POSITION_DELETES, 2, "stays")


def report(*outputs: OutputFile, read: int = 160, written: int = 105) -> MergeResult:
    """Two of the rows that stay die by position, and the other 48 live on in their file."""
    digest = Digest(written, 1, 2)
    return MergeResult("t1", "a1", outputs, read, 0, read - written - 48, written, digest, digest, rows_kept=48)


def test_data_files_and_positions_of_marked_files_are_believed() -> None:
    assert report_problem(task(), report(DATA, POSITIONS), FOLDER) is None
    # Some inserts are of other nodes or of later transactions.
    for read in (150, 160):
        assert report_problem(task(), report(replace(DATA, record_count=90), POSITIONS, read=read, written=90), FOLDER) is None


@pytest.mark.parametrize(
    ("told", "says"),
    [
        (report(DATA, POSITIONS, read=149, written=99), "149 rows were read"),
        (report(DATA, POSITIONS, read=161), "161 rows were read"),
        (report(DATA, POSITIONS, written=106), "its files hold 105 rows"),
        (report(DATA, replace(POSITIONS, referenced_data_file="goes")), "which the task does not keep"),
        (report(DATA, replace(POSITIONS, record_count=51)), "51 positions of a data file of fewer rows"),
        (report(DATA, POSITIONS, replace(POSITIONS, path=f"{POSITIONS.path}-t1-a1")), "two of its files hold positions of one data file"),
        (report(replace(DATA, content=FileContent.EQUALITY_DELETES), written=0), "holds positions of None, which the task does not keep"),
        (report(replace(DATA, spec_id=1), POSITIONS), "partition spec 1"),
        (report(DATA, replace(POSITIONS, spec_id=1)), "partition spec 1"),
        (report(replace(DATA, path="s3://lake/db/t/data/1-B-7-00000-0-x.parquet")), "does not hold the ids of the task"),
    ],
)
def test_what_cannot_be_true_is_not_believed(told: MergeResult, says: str) -> None:
    problem = report_problem(task(), told, FOLDER)
    assert problem is not None
    assert says in problem


def test_rows_deleted_by_changes_need_deletes_among_the_changes() -> None:
    assert "no equality delete" in str(report_problem(task(replace(SPAN, deletes=())), report(DATA, POSITIONS), FOLDER))


def test_a_merge_without_changes_writes_no_positions() -> None:
    problem = report_problem(task(None, TaskAction.MERGE), report(DATA, POSITIONS, read=150), FOLDER)
    assert problem is not None
