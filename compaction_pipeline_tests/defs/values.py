"""One-line builders of core values for the tests of the Dagster definitions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

from compaction_pipeline.core.commit.record import CommitFigures, CompactionRecord, RecordStatus
from compaction_pipeline.core.fragmentation.health import HealthStatus
from compaction_pipeline.core.fragmentation.verdict import NodeState
from compaction_pipeline.core.insight.overview import NodeOverview
from compaction_pipeline.core.queue.task import CompactionTask, TaskStatus
from compaction_pipeline.core.tables.data_file import FileContent, LiveFile, OutputFile
from compaction_pipeline.core.tables.figures import NodeMetrics
from compaction_pipeline.core.tables.node import Partition, PartitionValue, TableNode
from compaction_pipeline.core.tables.node_keys import short_key
from compaction_pipeline.core.tables.table import SnapshotSummary, TableHead, TableIdentifier, TableLayout
from compaction_pipeline.core.work.kinds import CompactionType, TaskAction
from compaction_pipeline.core.work.result import MergeResult
from compaction_pipeline_tests.works import task_work

NOW = datetime(2026, 1, 8, 12, tzinfo=timezone.utc)
ORDERS = TableIdentifier("lake", ("shop",), "orders")
MIB = 1024 * 1024


def ago(**units: float) -> datetime:
    return NOW - timedelta(**units)


def day(number: int) -> TableNode:
    return TableNode(1, partition(number))


def partition(number: int) -> Partition:
    return (PartitionValue("day", "date", f"2026-01-{number:02}"),)


def overview(number: int = 1, health: HealthStatus = HealthStatus.DUE, table: TableIdentifier = ORDERS, **metrics: Any) -> NodeOverview:
    node = day(number)
    figures = NodeMetrics(**{"data_files": 10, "small_data_files": 9, "data_bytes": 9_000, **metrics})
    return NodeOverview(table, node, short_key(table, node), figures, health, "9 small data files of 12")


def node_state(number: int = 1, table: TableIdentifier = ORDERS, last_done: datetime | None = None, **metrics: int) -> NodeState:
    node = day(number)
    done = {CompactionType.MINOR: last_done} if last_done else {}
    return NodeState(table, node, short_key(table, node), NodeMetrics(**metrics), last_done=done)


def live_file(number: int = 1, size: int = MIB) -> LiveFile:
    return LiveFile("s3://lake/a.parquet", FileContent.DATA, 1, partition(number), size, 100, 1)


def output(size: int, number: int = 1) -> OutputFile:
    return OutputFile(f"s3://lake/out-{size}.parquet", FileContent.DATA, 1, partition(number), size, 100)


def task(
    task_id: str = "t1",
    number: int = 1,
    status: TaskStatus = TaskStatus.COMMITTED,
    *,
    outputs: Sequence[OutputFile] = (),
    ended_at: datetime | None = None,
    plan_id: str = "p1",
    table: TableIdentifier = ORDERS,
    target: int = 128 * MIB,
) -> CompactionTask:
    work = task_work(day(number), CompactionType.MINOR, TaskAction.MERGE, (live_file(number),) * 3, (), 1, target, target // 8)
    result = MergeResult(task_id, "a1", tuple(outputs), 300, 10, 5, 285, duration_ms=1500)
    return CompactionTask(
        task_id,
        plan_id,
        table,
        "uuid",
        7,
        3,
        0,
        "default",
        0,
        4,
        1 << 30,
        ago(minutes=30),
        work,
        status,
        1,
        result=result,
        ended_at=ended_at,
    )


def record(
    record_id: str = "r1", task_ids: Sequence[str] = ("t1",), status: RecordStatus = RecordStatus.COMMITTED, **fields: Any
) -> CompactionRecord:
    committed = tuple(task_ids) if status is RecordStatus.COMMITTED else ()
    values: dict[str, Any] = {
        "committed_task_ids": committed,
        "snapshot_before": 7,
        "snapshot_after": 8,
        "ended_at": ago(minutes=1),
        "figures": CommitFigures(files_before=30, files_after=3, delete_files_before=4, bytes_before=9_000_000, bytes_after=3_000_000),
    }
    return CompactionRecord(record_id, fields.pop("table", ORDERS), status, ago(minutes=2), tuple(task_ids), **{**values, **fields})


def head(*snapshots: SnapshotSummary) -> TableHead:
    layout = TableLayout("s3://lake/orders", 2, 0, {}, 1, {}, 0, {}, frozenset(), {})
    return TableHead(
        ORDERS, "uuid", "s3://lake/orders/v1.json", snapshots[0].snapshot_id if snapshots else None, 3, snapshots, layout, None
    )


def snapshot(snapshot_id: int, at: datetime, **summary: str) -> SnapshotSummary:
    return SnapshotSummary(
        snapshot_id, None, 3, int(at.timestamp() * 1000), "replace", {key.replace("_", "-"): text for key, text in summary.items()}
    )
