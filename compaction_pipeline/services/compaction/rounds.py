"""The rounds of a compaction: plan what is asked for, merge it, commit it, and plan again what is left.

Rounds follow for nodes whose tasks a commit rejected or a newer plan replaced, and for nodes for which the queue had no room at first.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

from compaction_pipeline.core.commit.record import CompactionRecord
from compaction_pipeline.core.ids import TaskId
from compaction_pipeline.core.insight.listener import SILENT, CompactionListener
from compaction_pipeline.core.planning.conflict_rounds import Requests, in_rounds, to_plan_again
from compaction_pipeline.core.planning.plan import CompactionPlan, PlanRequest
from compaction_pipeline.core.queue.awaited import is_replaced
from compaction_pipeline.core.queue.drain import Beside, Drained, never
from compaction_pipeline.core.queue.known_task import KnownTask
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.services.planning.plan_tables import Planned


@dataclass(frozen=True, slots=True)
class How:
    """How requests are carried out.

    `beside` is what free slots take. With EVERY_QUEUE, tables that are due are committed beside the merges too. `listener` hears what
    happens, and `run_id` is the run of Dagster that asks. The rest counts with EVERY_QUEUE only. When `until()` is true, no further round
    begins. Without a request, the end comes then too, or when no task has waited for `linger`. While `in_a_hurry()` is true, no commit of
    a further table begins.
    """

    beside: Beside = Beside.NOTHING
    listener: CompactionListener = SILENT
    run_id: str | None = None
    until: Callable[[], bool] = never
    linger: timedelta = timedelta(0)
    in_a_hurry: Callable[[], bool] = never


@dataclass
class Outcome:
    """What was carried out so far.

    `plans` has the last plan of each table that made tasks; the first plan when none did. `records` are the commits that were made or
    found, newest last, and `tasks` their tasks and those that were planned. `failed` says why tasks failed. `held` says which processes
    held files of requested nodes when a table was planned last, and `waiting` that when nothing could be planned, or why planned work was
    not committed.
    `drained` is what the merges of the last round did.
    """

    plans: dict[TableIdentifier, CompactionPlan] = field(default_factory=dict)
    tasks: list[KnownTask] = field(default_factory=list)
    records: list[CompactionRecord] = field(default_factory=list)
    failed: dict[TaskId, str] = field(default_factory=dict)
    waiting: dict[TableIdentifier, str | None] = field(default_factory=dict)
    held: dict[TableIdentifier, str | None] = field(default_factory=dict)
    drained: Drained = field(default_factory=Drained)


class Rounds(ABC):
    """One call. It knows no store and no other service: a subclass plans tables, and merges and commits their tasks."""

    def __init__(self, asked: Requests, how: How) -> None:
        self._asked = asked
        self._how = how
        self._done = Outcome()
        self._lacking: dict[TableIdentifier, frozenset[TableNode]] = {}
        """The nodes for which the queue had no room."""

    def carry_out(self) -> Outcome:
        """Plan, merge and commit in rounds. `CompactTables.carry_out` says more."""
        in_rounds(self._asked, self._round)
        while self._lacking:
            # The queue had no room for all tasks at once. The tasks of the last round are merged now.
            # Nodes whose tasks failed for good would be planned again without end.
            failed = {(task.table, task.work.node) for task in self._done.tasks if task.task_id in self._done.failed}
            rest = {table: frozenset(node for node in nodes if (table, node) not in failed) for table, nodes in self._lacking.items()}
            self._lacking = {}
            if requests := {table: replace(self._asked[table], nodes=nodes) for table, nodes in rest.items() if nodes}:
                in_rounds(requests, self._round)
        return self._done

    def _round(self, requests: Requests) -> Requests:
        """Plan, merge and commit once. Return the requests for what must be planned again."""
        plans: dict[TableIdentifier, Planned] = {}
        for table, request in requests.items():
            self._how.listener.reading(table)
            planned = self._planned(table, request)
            if planned is not None:
                plans[table] = planned
        own = [task for planned in plans.values() for task in planned.tasks]
        self._merge(own)
        open_ends = self._commit(own)
        if self._how.until():
            self._note_no_room({table: planned.plan.without_room for table, planned in plans.items()})
            return {}
        for table, planned in plans.items():
            if planned.tasks and table not in open_ends:
                self._lacking[table] = self._lacking.get(table, frozenset()) | planned.plan.without_room
        self._note_no_room({table: planned.plan.without_room for table, planned in plans.items() if not planned.tasks})
        ended = self._ended(own)
        gone = {task.task_id for task in ended if is_replaced(task)}
        self._done.tasks = [task for task in self._done.tasks if task.task_id not in gone]
        again: dict[TableIdentifier, PlanRequest] = {}
        for table, request in {**self._asked, **requests}.items():
            more = to_plan_again(request, [task for task in ended if task.table == table], self._done.failed)
            if more is not None and table not in open_ends:
                again[table] = more
        return again

    @abstractmethod
    def _planned(self, table: TableIdentifier, request: PlanRequest) -> Planned | None:
        """Plan a table, and tell the listener. Return None when it cannot be planned."""

    @abstractmethod
    def _merge(self, own: Sequence[KnownTask]) -> None:
        """Merge these tasks, and note why tasks failed."""

    @abstractmethod
    def _commit(self, own: Sequence[KnownTask]) -> frozenset[TableIdentifier]:
        """Commit these tasks, and note the records. Return the tables with which nothing more may be done now."""

    @abstractmethod
    def _note_no_room(self, nodes: dict[TableIdentifier, frozenset[TableNode]]) -> None:
        """Note that these requested nodes have no tasks, because the queue is full and this compaction makes no room."""

    @abstractmethod
    def _ended(self, own: Sequence[KnownTask]) -> Sequence[KnownTask]:
        """Return the tasks of a round as they ended."""

    def _note(self, table: TableIdentifier, planned: Planned) -> None:
        """Note a plan and its tasks."""
        plan, before = planned.plan, self._done.plans.get(table)
        if before is None:
            self._done.plans[table] = plan
        elif planned.tasks:
            self._done.plans[table] = replace(plan, verdicts=before.judged_again(plan).verdicts)
        else:
            self._done.plans[table] = before.judged_again(plan)
        self._done.tasks += planned.tasks
