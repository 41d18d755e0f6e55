"""Lies that only the rows show, told to a server that compares them (`verify-outputs` = `rows`).

The liar writes files that are right in themselves, with footers that are true of them, and reports them truly. The rows are not those that
the task must write.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pydantic import TypeAdapter
from pyiceberg.typedef import Record

from compaction_pipeline.core.queue.group import VERIFY_OUTPUTS
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.work.ends import EndReason
from compaction_pipeline.core.work.result import MergeResult
from compaction_pipeline.formats.parquet.footer import INT64
from compaction_pipeline.formats.parquet.footer_metadata import _Statistics
from compaction_pipeline.merging.reading.evolution import arrow_schema
from compaction_pipeline.merging.writing.metrics import footer_bytes
from compaction_pipeline.merging.writing.parquet_options import ParquetOptions, parquet_writer
from compaction_pipeline_tests.api.liars import (
    PRICE,
    REGION,
    ROWS,
    SCHEMA,
    OverHttp,
    OwnProcess,
    Report,
    all_deleted,
    check_rows,
    clean_up,
    commit,
    in_map,
    merged,
    plan,
)
from compaction_pipeline_tests.api.served import Served
from compaction_pipeline_tests.api.tampered import ONLY_PAGES_SHOW, rewritten, tampered
from compaction_pipeline_tests.iceberg.lake import LakeTable
from compaction_pipeline_tests.works import judge, verify_rows

Rows = Callable[[Any], Any]


def written_anew(report: Report, change: Rows, *, reported: bool = True) -> Report:
    """Put other rows into the first file of a report, by the writer that honest workers use."""
    [output] = report["outputs"]
    path = Path(output["path"].removeprefix("file://"))
    rows, footers = change(pq.read_table(path).cast(arrow_schema(SCHEMA.fields))), list[Any]()
    with path.open("wb") as stream:
        writer = parquet_writer(stream, arrow_schema(SCHEMA.fields), ParquetOptions.of({}), [], footers)
        writer.write_table(rows)
        writer.close()
    output.update(file_size_bytes=path.stat().st_size, footer_bytes=footer_bytes(footers[0]))
    if reported:
        output.update(record_count=rows.num_rows)
    return report


def column(name: str, change: Rows) -> Rows:
    """The rows with another column."""
    return lambda rows: rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), change(rows[name]))


ROW_LIES: Mapping[str, Rows] = {
    "a number changed": column("id", lambda ids: pc.if_else(pc.equal(ids, 3), 4, ids)),
    "a text changed": column("name", lambda names: pc.if_else(pc.equal(names, "n3"), "n4", names)),
    "a NULL more": column("name", lambda names: pc.if_else(pc.equal(names, "n3"), pa.scalar(None, pa.string()), names)),
    "a NULL filled": column("count", lambda counts: pc.fill_null(counts, 7)),
    "0.0 for another number": column("price", lambda prices: pc.if_else(pc.equal(prices, 0.5), 0.0, prices)),
    "NaN for a number": column("price", lambda prices: pc.if_else(pc.equal(prices, 0.5), float("nan"), prices)),
    "a flag turned": column("flag", pc.invert),
    "an element of a list changed": column("tags", lambda tags: pa.array([["y", None]] * len(tags), tags.type)),
    "a list cut": column("tags", lambda tags: pa.array([["x"]] * len(tags), tags.type)),
    "two rows exchanged": lambda rows: rows.take(pa.array([1, 0, *range(2, ROWS)])),
    "one row twice, another gone": lambda rows: rows.take(pa.array([0, 0, *range(2, ROWS)])),
    "values exchanged between two rows": column("name", lambda names: names.take(pa.array([1, 0, *range(2, ROWS)]))),
    "another partition value": column("region", lambda regions: pa.array(["x"] * len(regions), pa.string())),
    "the highest bit of a number turned": lambda rows: rows.set_column(
        0, rows.schema.field(0), pa.array([number ^ -(2**63) for number in rows["id"].to_pylist()], pa.int64())
    ),
}


@pytest.fixture
def strict(served: Served, table: LakeTable) -> Served:
    """A server whose default group has rows compared."""
    groups = served.house.services.stores.groups
    [group] = groups.groups()
    groups.change(replace(group, properties={VERIFY_OUTPUTS: "rows"}))
    return served


def told(door: OverHttp, attempt_id: str, report: Report) -> TaskStatus:
    """The status of the task once the rows of the report have been compared. The optimizer asks again meanwhile."""
    for _ in range(600):
        status = door.tell(attempt_id, report)
        assert status is not None
        if status is not TaskStatus.EXECUTING:
            return status
        time.sleep(0.1)
    raise AssertionError("the rows were compared for a minute")


def test_every_lie_about_rows_is_seen(served: Served, table: LakeTable) -> None:
    """Without the process around it, which takes a second for each."""
    taken = OwnProcess(served).take()

    def problem(report: Report) -> str | None:
        result = TypeAdapter(MergeResult).validate_python(report)
        return verify_rows(taken.task, judge(taken.task, result, taken.layout, taken.file_io), taken.layout, taken.file_io)

    assert problem(merged(taken)) is None
    assert problem(written_anew(merged(taken), lambda rows: rows)) is None
    for name, lie in ROW_LIES.items():
        assert problem(written_anew(merged(taken), lie)) is not None, name
    for name, footer in ONLY_PAGES_SHOW.items():
        assert problem(rewritten(merged(taken), tampered(footer))) is not None, name
    nans, order = merged(taken), merged(taken)
    in_map("nan_value_counts", PRICE, 1)(nans)
    assert "another number of NaNs in column 3" in str(problem(nans))
    order["outputs"][0]["sort_order_id"] = 0
    assert "are said to be sorted by {0}" in str(problem(order))


def test_a_false_page_is_seen(served: Served, table: LakeTable) -> None:
    """The footer is true, and its pages are not."""
    taken = OwnProcess(served).take()
    report = merged(taken)
    path = Path(report["outputs"][0]["path"].removeprefix("file://"))
    data = bytearray(path.read_bytes())
    data[40:60] = b"\xff" * 20
    path.write_bytes(data)
    result = judge(taken.task, TypeAdapter(MergeResult).validate_python(report), taken.layout, taken.file_io)
    assert verify_rows(taken.task, result, taken.layout, taken.file_io) is not None


def test_a_server_that_compares_rows_refuses_a_lie_and_takes_the_truth(strict: Served, table: LakeTable) -> None:
    door = OverHttp(strict)
    taken = door.take()
    assert told(door, taken.attempt_id, written_anew(merged(taken), ROW_LIES["a number changed"])) is TaskStatus.PENDING
    [attempt] = strict.house.services.stores.tasks.attempts(taken.task.task_id)
    assert attempt.end_reason is EndReason.REPORT_REFUSED
    assert "its rows are not those of the task" in (attempt.reason or "")
    assert "column 'id'" in (attempt.reason or "")
    assert door.worker.touch()["drain"]
    door = OverHttp(strict)
    taken = door.take()
    report = merged(taken)
    assert told(door, taken.attempt_id, report) is TaskStatus.PREPARED
    assert door.tell(taken.attempt_id, report) is TaskStatus.PREPARED
    assert commit(strict) == ["COMMITTED"]
    clean_up(strict)
    check_rows(table)


def test_what_was_found_out_of_one_report_does_not_hold_for_another(strict: Served, table: LakeTable) -> None:
    """A liar first reports the truth. While its rows are compared, the same attempt reports something else."""
    asked, goes_on = list[MergeResult](), Event()
    reports = strict.house.services.serve_tasks._reports

    def compared(task: object, result: MergeResult, *others: object) -> None:
        asked.append(result)
        assert goes_on.wait(30)

    reports._verify = compared
    door = OverHttp(strict)
    taken = door.take()
    report = merged(taken)
    assert door.worker.complete(taken.attempt_id, report).json() == {"status": "EXECUTING"}
    false = {**report, "digest_read": {**report["digest_read"], "sum_a": 1}, "digest_written": {**report["digest_written"], "sum_a": 1}}
    answer = door.worker.complete(taken.attempt_id, false)
    assert (answer.status_code, "reported something else before" in answer.json()["detail"]) == (409, True)
    # The same report about a file that was written anew meanwhile is compared anew.
    path = Path(report["outputs"][0]["path"].removeprefix("file://"))
    os.utime(path, ns=(1, 1))
    assert door.worker.complete(taken.attempt_id, report).json() == {"status": "EXECUTING"}
    goes_on.set()
    assert told(door, taken.attempt_id, report) is TaskStatus.PREPARED
    assert asked[-1].outputs[0].version == "1 ns"
    stored = strict.house.services.stores.tasks.task(taken.task.task_id).result
    assert stored == asked[-1]


def test_rows_that_count_as_deleted_by_equality_are_not_believed(served: Served, table: LakeTable) -> None:
    """By the footers alone, one report would empty this table."""
    table.delete_ids(0, partition=Record(REGION))
    waiting = [task.task_id for task in served.house.services.stores.tasks.tasks()]
    served.house.services.stores.tasks.cancel(waiting, EndReason.GIVEN_UP, "the table changed", served.house.now)
    plan(served, table)
    taken = OwnProcess(served).take()
    assert taken.task.work.deletes
    report = merged(taken)
    all_deleted("rows_deleted_by_equality")(report)
    result = TypeAdapter(MergeResult).validate_python(report)
    believed = judge(taken.task, result, taken.layout, taken.file_io)
    problem = verify_rows(taken.task, believed, taken.layout, taken.file_io)
    assert problem == "rows_deleted_by_equality is 12, but the same merge gives 1"


def test_a_worker_of_this_program_waits_for_the_comparison(strict: Served, table: LakeTable) -> None:
    door = OwnProcess(strict)
    taken = door.take()
    assert door.tell(taken.attempt_id, written_anew(merged(taken), ROW_LIES["two rows exchanged"])) is TaskStatus.PENDING
    taken = door.take()
    assert door.tell(taken.attempt_id, merged(taken)) is TaskStatus.PREPARED


def test_what_cannot_be_compared_blames_nobody(strict: Served, table: LakeTable) -> None:
    door = OverHttp(strict)
    taken = door.take()
    report = merged(taken)
    inputs = [Path(file.path.removeprefix("file://")) for file in taken.task.work.inputs]
    hidden = inputs[0].with_name("hidden")
    inputs[0].rename(hidden)
    assert told(door, taken.attempt_id, report) is TaskStatus.PENDING
    hidden.rename(inputs[0])
    [attempt] = strict.house.services.stores.tasks.attempts(taken.task.task_id)
    assert attempt.end_reason is EndReason.FAILED
    assert "could not be compared" in (attempt.reason or "")
    assert not door.worker.touch()["drain"]
    check_rows(table)


def test_the_statistics_that_the_manifest_tells_are_compared_too(served: Served, table: LakeTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyArrow passes over what it does not know in a footer. If we did not, only the manifest would tell it."""
    taken = OwnProcess(served).take()
    result = TypeAdapter(MergeResult).validate_python(merged(taken))
    believed = judge(taken.task, result, taken.layout, taken.file_io)
    assert verify_rows(taken.task, believed, taken.layout, taken.file_io) is None
    # Ids in the table begin with 0.
    monkeypatch.setattr(_Statistics, "min_raw", property(lambda self: 5 if self.physical == INT64 else self._raw(6)))
    assert "row group 0" in str(verify_rows(taken.task, believed, taken.layout, taken.file_io))


