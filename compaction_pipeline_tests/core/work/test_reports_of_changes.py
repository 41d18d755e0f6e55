"""Which reports about a merge of changes into a base store are believed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from compaction_pipeline.core.queue.task import CompactionTask
from compaction_pipeline.core.tables.columns import PATH_ID
from compaction_pipeline.core.tables.data_file import FileContent, OutputFile
from compaction_pipeline.core.tables.table import TableLayout
from compaction_pipeline.core.work.kinds import CompactionType, TaskAction
from compaction_pipeline.core.work.result import Digest, MergeResult
from compaction_pipeline.core.work.work import ChangeSpan
from compaction_pipeline_tests import builders
from compaction_pipeline_tests.works import report_problem, task_work

FIELDS = '{"fields": [{"id": 1, "name": "dt", "type": "string", "required": false}]}'
SPEC = '{"spec-id": 0, "fields": [{"name": "dt", "transform": "identity", "source-id": 1, "field-id": 1000}]}'
LAYOUT = TableLayout("s3://lake/db/t", 2, 0, {0: FIELDS}, 0, {0: SPEC}, 0, {0: "{}"}, frozenset(), {})
FOLDER = "s3://lake/db/t/data/dt=1"
STAYS = "1-B-4-00000-0-old-00001.parquet"
SPAN = ChangeSpan((builders.data("ins", rows=10),), (builders.data("del", rows=5),), 3, 7, 1, marked=(STAYS,))


def task(span: ChangeSpan | None = SPAN, action: TaskAction = TaskAction.TO_BASE) -> CompactionTask:
    inputs = (builders.data("goes", rows=100), builders.data(STAYS, rows=50))
    work = task_work(builders.node(), CompactionType.MAJOR, action, inputs, (), 0, 10**6, 10**5, changes=span)
    return builders.task("t1", work=work, attempt_id="a1")


def output(kind: FileContent, rows: int, about: str | None = None) -> OutputFile:
    short = "B" if kind is FileContent.DATA else "PD"
    path = f"{FOLDER}/1-{short}-7-00000-0-a1-t1-0123abcd-00001.parquet"
    bounds = {} if about is None else {PATH_ID: about.encode().hex()}
    return OutputFile(path, kind, 0, builders.partition(), 100, rows, lower_bounds=bounds, upper_bounds=bounds, referenced_data_file=about)


DATA, POSITIONS = output(FileContent.DATA, 105), output(FileContent.POSITION_DELETES, 2, STAYS)


def report(*outputs: OutputFile, read: int = 160, written: int = 105) -> MergeResult:
    """Two of the rows that stay die by position, and the other 48 live on in their file."""
    digest = Digest(written, 1, 2)
    return MergeResult("t1", "a1", outputs, read, 0, read - written - 48, written, digest, digest, rows_kept=48)


def test_data_files_and_positions_of_marked_files_are_believed() -> None:
    assert report_problem(task(), report(DATA, POSITIONS), LAYOUT) is None
    # Some inserts are of other nodes or of later transactions.
    for read in (150, 160):
        assert report_problem(task(), report(replace(DATA, record_count=90), POSITIONS, read=read, written=90), LAYOUT) is None


@pytest.mark.parametrize(
    ("told", "says"),
    [
        (report(DATA, POSITIONS, read=149, written=99), "149 rows were read"),
        (report(DATA, POSITIONS, read=161), "161 rows were read"),
        (report(DATA, POSITIONS, written=106), "its files hold 105 rows"),
        (report(DATA, replace(POSITIONS, referenced_data_file="goes")), "which the task does not keep"),
        (report(DATA, replace(POSITIONS, record_count=51)), "51 positions of a data file of fewer rows"),
        (
            report(DATA, POSITIONS, replace(POSITIONS, path=POSITIONS.path.replace("00001.", "00002."))),
            "two of its files hold positions of one data file",
        ),
        (report(replace(DATA, content=FileContent.EQUALITY_DELETES), written=0), "holds positions of None, which the task does not keep"),
        (report(replace(DATA, spec_id=1), POSITIONS), "of spec 1, not the task's"),
        (report(DATA, replace(POSITIONS, spec_id=1)), "of spec 1, not the task's"),
        (report(replace(DATA, path=f"{FOLDER}/1-B-7-00000-0-x.parquet"), POSITIONS), "is not one that this attempt"),
        (report(replace(DATA, path=DATA.path.replace("-7-", "-8-")), POSITIONS), "tells transaction 8"),
    ],
)
def test_what_cannot_be_true_is_not_believed(told: MergeResult, says: str) -> None:
    problem = report_problem(task(), told, LAYOUT)
    assert problem is not None
    assert says in problem


def test_rows_deleted_by_changes_need_deletes_among_the_changes() -> None:
    assert "no equality delete" in str(report_problem(task(replace(SPAN, deletes=())), report(DATA, POSITIONS), LAYOUT))


def test_a_merge_without_changes_writes_no_positions() -> None:
    problem = report_problem(task(None, TaskAction.MERGE), report(DATA, POSITIONS, read=150), LAYOUT)
    assert problem is not None
