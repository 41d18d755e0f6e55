"""Decides what to plan on a table. It queues nothing and stores nothing.

Invariant: a plan is made only from files that are exactly those of one snapshot. The index is read between two looks at what is known of
the table. Both looks must show the same read of the whole index. A file younger than the snapshot is refused all the same. A keyed table
has no index of files: its plan reads the files of both stores from their newest metadata.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum

from compaction_pipeline.core.catalogs.formats import why_format_left_out
from compaction_pipeline.core.errors import ConfigError, TableRefused
from compaction_pipeline.core.fragmentation.clock import is_pausing
from compaction_pipeline.core.fragmentation.keyed_metrics import measure_keyed
from compaction_pipeline.core.fragmentation.verdict import (
    NOT_ADMITTED,
    NOTHING_TO_DO,
    NodeHistory,
    NodeState,
    PlanReason,
    PlanReasonCode,
    history_of,
)
from compaction_pipeline.core.insight.known_table import KnownTable
from compaction_pipeline.core.insight.ports import TableReader
from compaction_pipeline.core.planning.admission import Admitted, OfCatalog, admission
from compaction_pipeline.core.planning.budget import may_refill, most_tasks, table_budget
from compaction_pipeline.core.planning.failing import failed_lately, failing_nodes, without_failing
from compaction_pipeline.core.planning.filtered import nodes_left_out, obeys_filter, with_left_out
from compaction_pipeline.core.planning.keyed.in_work import in_work
from compaction_pipeline.core.planning.keyed.planner import plan_keyed
from compaction_pipeline.core.planning.plain.planner import Planning
from compaction_pipeline.core.planning.plan import Budget, Circumstances, CompactionPlan, CostLimit, PlanRequest
from compaction_pipeline.core.planning.quiet import UNCHANGED, are_cut, are_told, due_by_time, nodes_to_look_at, what_waits
from compaction_pipeline.core.planning.waits import NOTHING_WAITS, Waits
from compaction_pipeline.core.queue.group import QueueRoom, ResourceGroup, group_missing_text
from compaction_pipeline.core.queue.known_task import KnownTask
from compaction_pipeline.core.queue.open_work import InUse
from compaction_pipeline.core.queue.order import FOR_PEOPLE
from compaction_pipeline.core.queue.ports.tasks import TaskStore
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.queue.transitions import OPEN
from compaction_pipeline.core.tables.figures import NodeMetrics
from compaction_pipeline.core.tables.index import NO_SNAPSHOT, Complete, LoadedTable
from compaction_pipeline.core.tables.node import Place, TableNode
from compaction_pipeline.core.tables.ports.catalogs import CatalogStore
from compaction_pipeline.core.tables.ports.scan import TableScan
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.tables.team_name import UNASSIGNED
from compaction_pipeline.services.planning.find_waits import FindWaits
from compaction_pipeline.services.planning.payers import Payer
from compaction_pipeline.services.planning.queue_rooms import QueueRooms
from compaction_pipeline.services.planning.table_parts import TableParts
from compaction_pipeline.services.table_filters import why_left_out

_UNLIMITED = Budget(1 << 30, 1 << 60)


class Asker(Enum):
    """Who asks for a plan.

    A TICK keeps to the table's quota, to `self-optimizing.min-plan-interval` and to the pause of failing nodes, and does not look again at
    nodes that did not change. For a PERSON none of these three bounds the plan, only the capacity of the queue. A paused table is not
    planned for either. A READER is a person who only wants to see what would be planned, also on a table that is paused or observed. A
    REVIEW comes after work, and judges every node anew. An OBSERVER stands for a tick or a review where the catalog is only observed: it
    judges the nodes that changed, and plans nothing.
    """

    TICK = "TICK"
    PERSON = "PERSON"
    READER = "READER"
    REVIEW = "REVIEW"
    OBSERVER = "OBSERVER"


@dataclass(frozen=True, slots=True)
class Decision:
    """A plan, and what it was made from.

    `made_from` is None when the table may not be planned, or when its index changed meanwhile. `distrusted` is a read in which a file
    was younger than its snapshot. `room` is the room in the queue that the plan counted on, and `team` the team that pays for its tasks.
    """

    plan: CompactionPlan
    made_from: Admitted | None = None
    distrusted: Complete | None = None
    room: QueueRoom | None = None
    team: str = UNASSIGNED


LetsIn = Callable[[Place], bool]
"""Tells whether `self-optimizing.filter` lets a partition in."""
_CHANGED = "the table changed while it was planned; the next tick plans it again"


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a decision is made from besides the files.

    `tasks` are the open ones and those that failed. `failing` are the nodes that are left alone, with the reason. `history` holds the time
    of the last plan only when the pause after it matters.
    """

    in_use: InUse
    nodes: tuple[NodeState, ...]
    tasks: tuple[KnownTask, ...]
    failing: Mapping[TableNode, PlanReason]
    history: NodeHistory
    budget: Budget
    now: datetime
    by_person: bool
    waits: Waits = NOTHING_WAITS
    payer: Payer = Payer(UNASSIGNED)

    def worked(self, *, open_only: bool) -> frozenset[TableNode]:
        """The nodes of tasks. A merge of changes works on all nodes of its partition."""
        tasks = [task for task in self.tasks if not (open_only and task.is_final)]
        places = {place for task in tasks if (place := task.work.merged_place) is not None}
        beside = (node.node for node in self.nodes if places and node.node.place in places)
        return frozenset((*(task.work.node for task in tasks), *beside))

    def failing_beside(self, node: TableNode) -> PlanReason | None:
        """Why the partition of a node is left alone; None when it is not. The changes of a partition are merged all or none."""
        return next((reason for other, reason in self.failing.items() if other.place == node.place), None)


