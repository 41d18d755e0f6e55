"""What a person is shown of a node and of a table: figures, one word of health, and the reason for that word.

The command line and Dagster show these values. They are made here from what the state database holds, so that no door has to know
how the state is stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TypeVar

from compaction_pipeline.core.fragmentation.health import SETTLED, Health, HealthStatus, node_health
from compaction_pipeline.core.fragmentation.health_score import UNREAD, HealthScore, ScoredNode, node_score, table_score
from compaction_pipeline.core.fragmentation.verdict import NodeState, PlanReasonCode
from compaction_pipeline.core.insight.known_table import KnownTable
from compaction_pipeline.core.insight.open_tasks import open_tasks_text, waits_for_commit
from compaction_pipeline.core.queue.open_work import OpenTasks
from compaction_pipeline.core.tables.figures import MetadataFigures, NodeMetrics
from compaction_pipeline.core.tables.index import Reading
from compaction_pipeline.core.tables.kinds import is_change_store
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.policies import PolicyType, inherited
from compaction_pipeline.core.tables.properties import TableProperties, asset_key_of, properties_or_defaults
from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier
from compaction_pipeline.core.words import count_text
from compaction_pipeline.core.work.kinds import CompactionType

SHOWN = 20
"""Rows of a list that a person looks at. Dagster's tables of metadata have this limit too."""

_IN_WORK = (PlanReasonCode.PLANNED, PlanReasonCode.FILES_IN_USE)
"""With these reasons tasks were planned, or hold the files."""

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

    `type` is the kind of work that is due. It is None when no work is due, or when all of it waits for the commit.
    `changed_snapshot_id` is the snapshot that last changed the node's files.
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
    score: HealthScore = UNREAD
    overlap_depth: int | None = None