def test_nans_are_counted_where_the_table_keeps_no_metrics(served: Served, table: LakeTable) -> None:
    """A sort column has bounds all the same, and the number of its NaNs decides about them."""
    taken = OwnProcess(served).take()
    layout = replace(taken.layout, properties={**taken.layout.properties, "write.metadata.metrics.default": "none"})
    report = merged(taken)
    believed = judge(taken.task, TypeAdapter(MergeResult).validate_python(report), layout, taken.file_io)
    output = replace(believed.outputs[0], nan_value_counts={PRICE: 1})
    assert "another number of NaNs in column 3" in str(verify_rows(taken.task, replace(believed, outputs=(output,)), layout, taken.file_io))


@pytest.mark.parametrize("other", [lambda path: os.utime(path, ns=(1, 1)), lambda path: (path.unlink(), os.mkfifo(path))])
def test_a_file_that_is_replaced_before_its_rows_are_read_is_not_read(
    served: Served, table: LakeTable, other: Callable[[Path], object]
) -> None:
    """To open a pipe would wait for ever, and one report is compared at a time."""
    taken = OwnProcess(served).take()
    report = merged(taken)
    believed = judge(taken.task, TypeAdapter(MergeResult).validate_python(report), taken.layout, taken.file_io)
    other(Path(report["outputs"][0]["path"].removeprefix("file://")))
    problem = str(verify_rows(taken.task, believed, taken.layout, taken.file_io))
    assert "was replaced after it was reported" in problem or "IsADirectoryError" in problem
