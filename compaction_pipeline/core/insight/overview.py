"""What a person is shown of a node and of a table: figures, one word of health, and the reason for that word.

The command line and Dagster show these values. They are made here from what the state database holds, so that no door has to know
how the state is stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from compaction_pipeline.core.fragmentation.health import SETTLED, Health, HealthStatus, node_health
from compaction_pipeline.core.fragmentation.verdict import NodeState, PlanReasonCode
from compaction_pipeline.core.insight.known_table import KnownTable
from compaction_pipeline.core.queue.task import CompactionType
from compaction_pipeline.core.tables.figures import NodeMetrics
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.properties import asset_key_of, properties_or_defaults
from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier

SHOWN = 20
"""Rows of a list that a person looks at. Dagster's tables of metadata have this limit too."""

NO_CATALOG = "no catalog is registered: run `compaction-pipeline catalog add`"
"""What a person is told while nothing can be done, because no catalog is registered."""

_RANK = {
    HealthStatus.FAILING: 0,
    HealthStatus.DUE: 1,
    HealthStatus.WAITING: 2,
    HealthStatus.REFUSED: 3,
    HealthStatus.HEALTHY: 4,
}


@dataclass(frozen=True, slots=True)
class NodeOverview:
    """One node as a person sees it.

    `type` is the kind of work that is due, or None when no work is due. `changed_snapshot_id` is the snapshot that last changed the
    node's files.
    """

    table: TableIdentifier
    node: TableNode
    key: str
    metrics: NodeMetrics
    health: HealthStatus
    reason: str
    type: CompactionType | None = None
    last_done: Mapping[CompactionType, datetime] = field(default_factory=dict)
    changed_snapshot_id: int | None = None


@dataclass(frozen=True, slots=True)
class TableOverview:
    """One table as a person sees it.

    `health` and `reason` are the table's own when something stops the whole table. Otherwise they are those of its worst node.
    `warning` tells of something that stops nothing, such as REPLACE snapshots of another tool. `snapshot_id` is the snapshot of
    the indexed files; while `is_whole` is False only a part of its files may be indexed. While `is_read` is False nobody has read the
    table's files, and its figures say nothing. `is_held_back` is True for a table that is refused, that cannot be read, or whose
    last commit failed. `enabled` is False when a property of the table switches its compaction off.
    """

    table: TableIdentifier
    nodes: int
    metrics: NodeMetrics
    health: HealthStatus
    reason: str
    warning: str | None = None
    observe: bool = False
    paused: bool = False
    snapshot_id: int | None = None
    is_whole: bool = False
    is_read: bool = False
    is_held_back: bool = False
    enabled: bool = True

    @property
    def is_left_alone(self) -> bool:
        """Whether nobody compacts this table, because a person or its owner wants that."""
        return self.paused or self.observe or not self.enabled


def node_overview(node: NodeState, state: KnownTable, observe: bool) -> NodeOverview:
    """Return the overview of a node. `state` describes its table. `observe` is True when the table's catalog is only observed."""
    health = _node_health(node, state, observe)
    return NodeOverview(
        node.table,
        node.node,
        node.key,
        node.metrics,
        health.status,
        health.reason,
        node.verdict.type if node.verdict is not None else None,
        node.last_done,
        node.changed_snapshot_id,
    )


def table_overview(state: KnownTable, catalog: CatalogEntry, nodes: Sequence[NodeOverview]) -> TableOverview:
    """Return the overview of a table. `nodes` are those of all its nodes."""
    health = _table_health(state, catalog, nodes)
    return TableOverview(
        table=state.table,
        nodes=len(nodes),
        metrics=_total(node.metrics for node in nodes),
        health=health.status,
        reason=health.reason,
        warning=state.index.warning or _asset_key_problem(state),
        observe=catalog.observe,
        paused=state.paused,
        snapshot_id=state.index.last_snapshot_id,
        is_whole=state.whole is not None,
        is_read=bool(nodes) or state.index.last_read is not None,
        is_held_back=bool(state.refusal or state.problem or state.commits.problem),
        enabled=_is_enabled(state, catalog),
    )


def _is_enabled(state: KnownTable, catalog: CatalogEntry) -> bool:
    return properties_or_defaults(state.layout.properties if state.layout is not None else {}, catalog.properties).enabled


def _asset_key_problem(state: KnownTable) -> str | None:
    """Say which bad value of ASSET_KEY the table sets. It stops nothing, so it is only a warning."""
    properties = state.layout.properties if state.layout is not None else {}
    return asset_key_of(properties, {}, state.table)[1]


def worst_first(nodes: Iterable[NodeOverview]) -> tuple[NodeOverview, ...]:
    """Return the nodes in the order in which a person should look at them.

    Failing nodes come first, then due ones, then others. Among equals the more fragmented node comes first, then the one with more small
    files. Fragmentation is rounded to tenths, so that 500 small files of 501 are worse than 2 of 2.
    """

    def order(node: NodeOverview) -> tuple[int, float, int, str]:
        return (_RANK[node.health], -round(node.metrics.fragmentation, 1), -node.metrics.small_files, node.key)

    return tuple(sorted(nodes, key=order))