@dataclass(frozen=True, slots=True)
class TableOverview:
    """One table as a person sees it.

    `health` and `reason` are the table's own when something stops the whole table. Otherwise they are those of its worst node.
    `warning` tells of something that stops nothing, such as REPLACE snapshots of another tool. `snapshot_id` is the snapshot of
    the indexed files; while `is_whole` is False only a part of its files may be indexed. While `is_read` is False nobody has read the
    table's files, and its figures say nothing. `is_held_back` is True for a table that is refused, that cannot be read, or whose
    last commit failed. `enabled` is False when a property of the table switches its compaction off. `due` counts the nodes for which
    a plan would make tasks now, or has made some that are not merged yet. `is_change_store` is True for the change store of a keyed table,
    whose base store stands for both. `metadata` is None while nobody has read the table.
    `overlap_depth` is how many data files of one node a look-up on the sort columns may open: of the worst node, and None when it is not
    known of one, or when the table has no sort order. `read_costs` is the sentence about both.
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
    due: int = 0
    is_change_store: bool = False
    score: HealthScore = UNREAD
    metadata: MetadataFigures | None = None
    overlap_depth: int | None = None
    read_costs: str | None = None

    @property
    def is_left_alone(self) -> bool:
        """Whether nobody compacts this table, because a person or its owner wants that."""
        return self.paused or self.observe or not self.enabled


NO_TASKS = OpenTasks()
Shown = TypeVar("Shown", NodeOverview, TableOverview)


def node_overviews(nodes: Iterable[NodeState], state: KnownTable, catalog: CatalogEntry, tasks: OpenTasks = NO_TASKS) -> list[NodeOverview]:
    """Return the overviews of nodes of one table, in the order given. `tasks` are the open tasks of the table."""
    properties = _properties(state, catalog)
    return [_node_overview(node, state, catalog.observe, properties, tasks) for node in nodes]


def _node_overview(node: NodeState, state: KnownTable, observe: bool, properties: TableProperties, tasks: OpenTasks) -> NodeOverview:
    health = _node_health(node, state, observe, tasks)
    is_merged = tasks.are_all_merged and _is_in_work(node, health)
    return NodeOverview(
        node.table,
        node.node,
        node.key,
        node.metrics,
        health.status,
        health.reason,
        node.verdict.type if node.verdict is not None and not is_merged else None,
        node.last_done,
        node.changed_snapshot_id,
        node_score(node.metrics, properties, node.verdict, health),
        node.overlap_depth,
    )


def table_overview(
    state: KnownTable, catalog: CatalogEntry, nodes: Sequence[NodeOverview], tasks: OpenTasks = NO_TASKS, *, overdue: bool = False
) -> TableOverview:
    """Return the overview of a table.

    `nodes` are those of all its nodes, and `tasks` are its open tasks. `overdue` is the answer of `commit_is_overdue`.
    """
    health = _table_health(state, catalog, nodes, tasks, overdue)
    is_read = bool(nodes) or state.index.last_read is not None
    depths = [node.overlap_depth for node in nodes if node.overlap_depth is not None]
    depth = max(depths) if depths and len(depths) == len(nodes) else None
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
        is_read=is_read,
        is_held_back=bool(state.refusal or state.problem or state.commits.problem),
        enabled=_properties(state, catalog).enabled,
        due=sum(_is_due(node) for node in nodes),
        is_change_store=state.layout is not None and is_change_store(state.layout.properties),
        score=table_score(ScoredNode(node.node, node.metrics.data_bytes, node.score) for node in nodes) if is_read else UNREAD,
        metadata=state.index.metadata,
        overlap_depth=depth,
        read_costs=_read_costs(state.index.metadata, depth),
    )


def _read_costs(metadata: MetadataFigures | None, depth: int | None) -> str | None:
    """What a reader gets through before it finds a row, as a sentence."""
    if metadata is None or depth is None:
        return None if metadata is None else metadata.text
    files = count_text(depth, "data file")
    return f"{metadata.text}; a look-up of one value of each sort column may open {files} of one partition"


def _is_due(node: NodeOverview) -> bool:
    return node.health is HealthStatus.DUE or (node.health is HealthStatus.WAITING and node.type is not None)


def _properties(state: KnownTable, catalog: CatalogEntry) -> TableProperties:
    """The properties in force, or all defaults when one of them breaks its rule."""
    of_table = state.layout.properties if state.layout is not None else {}
    forbidden = state.policies.why_not(PolicyType.COMPACTION) if state.policies is not None else None
    return replace(properties_or_defaults(of_table, inherited(catalog.properties, state.policies)), forbidden=forbidden or "")


def _asset_key_problem(state: KnownTable) -> str | None:
    """Say which bad value of ASSET_KEY the table sets. It stops nothing, so it is only a warning."""
    properties = state.layout.properties if state.layout is not None else {}
    return asset_key_of(properties, {}, state.table)[1]


def worst_first(found: Iterable[Shown]) -> tuple[Shown, ...]:
    """Return nodes, or tables, in the order in which a person should look at them. Every list, picture and link has this order.

    Failing ones come first, then due ones, then others. Among equals the more fragmented one comes first, then the one with more small
    files. Fragmentation is rounded to tenths, so that 500 small files of 501 are worse than 2 of 2.
    """

    def order(one: Shown) -> tuple[int, float, int, str]:
        name = one.key if isinstance(one, NodeOverview) else str(one.table)
        return (_RANK[one.health], -round(one.metrics.fragmentation, 1), -one.metrics.small_files, name)

    return tuple(sorted(found, key=order))


def worst_score_first(tables: Iterable[TableOverview]) -> tuple[TableOverview, ...]:
    """Return tables with the lowest health score first, and those whose score is not known last. Equals are sorted by name."""
    return tuple(sorted(tables, key=lambda table: (table.score.total is None, table.score.total or 0, str(table.table))))


def _node_health(node: NodeState, state: KnownTable, observe: bool, tasks: OpenTasks) -> Health:
    health = node_health(node.verdict, state.refusal, node.failing)
    if state.refusal is None and state.problem is not None:
        return Health(HealthStatus.WAITING, state.problem)
    if node.verdict is None and health.status is HealthStatus.WAITING and state.paused:
        return Health(health.status, f"no plan has looked at it yet: `plan {state.table}` shows what would be done; paused")
    if node.verdict is None and health.status is HealthStatus.WAITING and observe:
        return Health(health.status, f"the catalog is only observed, so nothing is done: `plan {state.table}` shows what would be done")
    in_work = tasks.are_any and _is_in_work(node, health)
    if in_work:
        health = Health(HealthStatus.DUE, health.reason)
    if health.status is HealthStatus.DUE and _is_locked(state):
        return Health(HealthStatus.WAITING, f"{health.reason}; its storage denies access")
    if health.status is HealthStatus.DUE and _changed_since(node, state):
        return Health(HealthStatus.WAITING, f"{health.reason}; its files changed since, and the next tick judges it again")
    if health.status is HealthStatus.DUE and (state.paused or observe):
        why = "paused" if state.paused else "the catalog is only observed"
        return Health(HealthStatus.WAITING, f"{health.reason}; {why}")
    if in_work and tasks.are_all_merged:
        return _health_before_commit(node, health, tasks)
    if health.status is HealthStatus.HEALTHY and _grew_since(node):
        return Health(HealthStatus.WAITING, f"{health.reason}; its files changed since, and `plan`, or the next tick, says what is due now")
    return health


def _is_in_work(node: NodeState, health: Health) -> bool:
    """Return whether tasks were planned for the node, or hold its files. Such a node is DUE until the table's tasks are merged."""
    return health.status in (HealthStatus.DUE, HealthStatus.WAITING) and node.verdict is not None and node.verdict.reason.code in _IN_WORK


