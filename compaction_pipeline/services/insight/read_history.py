"""What a person asks: how are my tables, which nodes are worst and why, what runs, what was done.

Reads the state database only (no catalog, no table), so it answers at once and also when a catalog is down. Its values are what
the command line prints and what Dagster shows; both render, neither decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from compaction_pipeline.core.commit.ports import RecordStore
from compaction_pipeline.core.commit.record import CompactionRecord
from compaction_pipeline.core.errors import ConfigError, NotFoundError
from compaction_pipeline.core.fragmentation.health import SETTLED, HealthStatus, node_health
from compaction_pipeline.core.fragmentation.verdict import NodeState, PlanReason, PlanReasonCode
from compaction_pipeline.core.ids import RecordId
from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.core.planning.ports import TableState, TableStore
from compaction_pipeline.core.queue.ports import TaskAttempt, TaskStore
from compaction_pipeline.core.queue.task import CompactionTask, CompactionType, TaskStatus
from compaction_pipeline.core.queue.transitions import OPEN
from compaction_pipeline.core.tables.bloom_filters import not_honoured
from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.core.tables.figures import NodeMetrics
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.ports import CatalogStore, FileStore
from compaction_pipeline.core.tables.properties import TableProperties, resolve_properties
from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier

SHOWN = 20
"""Rows of a list that a person looks at; also the limit of a table in Dagster's metadata."""


Health = HealthStatus
"""One word for a node or a table, as the doors know it; decided in `core.fragmentation.health`."""

_RANK = {
    HealthStatus.FAILING: 0,
    HealthStatus.DUE: 1,
    HealthStatus.WAITING: 2,
    HealthStatus.REFUSED: 3,
    HealthStatus.HEALTHY: 4,
}


@dataclass(frozen=True, slots=True)
class NodeOverview:
    """A node, its figures and one word with a reason. `type` is the kind of work that is due, None when none is."""

    table: TableIdentifier
    node: TableNode
    key: str
    metrics: NodeMetrics
    health: HealthStatus
    reason: str
    type: CompactionType | None = None
    last_done: Mapping[CompactionType, datetime] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TableOverview:
    """One line about a table. `health` and `reason` are those of the table if it is held back as a whole, else of its worst node."""

    table: TableIdentifier
    state: TableState
    observe: bool
    nodes: int
    metrics: NodeMetrics
    health: HealthStatus
    reason: str

    @property
    def warning(self) -> str | None:
        """What a person should know though it stops nothing (another tool's REPLACE snapshots)."""
        return self.state.warning

    @property
    def is_read(self) -> bool:
        """Whether its files were ever read: until then the figures say nothing."""
        return self.nodes > 0 or self.state.refreshed_at is not None


@dataclass(frozen=True, slots=True)
class TableDetail:
    """Everything known of a table. `properties` is None when one of them breaks its rule; `property_error` says which.

    `write_properties_not_honoured` are Iceberg's own that a merge cannot follow, with the reason.
    """

    overview: TableOverview
    properties: TableProperties | None
    property_error: str | None
    write_properties_not_honoured: Mapping[str, str]
    nodes: tuple[NodeOverview, ...]
    files: tuple[LiveFile, ...]
    tasks: tuple[CompactionTask, ...]
    records: tuple[CompactionRecord, ...]


@dataclass(frozen=True, slots=True)
class RecordDetail:
    """A record with those of its tasks that are still kept, and the attempts of each."""

    record: CompactionRecord
    tasks: tuple[CompactionTask, ...]
    attempts: Mapping[str, tuple[TaskAttempt, ...]]


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """How many tasks stand where, finished ones as long as they are kept."""

    pending: int = 0
    executing: int = 0
    prepared: int = 0
    committed: int = 0
    failed: int = 0
    canceled: int = 0

    @property
    def open(self) -> int:
        """Tasks that are not at an end."""
        return self.pending + self.executing + self.prepared


