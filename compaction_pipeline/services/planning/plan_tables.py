"""Plans tables: reads one consistent index, asks the pure planner, puts its tasks into the queue.

Invariant: a plan is made only from files that are exactly those of one snapshot. The index is read between two looks at
the table's state, which must be equal and complete; a file younger than the snapshot is refused all the same.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from compaction_pipeline.core.errors import AccessDenied, CompactionError, NotFoundError
from compaction_pipeline.core.fragmentation.clock import is_judged, is_pausing, may_be_due
from compaction_pipeline.core.fragmentation.verdict import NodeState, NodeVerdict, PlanReason, PlanReasonCode
from compaction_pipeline.core.ids import TaskId
from compaction_pipeline.core.leases.holders import held_in_words
from compaction_pipeline.core.leases.ports import Clock, Heartbeat, LeaseStore
from compaction_pipeline.core.leases.timeouts import LEASE
from compaction_pipeline.core.planning.budget import may_refill, table_budget, table_slots
from compaction_pipeline.core.planning.plan import Budget, CompactionPlan, PlanRequest
from compaction_pipeline.core.planning.planner import Planning
from compaction_pipeline.core.planning.ports import TableState, TableStore
from compaction_pipeline.core.planning.table_state import (
    empty_plan,
    failing_text,
    how_failed,
    node_history,
    properties_or_defaults,
    same_index,
    table_files,
    what_waits,
    without_failing,
)
from compaction_pipeline.core.queue.attempts import max_attempts
from compaction_pipeline.core.queue.ports import TaskStore
from compaction_pipeline.core.queue.task import CompactionTask, EndReason, TaskStatus
from compaction_pipeline.core.queue.transitions import OPEN
from compaction_pipeline.core.tables.live_files import TableFiles
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.ports import CatalogStore, FileStore
from compaction_pipeline.core.tables.properties import TableProperties, resolve_properties
from compaction_pipeline.core.tables.table import TableIdentifier

log = logging.getLogger(__name__)

FAILING_PAUSE = timedelta(hours=1)
"""A node whose task used up its retries is left alone this long, unless a person asks."""
_UNCHANGED = PlanReason(PlanReasonCode.NOT_FRAGMENTED, "no node is due, and none changed since it was judged")
PART_FILES = 50_000
"""Files held in memory at a time while a table is planned; a larger node is held by itself."""
FEW_NODES = 500
"""Up to so many nodes are looked up one by one; beyond that the whole table is read through, which costs less."""
_UNLIMITED = Budget(1 << 30, 1 << 60)


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan and the tasks that it put into the queue (none for an explanation).

    `busy`: another process was in the way for the moment (it plans or reads the table, or polled what this plan would have taken),
    so the same plan may well be made a little later.
    """

    plan: CompactionPlan
    tasks: tuple[CompactionTask, ...] = ()
    busy: bool = False


