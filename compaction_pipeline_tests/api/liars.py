"""A table for liars, the doors through which workers report, and ways to change a report."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pydantic import TypeAdapter
from pyiceberg.expressions import EqualTo, IsNull
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    UUIDType,
)

from compaction_pipeline.core.planning.plan import PlanRequest
from compaction_pipeline.core.queue.assignment import Assignment
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.tables.data_file import NOT_TOLD
from compaction_pipeline.core.work.result import MergeResult
from compaction_pipeline.demo.row_delta import row_delta
from compaction_pipeline.merging.engine import InProcessMergeEngine
from compaction_pipeline_tests.api.served import Served
from compaction_pipeline_tests.iceberg.lake import LakeTable
from compaction_pipeline_tests.through_json import through_json

REGION = "a b/c%20+d=é🙂?#~*"
"""The value of the partition. Its path has most characters that somebody once wrote wrongly."""
ID, NAME, PRICE, DAY, AMOUNT, KEY, RAW, FLAG, COUNT, PLACE, TAG = 1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12
SCHEMA = Schema(
    NestedField(ID, "id", LongType(), required=True),
    NestedField(NAME, "name", StringType()),
    NestedField(PRICE, "price", DoubleType()),
    NestedField(DAY, "day", DateType()),
    NestedField(AMOUNT, "amount", DecimalType(9, 2)),
    NestedField(KEY, "key", UUIDType()),
    NestedField(7, "tags", ListType(TAG, StringType(), element_required=False)),
    NestedField(RAW, "raw", BinaryType()),
    NestedField(FLAG, "flag", BooleanType()),
    NestedField(COUNT, "count", IntegerType()),
    NestedField(PLACE, "region", StringType()),
)
ROWS = 12
Report = dict[str, Any]
Lie = Callable[[Report], object]


def row(number: int) -> Mapping[str, Any]:
    return {
        "id": number,
        "name": f"n{number}",
        "price": number + 0.5,
        "day": date(2026, 1, 1 + number),
        "amount": Decimal(f"{number}.25"),
        "key": UUID(int=number).bytes,
        "tags": ["x", None],
        "raw": bytes([number]),
        "flag": number % 2 == 0,
        "count": None if number % 3 == 0 else number,
        "region": REGION,
    }


# ---- how a lie is told -------------------------------------------------------------------------------------------------


def said(**changes: Any) -> Lie:
    """The report with other values of these fields."""
    return lambda report: report.update(changes)


def of_file(**changes: Any) -> Lie:
    """The report with other values of these fields of its first file."""
    return lambda report: report["outputs"][0].update(changes)


def at(path: Callable[[str], str]) -> Lie:
    """The report with another path of its first file."""
    return lambda report: report["outputs"][0].update(path=path(report["outputs"][0]["path"]))


def in_map(name: str, number: int, value: object) -> Lie:
    """The report in which a map of the first file says something else of one column."""
    return lambda report: report["outputs"][0][name].update({str(number): value})


def with_bounds(number: int, lower: str, upper: str | None = None) -> Lie:
    def lie(report: Report) -> None:
        report["outputs"][0]["lower_bounds"][str(number)] = lower
        report["outputs"][0]["upper_bounds"][str(number)] = lower if upper is None else upper

    return lie


def renamed(change: Callable[[str], str]) -> Lie:
    """The report in which only the last part of the path differs."""
    return at(lambda path: path.rpartition("/")[0] + "/" + change(path.rpartition("/")[2]))


def twice(change: Callable[[str], str]) -> Lie:
    """The report that names its file a second time, under another path, and has its rows twice."""

    def lie(report: Report) -> None:
        other = deepcopy(report["outputs"][0])
        other["path"] = change(other["path"])
        report["outputs"].append(other)

    return lie


def all_deleted(how: str) -> Lie:
    nothing = {"rows": 0, "sum_a": 0, "sum_b": 0}
    return said(outputs=[], rows_written=0, digest_read=nothing, digest_written=nothing, **{how: ROWS})


def fewer(report: Report) -> None:
    """A row less everywhere, so that all sums agree."""
    report["rows_read"] -= 1
    report["rows_written"] -= 1
    report["digest_read"]["rows"] -= 1
    report["digest_written"]["rows"] -= 1
    report["outputs"][0]["record_count"] -= 1


# ---- the doors ---------------------------------------------------------------------------------------------------------


def merged(assignment: Assignment) -> Report:
    """The true report of an attempt, as JSON.

    A later attempt of the same task has the files of the first one, under its own names: a test of many lies merges once. Each such test
    ends with a true report that is believed (`check_that_nobody_was_harmed`).
    """
    task, attempt = assignment.merge_input.task_id, assignment.attempt_id
    if _LAST.get("task") != task:
        [result] = InProcessMergeEngine().merge([assignment.merge_input], assignment.file_io)
        assert result.error is None, result.error
        report = as_report(result)
        _LAST.update(
            task=task, attempt=attempt, report=deepcopy(report), files=[Path(_local(one)).read_bytes() for one in report["outputs"]]
        )
        return report
    report = deepcopy(_LAST["report"])
    report["attempt_id"] = attempt
    for output, content in zip(report["outputs"], _LAST["files"], strict=True):
        output["path"] = output["path"].replace(_LAST["attempt"], attempt)
        Path(_local(output)).write_bytes(content)
    return report


_LAST: dict[str, Any] = {}
"""The task that was merged last, the first attempt of it, the report of that, and the files that it wrote."""


def _local(output: Report) -> str:
    path: str = output["path"]
    return path.removeprefix("file://")


def as_report(result: MergeResult) -> Report:
    """A result as an optimizer reports it."""
    report: Report = TypeAdapter(MergeResult).dump_python(result, mode="json", exclude={"outputs": {"__all__": NOT_TOLD}})
    return report


@dataclass
class Door(ABC):
    """A way by which a worker takes a task and reports it."""

    served: Served

    @abstractmethod
    def take(self) -> Assignment:
        """Take the next task."""

    @abstractmethod
    def tell(self, attempt_id: str, report: Report) -> TaskStatus | None:
        """The status of the task after the report; None when the report was no report at all."""


class OverHttp(Door):
    """Each attempt is another optimizer's, of another token, so that no token is blocked."""

    def take(self) -> Assignment:
        self.worker = self.served.registered()
        [taken] = self.worker.poll()
        return TypeAdapter(Assignment).validate_python(through_json(dict, taken))

    def tell(self, attempt_id: str, report: Report) -> TaskStatus | None:
        answer = self.worker.complete(attempt_id, report)
        assert answer.status_code in (200, 400, 404, 409, 422), answer.text
        assert answer.status_code == 200 or answer.json()["detail"]
        assert answer.status_code == 200 or answer.json()["detail"].isprintable()
        if answer.status_code in (400, 404, 409):
            # It was no report of this attempt. The optimizer ends, so that the attempt does too.
            self.served.ask("DELETE", f"/api/v1/optimizers/{self.worker.optimizer_id}", self.worker.token)
            return None
        return TaskStatus(answer.json()["status"]) if answer.status_code == 200 else TaskStatus.PENDING