@dataclass(frozen=True, slots=True)
class Status:
    """The page to look at first."""

    at: datetime
    catalogs: tuple[CatalogEntry, ...]
    tables: tuple[TableOverview, ...]
    worst: tuple[NodeOverview, ...]
    executing: tuple[CompactionTask, ...]
    queue: QueueCounts
    unsettled: tuple[CompactionRecord, ...]
    records: tuple[CompactionRecord, ...]
    nodes: int
    due: int
    # Every node that is not healthy, worst first; of `worst` there are a few.
    needing: tuple[NodeOverview, ...] = ()


class ReadHistory:
    """Answers questions about the state; changes nothing."""

    def __init__(
        self, catalogs: CatalogStore, tables: TableStore, files: FileStore, tasks: TaskStore, records: RecordStore, clock: Clock
    ) -> None:
        self._catalogs = catalogs
        self._tables = tables
        self._files = files
        self._tasks = tasks
        self._records = records
        self._clock = clock

    def status(self) -> Status:
        """Catalogs, tables, the worst nodes, what runs, the queue and the newest records."""
        catalogs = {entry.name: entry for entry in self._catalogs.entries()}
        by_table = self._by_table(self._tables.states(), catalogs)
        nodes = worst_first(node for _, _, overviews in by_table for node in overviews)
        return Status(
            at=self._clock(),
            catalogs=tuple(catalogs.values()),
            tables=tuple(_table_overview(state, observe, overviews) for state, observe, overviews in by_table),
            worst=nodes[:SHOWN],
            executing=self.executing(),
            queue=self.queue_counts(),
            unsettled=tuple(self._records.records(unsettled=True)),
            records=self.records(limit=SHOWN),
            nodes=len(nodes),
            due=sum(node.health is HealthStatus.DUE for node in nodes),
            needing=tuple(node for node in nodes if node.health is not HealthStatus.HEALTHY),
        )

    def tables(self, catalog: str | None = None) -> tuple[TableOverview, ...]:
        """Every known table, sorted by name. NotFoundError when the catalog is not registered."""
        if catalog is not None:
            self._catalogs.entry(catalog)
        catalogs = {entry.name: entry for entry in self._catalogs.entries()}
        return tuple(
            _table_overview(state, observe, nodes) for state, observe, nodes in self._by_table(self._tables.states(catalog), catalogs)
        )

    def table(self, table: TableIdentifier, *, with_files: bool = False) -> TableDetail:
        """One table whole; its files only when asked, for there may be a million. NotFoundError when unknown."""
        entry = self._catalogs.entry(table.catalog)
        state = self._tables.state(table)
        nodes = worst_first(_node_overview(node, state, entry.observe) for node in self._tables.nodes(table))
        properties, error = _properties(state, entry)
        layout = state.layout
        return TableDetail(
            overview=_table_overview(state, entry.observe, nodes),
            properties=properties,
            property_error=error,
            write_properties_not_honoured=not_honoured(layout.properties, layout.schemas[layout.schema_id])
            if layout is not None and layout.schema_id in layout.schemas
            else {},
            nodes=nodes,
            files=tuple(sorted(self._files.files(table), key=lambda file: (str(file.node), file.content.value, file.path)))
            if with_files
            else (),
            tasks=tuple(self._tasks.tasks(table, statuses=OPEN)),
            records=self.records(table, limit=SHOWN),
        )

    def worst_nodes(self, limit: int = SHOWN) -> tuple[NodeOverview, ...]:
        """The nodes that need care most, worst first."""
        catalogs = {entry.name: entry for entry in self._catalogs.entries()}
        return worst_first(node for _, _, nodes in self._by_table(self._tables.states(), catalogs) for node in nodes)[:limit]

    def executing(self, limit: int = SHOWN) -> tuple[CompactionTask, ...]:
        """The tasks that an attempt holds now, newest first."""
        return tuple(self._tasks.tasks(statuses=(TaskStatus.EXECUTING,), limit=limit))

    def queue_counts(self) -> QueueCounts:
        """How many tasks stand where."""
        counts = self._tasks.counts()
        return QueueCounts(
            pending=counts.get(TaskStatus.PENDING, 0),
            executing=counts.get(TaskStatus.EXECUTING, 0),
            prepared=counts.get(TaskStatus.PREPARED, 0),
            committed=counts.get(TaskStatus.COMMITTED, 0),
            failed=counts.get(TaskStatus.FAILED, 0),
            canceled=counts.get(TaskStatus.CANCELED, 0),
        )

    def records(self, table: TableIdentifier | None = None, limit: int | None = SHOWN) -> tuple[CompactionRecord, ...]:
        """What was done, newest first; of one table where given. NotFoundError for a table that nobody knows."""
        found = tuple(self._records.records(table, limit=limit))
        if table is not None and not found:
            # Records outlive their table; only where there are none may its name be a typing mistake.
            self._catalogs.entry(table.catalog)
            self._tables.state(table)
        return found

    def record(self, record_id: RecordId) -> RecordDetail:
        """One record with its tasks; NotFoundError when unknown. A unique beginning of the id is enough."""
        record = self._record(record_id)
        tasks = []
        for task_id in record.task_ids:
            try:
                tasks.append(self._tasks.task(task_id))
            except NotFoundError:
                continue  # Finished tasks expire on their own; the record's figures stay.
        return RecordDetail(record, tuple(tasks), {task.task_id: tuple(self._tasks.attempts(task.task_id)) for task in tasks})

    def _record(self, record_id: RecordId) -> CompactionRecord:
        try:
            return self._records.record(record_id)
        except NotFoundError:
            matches = [record for record in self._records.records() if record_id and record.record_id.startswith(record_id)]
            if len(matches) != 1:
                raise
            return matches[0]

    def _by_table(
        self, states: Sequence[TableState], catalogs: Mapping[str, CatalogEntry]
    ) -> list[tuple[TableState, bool, list[NodeOverview]]]:
        nodes: dict[TableIdentifier, list[NodeState]] = {state.table: [] for state in states}
        for node in self._tables.nodes():
            if node.table in nodes:
                nodes[node.table].append(node)
        answer = []
        for state in states:
            entry = catalogs.get(state.table.catalog)
            observe = entry is not None and entry.observe
            answer.append((state, observe, [_node_overview(node, state, observe) for node in nodes[state.table]]))
        return answer


