"""Choose the tasks of one table: which nodes are due, for which type, and which files go into which task.

The players: `fragmentation.triggers` says what is due, `minor`, `major` and `full` choose a node's data files, `node_view`
packs them into bins, `conversions` handles the deletes of data files that stay, `budget` cuts, `prediction` says what comes
out. Order and laws are in CONTRACT.md beside this file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from compaction_pipeline.core.files.delete_reach import DeleteReach
from compaction_pipeline.core.files.live_files import NodeFiles, files_by_node
from compaction_pipeline.core.fragmentation.clock import is_pausing
from compaction_pipeline.core.fragmentation.metrics import node_metrics
from compaction_pipeline.core.fragmentation.triggers import Trigger, full_trigger, minor_trigger, minor_trigger_of
from compaction_pipeline.core.model.data_file import LiveFile
from compaction_pipeline.core.model.node import TableNode
from compaction_pipeline.core.model.plan import (
    Budget,
    CompactionPlan,
    InUse,
    NodeFigures,
    NodeHistory,
    NodeMetrics,
    NodeVerdict,
    PlanReason,
    PlanReasonCode,
    PlanRequest,
    TableFiles,
)
from compaction_pipeline.core.model.properties import TableProperties
from compaction_pipeline.core.model.task import CompactionType, TaskAction, TaskWork
from compaction_pipeline.core.planning.budget import node_gains, within_budget
from compaction_pipeline.core.planning.conversions import Conversions, choose_conversions
from compaction_pipeline.core.planning.full import full_bins, keeps_old_spec
from compaction_pipeline.core.planning.major import high_delete_ratios, joins_undersized, major_bins, minor_grows_into_major
from compaction_pipeline.core.planning.minor import minor_bins
from compaction_pipeline.core.planning.node_view import MergeBin, NodeView
from compaction_pipeline.core.planning.prediction import predicted_after
from compaction_pipeline.core.words import count_text, duration_text

_MINOR, _MAJOR, _FULL = CompactionType.MINOR, CompactionType.MAJOR, CompactionType.FULL
_EMPTY_TABLE = CompactionPlan((), PlanReason(PlanReasonCode.EMPTY_TABLE, "the table has no files"))
_NONE_ASKED_FOR = PlanReason(PlanReasonCode.NOT_REQUESTED, "none of the nodes asked for has files")
_HELD_FILES = 100_000
"""Input files of tasks beyond which those that exceed the budget are given up while further parts come in: memory is bounded."""
_HELD = (PlanReasonCode.MIN_PLAN_INTERVAL, PlanReasonCode.OVER_BUDGET, PlanReasonCode.FILES_IN_USE)
"""Why due work is not planned, the widest reason first."""


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


@dataclass(slots=True)
class _Decision:
    """What one node is due for and what was chosen; `minor_due` makes its staying data files eligible for conversion."""

    code: PlanReasonCode
    text: str
    type: CompactionType | None = None
    bins: list[MergeBin] = field(default_factory=list)
    minor_due: bool = False
    output_spec_id: int | None = None


class Planning:
    """A plan that is made of a table's files part by part, so that a million of them need not be in memory at once.

    A part holds all files of its nodes, and those of others that matter to them (`FileStore.files`). Where a global equality delete
    is live no node stands for itself, and the whole table must be one part. Parts must not share a node.
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
        self._decisions: dict[TableNode, _Decision] = {}
        self._metrics: dict[TableNode, NodeMetrics] = {}
        self._tasks: list[TaskWork] = []
        self._gains: dict[TableNode, int] = {}
        # What predictions need: of nodes with tasks all files, of the others what a commit drops in passing.
        self._files: dict[TableNode, Sequence[LiveFile]] = {}
        self._dangling: dict[TableNode, list[LiveFile]] = {}
        self._part: _Part | None = None

    def add(self, files: TableFiles, nodes: Collection[TableNode] | None = None) -> None:
        """Decide these nodes (None: all in it) by the files of a part."""
        part = _Part(files, self._in_use, self._properties, self._request, self._history, self._now, nodes)
        decisions, tasks = part.chosen()
        self._part = part
        self._decisions.update(decisions)
        self._metrics.update((node, part.metrics[node]) for node in decisions)
        for node, gained in node_gains(tasks).items():
            self._gains[node] = gained
            self._files[node] = (*part.nodes[node].data, *part.nodes[node].deletes)
        for file in part.reach.dangling():
            if file.node in decisions:
                self._dangling.setdefault(file.node, []).append(file)
        self._tasks += tasks
        if sum(len(work.inputs) for work in self._tasks) > _HELD_FILES:
            self._tasks = within_budget(self._tasks, self._budget, self._gains)
            kept = {work.node for work in self._tasks}
            self._files = {node: held for node, held in self._files.items() if node in kept}

    def add_by_figures(self, node: TableNode, figures: NodeFigures) -> bool:
        """Decide a node that sums tell to be left alone. False: the node must come with its files.

        Only for a node of which no file is in a task, and that no delete of another node reaches.
        """
        request, properties, metrics = self._request, self._properties, figures.metrics
        if request.force or not properties.enabled or metrics.delete_files or node in self._in_use.exclusive_nodes:
            return False
        # Segments wear by deletes only, and one that is alone cannot be joined: no MAJOR. Of too few small files no MINOR.
        small = (metrics.small_data_files, metrics.small_data_bytes)
        minor = minor_trigger_of(node, small, (0, 0), self._history, properties, self._now)
        full = full_trigger(node, self._history, properties, self._now)
        if figures.undersized_files > 1 or minor.due or full.due:
            return False
        self._decisions[node] = _Decision(PlanReasonCode.NOT_FRAGMENTED, minor.text)
        self._metrics[node] = metrics
        return True

    def plan(self) -> CompactionPlan:
        """The plan of all parts together."""
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
        )

    def _predicted(self, part: _Part | None, planned: tuple[TaskWork, ...]) -> tuple[int, int, int]:
        """Data files, delete files and bytes after these tasks."""
        after: list[LiveFile] = []
        if part is not None and part.reach.everywhere.deletes:
            after = list(predicted_after(part.files, planned).files)
            apart: Collection[TableNode] = ()
        else:
            nodes = {work.node: None for work in planned}
            held = tuple(file for node in nodes for file in self._files.get(node, ()))
            if part is not None and held:
                after = list(predicted_after(replace(part.files, files=held), planned).files)
            apart = [node for node in self._metrics if node not in self._files or node not in nodes]
        data = sum(1 for file in after if file.is_data) + sum(self._metrics[node].data_files for node in apart)
        deletes = sum(1 for file in after if not file.is_data) + sum(self._metrics[node].delete_files for node in apart)
        size = sum(file.file_size_bytes for file in after)
        size += sum(self._metrics[node].data_bytes + self._metrics[node].delete_bytes for node in apart)
        if planned:
            dropped = [file for node in apart for file in self._dangling.get(node, ())]
            deletes, size = deletes - len(dropped), size - sum(file.file_size_bytes for file in dropped)
        return data, deletes, size

    def _drop(self) -> list[TaskWork]:
        """One task that drops delete files which nothing needs, where they are all there is to gain."""
        due = [
            node
            for node, decision in self._decisions.items()
            if node in self._dangling and decision.code is PlanReasonCode.NO_GAIN and decision.type
        ]
        for node in due:
            self._decisions[node].code = PlanReasonCode.PLANNED
            self._decisions[node].text += f"; {count_text(len(self._dangling[node]), 'dangling delete file')} dropped"
        dangling = sorted((file for files in self._dangling.values() for file in files), key=lambda file: file.path)
        return [
            TaskWork(
                node=node,
                type=self._decisions[node].type or _FULL,
                action=TaskAction.DROP_DELETES,
                inputs=(),
                # The commit decides afresh which go; these say what the task is about.
                deletes=tuple(dangling),
                output_spec_id=node.spec_id,
                target_size_bytes=self._properties.target_size_bytes,
                fragment_size_bytes=self._properties.fragment_size_bytes,
                predicted_files=0,
            )
            for node in due[:1]
        ]

    def _hold_back(self) -> bool:
        """Nothing is planned so soon after the last plan, unless a person asked."""
        last, least = self._history.last_planned_at, self._properties.min_plan_interval
        if self._request.force or last is None or not is_pausing(last, self._properties, self._now):
            return False
        for decision in self._decisions.values():
            if decision.code is PlanReasonCode.PLANNED:
                decision.code = PlanReasonCode.MIN_PLAN_INTERVAL
                decision.text += f"; planned {duration_text(self._now - last)} ago, at least {duration_text(least)} must pass"
        return True

    def _mark_cut(self, tasks: Sequence[TaskWork], planned: Sequence[TaskWork]) -> None:
        working = {work.node for work in planned}
        for node in (*self._gains, *(work.node for work in tasks)):
            decision = self._decisions[node]
            if node not in working and decision.code is PlanReasonCode.PLANNED:
                decision.code = PlanReasonCode.OVER_BUDGET
                decision.text += f"; waits, the queue's quota leaves {count_text(max(self._budget.task_slots, 0), 'task slot')}"

    def _replaces(self, planned: Sequence[TaskWork]) -> tuple[str, ...]:
        pending, groups = self._in_use.pending, self._in_use.pending_groups
        taken = {pending[file.path] for work in planned for file in work.inputs if file.path in pending}
        named = {groups[task_id] for task_id in taken if task_id in groups}
        return tuple(sorted(taken | {task_id for task_id, group in groups.items() if group in named}))

    def _summary(self, planned: Sequence[TaskWork]) -> PlanReason:
        if planned:
            nodes = {work.node: None for work in planned}
            inputs = sum(len(work.inputs) for work in planned)
            first = next(iter(nodes))
            words = f"{count_text(len(planned), 'task')} on {count_text(len(nodes), 'node')}, {count_text(inputs, 'data file')}"
            return PlanReason(PlanReasonCode.PLANNED, f"{words}; first {first}: {self._decisions[first].text}")
        for code in _HELD:
            held = [node for node, decision in self._decisions.items() if decision.code is code]
            if held:
                return PlanReason(code, f"{count_text(len(held), 'node')} held back; {held[0]}: {self._decisions[held[0]].text}")
        asked = {node: decision for node, decision in self._decisions.items() if decision.code is not PlanReasonCode.NOT_REQUESTED}
        if not asked:
            return _NONE_ASKED_FOR
        if not self._properties.enabled:
            return PlanReason(PlanReasonCode.DISABLED, "'self-optimizing.enabled' is false")
        copied = [node for node, decision in asked.items() if decision.code is PlanReasonCode.LIVE_TWICE]
        if copied:
            return PlanReason(
                PlanReasonCode.LIVE_TWICE, f"{count_text(len(copied), 'node')} left alone; {copied[0]}: {asked[copied[0]].text}"
            )
        gainless = [node for node, decision in asked.items() if decision.code is PlanReasonCode.NO_GAIN]
        if gainless:
            return PlanReason(PlanReasonCode.NO_GAIN, f"nothing to gain; {gainless[0]}: {asked[gainless[0]].text}")
        best = max(asked, key=lambda node: max(self._metrics[node].small_data_files, self._metrics[node].small_delete_files))
        highest = max(self._metrics[best].small_data_files, self._metrics[best].small_delete_files)
        text = f"no node has {self._properties.minor_file_count} small files; highest {highest} in {best}"
        if highest >= self._properties.minor_file_count:  # They are held by tasks: its own reason says so.
            text = f"nothing more to plan now; {best}: {asked[best].text}"
        return PlanReason(PlanReasonCode.NOT_FRAGMENTED, text)