@dataclass(frozen=True, slots=True)
class Outside:
    """What a decision asks besides the state database."""

    scan: TableScan
    waits: FindWaits


class DecidePlan:
    """One verb: decide."""

    def __init__(
        self,
        catalogs: CatalogStore,
        reader: TableReader,
        parts: TableParts,
        outside: Outside,
        tasks: TaskStore,
        rooms: QueueRooms,
    ) -> None:
        self._catalogs = catalogs
        self._reader = reader
        self._parts = parts
        self._scan, self._waits_of = outside.scan, outside.waits
        self._tasks = tasks
        self._rooms = rooms
        self._cut_at: dict[TableIdentifier, object] = {}

    def decide(self, known: KnownTable, request: PlanRequest, asker: Asker, now: datetime, cost: CostLimit | None = None) -> Decision:
        """Decide what to plan on a table. `known` is what is known of it. Raises NotFoundError when the table was forgotten meanwhile.

        `cost` says which nodes the GB-hours of the table's team reach. It bounds a tick alone. Without it, a tick plans nothing of a team
        with a limit of GB-hours, because nobody knows what else these are needed for.
        """
        entry = self._catalogs.entry(known.table.catalog)
        reads = asker is Asker.READER
        of_catalog = OfCatalog(
            entry.properties,
            entry.observe and asker not in (Asker.READER, Asker.OBSERVER),
            why_left_out(known.table, entry.properties) or why_format_left_out(known.table, known.layout, entry.properties),
            known.policies,
        )
        admitted = admission(known.index, known.whole, of_catalog, paused=known.paused and not reads, force=request.force)
        if isinstance(admitted, PlanReason):
            if admitted.code is PlanReasonCode.OBSERVED and asker in (Asker.TICK, Asker.REVIEW):
                judged = self.decide(known, request, Asker.OBSERVER, now)
                return Decision(CompactionPlan((), admitted, judged.plan.verdicts), distrusted=judged.distrusted)
            return Decision(CompactionPlan((), admitted))
        group = self._rooms.group(admitted.properties.group)
        if group is None:
            return Decision(CompactionPlan.empty(PlanReasonCode.GROUP_MISSING, group_missing_text(admitted.properties.group)))
        payer = self._rooms.payers.of(known, entry.properties)
        seen = replace(self._look(known, admitted, group, request, asker, now), payer=payer)
        if payer.held is not None and asker in (Asker.TICK, Asker.PERSON):
            seen = replace(seen, budget=replace(seen.budget, team_held=payer.held))
        elif payer.left is not None and asker is Asker.TICK and not request.force:
            seen = replace(seen, budget=replace(seen.budget, cost=cost or CostLimit(payer.team, payer.left)))
        decision = replace(self._decide(known, admitted, seen, request, asker), team=payer.team)
        if decision.plan.tasks and asker in (Asker.TICK, Asker.PERSON, Asker.READER):
            decision = replace(decision, plan=self._rooms.payers.predicted(decision.plan, known.table, now))
        return decision if seen.budget.team_held is None else _held_by_team(decision, seen.budget.team_held, known.planning.reason)

    def decide_by_files(self, known: KnownTable, now: datetime) -> Decision:
        """Decide what is due on a table by its files alone, as somebody who sees the table for the first time.

        No interval has passed, no task holds a file, nothing has failed, and nothing bounds the plan. A table of a catalog that is only
        observed is decided too. Raises NotFoundError when the table was forgotten meanwhile.
        """
        properties = self._catalogs.entry(known.table.catalog).properties
        of_catalog = OfCatalog(properties, policies=known.policies)
        admitted = admission(known.index, known.whole, of_catalog, paused=known.paused, force=False)
        if isinstance(admitted, PlanReason):
            return Decision(CompactionPlan((), admitted))
        history = NodeHistory(last_old_spec_delete_at=known.index.last_old_spec_delete_at)
        nodes = tuple(self._reader.nodes(known.table))
        seen = _Seen(InUse(), nodes, (), {}, history, _UNLIMITED, now, by_person=True)
        return self._decide_by(known, admitted, seen, PlanRequest())

    def _decide(self, known: KnownTable, admitted: Admitted, seen: _Seen, request: PlanRequest, asker: Asker) -> Decision:
        if asker in (Asker.TICK, Asker.OBSERVER) and seen.nodes and not request.force and request.nodes is None:
            reached = self._parts.reached_from_elsewhere(known.table, admitted.read.loaded.layout)
            nodes = nodes_to_look_at(seen.nodes, seen.worked(open_only=False), admitted.properties, global_deletes=reached)
            waits = self._waits(known, admitted, seen, nodes, reached, plans=asker is Asker.TICK)
            if waits is not None:
                return Decision(CompactionPlan((), waits), admitted)
            seen = replace(seen, nodes=tuple(nodes))
        if seen.budget.cost is not None and seen.budget.cost.costs and request.nodes is None:
            # Only a plan of the whole table says that no node of it is reached.
            self._cut_at[known.table] = _cut_key(seen)
        if not (seen.by_person or request.force):
            nodes_seen = [node.node for node in seen.nodes]
            seen = replace(seen, waits=self._waits_of.find(known.table, admitted.properties, nodes_seen, seen.history, seen.now))
        return self._decide_by(known, admitted, seen, request)

    def _decide_by(self, known: KnownTable, admitted: Admitted, seen: _Seen, request: PlanRequest) -> Decision:
        """Decide by what was seen, and by the files."""
        layout, text = admitted.read.loaded.layout, admitted.properties.filter
        try:
            lets_in = self._scan.partition_filter(known.table, layout, text) if text and obeys_filter(request) else _lets_all_in
        except ConfigError as error:
            return Decision(CompactionPlan.empty(PlanReasonCode.INVALID_PROPERTY, str(error)))
        if layout.keyed is not None:
            return self._decide_keyed(known, admitted, seen, request, lets_in)
        return self._decide_plain(known, admitted, seen, request, lets_in)

    def _look(
        self, known: KnownTable, admitted: Admitted, group: ResourceGroup, request: PlanRequest, asker: Asker, now: datetime
    ) -> _Seen:
        """Read what the decision depends on besides the files."""
        table = known.table
        by_person = asker in (Asker.PERSON, Asker.READER)
        # The files in use are read before the indexed files. When a task is committed in between, its commit marks the index as outdated
        # before it frees the files, so this plan is refused.
        in_use = self._tasks.in_use(table)
        if by_person:
            in_use = in_use.for_person()
        nodes = self._reader.nodes(table, request.nodes)
        tasks = self._tasks.tasks(table, (*OPEN, TaskStatus.FAILED))
        if not by_person:
            # A person waits for these tasks. A tick would replace them by tasks without their place in line.
            people = admitted.properties.priority + FOR_PEOPLE
            in_use = in_use.without_replacing(frozenset(task.task_id for task in tasks if task.priority >= people)).keeping(tasks)
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
        history = history_of(nodes, last_planned_at, known.index.last_old_spec_delete_at)
        return _Seen(in_use, tuple(nodes), tuple(tasks), failing, history, budget, now, by_person)

    def _waits(
        self, known: KnownTable, admitted: Admitted, seen: _Seen, nodes: Sequence[NodeState], reached: bool, *, plans: bool
    ) -> PlanReason | None:
        """Return why a tick need not look at the files of a table now; None when it must. `nodes` are those that may be due.

        `plans` is False when the tick would only judge them.
        """
        properties = admitted.properties
        idle = not plans or seen.budget.is_used_up or is_pausing(seen.history.last_planned_at, properties, seen.now)
        # The hours that are left grow at midnight, or with the limit. Until then nothing that was cut is reached.
        idle = idle or (are_cut(nodes) and self._cut_at.get(known.table) == _cut_key(seen))
        told = are_told(nodes, seen.failing) and not due_by_time(nodes, properties, seen.now, global_deletes=reached)
        if nodes and not (idle and told):
            return None
        reason = what_waits(nodes) or known.planning.reason or UNCHANGED
        # When no node is left, somebody else did the work that waited for room.
        return UNCHANGED if not nodes and reason.code is PlanReasonCode.QUEUE_FULL else reason

    def _decide_plain(self, known: KnownTable, admitted: Admitted, seen: _Seen, request: PlanRequest, lets_in: LetsIn) -> Decision:
        table, read = known.table, admitted.read
        nodes = _metrics(seen.nodes)
        if lets_in is not _lets_all_in and self._parts.reached_from_elsewhere(table, read.loaded.layout):
            # The plan is about all nodes of the table then, not only about those that a tick looks at.
            nodes = _metrics(self._reader.nodes(table, request.nodes))
        left_out = nodes_left_out(nodes, lets_in, request)
        if left_out:
            seen = replace(seen, nodes=tuple(node for node in seen.nodes if node.node not in left_out))
            request = _without(request, nodes, lets_in)
        planning = Planning(seen.in_use, admitted.properties.forced(), request, seen.history, seen.budget, seen.now, seen.waits)
        worked = seen.worked(open_only=True)
        for files, decided in self._parts.parts(table, admitted, seen.nodes, worked, planning, force=request.force):
            younger = next((file for file in files.files if file.data_sequence_number > read.sequence_number), None)
            if younger is not None and read.is_same_read(self._reader.state(table).whole):
                text = f"file {younger.path} is younger than the snapshot that was read; the table must be read again"
                return Decision(CompactionPlan.empty(PlanReasonCode.BEING_READ, text), distrusted=read)
            planning.add(files, decided)
        if not read.is_same_read(self._reader.state(table).whole):
            return Decision(CompactionPlan.empty(PlanReasonCode.BEING_READ, _CHANGED))
        plan = with_left_out(without_failing(planning.plan(), seen.failing), left_out, admitted.properties)
        return Decision(plan, admitted, room=seen.budget.room)

    def _decide_keyed(self, known: KnownTable, admitted: Admitted, seen: _Seen, request: PlanRequest, lets_in: LetsIn) -> Decision:
        """Plan from both stores as they are now. They are loaded after the open tasks were read.

        A commit in between frees its partitions too late for this plan, so none is planned twice. What this program knows of the table may
        be older; the next refresh finds out.
        """
        head = self._scan.head(known.table)
        stored = admitted.read.loaded
        # A worker gets the stored layout, so tasks with newer columns would only use up their attempts.
        if head.table_uuid != stored.table_uuid or not stored.layout.has_columns_of(head.layout):
            return Decision(CompactionPlan.empty(PlanReasonCode.BEING_READ, _CHANGED))
        if head.refusal is not None:
            return Decision(CompactionPlan.empty(PlanReasonCode.REFUSED, head.refusal))
        properties, of_base = admitted.properties.forced(), head.layout.properties
        work = in_work(seen.tasks, seen.in_use.paths, by_person=seen.by_person)
        try:
            content = self._scan.keyed_content(head, seen.now)
            nodes = measure_keyed(content.files, of_base, properties) if lets_in is not _lets_all_in else {}
            left_out = nodes_left_out(nodes, lets_in, request)
            request = _without(request, nodes, lets_in) if left_out else request
            of = Circumstances(properties, request, seen.history, seen.now, seen.waits)
            plan = plan_keyed(content, of_base, work, of, seen.budget)
        except TableRefused as refusal:
            return Decision(CompactionPlan.empty(PlanReasonCode.REFUSED, str(refusal)))
        read = replace(
            admitted.read,
            loaded=LoadedTable(head.table_uuid, head.layout),
            snapshot_id=head.snapshot_id or NO_SNAPSHOT,
            sequence_number=head.sequence_number,
        )
        failing = {node.node: reason for node in seen.nodes for reason in [seen.failing_beside(node.node)] if reason is not None}
        plan = with_left_out(without_failing(plan, {**seen.failing, **failing}), left_out, properties)
        return Decision(plan, replace(admitted, read=read), room=seen.budget.room)

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