def _health_before_commit(node: NodeState, health: Health, tasks: OpenTasks) -> Health:
    """Return the health of a node that is in work, after all tasks of its table were merged."""
    waits = f"{waits_for_commit(tasks.merged)} of the table"
    planned = node.verdict is not None and node.verdict.reason.code is PlanReasonCode.PLANNED
    return Health(HealthStatus.WAITING, f"{health.reason}; {waits}" if planned else waits)


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


def commit_is_overdue(state: KnownTable, catalog: CatalogEntry, tasks: OpenTasks, now: datetime) -> bool:
    """Return whether merged tasks of the table wait although its commit interval has ended.

    Nothing else of an overview depends on the time.
    """
    ends = _interval_ends(state, catalog) if tasks.merged else None
    return ends is not None and ends <= now


def _table_health(state: KnownTable, catalog: CatalogEntry, nodes: Sequence[NodeOverview], tasks: OpenTasks, overdue: bool) -> Health:
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
        if isinstance(state.index.state, Reading):
            return Health(HealthStatus.WAITING, "its files are being read; the next tick, or `table list --refresh`, goes on")
        return Health(HealthStatus.WAITING, "its files were not read yet; `table list --refresh`, `plan` and snapshot_sensor read them")
    if tasks.are_any and not _is_locked(state) and not any(node.health is HealthStatus.FAILING for node in nodes):
        return _health_of_tasks(state, catalog, tasks, overdue)
    return _health_of_nodes(state, catalog, nodes)


def _health_of_tasks(state: KnownTable, catalog: CatalogEntry, tasks: OpenTasks, overdue: bool) -> Health:
    """Return the health of a table that has open tasks, and that nothing stops: DUE until all are merged, and then WAITING.

    The reason names the tasks. The reason of the last plan is added when it says more than that these tasks have the work.
    """
    ends = _interval_ends(state, catalog)
    due = "now" if overdue else f"at {ends:%H:%M:%S} UTC at the latest" if ends is not None else ""
    reason, text = state.planning.reason, open_tasks_text(tasks, due)
    said = SETTLED | ({*_IN_WORK} if tasks.are_all_merged else {PlanReasonCode.FILES_IN_USE})
    if reason is not None and reason.code not in said and not _is_over(reason.code, state, catalog):
        text = f"{text}; {reason.text}"
    return Health(HealthStatus.WAITING if tasks.are_all_merged else HealthStatus.DUE, text)


def _interval_ends(state: KnownTable, catalog: CatalogEntry) -> datetime | None:
    """Return when the commit interval of a table ends. The first commit of a table is due at once, so there is no time then."""
    last = state.commits.last_committed_at
    return last + _properties(state, catalog).commit_interval if last is not None else None


def _health_of_nodes(state: KnownTable, catalog: CatalogEntry, nodes: Sequence[NodeOverview]) -> Health:
    """Return the health of a table that nothing stops as a whole, and that has no open task: that of its worst node.

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
        if status is HealthStatus.WAITING and reason is not None and reason.code in (PlanReasonCode.PLANNED, PlanReasonCode.OBSERVED):
            # The plan's reason names its tasks, or that the catalog is only observed, and not what the node waits for.
            return Health(status, named)
    # The last plan may say that open tasks hold the files of nodes. There are none any more.
    if reason is None or reason.code is PlanReasonCode.FILES_IN_USE or _is_over(reason.code, state, catalog):
        return Health(status, of_nodes)
    return Health(HealthStatus.WAITING if _is_locked(state) else status, reason.text)


def _is_over(code: PlanReasonCode, state: KnownTable, catalog: CatalogEntry) -> bool:
    """Return whether the cause of a stored reason was removed since the plan.

    For PAUSED, INVALID_PROPERTY and BEING_READ the answer is True: the caller has looked at the present pause, properties and index
    before, and would have shown them. OBSERVED holds nothing back where no node is due.
    """
    if code is PlanReasonCode.DISABLED:
        return _properties(state, catalog).enabled
    return code in (PlanReasonCode.OBSERVED, PlanReasonCode.PAUSED, PlanReasonCode.INVALID_PROPERTY, PlanReasonCode.BEING_READ)


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
