"""Plans tables for those who ask: decides, puts the tasks into the queue, and keeps what the plan found.

`decide_plan` says what to plan. `table_parts` says which files must be read for it. Only this module writes what is known of a table's
plans (`TablePlanning`) and the verdicts of its nodes, in the process that holds the table's plan lease.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from compaction_pipeline.core.errors import AccessDenied
from compaction_pipeline.core.fragmentation.verdict import NodeVerdict, PlanReason, PlanReasonCode, since_first_due
from compaction_pipeline.core.insight.known_table import KnownTable
from compaction_pipeline.core.insight.ports import TableReader
from compaction_pipeline.core.leases.holders import held_in_words
from compaction_pipeline.core.leases.names import plan_lease
from compaction_pipeline.core.leases.ports import HeldLeases, Renew
from compaction_pipeline.core.planning.line import waits_since
from compaction_pipeline.core.planning.plan import CompactionPlan, CostLimit, PlanRequest
from compaction_pipeline.core.planning.ports import PlanningStore
from compaction_pipeline.core.planning.table_planning import TablePlanning
from compaction_pipeline.core.planning.tasks_of_plan import tasks_of_plan
from compaction_pipeline.core.queue.group import QueueFull, QueueRoom
from compaction_pipeline.core.queue.known_task import KnownTask
from compaction_pipeline.core.queue.order import FOR_PEOPLE
from compaction_pipeline.core.queue.ports.tasks import TaskStore
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.work.work import Work
from compaction_pipeline.services.planning.decide_plan import Asker, DecidePlan, Decision

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan, and the tasks that it put into the queue.

    `busy` is True when another process was in the way: it plans or reads the table, it polled a task that this plan would have replaced, or
    its plans filled the queue. The same plan may be made a little later.
    """

    plan: CompactionPlan
    tasks: tuple[KnownTask, ...] = ()
    busy: bool = False