def _cut_key(seen: _Seen) -> object:
    """What changes when nodes that were cut may be reached: the limit, and each hour, because ranks and predictions change too."""
    return seen.payer.gb_hours, seen.now.replace(minute=0, second=0, microsecond=0)


def _held_by_team(decision: Decision, held: str, before: PlanReason | None) -> Decision:
    """Let the reason of a table whose team may begin nothing be that, also when its work waits as tasks already.

    `before` is the reason that the table has. It stays while it says the same, because the figures in it change with each tick.
    """
    plan = decision.plan
    if plan.tasks or plan.reason.code in NOT_ADMITTED | NOTHING_TO_DO:
        return decision
    code = PlanReasonCode.OVER_TEAM_BUDGET
    reason = before if before is not None and before.code is code else PlanReason(code, held)
    return replace(decision, plan=replace(plan, reason=reason))


def _lets_all_in(place: Place) -> bool:
    return True


def _metrics(nodes: Sequence[NodeState]) -> Mapping[TableNode, NodeMetrics]:
    return {node.node: node.metrics for node in nodes}


def _without(request: PlanRequest, nodes: Mapping[TableNode, NodeMetrics], lets_in: LetsIn) -> PlanRequest:
    """The request for those of these nodes that were asked for and that the filter lets in."""
    left_out = nodes_left_out(nodes, lets_in, request)
    asked = nodes if request.nodes is None else request.nodes
    return replace(request, nodes=frozenset(node for node in asked if node not in left_out))
