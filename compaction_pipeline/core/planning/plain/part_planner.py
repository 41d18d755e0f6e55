"""Plans one part of a plain table: decides about its nodes, and makes tasks of the files that the decisions take.

`node_planner` decides about each node. Conversions span nodes, and so do the waiting tasks of a group, so both are decided here.
CONTRACT.md in `core/planning/` has the order of the decisions and the laws of a plan.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from compaction_pipeline.core.fragmentation.clock import is_pausing
from compaction_pipeline.core.fragmentation.verdict import PlanReasonCode
from compaction_pipeline.core.ids import TaskId
from compaction_pipeline.core.planning.plain.conversions import Conversions, choose_conversions
from compaction_pipeline.core.planning.plain.node_planner import NodeDecision, NodePlanner
from compaction_pipeline.core.planning.plain.node_view import MergeBin, NodeView
from compaction_pipeline.core.planning.plain.part import Part
from compaction_pipeline.core.planning.plain.waiting import that_cannot_grow, why_kept, with_whole_groups
from compaction_pipeline.core.planning.plan import Circumstances
from compaction_pipeline.core.queue.open_work import InUse
from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.core.tables.live_files import NodeFiles
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.words import count_text
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.core.work.work import Convert, Merge, PlainWork


class PartPlanner:
    """Plans one part. `in_use` is what open tasks hold."""

    def __init__(self, part: Part, in_use: InUse, of: Circumstances) -> None:
        self._part, self._of, self._in_use = part, of, in_use
        self._request, self._properties = of.request, of.properties
        self._planner = self._node_planner()

    def _node_planner(self) -> NodePlanner:
        return NodePlanner(self._part, self._of, self._in_use.paths, self._in_use.pending, self._in_use.exclusive_nodes)

    # ---- choosing ----------------------------------------------------------------------------------------------------

    def chosen(self) -> tuple[dict[TableNode, NodeDecision], list[PlainWork]]:
        """Return the decision about each node, and the tasks.

        The files of a node's Pending tasks are planned again only when the new tasks also take files that are in no task yet. Each round
        of the loop finds the nodes whose new tasks take no such file, and the next round leaves the Pending files of these nodes alone.
        A tick leaves some nodes alone from the start: their new files are no reason to replace the Pending tasks.
        """
        kept = self._kept()
        self._in_use = self._without_growing(kept)
        self._planner = self._node_planner()
        keep_pending: set[TableNode] = set(kept)
        while True:
            views = {node: self._view(group, node in keep_pending) for node, group in self._part.decided.items()}
            decisions = {
                node: NodeDecision(PlanReasonCode.NOT_FRAGMENTED, kept[node]) if node in kept else self._planner.decide(view)
                for node, view in views.items()
            }
            bins = {node: decision.bins for node, decision in decisions.items() if decision.bins}
            converts = self._properties.conversions_enabled
            eligible = {node for node, decision in decisions.items() if decision.minor_due} if converts else set()
            label = f"{self._part.files.snapshot_id}"
            conversions = choose_conversions(views, bins, eligible, self._part.reach, label) if eligible else Conversions()
            tasks = self._tasks(views, decisions, conversions)
            stale = set() if self._request.force else self._nothing_new(tasks) - keep_pending
            if not stale:
                self._explain(decisions, tasks, views)
                return decisions, tasks
            keep_pending |= stale

    def _kept(self) -> Mapping[TableNode, str]:
        """Return the nodes whose waiting tasks this plan leaves alone, each with what its new files lack."""
        requested = self._request.nodes
        if self._request.force or not self._properties.enabled:
            return {}
        waiting = {
            node: tasks
            for node, tasks in self._in_use.waiting.items()
            if node in self._part.decided and node not in self._in_use.exclusive_nodes and (requested is None or node in requested)
        }
        pauses = is_pausing(self._of.history.last_planned_at, self._properties, self._of.now)
        kept: dict[TableNode, str] = {}
        for node, tasks in waiting.items():
            view = self._view(self._part.decided[node], keep_pending=False)
            known = {task.task_id for task in tasks}
            # When a task that is not among `tasks` holds files too, this knows too little about the node.
            if all(self._in_use.pending[file.path] in known for file in view.available if file.path in self._in_use.pending):
                deletes, full = self._part.opened_deletes(view), self._planner.triggers(view)[1]
                why = why_kept(view, deletes, tasks, self._of.types, full, None if pauses else self._of.now)
                if why is not None:
                    kept[node] = why
        return with_whole_groups(kept, waiting)

    def _without_growing(self, kept: Collection[TableNode]) -> InUse:
        """Return what is in use when the nodes that are not kept leave those of their waiting tasks alone that cannot grow.

        A FULL that is due takes all files of its node, so it replaces these too.
        """
        if self._request.force or not self._properties.enabled:
            return self._in_use
        stay: set[TaskId] = set()
        for node, tasks in self._in_use.waiting.items():
            if node in self._part.decided and node not in kept:
                view = self._view(self._part.decided[node], keep_pending=False)
                stay |= set() if self._planner.triggers(view)[1].due else that_cannot_grow(view, tasks)
        return self._in_use.without_replacing(stay) if stay else self._in_use

    def _nothing_new(self, tasks: Sequence[PlainWork]) -> set[TableNode]:
        """Return the nodes whose tasks take only files of Pending tasks."""
        waiting: set[TableNode] = set()
        fresh: set[TableNode] = set()
        for work in tasks:
            for file in work.inputs:
                (waiting if file.path in self._in_use.pending else fresh).add(work.node)
        return waiting - fresh

    def _view(self, group: NodeFiles, keep_pending: bool) -> NodeView:
        """Return a node with the data files that a plan may take. With `keep_pending` files of Pending tasks are not among them."""
        in_use = self._in_use
        if group.node in in_use.exclusive_nodes:
            return self._part.view(group, {file.path for file in group.data})
        return self._part.view(group, in_use.paths | in_use.pending.keys() if keep_pending else in_use.paths)

    # ---- tasks -------------------------------------------------------------------------------------------------------

    def _tasks(
        self, views: Mapping[TableNode, NodeView], decisions: Mapping[TableNode, NodeDecision], conversions: Conversions
    ) -> list[PlainWork]:
        """Return the tasks of all merge bins, then those of fragments that are merged alone, then the conversions."""
        tasks: list[PlainWork] = []
        for node, decision in decisions.items():
            for index, each in enumerate(decision.bins):
                tasks.append(self._merge(views[node], decision, each, conversions.group_of(node, index)))
        for fragment in conversions.fragments:
            tasks.append(self._merge(views[fragment.node], decisions[fragment.node], fragment.bin, fragment.group))
        for conversion in conversions.conversions:
            inputs = conversion.inputs
            tasks.append(
                Convert(
                    node=conversion.node,
                    type=decisions[conversion.node].type or CompactionType.MINOR,
                    inputs=inputs,
                    deletes=self._part.reach.of_all(conversion.node, inputs),
                    output_spec_id=conversion.node.spec_id,
                    target_size_bytes=self._properties.target_size_bytes,
                    fragment_size_bytes=self._properties.fragment_size_bytes,
                    converts=conversion.converts,
                    group=conversion.group,
                    predicted_files=len(inputs),
                )
            )
        return tasks

    def _merge(self, view: NodeView, decision: NodeDecision, each: MergeBin, group: str) -> Merge:
        node, target = view.node, self._properties.target_size_bytes
        return Merge(
            node=node,
            type=decision.type or CompactionType.MINOR,
            inputs=each.inputs,
            deletes=self._part.reach.of_all(node, each.inputs),
            output_spec_id=node.spec_id if decision.output_spec_id is None else decision.output_spec_id,
            # The outputs get even sizes, because a small last file would only be merged again.
            target_size_bytes=max(target, each.output_bytes) if each.outputs == 1 else each.output_bytes,
            fragment_size_bytes=self._properties.fragment_size_bytes,
            group=group,
            predicted_files=each.outputs,
            predicted_bytes=view.bytes_kept(each.inputs),
        )

    # ---- reasons -----------------------------------------------------------------------------------------------------

    def _explain(
        self, decisions: Mapping[TableNode, NodeDecision], tasks: Sequence[PlainWork], views: Mapping[TableNode, NodeView]
    ) -> None:
        """Give each decision its final reason code and text, now that the tasks are known."""
        working = {work.node: work for work in tasks}
        for node, decision in decisions.items():
            if decision.code is not PlanReasonCode.NOT_FRAGMENTED:
                continue
            view = views[node]
            busy = sum(1 for file in view.files.data if file.path in self._in_use.paths or file.path in self._in_use.pending)
            copied = [file for file in view.files.data if file.path in self._part.duplicates]
            under = [file for file in view.files.data if file.path in self._part.under_duplicates]
            if node in working:
                decision.code, decision.type = PlanReasonCode.PLANNED, working[node].type
            elif busy:
                # The node is judged again while its tasks are open, because they may end without changing a file.
                decision.code = PlanReasonCode.FILES_IN_USE
                text = f"{busy} of {count_text(len(view.files.data), 'data file')} are in running or waiting tasks"
                decision.text = text if busy == len(view.files.data) else f"{text}; for the others: {decision.text}"
            elif (copied or under) and (due := self._due_with_copies(view)) is not None:
                decision.code, decision.type, decision.text = PlanReasonCode.LIVE_TWICE, due.type, due.text
            elif decision.type or decision.minor_due:
                decision.code = PlanReasonCode.NO_GAIN
                decision.text = f"merging would leave as many files and deletes as before ({decision.text})"
            if copied:
                decision.text += f"; {self._said_of_copies(copied)}"
            if under:
                decision.text += f"; {self._said_of_duplicate_deletes(view.node, under)}"

    def _due_with_copies(self, view: NodeView) -> NodeDecision | None:
        """Return the decision that would be made if files that are live more than once could be taken; None when nothing would be due."""
        decision = self._planner.decide(view.with_available(view.files.data))
        return decision if decision.type or decision.minor_due else None

    def _said_of_copies(self, copied: Sequence[LiveFile]) -> str:
        """Return the text about data files that are live more than once. `copied` has an item for each copy."""
        first = copied[0].path
        manifests = [manifest for manifest, many in self._part.duplicates[first].items() for _ in range(many)]
        paths = len({file.path for file in copied})
        # The text says "file(s)", because one path is several live files here.
        return (
            f"{paths} data file(s) are live more than once and left alone, as a rewrite could not tell the copies apart: "
            f"{first} is in {' and in '.join(manifests)}; readers get its rows {len(manifests)} times: if this is not intended, remove the "
            "path from the table (Iceberg's DeleteFiles) and add it once"
        )

    def _said_of_duplicate_deletes(self, node: TableNode, under: Sequence[LiveFile]) -> str:
        """Return the text about data files that are left alone, because a delete file that is live more than once reaches them."""
        path = next(delete.path for delete in self._part.reach.of_all(node, under) if delete.path in self._part.duplicate_deletes)
        manifests = [manifest for manifest, many in self._part.duplicate_deletes[path].items() for _ in range(many)]
        return (
            f"{count_text(len(under), 'data file')} left alone, as a delete file that applies there is live more than once and a rewrite "
            f"could not tell the copies apart: {path} is in {' and in '.join(manifests)}; remove the path from the table and add it once"
        )
