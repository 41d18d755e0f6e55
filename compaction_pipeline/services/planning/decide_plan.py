"""Decides what to plan on a table. It queues nothing and stores nothing.

Invariant: a plan is made only from files that are exactly those of one snapshot. The index is read between two looks at what is known of
the table. Both looks must show the same read of the whole index. A file younger than the snapshot is refused all the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

from compaction_pipeline.core.fragmentation.clock import is_pausing
from compaction_pipeline.core.fragmentation.verdict import NodeHistory, PlanReason, PlanReasonCode
from compaction_pipeline.core.insight.known_table import KnownTable
from compaction_pipeline.core.insight.ports import TableReader
from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.core.planning.admission import Admitted, admission
from compaction_pipeline.core.planning.budget import may_refill, most_tasks, table_budget
from compaction_pipeline.core.planning.failing import failed_lately, failing_nodes, without_failing
from compaction_pipeline.core.planning.plan import Budget, CompactionPlan, PlanRequest
from compaction_pipeline.core.planning.planner import Planning
from compaction_pipeline.core.planning.quiet import UNCHANGED, are_told, due_by_time, nodes_to_look_at, what_waits
from compaction_pipeline.core.queue.group import QueueRoom, ResourceGroup, group_missing_text
from compaction_pipeline.core.queue.ports import TaskStore
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.queue.transitions import OPEN
from compaction_pipeline.core.tables.index import Complete
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.ports import CatalogStore
from compaction_pipeline.services.planning.queue_rooms import QueueRooms
from compaction_pipeline.services.planning.table_parts import TableParts

_UNLIMITED = Budget(1 << 30, 1 << 60)


class Asker(Enum):
    """Who asks for a plan.

    A TICK keeps to the table's quota, to `self-optimizing.min-plan-interval` and to the pause of failing nodes, and does not look again at
    nodes that did not change. For a PERSON none of these three bounds the plan, only the capacity of the queue. A paused table is not
    planned for either. A READER is a person who only wants to see what would be planned, also on a table that is paused or observed. A
    REVIEW comes after work, and judges every node anew.
    """

    TICK = "TICK"
    PERSON = "PERSON"
    READER = "READER"
    REVIEW = "REVIEW"


@dataclass(frozen=True, slots=True)
class Decision:
    """A plan, and what it was made from.

    `made_from` is None when the table may not be planned, or when its index changed meanwhile. `distrusted` is a read in which a file
    was younger than its snapshot. `room` is the room in the queue that the plan counted on.
    """

    plan: CompactionPlan
    made_from: Admitted | None = None
    distrusted: Complete | None = None
    room: QueueRoom | None = None


class DecidePlan:
    """One verb: decide."""

    def __init__(
        self,
        catalogs: CatalogStore,
        reader: TableReader,
        parts: TableParts,
        tasks: TaskStore,
        rooms: QueueRooms,
        clock: Clock,
    ) -> None:
        self._catalogs = catalogs
        self._reader = reader
        self._parts = parts
        self._tasks = tasks
        self._rooms = rooms
        self._clock = clock

    def decide(self, known: KnownTable, request: PlanRequest, asker: Asker) -> Decision:
        """Decide what to plan on a table. `known` is what is known of it. Raises NotFoundError when the table was forgotten meanwhile."""
        entry = self._catalogs.entry(known.table.catalog)
        reads = asker is Asker.READER
        admitted = admission(
            known.index,
            known.whole,
            entry.properties,
            paused=known.paused and not reads,
            observed=entry.observe and not reads,
            force=request.force,
        )
        if isinstance(admitted, PlanReason):
            return Decision(CompactionPlan((), admitted))
        group = self._rooms.group(admitted.properties.group)
        if group is None:
            return Decision(CompactionPlan.empty(PlanReasonCode.GROUP_MISSING, group_missing_text(admitted.properties.group)))
        return self._decide(known, admitted, group, request, asker)

    def _decide(self, known: KnownTable, admitted: Admitted, group: ResourceGroup, request: PlanRequest, asker: Asker) -> Decision:
        table, read, properties = known.table, admitted.read, admitted.properties
        by_person = asker in (Asker.PERSON, Asker.READER)
        # The files in use are read before the indexed files. When a task is committed in between, its commit marks the index as outdated
        # before it frees the files, so this plan is refused.
        in_use = self._tasks.in_use(table)
        if by_person:
            in_use = in_use.for_person()
        nodes = self._reader.nodes(table, request.nodes)
        tasks = self._tasks.tasks(table, (*OPEN, TaskStatus.FAILED))
        now = self._clock()
        budget, most = self._budget(known, admitted, group, asker)
        last_planned_at = known.planning.last_planned_at
        # The pause between two plans does not hold for people: a person who asks again wants a plan now. It also ends early when the last
        # plan left out nodes for lack of room, and there is room again.
        waited_for_room = known.planning.queue_full_since is not None and not budget.is_used_up
        if by_person or waited_for_room or may_refill((node.verdict for node in nodes if node.verdict is not None), budget, most):
            last_planned_at = None
        failing: Mapping[TableNode, PlanReason] = {}
        # Failing nodes are left out for ticks and reviews. A person who asks again has probably mended what failed.
        if not (request.force or by_person) and any(failed_lately(task, now) for task in tasks):
            failing = failing_nodes(self._tasks.tasks(table), now)
        history = NodeHistory.of(nodes, last_planned_at, known.index.last_old_spec_delete_at)
        planning = Planning(in_use, replace(properties, enabled=True), request, history, budget, now)
        if asker is Asker.TICK and nodes and not request.force and request.nodes is None:
            reached = self._parts.reached_from_elsewhere(table, read.loaded.layout)
            nodes = nodes_to_look_at(nodes, {task.work.node for task in tasks}, properties, global_deletes=reached)
            idle = budget.is_used_up or is_pausing(last_planned_at, properties, now)
            told = are_told(nodes, failing) and not due_by_time(nodes, properties, now, global_deletes=reached)
            if not nodes or (idle and told):
                reason = what_waits(nodes) or known.planning.reason or UNCHANGED
                if not nodes and reason.code is PlanReasonCode.QUEUE_FULL:
                    # Somebody else did the work that waited for room.
                    reason = UNCHANGED
                return Decision(CompactionPlan((), reason), admitted)
        worked = {task.work.node for task in tasks if not task.is_final}
        for files, decided in self._parts.parts(table, admitted, nodes, worked, planning, force=request.force):
            younger = next((file for file in files.files if file.data_sequence_number > read.sequence_number), None)
            if younger is not None and read.is_same_read(self._reader.state(table).whole):
                text = f"file {younger.path} is younger than the snapshot that was read; the table must be read again"
                return Decision(CompactionPlan.empty(PlanReasonCode.BEING_READ, text), distrusted=read)
            planning.add(files, decided)
        if not read.is_same_read(self._reader.state(table).whole):
            text = "the table changed while it was planned; the next tick plans it again"
            return Decision(CompactionPlan.empty(PlanReasonCode.BEING_READ, text))
        return Decision(without_failing(planning.plan(), failing), admitted, room=budget.room)

    def _budget(self, known: KnownTable, admitted: Admitted, group: ResourceGroup, asker: Asker) -> tuple[Budget, int]:
        """Return what the plan may add, and how many tasks the table may have at most. Neither a review nor a mere look is limited."""
        properties = admitted.properties
        most = most_tasks(properties, self._rooms.slots(group.name))
        if asker is Asker.PERSON:
            return replace(_UNLIMITED, room=self._rooms.room(group, known, by_person=True)), most
        if asker is not Asker.TICK:
            return _UNLIMITED, most
        budget = table_budget(properties, self._rooms.slots(group.name), self._tasks.planned_work(known.table))
        room = self._rooms.room(group, known, by_person=False)
        # A queue that is not open counts as full. Otherwise a tick would plan again for every single place that becomes free.
        return replace(budget, room=room if room.is_open else replace(room, taken=max(room.taken, room.limit))), most
