"""Chooses the tasks of one plain table: which nodes are due, for which type, and which files go into which task.

A table is planned part by part (`part`, `part_planner`). `node_planner` decides about each node: `fragmentation.triggers` says whether a
MINOR or a FULL is due, and `major` whether a MAJOR is; `minor`, `major` and `full` choose the data files, and `node_view` packs them into
bins. `conversions` handles the deletes of data files that stay. `prediction` computes what the table's files are afterwards.
`planning/frame.py` does the rest, which is the same for every kind of table. CONTRACT.md beside it has the order of the decisions and the
laws of a plan.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime

from compaction_pipeline.core.fragmentation.triggers import minor_trigger_of
from compaction_pipeline.core.fragmentation.verdict import NodeHistory, NodeVerdict, PlanReason, PlanReasonCode
from compaction_pipeline.core.ids import TaskId
from compaction_pipeline.core.planning.budget import node_gains, within_budget
from compaction_pipeline.core.planning.frame import EMPTY_TABLE, NONE_ASKED_FOR, Judged, Verdicts, plan_of
from compaction_pipeline.core.planning.plain.node_planner import NodeDecision
from compaction_pipeline.core.planning.plain.part import Part
from compaction_pipeline.core.planning.plain.part_planner import PartPlanner
from compaction_pipeline.core.planning.plain.prediction import predicted
from compaction_pipeline.core.planning.plan import Budget, Circumstances, CompactionPlan, FilesAfter, PlanRequest
from compaction_pipeline.core.planning.waits import NOTHING_WAITS, Waits
from compaction_pipeline.core.queue.open_work import InUse
from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.core.tables.figures import NodeFigures, NodeMetrics
from compaction_pipeline.core.tables.live_files import TableFiles
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.properties import TableProperties
from compaction_pipeline.core.words import count_text
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.core.work.work import DropDeletes, PlainWork

_HELD_FILES = 100_000
"""When the tasks have more input files than this, tasks that exceed the budget are dropped before the next part. This bounds memory."""


def plan(
    files: TableFiles,
    in_use: InUse,
    properties: TableProperties,
    request: PlanRequest,
    history: NodeHistory,
    budget: Budget,
    now: datetime,
) -> CompactionPlan:
    """Choose the tasks of one plain table. Pure: the same arguments give the same plan."""
    if not files.files:
        return EMPTY_TABLE
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
        waits: Waits = NOTHING_WAITS,
    ) -> None:
        self._in_use, self._of, self._budget = in_use, Circumstances(properties, request, history, now, waits), budget
        self._decisions: dict[TableNode, NodeDecision] = {}
        self._metrics: dict[TableNode, NodeMetrics] = {}
        self._tasks: list[PlainWork] = []
        self._gains: dict[TableNode, int] = {}
        # A prediction needs all files of the nodes with tasks. It also needs every node's dangling delete files: any commit drops them.
        self._files: dict[TableNode, Sequence[LiveFile]] = {}
        self._dangling: dict[TableNode, list[LiveFile]] = {}
        self._part: Part | None = None

    def add(self, files: TableFiles, nodes: Collection[TableNode] | None = None) -> None:
        """Decide about `nodes` by the files of a part. None means all nodes of the part."""
        part = Part(files, self._of.properties, nodes)
        decisions, tasks = PartPlanner(part, self._in_use, self._of).chosen()
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
        request, properties, metrics = self._of.request, self._of.properties, figures.metrics
        if request.force or not properties.enabled or metrics.delete_files or node in self._in_use.exclusive_nodes:
            return False
        # The node has no deletes, so a MAJOR could only join undersized files, and it needs two of them.
        small = (metrics.small_data_files, metrics.small_data_bytes)
        minor = minor_trigger_of(node, small, (0, 0), self._of.history, properties, self._of.now)
        full = self._of.full(node)
        if figures.undersized_files > 1 or minor.due or full.due:
            return False
        self._decisions[node] = NodeDecision(PlanReasonCode.NOT_FRAGMENTED, minor.text)
        self._metrics[node] = metrics
        return True

    def plan(self) -> CompactionPlan:
        """Return the plan of all parts together."""
        if not self._decisions:
            return EMPTY_TABLE if self._of.request.nodes is None else CompactionPlan((), NONE_ASKED_FOR)
        works = self._tasks if self._gains else self._drop()
        due: dict[TableNode, list[PlainWork]] = {node: [] for node in self._gains}
        for work in works:
            due.setdefault(work.node, []).append(work)
        verdicts = {
            node: NodeVerdict(node, decision.type, PlanReason(decision.code, decision.text), self._metrics[node])
            for node, decision in self._decisions.items()
        }
        waits = {node: decision.waits for node, decision in self._decisions.items() if decision.waits is not None}
        return plan_of(Judged(verdicts, works, due, self._gains, waits=waits), self, self._of, self._budget)

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
                type=self._decisions[node].type or CompactionType.FULL,
                # The commit decides again which delete files it drops. The list only says what the task is about.
                deletes=tuple(dangling),
                output_spec_id=node.spec_id,
                target_size_bytes=self._of.properties.target_size_bytes,
                fragment_size_bytes=self._of.properties.fragment_size_bytes,
                predicted_files=0,
            )
            for node in due[:1]
        ]

    # ---- what only a plain table knows about its plans (`frame.Kind`) --------------------------------------------------

    def replaced_by(self, work: PlainWork) -> Collection[TaskId]:
        """Return the Pending tasks whose files the work takes, and all Pending tasks of their groups."""
        pending, groups = self._in_use.pending, self._in_use.pending_groups
        taken = {pending[file.path] for file in work.inputs if file.path in pending}
        named = {groups[task_id] for task_id in taken if task_id in groups}
        return taken | {task_id for task_id, group in groups.items() if group in named}

    def after(self, planned: Sequence[PlainWork]) -> FilesAfter:
        """Predict the table's files. Those of nodes without tasks are counted by their figures."""
        part = self._part
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
        # The predicted files have the bytes of the rows that are deleted too.
        size -= sum(file.file_size_bytes for work in planned for file in work.rewritten) - sum(work.predicted_bytes for work in planned)
        return FilesAfter(data, deletes, size)

    def said_of(self, planned: Sequence[PlainWork], verdicts: Verdicts) -> str:
        """Say how much is planned, and why in the first of its nodes."""
        nodes = {work.node: None for work in planned}
        inputs = sum(len(work.inputs) for work in planned)
        first = next(iter(nodes))
        words = f"{count_text(len(planned), 'task')} on {count_text(len(nodes), 'node')}, {count_text(inputs, 'data file')}"
        return f"{words}; for example {first}: {verdicts[first].reason.text}"

    def why_none(self, code: PlanReasonCode, verdicts: Verdicts) -> str:
        """Say why nothing is planned, with the first node that has this code as an example."""
        if code is PlanReasonCode.NOT_FRAGMENTED:
            return self._none_is_due(verdicts)
        found = [verdict for verdict in verdicts.values() if verdict.reason.code is code]
        example, text = found[0].node, found[0].reason.text
        if code is PlanReasonCode.NO_GAIN:
            return f"nothing to gain: in {example}, {text}"
        done = "left alone" if code is PlanReasonCode.LIVE_TWICE else "held back"
        return f"{count_text(len(found), 'node')} {done}; {example}: {text}"

    def _none_is_due(self, verdicts: Verdicts) -> str:
        best = max(verdicts.values(), key=lambda verdict: _highest(verdict.metrics))
        least, highest = self._of.properties.minor_file_count, _highest(best.metrics)
        if highest >= least:  # Tasks hold these files, and the node's own reason says so.
            return f"nothing more to plan now; {best.node}: {best.reason.text}"
        return f"no node has {count_text(least, 'small file')}; the highest number is {highest}, in {best.node}"


def _highest(metrics: NodeMetrics) -> int:
    """The number of a node's small data files or of its small delete files, whichever is higher."""
    return max(metrics.small_data_files, metrics.small_delete_files)