def worst_first(nodes: Iterable[NodeOverview]) -> tuple[NodeOverview, ...]:
    """Failing and due nodes before others, then by fragmentation, then by how many small files there are to gain.

    Fragmentation counts in tenths: 500 small files of 501 are worse than 2 of 2.
    """

    def order(node: NodeOverview) -> tuple[int, float, int, str]:
        return (_RANK[node.health], -round(node.metrics.fragmentation, 1), -node.metrics.small_files, node.key)

    return tuple(sorted(nodes, key=order))


def _node_overview(node: NodeState, state: TableState, observe: bool) -> NodeOverview:
    health, reason = _health(node, state, observe)
    verdict = node.verdict
    return NodeOverview(node.table, node.node, node.key, node.metrics, health, reason, verdict.type if verdict else None, node.last_done)


def _health(node: NodeState, state: TableState, observe: bool) -> tuple[HealthStatus, str]:
    health = node_health(node.verdict, state.refusal, node.failing)
    if state.refusal is None and state.problem is not None:
        return HealthStatus.WAITING, state.problem
    if node.verdict is None and health.status is HealthStatus.WAITING and observe:
        return health.status, f"the catalog is only observed, so nothing is done: `plan {state.table}` shows what would be"
    if health.status is HealthStatus.DUE and _is_locked(state):
        return HealthStatus.WAITING, f"{health.reason}; the store does not let us write"
    if health.status is HealthStatus.DUE and _changed_since(node, state):
        return HealthStatus.WAITING, f"changed since it was judged ({health.reason}); judged again at the next tick"
    if health.status is HealthStatus.DUE and (state.paused or observe):
        why = "paused" if state.paused else "the catalog is only observed"
        return HealthStatus.WAITING, f"{health.reason}; {why}"
    if health.status is HealthStatus.HEALTHY and _grew_since(node):
        return HealthStatus.WAITING, f"changed since it was judged ({health.reason}); `plan`, or the next tick, says what is due now"
    return health.status, health.reason


