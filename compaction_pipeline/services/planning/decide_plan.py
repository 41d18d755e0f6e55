"""Decides what to plan on a table; queues nothing and stores nothing.

Invariant: a plan is made only from files that are exactly those of one snapshot. The index is read between two looks at what is
known of the table, which must show the same whole read. A file younger than the snapshot is refused all the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.fragmentation.clock import is_judged, is_pausing, may_be_due
from compaction_pipeline.core.fragmentation.verdict import NodeHistory, NodeState, PlanReason, PlanReasonCode
from compaction_pipeline.core.insight.known_table import KnownTable
from compaction_pipeline.core.insight.ports import TableReader
from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.core.planning.budget import may_refill, table_budget, table_slots
from compaction_pipeline.core.planning.failing import failed_lately, failing_nodes, without_failing
from compaction_pipeline.core.planning.hindrance import hindrance
from compaction_pipeline.core.planning.plan import Budget, CompactionPlan, PlanRequest
from compaction_pipeline.core.planning.planner import Planning
from compaction_pipeline.core.planning.waiting import what_waits
from compaction_pipeline.core.queue.ports import TaskStore
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.queue.transitions import OPEN
from compaction_pipeline.core.tables.index import Complete, Empty
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.ports import CatalogStore
from compaction_pipeline.core.tables.properties import TableProperties, resolve_properties
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.services.planning.table_parts import TableParts

_UNCHANGED = PlanReason(PlanReasonCode.NOT_FRAGMENTED, "no node is due, and none changed since it was judged")
_UNLIMITED = Budget(1 << 30, 1 << 60)


class Asker(Enum):
    """Who asks for a plan.

    TICK: within the group's quota and the pauses, and nodes that stood still are not looked at again. PERSON: neither quota nor pause
    bounds the plan. READER: a person who only wants to see what would be planned, also of a table that nobody may compact. REVIEW:
    after work, every node is judged anew.
    """

    TICK = "TICK"
    PERSON = "PERSON"
    READER = "READER"
    REVIEW = "REVIEW"


@dataclass(frozen=True, slots=True)
class Decision:
    """A plan, and the read and the properties that it was made with; None where nothing of the table's files was looked at.

    `distrusted` is a read in which a file was younger than its snapshot.
    """

    plan: CompactionPlan
    made_from: tuple[Complete, TableProperties] | None = None
    distrusted: Complete | None = None


class DecidePlan:
    """One verb: decide."""

    def __init__(
        self, catalogs: CatalogStore, reader: TableReader, parts: TableParts, tasks: TaskStore, clock: Clock, queue_slots: int
    ) -> None:
        self._catalogs = catalogs
        self._reader = reader
        self._parts = parts
        self._tasks = tasks
        self._clock = clock
        self._queue_slots = queue_slots

    def decide(self, known: KnownTable, request: PlanRequest, asker: Asker) -> Decision:
        """What to plan on a table of which this is known. Raises NotFoundError when it was forgotten meanwhile."""
        entry = self._catalogs.entry(known.table.catalog)
        reads = asker is Asker.READER
        held = hindrance(known.index, paused=known.paused and not reads, observed=entry.observe and not reads)
        if held is not None:
            return Decision(CompactionPlan((), held))
        whole = known.whole
        if whole is None:
            return _nothing(PlanReasonCode.BEING_READ, known.index.problem or "the table's files are still being read")
        try:
            properties = resolve_properties(whole.loaded.layout.properties, entry.properties, known.table)
        except ConfigError as error:
            return _nothing(PlanReasonCode.INVALID_PROPERTY, str(error))
        if not properties.enabled and not request.force:
            return _nothing(PlanReasonCode.DISABLED, "'self-optimizing.enabled' is false on this table")
        if isinstance(whole, Empty):
            return _nothing(PlanReasonCode.EMPTY_TABLE, "the table has no snapshot yet")
        return self._decide(known, whole, properties, request, asker)

    def _decide(self, known: KnownTable, whole: Complete, properties: TableProperties, request: PlanRequest, asker: Asker) -> Decision:
        table, made_from = known.table, (whole, properties)
        budget = self._budget(table, properties) if asker is Asker.TICK else _UNLIMITED
        # In use is read before the files: a task that is committed in between makes the index outdated first.
        in_use = self._tasks.in_use(table)
        nodes = self._reader.nodes(table, request.nodes)
        by_person = asker in (Asker.PERSON, Asker.READER)
        last_planned_at = known.planning.last_planned_at
        verdicts = (node.verdict for node in nodes if node.verdict is not None)
        # The pause between two plans is for ticks (a person who asks twice means it), and not for what the last plan had no room for.
        if by_person or may_refill(verdicts, budget, table_slots(properties, self._queue_slots)):
            last_planned_at = None
        history = NodeHistory.of(nodes, last_planned_at, known.index.last_old_spec_delete_at)
        planning = Planning(in_use, replace(properties, enabled=True), request, history, budget, self._clock())
        if asker is Asker.TICK and nodes and not request.force and request.nodes is None:
            nodes = self._worth_planning(table, whole, nodes, properties)
            idle = not budget.task_slots or is_pausing(last_planned_at, properties, self._clock())
            if not nodes or (idle and self._are_told(table, nodes)):
                reason = what_waits(nodes) or known.planning.reason or _UNCHANGED
                return Decision(CompactionPlan((), reason), made_from)
        for files, decided in self._parts.parts(table, whole, nodes, properties, planning, force=request.force):
            younger = next((file for file in files.files if file.data_sequence_number > whole.sequence_number), None)
            if younger is not None and whole.is_same_read(self._reader.state(table).whole):
                text = f"file {younger.path} is younger than the snapshot that was read: read again"
                return replace(_nothing(PlanReasonCode.BEING_READ, text), distrusted=whole)
            planning.add(files, decided)
        if not whole.is_same_read(self._reader.state(table).whole):
            return _nothing(PlanReasonCode.BEING_READ, "the table moved while it was planned; planned again at the next tick")
        plan = planning.plan()
        if not (request.force or by_person):
            # A person who asks again has mended what failed; only ticks would fail for ever.
            plan = without_failing(plan, self._failing(table))
        return Decision(plan, made_from)

    def _budget(self, table: TableIdentifier, properties: TableProperties) -> Budget:
        return table_budget(properties, self._queue_slots, self._tasks.planned_work(table))

    def _worth_planning(
        self, table: TableIdentifier, whole: Complete, nodes: Sequence[NodeState], properties: TableProperties
    ) -> Sequence[NodeState]:
        """Nodes that a tick may find due though nobody wrote to them: the files of the others need not be read."""
        # A task's end changes what may be taken of its node, and may change no file.
        worked = {task.work.node for task in self._tasks.tasks(table, (*OPEN, TaskStatus.FAILED))}
        reached = self._parts.reached_from_elsewhere(table, whole.loaded.layout)
        return [node for node in nodes if node.node in worked or may_be_due([node], properties, global_deletes=reached)]

    def _are_told(self, table: TableIdentifier, nodes: Sequence[NodeState]) -> bool:
        """Whether all is said of nodes that wait for a slot or for the pause between two plans: they would only be judged again."""
        failing = self._failing(table)
        return all(is_judged(node) and (node.failing is not None) == (node.node in failing) for node in nodes)

    def _failing(self, table: TableIdentifier) -> Mapping[TableNode, PlanReason]:
        """Nodes whose newest task used up its retries lately."""
        now = self._clock()
        if not any(failed_lately(task, now) for task in self._tasks.tasks(table, (TaskStatus.FAILED,))):
            return {}
        return failing_nodes(self._tasks.tasks(table), now)


def _nothing(code: PlanReasonCode, text: str) -> Decision:
    return Decision(CompactionPlan.empty(code, text))