class _Part:
    """The files of some nodes, what is derived from them once, and what is chosen for each node."""

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
        # Forced without a type: no threshold holds, and rewriting whole partitions was not asked for.
        unnamed = (_MINOR, _MAJOR) if request.force else (_MINOR, _MAJOR, _FULL)
        self.types = frozenset(unnamed if request.types is None else request.types)
        self.nodes = files_by_node(files.files)
        self.reach = DeleteReach(self.nodes, files.unpartitioned_spec_ids)
        self.duplicates = _duplicates(files.files)
        self.table_rows = sum(file.record_count for group in self.nodes.values() for file in group.data)
        self.spread = sum(1 for group in self.nodes.values() if group.data) > 1
        self.metrics: Mapping[TableNode, NodeMetrics] = {
            node: node_metrics(group, self.reach, properties, self.spread, self.table_rows) for node, group in self.nodes.items()
        }
        self.decided = {node: group for node, group in self.nodes.items() if wanted is None or node in wanted}

    # ---- choosing ----------------------------------------------------------------------------------------------------

    def chosen(self) -> tuple[dict[TableNode, _Decision], list[TaskWork]]:
        """Decisions and tasks; Pending tasks are replaced only where files that wait in none of them join in."""
        keep_pending: set[TableNode] = set()
        while True:
            views = {node: self._view(group, node in keep_pending) for node, group in self.decided.items()}
            decisions = {node: self._decide(view) for node, view in views.items()}
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

    def _nothing_new(self, tasks: Sequence[TaskWork]) -> set[TableNode]:
        """Nodes whose tasks take Pending files and no other."""
        waiting: set[TableNode] = set()
        fresh: set[TableNode] = set()
        for work in tasks:
            for file in work.inputs:
                (waiting if file.path in self.in_use.pending else fresh).add(work.node)
        return waiting - fresh

    def _view(self, group: NodeFiles, keep_pending: bool, without_pending: bool = False) -> NodeView:
        blocked = self.in_use.paths | self.duplicates.keys()
        leave = keep_pending or without_pending
        exclusive = group.node in self.in_use.exclusive_nodes
        available = [] if exclusive else [f for f in group.data if f.path not in blocked and not (leave and f.path in self.in_use.pending)]
        return NodeView(group, available, self.reach, self.properties, self.spread, self.table_rows, sort_order_id=self.files.sort_order_id)

    def _decide(self, view: NodeView) -> _Decision:
        node, request = view.node, self.request
        if request.nodes is not None and node not in request.nodes:
            return _Decision(PlanReasonCode.NOT_REQUESTED, "not asked for")
        if not self.properties.enabled:
            return _Decision(PlanReasonCode.DISABLED, "'self-optimizing.enabled' is false")
        if node in self.in_use.exclusive_nodes:
            return self._decide_exclusive(view)
        minor, full = self._triggers(view)
        decision = _Decision(PlanReasonCode.NOT_FRAGMENTED, minor.text, minor_due=minor.due)
        if full.due:
            self._choose_full(view, decision, full)
        if not decision.bins and _MAJOR in self.types:
            self._choose_major(view, decision, minor)
        if not decision.bins and minor.due:
            bins = minor_bins(view)
            decision.type, decision.text = decision.type or _MINOR, minor.text
            decision.bins = bins
        return decision

    def _decide_exclusive(self, view: NodeView) -> _Decision:
        """A node with a MAJOR or FULL under way is left alone; whether files that came since make it due all the same is told."""
        held = {*self.in_use.paths, *self.in_use.pending}
        since = [file for file in view.files.data if file.path not in held]
        due = minor_trigger(view.node, since, (), self.history, self.properties, self.now)
        text = "a major or full runs on it"
        return _Decision(PlanReasonCode.FILES_IN_USE, f"{text}; {due.text}" if due.due else text, _MINOR if due.due else None)

    def _triggers(self, view: NodeView) -> tuple[Trigger, Trigger]:
        """MINOR and FULL. A trigger looks at files that wait in no Pending task: those were decided already."""
        if self.request.force:
            return Trigger(_MINOR in self.types, "asked for"), Trigger(_FULL in self.types, "asked for")
        pending = self.in_use.pending
        data = [file for file in view.available if file.path not in pending] if pending else view.available
        minor = minor_trigger(view.node, data, self._opened_deletes(view), self.history, self.properties, self.now)
        if _MINOR not in self.types:
            minor = Trigger(False, minor.text)
        full = full_trigger(view.node, self.history, self.properties, self.now) if _FULL in self.types else Trigger(False, "")
        return minor, full

    def _opened_deletes(self, view: NodeView) -> Sequence[LiveFile]:
        """Delete files of the node, and global ones of other nodes that reach its data."""
        if not self.reach.everywhere.deletes or not view.files.data:
            return view.files.deletes
        oldest = min(view.files.data, key=lambda file: file.data_sequence_number)
        foreign = [file for file in self.reach.everywhere.of(oldest) if file.node != view.node]
        return [*view.files.deletes, *foreign]

    def _choose_full(self, view: NodeView, decision: _Decision, full: Trigger) -> None:
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

    def _choose_major(self, view: NodeView, decision: _Decision, minor: Trigger) -> None:
        forced = self.request.force
        segments = high_delete_ratios(view, forced)
        joins = joins_undersized(view)
        if segments:
            text = f"{count_text(len(segments), 'segment')} with up to {max(segments.values()):.0%} deleted rows"
        elif joins:
            text = f"{len(view.undersized)} undersized segments can be joined"
        elif minor.due and minor_grows_into_major(view, forced):
            text = f"{minor.text}; the merged files would be due for a major at once"
        elif forced:
            text = "asked for"
        else:
            return
        decision.bins = major_bins(view, forced)
        if decision.bins or forced:
            decision.type, decision.text = decision.type or _MAJOR, text
            if decision.bins:
                decision.type = _MAJOR

    # ---- tasks -------------------------------------------------------------------------------------------------------

    def _tasks(self, decisions: Mapping[TableNode, _Decision], conversions: Conversions) -> list[TaskWork]:
        tasks = []
        for node, decision in decisions.items():
            for index, each in enumerate(decision.bins):
                tasks.append(self._merge(node, decision, each, conversions.group_of(node, index)))
        for fragment in conversions.fragments:
            tasks.append(self._merge(fragment.node, decisions[fragment.node], fragment.bin, fragment.group))
        for conversion in conversions.conversions:
            inputs = conversion.inputs
            tasks.append(
                TaskWork(
                    node=conversion.node,
                    type=decisions[conversion.node].type or _MINOR,
                    action=TaskAction.CONVERT,
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

    def _merge(self, node: TableNode, decision: _Decision, each: MergeBin, group: str) -> TaskWork:
        target = self.properties.target_size_bytes
        return TaskWork(
            node=node,
            type=decision.type or _MINOR,
            action=TaskAction.MERGE,
            inputs=each.inputs,
            deletes=self.reach.of_all(node, each.inputs),
            output_spec_id=node.spec_id if decision.output_spec_id is None else decision.output_spec_id,
            # Outputs of even size: a small remainder would only be merged again.
            target_size_bytes=max(target, each.output_bytes) if each.outputs == 1 else each.output_bytes,
            fragment_size_bytes=self.properties.fragment_size_bytes,
            group=group,
            predicted_files=each.outputs,
            predicted_bytes=each.input_bytes,
        )

    # ---- reasons -----------------------------------------------------------------------------------------------------

    def _explain(self, decisions: Mapping[TableNode, _Decision], tasks: Sequence[TaskWork], views: Mapping[TableNode, NodeView]) -> None:
        working = {work.node: work for work in tasks}
        for node, decision in decisions.items():
            if decision.code is not PlanReasonCode.NOT_FRAGMENTED:
                continue
            view = views[node]
            busy = sum(1 for file in view.files.data if file.path in self.in_use.paths or file.path in self.in_use.pending)
            copied = [file for file in view.files.data if file.path in self.duplicates]
            if node in working:
                decision.code, decision.type = PlanReasonCode.PLANNED, working[node].type
            elif busy:
                # Judged again until the tasks are gone: they may end without changing a file.
                decision.code = PlanReasonCode.FILES_IN_USE
                decision.text += f"; {busy} of {count_text(len(view.files.data), 'data file')} are in running or waiting tasks"
            elif copied and (due := self._due_with_copies(view)) is not None:
                decision.code, decision.type, decision.text = PlanReasonCode.LIVE_TWICE, due.type, due.text
            elif decision.type or decision.minor_due:
                decision.code = PlanReasonCode.NO_GAIN
                decision.text += "; merging would leave as many files and deletes as before"
            if copied:
                decision.text += f"; {self._said_of_copies(copied)}"

    def _due_with_copies(self, view: NodeView) -> _Decision | None:
        """What would be decided if files that are live more than once could be taken; None when the node would be left alone too."""
        decision = self._decide(replace(view, available=view.files.data))
        return decision if decision.type or decision.minor_due else None

    def _said_of_copies(self, copied: Sequence[LiveFile]) -> str:
        first = copied[0].path
        manifests = [manifest for manifest, many in self.duplicates[first].items() for _ in range(many)]
        paths = len({file.path for file in copied})
        # Not counted by `files_of`: one path is several live files here.
        return (
            f"{paths} data file(s) are live more than once and left alone, as a rewrite could not tell the copies apart: "
            f"{first} is in {' and in '.join(manifests)}; readers get its rows {len(manifests)} times: if that is not meant, take the "
            "path out of the table (Iceberg's DeleteFiles) and add it once"
        )


def _duplicates(files: Sequence[LiveFile]) -> Mapping[str, Mapping[str, int]]:
    """Paths of data files that are live more than once, and how often in which manifest; they are left alone."""
    paths = [file.path for file in files if file.is_data]
    if len(set(paths)) == len(paths):
        return {}
    duplicates: dict[str, dict[str, int]] = {path: {} for path, count in Counter(paths).items() if count > 1}
    for file in files:
        if file.is_data and file.path in duplicates:
            manifests = duplicates[file.path]
            manifests[file.manifest_path] = manifests.get(file.manifest_path, 0) + 1
    return duplicates