class PlanTables:
    """Three verbs on the same decision: `explain` only returns it, `plan` also queues its tasks, and `judge` keeps its verdicts.

    `due_now` decides by the files alone, and `wanted` as a tick would if its team had enough GB-hours. Both keep nothing.
    """

    def __init__(
        self,
        reader: TableReader,
        planning: PlanningStore,
        tasks: TaskStore,
        decide_plan: DecidePlan,
        leases: HeldLeases,
        new_id: Callable[[], str],
        check_writable: Callable[[TableIdentifier], None] = lambda table: None,
    ) -> None:
        self._reader = reader
        self._planning = planning
        self._tasks = tasks
        self._decide_plan = decide_plan
        self._leases = leases
        self._clock = leases.clock
        self._new_id = new_id
        self._check_writable = check_writable

    def explain(self, table: TableIdentifier, request: PlanRequest | None = None) -> CompactionPlan:
        """The plan that would be made now. Nothing is queued. Raises NotFoundError when the table is unknown."""
        decision = self._decide_plan.decide(self._reader.state(table), request or PlanRequest(), Asker.READER, self._clock())
        if decision.distrusted is not None:
            self._note(table, lambda planning: _after(planning, decision))
        return decision.plan

    def due_now(self, table: TableIdentifier) -> CompactionPlan:
        """The plan of somebody who sees the table for the first time: what is due by its files alone (`DecidePlan.decide_by_files`).

        Nothing is queued or kept. Raises NotFoundError when the table is unknown.
        """
        return self._decide_plan.decide_by_files(self._reader.state(table), self._clock()).plan

    def wanted(self, known: KnownTable, request: PlanRequest) -> Sequence[Work]:
        """The work that a tick could plan now if nothing bounded it. Raises NotFoundError when the table was forgotten meanwhile."""
        return self._decide_plan.decide(known, request, Asker.TICK, self._clock()).plan.due

    def plan(
        self, table: TableIdentifier, request: PlanRequest | None = None, *, unlimited: bool = False, cost: CostLimit | None = None
    ) -> Planned:
        """Make a plan and queue its tasks. Raises NotFoundError when the table is unknown.

        `cost` says which nodes the GB-hours of the table's team reach. Without it, a team with a limit of GB-hours gets nothing planned, if
        no person asked.
        `unlimited` is True when a person asked. Then neither the quota, nor `self-optimizing.min-plan-interval`, nor the pause of failing
        nodes bounds the plan, only the capacity of the queue. A paused table is still not planned.
        """
        with self._lease(table) as renew:
            if renew is None:
                holder = self._leases.holder(plan_lease(table))
                return _busy(held_in_words(holder, "planning this table"))
            known = self._reader.state(table)
            asker = Asker.PERSON if unlimited else Asker.TICK
            return self._plan(known, request or PlanRequest(), asker, renew, cost)

    def judge(self, table: TableIdentifier) -> None:
        """Decide every node anew and keep the verdicts. Nothing is queued.

        This is called after work, so that the verdicts say what is due after it. When another process plans the table just now, this
        does nothing, because the verdicts of that process are as new.
        """
        with self._lease(table) as renew:
            if renew is None:
                return
            known = self._reader.state(table)
            decision = self._decide_plan.decide(known, PlanRequest(), Asker.REVIEW, self._clock())
            if not renew():
                return
            # A `NO_ACCESS` that a plan found stays as the reason until the next plan.
            planning = _after(known.planning, decision)
            if decision.made_from is not None and not known.planning.is_denied:
                planning = replace(planning, reason=decision.plan.reason)
            self._keep(known, planning, decision.plan.verdicts)

    def note_problem(self, table: TableIdentifier, problem: str) -> None:
        """Show on a table why it could not be planned. The next plan that succeeds removes the problem."""
        self._note(table, lambda planning: replace(planning, problem=problem))

    def note_denied(self, table: TableIdentifier, reason: str) -> bool:
        """Show on a table that its storage denied access to a merge. The table waits, and its next plan tries to write.

        Returns False and shows nothing when another process plans the table just now.
        """
        return self._note(table, lambda planning: replace(planning, reason=PlanReason(PlanReasonCode.NO_ACCESS, reason)))

    def _lease(self, table: TableIdentifier) -> AbstractContextManager[Renew | None]:
        """Hold the table's plan lease, and renew it beside the block. Yield how to renew it, or None when another process holds it."""
        return self._leases.hold(plan_lease(table))

    def _note(self, table: TableIdentifier, change: Callable[[TablePlanning], TablePlanning]) -> bool:
        """Change what is known of a table's plans. Returns False and changes nothing when another process plans the table just now."""
        with self._lease(table) as renew:
            if renew is None:
                log.info("table=%s is being planned by another process, which finds out by itself what is wrong", table)
                return False
            self._planning.save(table, change(self._reader.state(table).planning))
            return True

    def _plan(self, known: KnownTable, request: PlanRequest, asker: Asker, is_held: Renew, cost: CostLimit | None) -> Planned:
        decision = self._decide_plan.decide(known, request, asker, self._clock(), cost)
        # A tick keeps the plans of all its tables for a while. Work that this one leaves out would only fill the memory.
        plan, planning = replace(decision.plan, due=()), _after(known.planning, decision)
        if not is_held():
            return _lease_lost()
        if not request.force and request.nodes is None:
            # A plan that was forced, or limited to some nodes, does not tell why the table waits, so its reason is not kept.
            planning = replace(planning, reason=plan.reason)
            # A plan that was put off says nothing about the work that waits, so the table keeps its place in line.
            if asker is Asker.TICK and plan.reason.code not in (PlanReasonCode.BEING_READ, PlanReasonCode.MIN_PLAN_INTERVAL):
                planning = replace(planning, queue_full_since=waits_since(plan, planning.queue_full_since, self._clock()))
        if decision.made_from is None or not plan.tasks:
            self._keep(known, planning, plan.verdicts)
            return Planned(plan, busy=plan.reason.code is PlanReasonCode.BEING_READ and known.index.problem is None)
        try:
            # Without this check each merge would find out only at its end that it may not write.
            self._check_writable(known.table)
        except AccessDenied as error:
            denied = CompactionPlan.empty(PlanReasonCode.NO_ACCESS, str(error))
            if not is_held():
                return _lease_lost()
            self._keep(known, replace(planning, reason=denied.reason), plan.verdicts)
            log.warning("table=%s not planned: %s", known.table, error)
            return Planned(denied)
        if not is_held():
            return _lease_lost()
        now = self._clock()
        ahead = FOR_PEOPLE if asker is Asker.PERSON else 0
        tasks = tasks_of_plan(plan, self._new_id(), known.table, decision.made_from, request.snapshot_properties, now, ahead)
        try:
            if not self._tasks.insert(tasks, plan.replaces, now, _for_insert(decision.room, len(tasks)), decision.team):
                return _busy("a task that this plan replaces started meanwhile; the table is planned again later")
        except QueueFull as full:
            return _busy(f"other plans were faster: {full}; the table is planned again later")
        reason = plan.reason if known.planning.is_denied else planning.reason
        self._keep(known, replace(planning, reason=reason, last_planned_at=now), plan.verdicts)
        log.info("table=%s plan=%s tasks=%d replaced=%d", known.table, tasks[0].plan_id, len(tasks), len(plan.replaces))
        return Planned(plan, tasks)

    def _keep(self, known: KnownTable, planning: TablePlanning, verdicts: Sequence[NodeVerdict]) -> None:
        """Store what a plan of the table found, and its verdicts."""
        if planning != known.planning:
            self._planning.save(known.table, planning)
        self._save_verdicts(known.table, verdicts)

    def _save_verdicts(self, table: TableIdentifier, verdicts: Sequence[NodeVerdict]) -> None:
        known = {state.node: state for state in self._reader.nodes(table, [verdict.node for verdict in verdicts])}
        now = self._clock()
        dated = [
            since_first_due(verdict, known[verdict.node], now)
            for verdict in verdicts
            # A plan of some nodes says nothing about the others, so their last verdicts stand.
            if verdict.node in known and verdict.reason.code is not PlanReasonCode.NOT_REQUESTED
        ]
        changed = [verdict for verdict in dated if known[verdict.node].verdict != verdict]
        if changed:
            self._planning.save_verdicts(table, changed)


def _after(planning: TablePlanning, decision: Decision) -> TablePlanning:
    """Return the table's planning after a plan that could be made.

    The plan may have found that the index is wrong. The planning then names that read of the index.
    """
    distrusted = decision.distrusted.read_id if decision.distrusted is not None else planning.distrusted_read_id
    return replace(planning, problem=None, distrusted_read_id=distrusted)


def _for_insert(room: QueueRoom | None, tasks: int) -> QueueRoom | None:
    """Return the room that the insert must keep to.

    A plan of more tasks than were free may exceed it (`first`); any other plan must still fit when it is inserted.
    """
    return None if room is None else replace(room, first=room.first and tasks > room.free)


def _busy(reason: str) -> Planned:
    return Planned(CompactionPlan.empty(PlanReasonCode.FILES_IN_USE, reason), busy=True)


def _lease_lost() -> Planned:
    """This process stood still for longer than its lease. Another one may have planned the same files, and knows better."""
    return _busy("the lease of this plan ended while it was made; the table is planned again later")