def _node_health(node: NodeState, state: KnownTable, observe: bool) -> Health:
    health = node_health(node.verdict, state.refusal, node.failing)
    if state.refusal is None and state.problem is not None:
        return Health(HealthStatus.WAITING, state.problem)
    if node.verdict is None and health.status is HealthStatus.WAITING and observe:
        return Health(health.status, f"the catalog is only observed, so nothing is done: `plan {state.table}` shows what would be done")
    if health.status is HealthStatus.DUE and _is_locked(state):
        return Health(HealthStatus.WAITING, f"{health.reason}; its storage denies access")
    if health.status is HealthStatus.DUE and _changed_since(node, state):
        return Health(HealthStatus.WAITING, f"its files changed since it was judged ({health.reason}); the next tick judges it again")
    if health.status is HealthStatus.DUE and (state.paused or observe):
        why = "paused" if state.paused else "the catalog is only observed"
        return Health(HealthStatus.WAITING, f"{health.reason}; {why}")
    if health.status is HealthStatus.HEALTHY and _grew_since(node):
        return Health(
            HealthStatus.WAITING, f"its files changed since it was judged ({health.reason}); `plan`, or the next tick, says what is due now"
        )
    return health


def _grew_since(node: NodeState) -> bool:
    """Return whether the node has more small files, delete files or deleted rows than when it was judged."""
    if node.verdict is None:
        return False
    then, now = node.verdict.metrics, node.metrics
    return (
        now.small_files > then.small_files or now.delete_files > then.delete_files or now.deleted_rows_estimate > then.deleted_rows_estimate
    )


def _changed_since(node: NodeState, state: KnownTable) -> bool:
    """Return whether the node's files are no longer the files that its verdict judged."""
    if node.verdict is not None and node.verdict.metrics != node.metrics:
        return True
    done = max(node.last_done.values(), default=None)
    return done is not None and state.index.last_read is not None and done > state.index.last_read.at


def _is_locked(state: KnownTable) -> bool:
    """Return whether the newest plan found that this program may not write to the table's storage."""
    return state.planning.reason is not None and state.planning.reason.code is PlanReasonCode.NO_ACCESS


def _table_health(state: KnownTable, catalog: CatalogEntry, nodes: Sequence[NodeOverview]) -> Health:
    if state.refusal is not None:
        return Health(HealthStatus.REFUSED, state.refusal)
    if state.problem is not None:
        return Health(HealthStatus.WAITING, state.problem)
    if state.paused:
        return Health(HealthStatus.WAITING, "paused")
    if state.commits.problem is not None:
        return Health(HealthStatus.FAILING, _commit_problem(state))
    if state.whole is None:
        if state.index.last_read is not None:
            return Health(HealthStatus.WAITING, "the table changed since its files were read; the next tick reads them again")
        return Health(HealthStatus.WAITING, "its files were not read yet; `table list --refresh`, `plan` and snapshot_sensor read them")
    return _health_of_nodes(state, catalog, nodes)


def _health_of_nodes(state: KnownTable, catalog: CatalogEntry, nodes: Sequence[NodeOverview]) -> Health:
    """Return the health of a table that nothing stops as a whole: that of its worst node.

    The reason is that of the last plan of the table. It is the node's own when the node is failing, when it changed after that plan, or
    when it waits although that plan made tasks.
    """
    worst = min(nodes, key=lambda node: _RANK[node.health], default=None)
    reason = state.planning.reason
    if worst is None:
        status, of_nodes = HealthStatus.HEALTHY, "no files"
    else:
        status, of_nodes = worst.health, worst.reason
        named = f"{worst.node}: {worst.reason}"
        if status is HealthStatus.FAILING:
            return Health(status, named)
        if status in (HealthStatus.DUE, HealthStatus.WAITING) and reason is not None and reason.code in SETTLED:
            # The last plan found nothing to do, and a node has changed since then.
            return Health(status, named)
        if status is HealthStatus.WAITING and reason is not None and reason.code is PlanReasonCode.PLANNED:
            # The plan's reason names its tasks, and not what the node waits for.
            return Health(status, named)
    if reason is None or _is_over(reason.code, state, catalog):
        return Health(status, of_nodes)
    return Health(HealthStatus.WAITING if _is_locked(state) else status, reason.text)


def _is_over(code: PlanReasonCode, state: KnownTable, catalog: CatalogEntry) -> bool:
    """Return whether the cause of a stored reason was removed since the plan.

    For PAUSED and INVALID_PROPERTY the answer is True: the caller has looked at the present pause and properties before, and would have
    shown them.
    """
    if code is PlanReasonCode.OBSERVED:
        return not catalog.observe
    if code is PlanReasonCode.DISABLED:
        return _is_enabled(state, catalog)
    return code in (PlanReasonCode.PAUSED, PlanReasonCode.INVALID_PROPERTY)


def _commit_problem(state: KnownTable) -> str:
    commits = state.commits
    times = "its last commit failed" if commits.failures == 1 else f"its last {commits.failures} commits failed"
    again = f"; tried again from {commits.retry_at:%H:%M:%S} UTC" if commits.retry_at is not None else ""
    return f"{times}: {commits.problem}{again}"


def _total(metrics: Iterable[NodeMetrics]) -> NodeMetrics:
    total: dict[str, int] = dict.fromkeys(NodeMetrics.__slots__, 0)
    for item in metrics:
        for name in total:
            total[name] += getattr(item, name)
    return NodeMetrics(**total)
