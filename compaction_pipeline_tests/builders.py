"""One-line builders of core values for example tests. An argument `kb` is a size in kB, and the target size of `properties` is 1,000 kB."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timezone

from compaction_pipeline.core.fragmentation.verdict import NodeHistory
from compaction_pipeline.core.planning.plain.planner import plan
from compaction_pipeline.core.planning.plan import Budget, CompactionPlan, PlanRequest
from compaction_pipeline.core.queue.open_work import InUse
from compaction_pipeline.core.queue.task import CompactionTask, TaskStatus
from compaction_pipeline.core.stores import Stores
from compaction_pipeline.core.tables.data_file import FileContent, LiveFile
from compaction_pipeline.core.tables.index import Complete, LoadedTable, TableIndex
from compaction_pipeline.core.tables.live_files import TableFiles
from compaction_pipeline.core.tables.node import Partition, PartitionValue, TableNode
from compaction_pipeline.core.tables.properties import TableProperties
from compaction_pipeline.core.tables.table import TableIdentifier, TableLayout
from compaction_pipeline.core.work.kinds import CompactionType, TaskAction
from compaction_pipeline.core.work.work import Work
from compaction_pipeline_tests.works import task_work

KB = 1000
TABLE = TableIdentifier("lake", ("shop",), "orders")
NOW = datetime(2024, 5, 1, 12, tzinfo=timezone.utc)
UNPARTITIONED_SPEC = 9
PLENTY = Budget(task_slots=10**9, input_bytes=10**18)


COLUMNS = '{"fields": [{"id": 1, "name": "dt", "type": "string", "required": false}]}'
LAYOUT = TableLayout("s3://b", 2, 1, {0: COLUMNS, 1: '{"fields": []}'}, 0, {0: "{}"}, 0, {}, frozenset({3, 4}), {"k": "v"})
LOADED = LoadedTable("uuid", LAYOUT)
COMPLETE = Complete(LOADED, 7, 3, "m1", "read 1", NOW)


def indexed(stores: Stores, index: TableIndex) -> None:
    """Make a table known with this index, whatever its index was before."""
    stores.index.add(index.table)
    assert stores.index.save(index, stores.tables.state(index.table).index_version)


def partition(day: str | int | None = 1) -> Partition:
    return (PartitionValue("dt", "string", day if day is None else str(day)),)


def node(day: str | int | None = 1, spec: int = 0) -> TableNode:
    return TableNode(spec, partition(day))


def data(
    path: str, kb: float = 10, seq: int = 1, *, day: str | int | None = 1, spec: int = 0, rows: int = 100, where: Partition | None = None
) -> LiveFile:
    """A data file."""
    held = partition(day) if where is None else where
    return LiveFile(path, FileContent.DATA, spec, held, int(kb * KB), rows, seq)


def equality(
    path: str, seq: int = 2, *, kb: float = 1, day: str | int | None = 1, spec: int = 0, rows: int = 1, where: Partition | None = None
) -> LiveFile:
    """An equality-delete file. With the spec UNPARTITIONED_SPEC it is global."""
    held = partition(day) if where is None else where
    return LiveFile(path, FileContent.EQUALITY_DELETES, spec, held, int(kb * KB), rows, seq, equality_ids=(1,))


def position(
    path: str,
    seq: int = 2,
    *,
    of: str | None = None,
    kb: float = 1,
    day: str | int | None = 1,
    spec: int = 0,
    rows: int = 1,
    bounds: tuple[str, str] | None = None,
    where: Partition | None = None,
) -> LiveFile:
    """A position-delete file. It belongs to the data file `of`, or else to the data files of its partition within `bounds`."""
    held = partition(day) if where is None else where
    lower, upper = (of, of) if of is not None else bounds or (None, None)
    return LiveFile(
        path,
        FileContent.POSITION_DELETES,
        spec,
        held,
        int(kb * KB),
        rows,
        seq,
        referenced_data_file=of,
        path_lower=lower,
        path_upper=upper,
    )


def global_equality(path: str, seq: int = 2, *, kb: float = 1, rows: int = 1) -> LiveFile:
    """An equality delete that reaches every data file with a lower sequence number."""
    return equality(path, seq, kb=kb, spec=UNPARTITIONED_SPEC, rows=rows, where=())


def table_files(*files: LiveFile, sequence: int | None = None, default_spec: int = 0, version: int = 2) -> TableFiles:
    """The files of one snapshot. Without `sequence`, its sequence number is that of the newest file."""
    newest = max((file.data_sequence_number for file in files), default=0)
    return TableFiles(
        TABLE,
        "uuid-1",
        77,
        newest if sequence is None else sequence,
        version,
        0,
        default_spec,
        frozenset({UNPARTITIONED_SPEC}),
        tuple(files),
    )


def properties(*, target_kb: float = 1000, task_kb: float = 1000, **changes: object) -> TableProperties:
    """By default the target is 1,000 kB, small is ≤ 125 kB, undersized is ≤ 750 kB, and a MINOR is due at 12 files or 1,000 kB."""
    values: dict[str, object] = {
        "target_size_bytes": int(target_kb * KB),
        "minor_total_size_bytes": int(target_kb * KB),
        "max_task_size_bytes": int(task_kb * KB),
        **changes,
    }
    return TableProperties(**values)  # type: ignore[arg-type]


def forced(*types: CompactionType, nodes: Iterable[TableNode] | None = None) -> PlanRequest:
    return PlanRequest(types or None, None if nodes is None else frozenset(nodes), force=True)


def planned(
    files: TableFiles,
    request: PlanRequest | None = None,
    *,
    rules: TableProperties | None = None,
    in_use: InUse | None = None,
    history: NodeHistory | None = None,
    budget: Budget = PLENTY,
    now: datetime = NOW,
) -> CompactionPlan:
    """Call `plan()`, with a default for every argument that a test does not care about."""
    return plan(files, in_use or InUse(), rules or properties(), request or PlanRequest(), history or NodeHistory(), budget, now)


def task(task_id: str = "t1", *, work: Work | None = None, **changes: object) -> CompactionTask:
    """A Pending task that merges two files."""
    inputs = (data("a"), data("b"))
    values: dict[str, object] = {
        "task_id": task_id,
        "plan_id": "p1",
        "table": TABLE,
        "table_uuid": "uuid-1",
        "snapshot_id": 77,
        "sequence_number": 1,
        "schema_id": 0,
        "queue": "default",
        "priority": 0,
        "max_attempts": 4,
        "memory_bytes": 1 << 30,
        "created_at": NOW,
        "work": work or task_work(node(), CompactionType.MINOR, TaskAction.MERGE, inputs, (), 0, 1000 * KB, 125 * KB),
        "status": TaskStatus.PENDING,
        **changes,
    }
    values.setdefault("waiting_since", values["created_at"])
    return CompactionTask(**values)  # type: ignore[arg-type]