class OwnProcess(Door):
    """The queue of Dagster's runs, of the command line, and of workers with the state database."""

    def take(self) -> Assignment:
        taken = self.served.house.services.serve_tasks.poll("me", None)
        assert isinstance(taken, Assignment)
        self.task = taken.task
        return taken

    def tell(self, attempt_id: str, report: Report) -> TaskStatus | None:
        try:
            result = TypeAdapter(MergeResult).validate_python(report)
        except ValueError:
            result = MergeResult(self.task.task_id, self.task.current_attempt_id, error="no report")
        ours = (self.task.task_id, self.task.current_attempt_id)
        if (result.task_id, result.attempt_id) != ours:
            with pytest.raises(Exception, match=r"no longer holds|is not known"):
                self.served.house.services.serve_tasks.complete(self.task, result)
            result = MergeResult(*ours, error="no report of this attempt")
        return self.served.house.services.serve_tasks.complete(self.task, result)


DOORS: Mapping[str, type[Door]] = {"over HTTP": OverHttp, "in this process": OwnProcess}


def lies_table(served: Served, region: str | None = REGION, name: str = "t") -> LakeTable:
    """A table with one waiting task, in a partition whose path is full of escapes."""
    house = served.house
    spec = PartitionSpec(PartitionField(PLACE, 1000, IdentityTransform(), "region"))
    table = house.lake.table(name, SCHEMA, spec, properties={"self-optimizing.execute.num-retries": "1000"})
    row_delta(table.table, [table.data_file([{**row(number), "region": region}], Record(region)) for number in range(ROWS)])
    house.services.explore_catalogs.explore()
    plan(served, table)
    return table


def plan(served: Served, table: LakeTable) -> None:
    services = served.house.services
    services.refresh_files.refresh(table.identifier)
    assert len(services.plan_tables.plan(table.identifier, PlanRequest(force=True)).tasks) == 1


def commit(served: Served) -> Sequence[str]:
    return [record.status.value for record in served.house.services.commit_due.commit()]


def check_rows(table: LakeTable) -> None:
    """All rows are there by a scan, and by a filter on each column."""
    assert sorted(one["id"] for one in table.rows()) == list(range(ROWS))
    scanned = table.table.scan().to_arrow()
    assert sorted(scanned["id"].to_pylist()) == list(range(ROWS))
    for field in SCHEMA.fields:
        # PyArrow cannot compare UUIDs. `interop/test_lies_read_by_java.py` reads by them.
        if isinstance(field.field_type, (ListType, UUIDType)):
            continue
        for number in (0, 1, ROWS - 1):
            value = row(number)[field.name]
            wanted = [other for other in range(ROWS) if row(other)[field.name] == value]
            found = table.table.scan(row_filter=IsNull(field.name) if value is None else EqualTo(field.name, value)).to_arrow()
            assert sorted(found["id"].to_pylist()) == wanted, (field.name, value)


def clean_up(served: Served) -> None:
    served.house.pass_time(3 * 24 * 3600)
    served.house.services.maintain_tables.maintain()


def check_that_nobody_was_harmed(door: Door, table: LakeTable) -> None:
    """Nothing of the lies is committed, no row is gone, and the task is still there for somebody honest."""
    assert commit(door.served) == []
    clean_up(door.served)
    check_rows(table)
    taken = door.take()
    assert door.tell(taken.attempt_id, merged(taken)) is TaskStatus.PREPARED
    assert commit(door.served) == ["COMMITTED"]
    clean_up(door.served)
    check_rows(table)


HARMLESS: Mapping[str, Lie] = {
    "another duration": said(duration_ms=10**9),
    "another peak of memory": said(peak_memory_bytes=1),
    "NaNs that are not there": in_map("nan_value_counts", PRICE, 1),
    "no number of NaNs": lambda report: report["outputs"][0]["nan_value_counts"].clear(),
}
"""Lies that change nothing: such a report is taken."""
