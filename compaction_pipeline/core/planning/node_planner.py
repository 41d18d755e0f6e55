"""Decides about the nodes of one part of a table: which type of work each is due for, which of its files are taken, and in which tasks.

`planner` puts the parts together. CONTRACT.md beside this file has the order of the decisions and the laws of a plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from compaction_pipeline.core.fragmentation.clock import is_pausing
from compaction_pipeline.core.fragmentation.metrics import node_metrics
from compaction_pipeline.core.fragmentation.triggers import Trigger, full_trigger, minor_trigger
from compaction_pipeline.core.fragmentation.verdict import NodeHistory, PlanReasonCode
from compaction_pipeline.core.ids import TaskId
from compaction_pipeline.core.planning.conversions import Conversions, choose_conversions
from compaction_pipeline.core.planning.full import full_bins, keeps_old_spec
from compaction_pipeline.core.planning.major import high_delete_ratios, joins_undersized, major_bins, minor_grows_into_major
from compaction_pipeline.core.planning.minor import minor_bins
from compaction_pipeline.core.planning.node_view import MergeBin, NodeView
from compaction_pipeline.core.planning.plan import PlanRequest
from compaction_pipeline.core.planning.waiting import that_cannot_grow, why_kept, with_whole_groups
from compaction_pipeline.core.queue.open_work import InUse
from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.core.tables.deletes.reach import DeleteReach
from compaction_pipeline.core.tables.figures import NodeMetrics
from compaction_pipeline.core.tables.live_files import NodeFiles, TableFiles, files_by_node
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.properties import TableProperties
from compaction_pipeline.core.words import count_text
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.core.work.work import Convert, Merge, PlainWork

_MINOR, _MAJOR, _FULL = CompactionType.MINOR, CompactionType.MAJOR, CompactionType.FULL
_FORCED = "a person asked for this work, so no threshold counts"
"""The reason for work on a node when a forced request names its type."""


@dataclass(slots=True)
class NodeDecision:
    """The decision about one node: the type that is due, the reason, and the chosen bins.

    When `minor_due` is True, data files of the node that no bin takes may be converted. `output_spec_id` is the partition spec to which
    rows move; None when they stay in theirs.
    """

    code: PlanReasonCode
    text: str
    type: CompactionType | None = None
    bins: list[MergeBin] = field(default_factory=list)
    minor_due: bool = False
    output_spec_id: int | None = None


class PlannedPart:
    """A part of a table: the files of some nodes, what is computed from them once, and the decision about each node.

    `wanted` are the nodes to decide; None means all nodes of the part.
    """

    def __init__(
        self,
        files: TableFiles,
        in_use: InUse,
        properties: TableProperties,
        request: PlanRequest,
        history: NodeHistory,
        now: datetime,
        wanted: Collection[TableNode] | None,
    ) -> None:
        self.files, self.in_use, self.properties, self.request = files, in_use, properties, request
        self.history, self.now = history, now
        # A forced request without a type means MINOR and MAJOR: nobody asked to rewrite whole partitions.
        unnamed = (_MINOR, _MAJOR) if request.force else (_MINOR, _MAJOR, _FULL)
        self.types = frozenset(unnamed if request.types is None else request.types)
        self.nodes = files_by_node(files.files)
        self.reach = DeleteReach(self.nodes, files.unpartitioned_spec_ids)
        self.duplicates = _duplicates(file for file in files.files if file.is_data)
        self.duplicate_deletes = _duplicates(file for file in files.files if not file.is_data)
        # A commit rejects a task that applied a delete file which is live twice. The data files under such a delete are not planned,
        # because the same plan would be made and rejected again for ever.
        self.under_duplicates = frozenset(
            file.path
            for node, group in (self.nodes.items() if self.duplicate_deletes else ())
            for file in group.data
            if any(delete.path in self.duplicate_deletes for delete in self.reach.of_all(node, [file]))
        )
        self.table_rows = sum(file.record_count for group in self.nodes.values() for file in group.data)
        self.spread = sum(1 for group in self.nodes.values() if group.data) > 1
        self.metrics: Mapping[TableNode, NodeMetrics] = {
            node: node_metrics(group, self.reach, properties, self.spread, self.table_rows) for node, group in self.nodes.items()
        }
        self.decided = {node: group for node, group in self.nodes.items() if wanted is None or node in wanted}

    # ---- choosing ----------------------------------------------------------------------------------------------------

    def chosen(self) -> tuple[dict[TableNode, NodeDecision], list[PlainWork]]:
        """Return the decision about each node, and the tasks.

        The files of a node's Pending tasks are planned again only when the new tasks also take files that are in no task yet. Each round
        of the loop finds the nodes whose new tasks take no such file, and the next round leaves the Pending files of these nodes alone.
        A tick leaves some nodes alone from the start: their new files are no reason to replace the Pending tasks.
        """
        kept = self._kept()
        self.in_use = self._without_growing(kept)
        keep_pending: set[TableNode] = set(kept)
        while True:
            views = {node: self._view(group, node in keep_pending) for node, group in self.decided.items()}
            decisions = {
                node: NodeDecision(PlanReasonCode.NOT_FRAGMENTED, kept[node]) if node in kept else self._decide(view)
                for node, view in views.items()
            }
            bins = {node: decision.bins for node, decision in decisions.items() if decision.bins}
            converts = self.properties.conversions_enabled
            eligible = {node for node, decision in decisions.items() if decision.minor_due} if converts else set()
            label = f"{self.files.snapshot_id}"
            conversions = choose_conversions(views, bins, eligible, self.reach, label) if eligible else Conversions()
            tasks = self._tasks(decisions, conversions)
            stale = set() if self.request.force else self._nothing_new(tasks) - keep_pending
            if not stale:
                self._explain(decisions, tasks, views)
                return decisions, tasks
            keep_pending |= stale

    def _kept(self) -> Mapping[TableNode, str]:
        """Return the nodes whose waiting tasks this plan leaves alone, each with what its new files lack."""
        requested = self.request.nodes
        if self.request.force or not self.properties.enabled:
            return {}
        waiting = {
            node: tasks
            for node, tasks in self.in_use.waiting.items()
            if node in self.decided and node not in self.in_use.exclusive_nodes and (requested is None or node in requested)
        }
        pauses = is_pausing(self.history.last_planned_at, self.properties, self.now)
        kept: dict[TableNode, str] = {}
        for node, tasks in waiting.items():
            view = self._view(self.decided[node], keep_pending=False)
            known = {task.task_id for task in tasks}
            # When a task that is not among `tasks` holds files too, this knows too little about the node.
            if all(self.in_use.pending[file.path] in known for file in view.available if file.path in self.in_use.pending):
                why = why_kept(view, self._opened_deletes(view), tasks, self.types, self._triggers(view)[1], None if pauses else self.now)
                if why is not None:
                    kept[node] = why
        return with_whole_groups(kept, waiting)

    def _without_growing(self, kept: Collection[TableNode]) -> InUse:
        """Return what is in use when the nodes that are not kept leave those of their waiting tasks alone that cannot grow.

        A FULL that is due takes all files of its node, so it replaces these too.
        """
        if self.request.force or not self.properties.enabled:
            return self.in_use
        stay: set[TaskId] = set()
        for node, tasks in self.in_use.waiting.items():
            if node in self.decided and node not in kept:
                view = self._view(self.decided[node], keep_pending=False)
                stay |= set() if self._triggers(view)[1].due else that_cannot_grow(view, tasks)
        return self.in_use.without_replacing(stay) if stay else self.in_use

    def _nothing_new(self, tasks: Sequence[PlainWork]) -> set[TableNode]:
        """Return the nodes whose tasks take only files of Pending tasks."""
        waiting: set[TableNode] = set()
        fresh: set[TableNode] = set()
        for work in tasks:
            for file in work.inputs:
                (waiting if file.path in self.in_use.pending else fresh).add(work.node)
        return waiting - fresh

    def _view(self, group: NodeFiles, keep_pending: bool) -> NodeView:
        """Return a node with the data files that a plan may take. With `keep_pending` files of Pending tasks are not among them."""
        blocked = self.in_use.paths | self.duplicates.keys() | self.under_duplicates
        pending = self.in_use.pending if keep_pending else {}
        exclusive = group.node in self.in_use.exclusive_nodes
        available = [] if exclusive else [file for file in group.data if file.path not in blocked and file.path not in pending]
        return NodeView(group, available, self.reach, self.properties, self.spread, self.table_rows, sort_order_id=self.files.sort_order_id)

    def _decide(self, view: NodeView) -> NodeDecision:
        """Decide about one node: whether it is left alone, which type is due, and which bins that makes."""
        node, request = view.node, self.request
        if request.nodes is not None and node not in request.nodes:
            return NodeDecision(PlanReasonCode.NOT_REQUESTED, "the request does not name this node")
        if not self.properties.enabled:
            return NodeDecision(PlanReasonCode.DISABLED, self.properties.disabled_by)
        if node in self.in_use.exclusive_nodes:
            return self._decide_exclusive(view)
        minor, full = self._triggers(view)
        decision = NodeDecision(PlanReasonCode.NOT_FRAGMENTED, minor.text, minor_due=minor.due)
        if full.due:
            self._choose_full(view, decision, full)
        if not decision.bins and _MAJOR in self.types:
            self._choose_major(view, decision, minor)
        if not decision.bins and minor.due:
            bins = minor_bins(view)
            decision.type, decision.text = decision.type or _MINOR, minor.text
            decision.bins = bins
        return decision

    def _decide_exclusive(self, view: NodeView) -> NodeDecision:
        """Leave a node alone while a MAJOR or FULL runs on it. The reason says whether newer files make it due again."""
        held = {*self.in_use.paths, *self.in_use.pending}
        since = [file for file in view.files.data if file.path not in held]
        due = minor_trigger(view.node, since, (), self.history, self.properties, self.now)
        text = "a MAJOR or FULL runs on it"
        return NodeDecision(PlanReasonCode.FILES_IN_USE, f"{text}; {due.text}" if due.due else text, _MINOR if due.due else None)

    def _triggers(self, view: NodeView) -> tuple[Trigger, Trigger]:
        """Return whether a MINOR and a FULL are due. Files of Pending tasks do not count, because an earlier plan decided about them."""
        if self.request.force:
            return Trigger(_MINOR in self.types, _FORCED), Trigger(_FULL in self.types, _FORCED)
        pending = self.in_use.pending
        data = [file for file in view.available if file.path not in pending] if pending else view.available
        minor = minor_trigger(view.node, data, self._opened_deletes(view), self.history, self.properties, self.now)
        if _MINOR not in self.types:
            minor = Trigger(False, minor.text)
        full = full_trigger(view.node, self.history, self.properties, self.now) if _FULL in self.types else Trigger(False, "")
        return minor, full

    def _opened_deletes(self, view: NodeView) -> Sequence[LiveFile]:
        """Return the delete files that a reader of the node opens: its own, and global ones of other nodes that reach its data files."""
        if not self.reach.everywhere.deletes or not view.files.data:
            return view.files.deletes
        oldest = min(view.files.data, key=lambda file: file.data_sequence_number)
        foreign = [file for file in self.reach.everywhere.of(oldest) if file.node != view.node]
        return [*view.files.deletes, *foreign]

    def _choose_full(self, view: NodeView, decision: NodeDecision, full: Trigger) -> None:
        """Put the bins of a FULL into the decision, and move the rows to the current partition spec when they may move."""
        text = full.text
        moves = view.node.spec_id != self.files.default_spec_id
        if moves and (stays := keeps_old_spec(self.history, self.properties, self.now)) is not None:
            moves, text = False, f"{full.text}; {stays}"
        bins = full_bins(view, moves)
        decision.type, decision.text, decision.bins = _FULL, text, bins
        if moves:
            decision.output_spec_id = self.files.default_spec_id
            if bins:
                decision.text += f"; rows move from partition spec {view.node.spec_id} to {self.files.default_spec_id}"

    def _choose_major(self, view: NodeView, decision: NodeDecision, minor: Trigger) -> None:
        """Put the bins of a MAJOR into the decision when a MAJOR is due."""
        forced = self.request.force
        segments = high_delete_ratios(view, forced)
        joins = joins_undersized(view)
        if segments:
            text = f"{count_text(len(segments), 'data file')} with up to {max(segments.values()):.0%} deleted rows"
        elif joins:
            text = f"{len(view.undersized)} undersized data files can be joined"
        elif minor.due and minor_grows_into_major(view, forced):
            text = f"{minor.text}; the merged files would make a MAJOR due at once"
        elif forced:
            text = _FORCED
        else:
            return
        decision.bins = major_bins(view, forced)
        if decision.bins or forced:
            decision.type, decision.text = decision.type or _MAJOR, text
            if decision.bins:
                decision.type = _MAJOR

    # ---- tasks -------------------------------------------------------------------------------------------------------

    def _tasks(self, decisions: Mapping[TableNode, NodeDecision], conversions: Conversions) -> list[PlainWork]:
        """Return the tasks of all merge bins, then those of fragments that are merged alone, then the conversions."""
        tasks: list[PlainWork] = []
        for node, decision in decisions.items():
            for index, each in enumerate(decision.bins):
                tasks.append(self._merge(node, decision, each, conversions.group_of(node, index)))
        for fragment in conversions.fragments:
            tasks.append(self._merge(fragment.node, decisions[fragment.node], fragment.bin, fragment.group))
        for conversion in conversions.conversions:
            inputs = conversion.inputs
            tasks.append(
                Convert(
                    node=conversion.node,
                    type=decisions[conversion.node].type or _MINOR,
                    inputs=inputs,
                    deletes=self.reach.of_all(conversion.node, inputs),
                    output_spec_id=conversion.node.spec_id,
                    target_size_bytes=self.properties.target_size_bytes,
                    fragment_size_bytes=self.properties.fragment_size_bytes,
                    converts=conversion.converts,
                    group=conversion.group,
                    predicted_files=len(inputs),
                )
            )
        return tasks

    def _merge(self, node: TableNode, decision: NodeDecision, each: MergeBin, group: str) -> Merge:
        target = self.properties.target_size_bytes
        return Merge(
            node=node,
            type=decision.type or _MINOR,
            inputs=each.inputs,
            deletes=self.reach.of_all(node, each.inputs),
            output_spec_id=node.spec_id if decision.output_spec_id is None else decision.output_spec_id,
            # The outputs get even sizes, because a small last file would only be merged again.
            target_size_bytes=max(target, each.output_bytes) if each.outputs == 1 else each.output_bytes,
            fragment_size_bytes=self.properties.fragment_size_bytes,
            group=group,
            predicted_files=each.outputs,
            predicted_bytes=each.input_bytes,
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
            busy = sum(1 for file in view.files.data if file.path in self.in_use.paths or file.path in self.in_use.pending)
            copied = [file for file in view.files.data if file.path in self.duplicates]
            under = [file for file in view.files.data if file.path in self.under_duplicates]
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
        decision = self._decide(view.with_available(view.files.data))
        return decision if decision.type or decision.minor_due else None

    def _said_of_copies(self, copied: Sequence[LiveFile]) -> str:
        """Return the text about data files that are live more than once. `copied` has an item for each copy."""
        first = copied[0].path
        manifests = [manifest for manifest, many in self.duplicates[first].items() for _ in range(many)]
        paths = len({file.path for file in copied})
        # The text says "file(s)", because one path is several live files here.
        return (
            f"{paths} data file(s) are live more than once and left alone, as a rewrite could not tell the copies apart: "
            f"{first} is in {' and in '.join(manifests)}; readers get its rows {len(manifests)} times: if this is not intended, remove the "
            "path from the table (Iceberg's DeleteFiles) and add it once"
        )

    def _said_of_duplicate_deletes(self, node: TableNode, under: Sequence[LiveFile]) -> str:
        """Return the text about data files that are left alone, because a delete file that is live more than once reaches them."""
        path = next(delete.path for delete in self.reach.of_all(node, under) if delete.path in self.duplicate_deletes)
        manifests = [manifest for manifest, many in self.duplicate_deletes[path].items() for _ in range(many)]
        return (
            f"{count_text(len(under), 'data file')} left alone, as a delete file that applies there is live more than once and a rewrite "
            f"could not tell the copies apart: {path} is in {' and in '.join(manifests)}; remove the path from the table and add it once"
        )


def _duplicates(of: Iterable[LiveFile]) -> Mapping[str, Mapping[str, int]]:
    """Return the paths of files that are live more than once, and for each path how often each manifest lists it."""
    files = list(of)
    paths = [file.path for file in files]
    if len(set(paths)) == len(paths):
        return {}
    duplicates: dict[str, dict[str, int]] = {path: {} for path, count in Counter(paths).items() if count > 1}
    for file in files:
        if file.path in duplicates:
            manifests = duplicates[file.path]
            manifests[file.manifest_path] = manifests.get(file.manifest_path, 0) + 1
    return duplicates
