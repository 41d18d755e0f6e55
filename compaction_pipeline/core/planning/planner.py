"""Chooses the tasks of one table: which nodes are due, for which type, and which files go into which task.

`fragmentation.triggers` decides whether a MINOR or a FULL is due, and `major` whether a MAJOR is. `node_planner` decides about the nodes of
one part: `minor`, `major` and `full` choose a node's data files, `node_view` packs them into bins, and `conversions` handles the deletes
of data files that stay. `budget` cuts the plan to the quota, and `prediction` computes what the table's files are afterwards.
CONTRACT.md beside this file has the order of the decisions and the laws of a plan.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime

from compaction_pipeline.core.fragmentation.clock import is_pausing
from compaction_pipeline.core.fragmentation.triggers import full_trigger, minor_trigger_of
from compaction_pipeline.core.fragmentation.verdict import NodeHistory, NodeVerdict, PlanReason, PlanReasonCode
from compaction_pipeline.core.ids import TaskId
from compaction_pipeline.core.planning.budget import limit_in_words, node_gains, within_budget
from compaction_pipeline.core.planning.node_planner import NodeDecision, PlannedPart
from compaction_pipeline.core.planning.plan import Budget, CompactionPlan, PlanRequest
from compaction_pipeline.core.planning.prediction import predicted
from compaction_pipeline.core.queue.open_work import InUse
from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.core.tables.figures import NodeFigures, NodeMetrics
from compaction_pipeline.core.tables.live_files import TableFiles
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.properties import TableProperties
from compaction_pipeline.core.words import count_text, duration_text
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.core.work.work import DropDeletes, PlainWork

_MINOR, _MAJOR, _FULL = CompactionType.MINOR, CompactionType.MAJOR, CompactionType.FULL
_EMPTY_TABLE = CompactionPlan((), PlanReason(PlanReasonCode.EMPTY_TABLE, "the table has no files"))
_NONE_ASKED_FOR = PlanReason(PlanReasonCode.NOT_REQUESTED, "none of the requested nodes has files")
_HELD_FILES = 100_000
"""When the tasks have more input files than this, tasks that exceed the budget are dropped before the next part. This bounds memory."""
_HELD = (PlanReasonCode.MIN_PLAN_INTERVAL, PlanReasonCode.QUEUE_FULL, PlanReasonCode.OVER_BUDGET, PlanReasonCode.FILES_IN_USE)
"""The reasons that hold back due work; a reason for the whole table comes before one for a node."""


def plan(
    files: TableFiles,
    in_use: InUse,
    properties: TableProperties,
    request: PlanRequest,
    history: NodeHistory,
    budget: Budget,
    now: datetime,
) -> CompactionPlan:
    """Choose the tasks of one table. Pure: the same arguments give the same plan."""
    if not files.files:
        return _EMPTY_TABLE
    planning = Planning(in_use, properties, request, history, budget, now)
    planning.add(files)
    return planning.plan()


class Planning:
    """Makes a plan from a table's files part by part, so that a million files need not be in memory at once.

    A part holds all files of its nodes, and the files of other nodes that matter to them (`FileStore.files`). Two parts must not decide
    about the same node. When a global equality delete is live, it connects all nodes, and the whole table must be one part.
    """

    def __init__(
        self,
        in_use: InUse,
        properties: TableProperties,
        request: PlanRequest,
        history: NodeHistory,
        budget: Budget,
        now: datetime,
    ) -> None:
        self._in_use, self._properties, self._request = in_use, properties, request
        self._history, self._budget, self._now = history, budget, now
        self._decisions: dict[TableNode, NodeDecision] = {}
        self._metrics: dict[TableNode, NodeMetrics] = {}
        self._tasks: list[PlainWork] = []
        self._gains: dict[TableNode, int] = {}
        # A prediction needs all files of the nodes with tasks. It also needs every node's dangling delete files: any commit drops them.
        self._files: dict[TableNode, Sequence[LiveFile]] = {}
        self._dangling: dict[TableNode, list[LiveFile]] = {}
        self._part: PlannedPart | None = None

    def add(self, files: TableFiles, nodes: Collection[TableNode] | None = None) -> None:
        """Decide about `nodes` by the files of a part. None means all nodes of the part."""
        part = PlannedPart(files, self._in_use, self._properties, self._request, self._history, self._now, nodes)
        decisions, tasks = part.chosen()
        self._part = part
        self._decisions.update(decisions)
        self._metrics.update((node, part.metrics[node]) for node in decisions)
        for node, gained in node_gains(tasks).items():
            self._gains[node] = gained
            self._files[node] = (*part.nodes[node].data, *part.nodes[node].deletes)
        for file in part.reach.dangling():
            if file.path in part.duplicate_deletes:
                continue  # A commit never drops a delete file that is live twice.
            if file.node in decisions:
                self._dangling.setdefault(file.node, []).append(file)
        self._tasks += tasks
        if sum(len(work.inputs) for work in self._tasks) > _HELD_FILES:
            self._tasks = within_budget(self._tasks, self._budget, self._gains)
            kept = {work.node for work in self._tasks}
            self._files = {node: held for node, held in self._files.items() if node in kept}

    def add_by_figures(self, node: TableNode, figures: NodeFigures) -> bool:
        """Leave a node alone when its sums show that nothing is due, and return True. False means that `add` must decide by its files.

        The node must have no file in a task, and no delete of another node may reach it.
        """
        request, properties, metrics = self._request, self._properties, figures.metrics
        if request.force or not properties.enabled or metrics.delete_files or node in self._in_use.exclusive_nodes:
            return False
        # The node has no deletes, so a MAJOR could only join undersized files, and it needs two of them.
        small = (metrics.small_data_files, metrics.small_data_bytes)
        minor = minor_trigger_of(node, small, (0, 0), self._history, properties, self._now)
        full = full_trigger(node, self._history, properties, self._now)
        if figures.undersized_files > 1 or minor.due or full.due:
            return False
        self._decisions[node] = NodeDecision(PlanReasonCode.NOT_FRAGMENTED, minor.text)
        self._metrics[node] = metrics
        return True

    def plan(self) -> CompactionPlan:
        """Return the plan of all parts together."""
        if not self._decisions:
            return _EMPTY_TABLE if self._request.nodes is None else CompactionPlan((), _NONE_ASKED_FOR)
        tasks = self._tasks if self._gains else self._drop()
        held = self._hold_back()
        planned = () if held else tuple(within_budget(tasks, self._budget, self._gains))
        if not held:
            self._mark_cut(tasks, planned)
        data, deletes, size = self._predicted(self._part, planned)
        return CompactionPlan(
            tasks=planned,
            reason=self._summary(planned),
            verdicts=tuple(
                NodeVerdict(node, decision.type, PlanReason(decision.code, decision.text), self._metrics[node])
                for node, decision in self._decisions.items()
            ),
            replaces=self._replaces(planned),
            predicted_files=data,
            predicted_delete_files=deletes,
            predicted_bytes=size,
            cut=frozenset() if held else self._cut(tasks, planned),
        )

    def _predicted(self, part: PlannedPart | None, planned: tuple[PlainWork, ...]) -> tuple[int, int, int]:
        """Return the numbers of data files and of delete files in the table after these tasks, and the bytes of both."""
        after: list[LiveFile] = []
        if part is not None and part.reach.everywhere.deletes:
            after = list(predicted(part.files, planned).files)
            apart: Collection[TableNode] = ()
        else:
            nodes = {work.node: None for work in planned}
            held = tuple(file for node in nodes for file in self._files.get(node, ()))
            if part is not None and held:
                after = list(predicted(replace(part.files, files=held), planned).files)
            apart = [node for node in self._metrics if node not in self._files or node not in nodes]
        data = sum(1 for file in after if file.is_data) + sum(self._metrics[node].data_files for node in apart)
        deletes = sum(1 for file in after if not file.is_data) + sum(self._metrics[node].delete_files for node in apart)
        size = sum(file.file_size_bytes for file in after)
        size += sum(self._metrics[node].data_bytes + self._metrics[node].delete_bytes for node in apart)
        if planned:
            dropped = [file for node in apart for file in self._dangling.get(node, ())]
            deletes, size = deletes - len(dropped), size - sum(file.file_size_bytes for file in dropped)
        return data, deletes, size

    def _drop(self) -> list[PlainWork]:
        """Return a task that drops the dangling delete files, when a due node gains nothing else; otherwise no task."""
        due = [
            node
            for node, decision in self._decisions.items()
            if node in self._dangling and decision.code is PlanReasonCode.NO_GAIN and decision.type
        ]
        for node in due:
            self._decisions[node].code = PlanReasonCode.PLANNED
            self._decisions[node].text += f"; {count_text(len(self._dangling[node]), 'dangling delete file')} can be dropped"
        dangling = sorted((file for files in self._dangling.values() for file in files), key=lambda file: file.path)
        return [
            DropDeletes(
                node=node,
                type=self._decisions[node].type or _FULL,
                # The commit decides again which delete files it drops. The list only says what the task is about.
                deletes=tuple(dangling),
                output_spec_id=node.spec_id,
                target_size_bytes=self._properties.target_size_bytes,
                fragment_size_bytes=self._properties.fragment_size_bytes,
                predicted_files=0,
            )
            for node in due[:1]
        ]

    def _hold_back(self) -> bool:
        """Return whether the last plan is too recent for another one, and mark the due nodes. A forced request never waits."""
        last, least = self._history.last_planned_at, self._properties.min_plan_interval
        if self._request.force or last is None or not is_pausing(last, self._properties, self._now):
            return False
        for decision in self._decisions.values():
            if decision.code is PlanReasonCode.PLANNED:
                decision.code = PlanReasonCode.MIN_PLAN_INTERVAL
                ago = duration_text(self._now - last)
                decision.text += f"; the table was planned {ago} ago, and at least {duration_text(least)} must pass between two plans"
        return True

    def _mark_cut(self, tasks: Sequence[PlainWork], planned: Sequence[PlainWork]) -> None:
        """Mark the nodes whose tasks all exceeded the budget, or did not fit into the queue."""
        working = {work.node for work in planned}
        for node in (*self._gains, *(work.node for work in tasks)):
            decision = self._decisions[node]
            if node not in working and decision.code is PlanReasonCode.PLANNED:
                left_out = [work for work in tasks if work.node == node]
                decision.code, limit = limit_in_words(self._budget, planned, left_out)
                decision.text += f"; it waits: {limit}"

    def _cut(self, tasks: Sequence[PlainWork], planned: Sequence[PlainWork]) -> frozenset[TableNode]:
        """Return the nodes of which a part is planned, while the queue has no room for the rest."""
        working, taken = {work.node for work in planned}, {id(work) for work in planned}
        left: dict[TableNode, list[PlainWork]] = {}
        for work in tasks:
            if work.node in working and id(work) not in taken:
                left.setdefault(work.node, []).append(work)
        full = PlanReasonCode.QUEUE_FULL
        return frozenset(node for node, rest in left.items() if limit_in_words(self._budget, planned, rest)[0] is full)

    def _replaces(self, planned: Sequence[PlainWork]) -> tuple[TaskId, ...]:
        """Return the Pending tasks whose files the planned tasks take, and all Pending tasks of their groups."""
        pending, groups = self._in_use.pending, self._in_use.pending_groups
        taken = {pending[file.path] for work in planned for file in work.inputs if file.path in pending}
        named = {groups[task_id] for task_id in taken if task_id in groups}
        return tuple(sorted(taken | {task_id for task_id, group in groups.items() if group in named}))

    def _summary(self, planned: Sequence[PlainWork]) -> PlanReason:
        """Return the reason of the whole plan: what is planned, or the most important reason for planning nothing."""
        if planned:
            nodes = {work.node: None for work in planned}
            inputs = sum(len(work.inputs) for work in planned)
            first = next(iter(nodes))
            words = f"{count_text(len(planned), 'task')} on {count_text(len(nodes), 'node')}, {count_text(inputs, 'data file')}"
            return PlanReason(PlanReasonCode.PLANNED, f"{words}; for example {first}: {self._decisions[first].text}")
        for code in _HELD:
            held = [node for node, decision in self._decisions.items() if decision.code is code]
            if held:
                return PlanReason(code, f"{count_text(len(held), 'node')} held back; {held[0]}: {self._decisions[held[0]].text}")
        asked = {node: decision for node, decision in self._decisions.items() if decision.code is not PlanReasonCode.NOT_REQUESTED}
        if not asked:
            return _NONE_ASKED_FOR
        if not self._properties.enabled:
            return PlanReason(PlanReasonCode.DISABLED, self._properties.disabled_by)
        copied = [node for node, decision in asked.items() if decision.code is PlanReasonCode.LIVE_TWICE]
        if copied:
            return PlanReason(
                PlanReasonCode.LIVE_TWICE, f"{count_text(len(copied), 'node')} left alone; {copied[0]}: {asked[copied[0]].text}"
            )
        gainless = [node for node, decision in asked.items() if decision.code is PlanReasonCode.NO_GAIN]
        if gainless:
            return PlanReason(PlanReasonCode.NO_GAIN, f"nothing to gain: in {gainless[0]}, {asked[gainless[0]].text}")
        best = max(asked, key=lambda node: max(self._metrics[node].small_data_files, self._metrics[node].small_delete_files))
        highest = max(self._metrics[best].small_data_files, self._metrics[best].small_delete_files)
        text = f"no node has {count_text(self._properties.minor_file_count, 'small file')}; the highest number is {highest}, in {best}"
        if highest >= self._properties.minor_file_count:  # Tasks hold these files, and the node's own reason says so.
            text = f"nothing more to plan now; {best}: {asked[best].text}"
        return PlanReason(PlanReasonCode.NOT_FRAGMENTED, text)