class PlanTables:
    """Two verbs on the same plan: `explain` only answers it, `plan` also queues its tasks."""

    def __init__(
        self,
        catalogs: CatalogStore,
        tables: TableStore,
        files: FileStore,
        tasks: TaskStore,
        leases: LeaseStore,
        clock: Clock,
        heartbeat: Heartbeat,
        new_id: Callable[[], str],
        new_owner: Callable[[], str],
        queue_slots: int,
        check_writable: Callable[[TableIdentifier], None] = lambda table: None,
    ) -> None:
        self._catalogs = catalogs
        self._tables = tables
        self._files = files
        self._tasks = tasks
        self._leases = leases
        self._clock = clock
        self._heartbeat = heartbeat
        self._new_id = new_id
        self._new_owner = new_owner
        self._queue_slots = queue_slots
        self._check_writable = check_writable

    def properties(self, table: TableIdentifier) -> TableProperties:
        """The properties in force. Raises ConfigError for one out of bounds, NotFoundError for a table never read."""
        state = self._tables.state(table)
        if state.layout is None:
            raise NotFoundError(f"table {table} was not read yet: {state.problem or state.refusal or 'run refresh first'}")
        return resolve_properties(state.layout.properties, self._catalogs.entry(table.catalog).properties, table)

    def worth_planning(self) -> Sequence[TableIdentifier]:
        """Tables that time alone may have made due; the nodes of the others need not be looked at one by one."""
        nodes: dict[TableIdentifier, list[NodeState]] = defaultdict(list)
        for node in self._tables.nodes():
            nodes[node.table].append(node)
        catalogs = {entry.name: entry.properties for entry in self._catalogs.entries()}
        return [
            state.table
            for state in self._tables.states()
            if state.complete
            and may_be_due(
                nodes[state.table],
                properties_or_defaults(state, catalogs.get(state.table.catalog, {})),
                global_deletes=self._has_global_deletes(state),
            )
        ]

    def explain(self, table: TableIdentifier, request: PlanRequest | None = None) -> CompactionPlan:
        """The plan that would be made now; writes nothing. Raises NotFoundError."""
        return self._decide(table, request or PlanRequest(), _UNLIMITED, explain=True, asked=True)[0]

    def plan(self, table: TableIdentifier, request: PlanRequest | None = None, *, unlimited: bool = False) -> Planned:
        """Plan and queue. `unlimited`: a person asked, so neither the group's quota nor the pause of failing nodes bounds the plan."""
        owner, name = self._new_owner(), f"plan:{table}"
        if not self._leases.acquire(name, owner, self._clock(), LEASE):
            holder = held_in_words(self._leases.holder(name, self._clock()), "planning this table")
            return Planned(empty_plan(PlanReasonCode.FILES_IN_USE, holder), busy=True)

        def renew() -> bool:
            return self._leases.renew(name, owner, self._clock(), LEASE)

        try:
            with self._heartbeat(renew):
                return self._plan(table, request or PlanRequest(), unlimited, renew)
        finally:
            self._leases.release(name, owner)

    def judge(self, table: TableIdentifier) -> None:
        """Decide every node anew and keep the verdicts; queues nothing. After work, so that nobody reads what was due before it."""
        decided, state = self._decide(table, PlanRequest(), _UNLIMITED, explain=False, asked=False, every=True)
        # What a plan found out about rights stays until the next one.
        if state is not None and (state.plan_reason is None or state.plan_reason.code is not PlanReasonCode.NO_ACCESS):
            self._tables.update(table, {"plan_reason": decided.reason})
        self._save_verdicts(table, decided.verdicts)

    def _plan(self, table: TableIdentifier, request: PlanRequest, unlimited: bool, is_held: Callable[[], bool]) -> Planned:
        budget = _UNLIMITED if unlimited else self._budget(table)
        decided, state = self._decide(table, request, budget, explain=False, asked=unlimited)
        now = self._clock()
        # What a person asked of some nodes says nothing about what the table waits for.
        changes: dict[str, object] = {} if request.force or request.nodes is not None else {"plan_reason": decided.reason}
        if decided.reason.code is PlanReasonCode.INVALID_PROPERTY:
            changes["problem"] = decided.reason.text
        if not decided.tasks or state is None:
            if changes:
                self._tables.update(table, changes)
            self._save_verdicts(table, decided.verdicts)
            return Planned(decided, busy=self._is_being_read(table, decided))
        try:
            # Merges would find out as well, one after the other, each at its end.
            self._check_writable(table)
        except AccessDenied as error:
            denied = empty_plan(PlanReasonCode.NO_ACCESS, str(error))
            self._tables.update(table, {"plan_reason": denied.reason})
            self._save_verdicts(table, decided.verdicts)
            log.warning("table=%s not planned: %s", table, error)
            return Planned(denied)
        if state.plan_reason is not None and state.plan_reason.code is PlanReasonCode.NO_ACCESS:
            changes["plan_reason"] = decided.reason
        tasks = self._tasks_of(decided, state, self.properties(table), now, request.snapshot_properties)
        if not is_held():
            # This process stood still for longer than the lease: another one may have planned the same files.
            reason = "the lease of this plan ended while it was made; planned again later"
            return Planned(empty_plan(PlanReasonCode.FILES_IN_USE, reason), busy=True)
        if not self._tasks.insert(tasks, decided.replaces, now):
            reason = "a task that this plan replaces started meanwhile; planned again later"
            return Planned(empty_plan(PlanReasonCode.FILES_IN_USE, reason), busy=True)
        self._tables.update(table, {**changes, "last_planned_at": now})
        self._save_verdicts(table, decided.verdicts)
        log.info("table=%s plan=%s tasks=%d replaced=%d", table, tasks[0].plan_id, len(tasks), len(decided.replaces))
        return Planned(decided, tuple(tasks))

    def _is_being_read(self, table: TableIdentifier, decided: CompactionPlan) -> bool:
        """Whether the plan only waits for a refresh, which a problem of the table would not let end."""
        return decided.reason.code is PlanReasonCode.BEING_READ and self._tables.state(table).problem is None

    def _decide(
        self, table: TableIdentifier, request: PlanRequest, budget: Budget, *, explain: bool, asked: bool, every: bool = False
    ) -> tuple[CompactionPlan, TableState | None]:
        state = self._tables.state(table)
        hindrance = self._hindrance(state, explain)
        if hindrance is not None:
            return CompactionPlan((), hindrance), None
        try:
            properties = self.properties(table)
        except NotFoundError:
            raise
        except CompactionError as error:
            return empty_plan(PlanReasonCode.INVALID_PROPERTY, str(error)), None
        if not properties.enabled and not request.force:
            return empty_plan(PlanReasonCode.DISABLED, "'self-optimizing.enabled' is false on this table"), None
        if state.known_snapshot_id is None:
            return empty_plan(PlanReasonCode.EMPTY_TABLE, "the table has no snapshot yet"), None
        # In use is read before the files: a task that is committed in between makes the state incomplete first.
        in_use = self._tasks.in_use(table)
        nodes = self._tables.nodes(table, request.nodes)
        verdicts = (node.verdict for node in nodes if node.verdict is not None)
        # The pause between two plans is for ticks (a person who asks twice means it), and not for what the last plan had no room for.
        if asked or may_refill(verdicts, budget, table_slots(properties, self._queue_slots)):
            state = replace(state, last_planned_at=None)
        planning = Planning(
            in_use,
            replace(properties, enabled=True),
            request,
            node_history(state, nodes),
            budget,
            self._clock(),
        )
        ticking = not asked and not every and not request.force and request.nodes is None
        if ticking and nodes:
            nodes = self._worth_planning(state, nodes, properties)
            idle = not budget.task_slots or is_pausing(state.last_planned_at, properties, self._clock())
            if not nodes:
                return CompactionPlan((), state.plan_reason or _UNCHANGED), state
            if idle and self._are_told(table, nodes):
                return CompactionPlan((), what_waits(nodes) or state.plan_reason or _UNCHANGED), state
        for files, decided_nodes in self._parts(state, nodes, properties, request, planning):
            younger = next((file for file in files.files if file.data_sequence_number > state.known_sequence_number), None)
            if younger is not None and same_index(state, self._tables.state(table)):
                self._tables.update(table, {"complete": False})
                return empty_plan(
                    PlanReasonCode.BEING_READ, f"file {younger.path} is younger than the snapshot that was read: read again"
                ), None
            planning.add(files, decided_nodes)
        if not same_index(state, self._tables.state(table)):
            return empty_plan(PlanReasonCode.BEING_READ, "the table moved while it was planned; planned again at the next tick"), None
        decided = planning.plan()
        if not (request.force or asked):
            # A person who asks again has mended what failed; only ticks would fail for ever.
            decided = without_failing(decided, self._failing(table))
        return decided, state

    def _parts(
        self, state: TableState, nodes: Sequence[NodeState], properties: TableProperties, request: PlanRequest, planning: Planning
    ) -> Iterator[tuple[TableFiles, Collection[TableNode] | None]]:
        """The files of these nodes, in parts that fit in memory, and which nodes each part decides; most may be decided by sums."""
        assert state.layout is not None
        if self._files.has_global_deletes(state.table, state.layout.unpartitioned_spec_ids):
            # Whether such a delete may go depends on the data files of every node.
            yield table_files(state, self._files.files(state.table)), None
            return
        part: list[TableNode] = []
        held = 0
        for node in nodes if request.force else self._not_decided_by_figures(state, nodes, properties, planning):
            if part and held + node.metrics.files > PART_FILES:
                yield table_files(state, self._files.files(state.table, part)), frozenset(part)
                part, held = [], 0
            part.append(node.node)
            held += node.metrics.files
        if part:
            yield table_files(state, self._files.files(state.table, part)), frozenset(part)

    def _not_decided_by_figures(
        self, state: TableState, nodes: Sequence[NodeState], properties: TableProperties, planning: Planning
    ) -> Sequence[NodeState]:
        """The nodes whose files must be read; the others stand in the plan already."""
        table = state.table
        some = [node.node for node in nodes] if len(nodes) <= FEW_NODES else None
        figures = self._files.figures(table, properties.fragment_size_bytes, properties.undersized_bytes, some)
        worked = {task.work.node for task in self._tasks.tasks(table, OPEN)}
        by_files = worked.union(self._files.crossed(table, some))
        return [
            node
            for node in nodes
            if node.node in by_files
            or (sums := figures.get(node.node)) is None
            or sums.max_sequence_number > state.known_sequence_number
            or not planning.add_by_figures(node.node, sums)
        ]

    def _worth_planning(self, state: TableState, nodes: Sequence[NodeState], properties: TableProperties) -> Sequence[NodeState]:
        """Nodes that a tick may find due though nobody wrote to them: the files of the others need not be read."""
        # A task's end changes what may be taken of its node, and may change no file.
        worked = {task.work.node for task in self._tasks.tasks(state.table, (*OPEN, TaskStatus.FAILED))}
        reached = self._has_global_deletes(state)
        return [node for node in nodes if node.node in worked or may_be_due([node], properties, global_deletes=reached)]

    def _are_told(self, table: TableIdentifier, nodes: Sequence[NodeState]) -> bool:
        """Whether all is said of nodes that wait for a slot or for the pause between two plans: they would only be judged again."""
        failing = self._failing(table)
        return all(is_judged(node) and (node.failing is not None) == (node.node in failing) for node in nodes)

    def _has_global_deletes(self, state: TableState) -> bool:
        """Whether deletes of an unpartitioned spec reach nodes of others. A table of one spec is not asked for them."""
        layout = state.layout
        return (
            layout is not None
            and len(layout.specs) > 1
            and bool(layout.unpartitioned_spec_ids)
            and self._files.has_global_deletes(state.table, layout.unpartitioned_spec_ids)
        )

    def _hindrance(self, state: TableState, explain: bool) -> PlanReason | None:
        if state.refusal is not None:
            return PlanReason(PlanReasonCode.REFUSED, state.refusal)
        if state.paused and not explain:
            return PlanReason(PlanReasonCode.PAUSED, f"paused by a person; `compaction-pipeline resume {state.table}` ends it")
        if self._catalogs.entry(state.table.catalog).observe and not explain:
            return PlanReason(
                PlanReasonCode.OBSERVED,
                f"catalog {state.table.catalog} is observed only: remove it and add it without --observe to let tables be compacted",
            )
        if not state.complete or state.layout is None:
            return PlanReason(PlanReasonCode.BEING_READ, state.problem or "the table's files are still being read")
        return None

    def _budget(self, table: TableIdentifier) -> Budget:
        try:
            properties = self.properties(table)
        except CompactionError:
            properties = TableProperties()
        return table_budget(properties, self._queue_slots, self._tasks.planned_work(table))

    def _tasks_of(
        self,
        decided: CompactionPlan,
        state: TableState,
        properties: TableProperties,
        now: datetime,
        snapshot_properties: Mapping[str, str],
    ) -> list[CompactionTask]:
        assert state.layout is not None
        assert state.known_snapshot_id is not None
        assert state.table_uuid is not None
        plan_id = self._new_id()
        return [
            CompactionTask(
                task_id=TaskId(f"{plan_id}-{number:05d}"),
                plan_id=plan_id,
                table=state.table,
                table_uuid=state.table_uuid,
                snapshot_id=state.known_snapshot_id,
                sequence_number=state.known_sequence_number,
                schema_id=state.layout.schema_id,
                queue=properties.group,
                priority=properties.priority,
                max_attempts=max_attempts(properties),
                memory_bytes=properties.task_memory_bytes,
                created_at=now,
                # Group labels of the planner are unique within one plan only.
                work=replace(work, group=f"{plan_id}/{work.group}") if work.group else work,
                snapshot_properties=snapshot_properties,
            )
            for number, work in enumerate(decided.tasks)
        ]

    def _failing(self, table: TableIdentifier) -> Mapping[TableNode, PlanReason]:
        """Nodes whose newest task used up its retries lately."""
        now = self._clock()
        failed = self._tasks.tasks(table, (TaskStatus.FAILED,))
        if not any(task.ended_at is not None and now < task.ended_at + FAILING_PAUSE for task in failed):
            return {}
        newest: dict[TableNode, CompactionTask] = {}
        for task in self._tasks.tasks(table):
            newest.setdefault(task.work.node, task)
        reasons: dict[TableNode, PlanReason] = {}
        for node, task in newest.items():
            if task.status is not TaskStatus.FAILED or task.ended_at is None or task.end_reason is EndReason.CONFLICT:
                continue
            again = task.ended_at + FAILING_PAUSE
            if now < again:
                reasons[node] = PlanReason(
                    PlanReasonCode.FAILING,
                    f"task {task.task_id} {how_failed(task)}: {task.reason}; "
                    f"tried again after {again:%Y-%m-%d %H:%M} UTC, or when you launch the node",
                )
        return reasons

    def _save_verdicts(self, table: TableIdentifier, verdicts: Sequence[NodeVerdict]) -> None:
        known = {state.node: state for state in self._tables.nodes(table, [verdict.node for verdict in verdicts])}
        changed = [
            replace(known[verdict.node], verdict=verdict, failing=failing_text(verdict))
            for verdict in verdicts
            if verdict.node in known
            and known[verdict.node].verdict != verdict
            # A plan of some nodes says nothing about the others: what was last decided for them stands.
            and verdict.reason.code is not PlanReasonCode.NOT_REQUESTED
        ]
        if changed:
            self._tables.save_nodes(table, changed)
