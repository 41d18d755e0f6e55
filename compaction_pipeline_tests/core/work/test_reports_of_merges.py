"""Reports of merges and conversions whose figures agree with each other and with their files, and that cannot be true of the task.

The footers of such files say what the report says. So these rules alone stand between the report and the table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from compaction_pipeline.core.queue.task import CompactionTask
from compaction_pipeline.core.tables.data_file import FileContent, LiveFile, OutputFile
from compaction_pipeline.core.tables.table import TableLayout
from compaction_pipeline.core.work.kinds import CompactionType, TaskAction
from compaction_pipeline.core.work.result import Digest, MergeResult
from compaction_pipeline_tests import builders
from compaction_pipeline_tests.works import report_problem, task_work

FIELDS = '{"fields": [{"id": 1, "name": "dt", "type": "string", "required": false}]}'
SPEC = '{"spec-id": 0, "fields": [{"name": "dt", "transform": "identity", "source-id": 1, "field-id": 1000}]}'
OTHER_SPEC = SPEC.replace('"spec-id": 0', '"spec-id": 1').replace('"name": "dt"', '"name": "day"')
SPECS = {0: SPEC, 1: OTHER_SPEC}
LAYOUT = TableLayout("s3://lake/db/t", 2, 0, {0: FIELDS}, 0, SPECS, 0, {0: "{}", 1: "{}"}, frozenset(), {})
FOLDER = "s3://lake/db/t/data/dt=1"
INPUTS = (builders.data("one", rows=100), builders.data("two", rows=50))
Lie = Callable[[MergeResult], MergeResult]


def task(action: TaskAction = TaskAction.MERGE, deletes: tuple[LiveFile, ...] = (), output_spec_id: int = 0) -> CompactionTask:
    work = task_work(builders.node(), CompactionType.MINOR, action, INPUTS, deletes, output_spec_id, 10**6, 10**5)
    return builders.task("t1", work=work, attempt_id="a1")


def output(number: int, rows: int, about: str | None = None) -> OutputFile:
    kind, end = (FileContent.DATA, "") if about is None else (FileContent.POSITION_DELETES, "-deletes")
    path = f"{FOLDER}/a1-t1-0123abcd-{number:05}{end}.parquet"
    return OutputFile(path, kind, 0, builders.partition(), 100, rows, referenced_data_file=about)


def report(*outputs: OutputFile, read: int = 150, by_position: int = 0, **figures: int) -> MergeResult:
    """All figures say the same of what was written."""
    written = sum(each.record_count for each in outputs)
    digest = Digest(written, 1, 2)
    return replace(MergeResult("t1", "a1", outputs, read, by_position, 0, written, digest, digest), **figures)


def test_all_rows_of_the_inputs_are_believed() -> None:
    assert report_problem(task(), report(output(1, 150)), LAYOUT) is None
    assert report_problem(task(), report(output(1, 100), output(2, 50)), LAYOUT) is None


@pytest.mark.parametrize(
    ("told", "says"),
    [
        (report(output(1, 149)), "150 must be written, but 149 were"),
        (report(output(1, 151)), "150 must be written, but 151 were"),
        (report(output(1, 149), read=149), "149 rows were read, but the data files of the task hold 150"),
        (report(output(1, 151), read=151), "151 rows were read, but the data files of the task hold 150"),
        (report(output(1, 149), rows_kept=1), "1 rows stay in their files, but the files that stay hold 0"),
        (report(output(1, 151), by_position=-1), "a count of rows is negative"),
        (report(output(1, 149), by_position=1), "1 rows were deleted by position, but the task's position deletes name 0"),
        (report(output(1, 149), rows_deleted_by_equality=1), "the task has no equality delete"),
        (report(output(1, 75), output(1, 75)), "names a file twice"),
        (report(output(1, 150), output(2, 0)), "and 0 rows"),
        (report(output(1, 151), output(2, -1)), "and -1 rows"),
        (replace(report(output(1, 150)), digest_read=Digest(5, 1, 2), digest_written=Digest(5, 1, 2)), "the proof counts 5"),
        (report(replace(output(1, 150), sort_order_id=7)), "by which this task does not sort it"),
        (report(replace(output(1, 150, "one"), content=FileContent.EQUALITY_DELETES)), "this task writes DATA"),
        (report(replace(output(1, 150), referenced_data_file="one")), "holds rows, but is said to hold positions"),
    ],
)
def test_figures_that_agree_and_lose_or_double_rows_are_refused(told: MergeResult, says: str) -> None:
    assert says in str(report_problem(task(), told, LAYOUT))


def test_more_rows_may_not_die_by_position_than_positions_exist() -> None:
    deletes = (builders.position("positions", rows=3),)
    assert report_problem(task(deletes=deletes), report(output(1, 147), by_position=3), LAYOUT) is None
    assert "name 3" in str(report_problem(task(deletes=deletes), report(output(1, 146), by_position=4), LAYOUT))


ONE, TWO = output(1, 3, "one"), output(2, 2, "two")


def test_one_file_of_positions_for_each_data_file_is_believed() -> None:
    assert report_problem(task(TaskAction.CONVERT), report(ONE, TWO), LAYOUT) is not None, "the task has no delete"
    deletes = (builders.position("positions", rows=5),)
    assert report_problem(task(TaskAction.CONVERT, deletes), report(ONE, TWO, by_position=5), LAYOUT) is None


@pytest.mark.parametrize(
    ("told", "says"),
    [
        (report(ONE, replace(TWO, referenced_data_file="one"), by_position=5), "two of its files hold positions of one data file"),
        (report(ONE, replace(TWO, referenced_data_file="three"), by_position=5), "which the task does not keep"),
        (report(output(1, 101, "one"), by_position=101), "101 positions of a data file of fewer rows"),
        (report(ONE, by_position=5), "5 must be written, but 3 were"),
        (report(ONE, replace(TWO, sort_order_id=0), by_position=5), "by which this task does not sort it"),
        (report(ONE, replace(TWO, content=FileContent.DATA), by_position=5), "this task writes POSITION_DELETES"),
    ],
)
def test_positions_that_no_conversion_writes_are_refused(told: MergeResult, says: str) -> None:
    deletes = (builders.position("positions", rows=200),)
    assert says in str(report_problem(task(TaskAction.CONVERT, deletes), told, LAYOUT))


def test_only_rows_tell_where_they_go_in_another_spec() -> None:
    """But the file is of that spec, and has a value for each of its fields."""
    [value] = builders.partition()
    there = replace(output(1, 150), spec_id=1, partition=(replace(value, name="day"),), path=output(1, 150).path.replace("/dt=", "/day="))
    routed = task(output_spec_id=1)
    assert report_problem(routed, report(there), LAYOUT) is None
    for false in (replace(there, spec_id=0), replace(there, partition=()), replace(there, partition=builders.partition())):
        assert "not the task's" in str(report_problem(routed, report(false), LAYOUT))
    assert "not the task's" in str(report_problem(task(), report(there), LAYOUT))