def _grew_since(node: NodeState) -> bool:
    """Whether there are more small files, delete files or deleted rows than when the node was found to need nothing."""
    if node.verdict is None:
        return False
    then, now = node.verdict.metrics, node.metrics
    return (
        now.small_files > then.small_files or now.delete_files > then.delete_files or now.deleted_rows_estimate > then.deleted_rows_estimate
    )


def _changed_since(node: NodeState, state: TableState) -> bool:
    """Whether the node's files are others than those that its verdict was made from."""
    if node.verdict is not None and node.verdict.metrics != node.metrics:
        return True
    done = max(node.last_done.values(), default=None)
    return done is not None and state.refreshed_at is not None and done > state.refreshed_at


def _is_locked(state: TableState) -> bool:
    """Whether the newest plan found that nothing may be written."""
    return state.plan_reason is not None and state.plan_reason.code is PlanReasonCode.NO_ACCESS


def _table_overview(state: TableState, observe: bool, nodes: Sequence[NodeOverview]) -> TableOverview:
    health, reason = _table_health(state, nodes)
    return TableOverview(state.table, state, observe, len(nodes), _total(node.metrics for node in nodes), health, reason)


def _table_health(state: TableState, nodes: Sequence[NodeOverview]) -> tuple[HealthStatus, str]:
    if state.refusal is not None:
        return HealthStatus.REFUSED, state.refusal
    if state.problem is not None:
        return HealthStatus.WAITING, state.problem
    if state.paused:
        return HealthStatus.WAITING, "paused"
    if state.commit_problem is not None:
        return HealthStatus.FAILING, _commit_problem(state)
    if not state.complete:
        if state.refreshed_at is not None:
            return HealthStatus.WAITING, "changed since its files were read; read again at the next tick"
        return HealthStatus.WAITING, "its files were not read yet; `table list --refresh`, `plan` and snapshot_sensor read them"
    worst = min(nodes, key=lambda node: _RANK[node.health], default=None)
    health = worst.health if worst is not None else HealthStatus.HEALTHY
    if worst is not None and health is HealthStatus.FAILING:
        return health, f"{worst.node}: {worst.reason}"
    reason: PlanReason | None = state.plan_reason
    if worst is not None and health in (HealthStatus.DUE, HealthStatus.WAITING) and reason is not None and reason.code in SETTLED:
        # Its last plan found nothing to do, and a node changed since.
        return health, f"{worst.node}: {worst.reason}"
    if reason is not None:
        return HealthStatus.WAITING if _is_locked(state) else health, reason.text
    return health, worst.reason if worst is not None else "no files"


def _commit_problem(state: TableState) -> str:
    times = "its last commit failed" if state.commit_failures == 1 else f"its last {state.commit_failures} commits failed"
    again = f"; tried again from {state.commit_retry_at:%H:%M:%S} UTC" if state.commit_retry_at is not None else ""
    return f"{times}: {state.commit_problem}{again}"


def _total(metrics: Iterable[NodeMetrics]) -> NodeMetrics:
    total: dict[str, int] = dict.fromkeys(NodeMetrics.__slots__, 0)
    for item in metrics:
        for name in total:
            total[name] += getattr(item, name)
    return NodeMetrics(**total)


def _properties(state: TableState, entry: CatalogEntry) -> tuple[TableProperties | None, str | None]:
    try:
        return resolve_properties(state.layout.properties if state.layout is not None else {}, entry.properties, state.table), None
    except ConfigError as error:
        return None, str(error)
