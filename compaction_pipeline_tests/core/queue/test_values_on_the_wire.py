"""Values of a worker's port do not change when they are sent through JSON. Types stay the same, whatever values partitions have."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from compaction_pipeline.core.commit.record import CompactionRecord, RecordStatus
from compaction_pipeline.core.ids import AttemptId, RecordId, TaskId
from compaction_pipeline.core.queue.assignment import Assignment, EndedAttempt
from compaction_pipeline.core.queue.task import CompactionTask, TaskStatus
from compaction_pipeline.core.tables.data_file import FileContent, LiveFile, OutputFile
from compaction_pipeline.core.tables.keyed.tree import DataTreeNode
from compaction_pipeline.core.tables.node import Partition, PartitionValue, TableNode
from compaction_pipeline.core.tables.table import KeyedLayout, TableLayout
from compaction_pipeline.core.work.ends import EndReason
from compaction_pipeline.core.work.kinds import CompactionType, TaskAction
from compaction_pipeline.core.work.prediction import Prediction
from compaction_pipeline.core.work.result import Digest, MergeResult
from compaction_pipeline.core.work.work import ChangeSpan
from compaction_pipeline_tests import builders
from compaction_pipeline_tests.works import task_work

EXTREMES = [
    PartitionValue("i", "int", -(2**31)),
    PartitionValue("l", "long", 2**63 - 1),
    PartitionValue("l", "long", -(2**63)),
    PartitionValue("beyond", "long", 2**200),
    PartitionValue("b", "boolean", True),
    PartitionValue("zero", "long", 0),
    PartitionValue("f", "float", 3.4028234663852886e38),
    PartitionValue("d", "double", 5e-324),
    PartitionValue("d", "double", -1.7976931348623157e308),
    PartitionValue("d", "double", -0.0),
    PartitionValue("whole", "double", 1e16),
    PartitionValue("one", "double", 1.0),
    PartitionValue("nan", "double", "NaN"),
    PartitionValue("inf", "double", "-Infinity"),
    PartitionValue("day", "date", "-4712-01-01"),
    PartitionValue("moment", "timestamptz", "9999-12-31T23:59:59.999999+00:00"),
    PartitionValue("amount", "decimal(38, 38)", "-0.99999999999999999999999999999999999999"),
    PartitionValue("id", "uuid", "ffffffff-ffff-ffff-ffff-ffffffffffff"),
    PartitionValue("raw", "binary", "00ff"),
    PartitionValue("fixed", "fixed[0]", ""),
    PartitionValue("none", "string", None),
    PartitionValue("", "string", ""),
    PartitionValue("text", "string", 'null "\\ \x00\x1f\u2028\ufeff\U0001f9ca e\u0301'),
    PartitionValue("looks like", "string", "1"),
    PartitionValue("looks like", "string", "true"),
]
values = st.sampled_from(EXTREMES) | st.builds(
    PartitionValue,
    st.text(st.characters(codec="utf-8"), max_size=8),
    st.just("string"),
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(st.characters(codec="utf-8")),
)
partitions = st.lists(values, max_size=4).map(tuple)
texts = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
longs = st.integers(0, 2**64 - 1)


def assert_survives(kind: Any, value: Any) -> Any:
    adapter: TypeAdapter[Any] = TypeAdapter(kind)
    text = adapter.dump_json(value)
    back = adapter.validate_json(text)
    assert back == value
    # 1, 1.0 and True are equal but have different types, so the texts are compared too.
    assert adapter.dump_json(back) == text
    return back


def task_in(partition: Partition, path: str) -> CompactionTask:
    data = LiveFile(path, FileContent.DATA, 7, partition, 2**40, 2**63 - 1, 2**63 - 1, "m.avro", -1, (), None, None, None, 3)
    delete = replace(
        data, path=path + "-d", content=FileContent.POSITION_DELETES, referenced_data_file=path, path_lower=path, path_upper=path
    )
    equality = replace(data, path=path + "-e", content=FileContent.EQUALITY_DELETES, equality_ids=(1, 2**31 - 1))
    node = TableNode(7, partition, DataTreeNode(63, 62))
    span = ChangeSpan((data,), (data, data), -(2**63), 2**63 - 1, -(2**63), (path,), 2**31)
    work = task_work(
        node,
        CompactionType.FULL,
        TaskAction.TO_BASE,
        (data,),
        (delete, equality),
        7,
        2**40,
        2**37,
        converts=(delete.path,),
        group="p/g",
        predicted_files=3,
        predicted_bytes=2**41,
        changes=span,
    )
    return builders.task(
        "t1",
        work=work,
        status=TaskStatus.EXECUTING,
        attempt=2,
        attempt_id=AttemptId("0123456789ab"),
        owner="process 1 on host#ü",
        lease_expires_at=builders.NOW,
        started_at=builders.NOW.replace(microsecond=1),
        end_reason=EndReason.DIGEST_MISMATCH,
        reason="two\nlines",
        snapshot_id=-(2**63),
        snapshot_properties={"requested-by": "nightly", "": "="},
    )


def result_of(partition: Partition, path: str, most: int) -> MergeResult:
    counts = {1: most, 2**31 - 1: 0}
    bounds = {1: "", 2: "00ff", 2**31 - 1: "ff" * 64}
    output = OutputFile(
        path, FileContent.DATA, 7, partition, most, most, counts, counts, counts, counts, bounds, bounds, (4, most), 1, path
    )
    digest = Digest(most, 2**64 - 1, most)
    return MergeResult(TaskId("t1"), AttemptId("a1"), (output, output), most, most, most, most, digest, digest, most, most, rows_kept=most)


@given(partition=partitions, path=texts, properties=st.dictionaries(texts, texts, max_size=3))
def test_an_assignment(partition: Partition, path: str, properties: dict[str, str]) -> None:
    layout = TableLayout(path, 2, 1, {0: '{"a": "é"}', 1: path}, 3, {3: "[]"}, 0, {}, frozenset({0, 3}), properties)
    # A task that merges changes into a base store has the layouts of both stores.
    layout = replace(layout, keyed=KeyedLayout(layout, (2, 1)))
    assignment = Assignment(task_in(partition, path), layout, properties)
    back = assert_survives(Assignment, assignment)
    assert repr(back.task.work) == repr(assignment.task.work)
    assert repr(back.layout) == repr(layout)


@given(partition=partitions, path=texts, most=longs)
def test_a_report(partition: Partition, path: str, most: int) -> None:
    result = result_of(partition, path, most)
    assert repr(assert_survives(MergeResult, result)) == repr(result)


@pytest.mark.parametrize("reason", [reason for reason in EndReason if reason is not EndReason.MERGED])
def test_a_report_of_a_failure(reason: EndReason) -> None:
    assert_survives(MergeResult, MergeResult(TaskId("t1"), AttemptId("a1"), end_reason=reason, error="file ‹a\x00›:\nno footer"))


@given(partition=partitions, path=texts, status=st.sampled_from([TaskStatus.PENDING, TaskStatus.FAILED, None]))
def test_an_attempt_that_ended_before_it_was_handed_out(partition: Partition, path: str, status: TaskStatus | None) -> None:
    ended = EndedAttempt(task_in(partition, path), MergeResult(TaskId("t1"), AttemptId("a1"), error=path), status)
    assert_survives(EndedAttempt, ended)
    # A worker does not know beforehand which of the two types it gets.
    assert_survives(Assignment | EndedAttempt | None, ended)


@pytest.mark.parametrize("value", EXTREMES, ids=str)
def test_each_extreme_partition_value(value: PartitionValue) -> None:
    assert_survives(CompactionTask, task_in((value,), "file"))
    assert_survives(MergeResult, result_of((value,), "file", 1))


def test_a_task_of_a_release_without_predictions_is_read_and_predicts_nothing() -> None:
    adapter = TypeAdapter(CompactionTask)
    task = replace(builders.task(), prediction=Prediction(10**9, 0.25))
    sent = json.loads(adapter.dump_json(assert_survives(CompactionTask, task)))
    assert sent.pop("prediction") == {"size_bytes": 10**9, "gb_hours": 0.25}
    assert adapter.validate_json(json.dumps(sent)) == builders.task()


def test_a_record_of_a_release_without_predictions_is_read_and_predicts_no_hours() -> None:
    adapter = TypeAdapter(CompactionRecord)
    record = CompactionRecord(RecordId("r1"), builders.TABLE, RecordStatus.COMMITTED, builders.NOW, (TaskId("t1"),), predicted_bytes=7)
    sent = json.loads(adapter.dump_json(assert_survives(CompactionRecord, replace(record, predicted_gb_hours=0.5, gb_hours=0.25))))
    assert (sent.pop("predicted_gb_hours"), sent.pop("gb_hours")) == (0.5, 0.25)
    assert adapter.validate_json(json.dumps(sent)) == record
