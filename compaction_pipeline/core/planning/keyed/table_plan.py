"""Plans a keyed table: which partitions are due, and which tasks merge their changes.

The nodes of a partition are judged one by one, as those of a plain table are. The changes of a partition are merged all or none, so one
node that is due takes the other nodes of its partition with it. MINOR and MAJOR do the same work here; a FULL also rewrites base files that
no change reaches.

With delta-rewrite a MINOR is something else: it merges change files with each other, node by node (`node_rewrites.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from compaction_pipeline.core.errors import assert_never
from compaction_pipeline.core.fragmentation.clock import is_pausing
from compaction_pipeline.core.fragmentation.keyed_metrics import buckets_mask, measure_keyed
from compaction_pipeline.core.fragmentation.triggers import Trigger, full_trigger, minor_trigger_of
from compaction_pipeline.core.fragmentation.verdict import NodeHistory, NodeVerdict, PlanReason, PlanReasonCode
from compaction_pipeline.core.ids import TaskId
from compaction_pipeline.core.planning.budget import limit_in_words, node_gains, within_budget
from compaction_pipeline.core.planning.keyed.in_work import InWork
from compaction_pipeline.core.planning.keyed.node_rewrites import NodeAnswer, major_triggers, plan_node_rewrites
from compaction_pipeline.core.planning.keyed.to_base import PartitionPlan, ToBaseOptions, plan_to_base
from compaction_pipeline.core.planning.plan import Budget, CompactionPlan, PlanRequest
from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.core.tables.figures import NodeMetrics
from compaction_pipeline.core.tables.keyed.file_names import is_delete_file
from compaction_pipeline.core.tables.keyed.keyed_files import KeyedContent
from compaction_pipeline.core.tables.node import Place, TableNode
from compaction_pipeline.core.tables.properties import TableProperties
from compaction_pipeline.core.words import count_text, duration_text
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.core.work.work import KeyedWork, RewriteChanges, ToBase

_MINOR, _MAJOR, _FULL = CompactionType.MINOR, CompactionType.MAJOR, CompactionType.FULL
_FORCED = "work was asked for, whatever the thresholds say"
_ANSWERS = (
    PlanReasonCode.PLANNED,
    PlanReasonCode.MIN_PLAN_INTERVAL,
    PlanReasonCode.QUEUE_FULL,
    PlanReasonCode.OVER_BUDGET,
    PlanReasonCode.FILES_IN_USE,
    PlanReasonCode.REFUSED,
    PlanReasonCode.LIVE_TWICE,
    PlanReasonCode.NO_GAIN,
    PlanReasonCode.NOT_FRAGMENTED,
)
"""The reasons of partitions; the first of them that some partition has is the reason of the plan."""


@dataclass(slots=True)
class _Partition:
    """The decision about one partition. `type` is the type that is due; None when none is. `due` is the text of each node that is due."""

    nodes: dict[TableNode, NodeMetrics]
    code: PlanReasonCode
    texts: dict[TableNode, str]
    type: CompactionType | None = None
    due: TableNode | None = None
    tasks: Sequence[ToBase] = ()

    def end(self, code: PlanReasonCode, text: str) -> None:
        """Give every node of the partition this reason. The text of the node that made the partition due stands before it."""
        why = f"{self.texts[self.due]}; " if self.due is not None else ""
        self.code = code
        self.texts = {node: f"{why if node == self.due else self._of_another()}{text}" for node in self.nodes}

    def _of_another(self) -> str:
        return f"{self.due} of the same partition is due; " if self.due is not None else ""


def plan_keyed(
    content: KeyedContent,
    of_base: Mapping[str, str],
    held: frozenset[str],
    work: InWork,
    properties: TableProperties,
    request: PlanRequest,
    history: NodeHistory,
    budget: Budget,
    now: datetime,
) -> CompactionPlan:
    """Choose the tasks of a keyed table. Pure: the same arguments give the same plan.

    `of_base` are the properties of the base store, and `held` are the paths of base files that open tasks hold. Raises TableRefused when it
    is unknown which deletes meet which rows.
    """
    metrics = measure_keyed(content.files, of_base, properties)
    if not metrics:
        return CompactionPlan.empty(PlanReasonCode.EMPTY_TABLE, "the table has no files")
    return _Planner(content, metrics, buckets_mask(of_base), held, work, properties, request, history, budget, now).plan()


class _Planner:
    """Makes one plan."""

    def __init__(
        self,
        content: KeyedContent,
        metrics: Mapping[TableNode, NodeMetrics],
        mask: int,
        held: frozenset[str],
        work: InWork,
        properties: TableProperties,
        request: PlanRequest,
        history: NodeHistory,
        budget: Budget,
        now: datetime,
    ) -> None:
        self._content, self._metrics, self._mask, self._held, self._work = content, metrics, mask, held, work
        self._properties, self._request, self._history = properties, request, history
        self._budget, self._now = budget, now
        unnamed = (_MINOR, _MAJOR) if request.force else (_MINOR, _MAJOR, _FULL)
        self._types = frozenset(unnamed if request.types is None else request.types)
        self._asked = None if request.nodes is None else {node.place for node in request.nodes}
        # With delta-rewrite, only a MAJOR moves changes into the base store.
        self._moving = (_MAJOR,) if properties.delta_rewrite else (_MINOR, _MAJOR)
        self._majors = major_triggers(content.files, mask, properties) if properties.delta_rewrite else {}
        self._partitions = self._judged()
        self._rewrites: dict[TableNode, NodeAnswer] = {}

    def plan(self) -> CompactionPlan:
        for kind in (_FULL, _MAJOR, _MINOR):
            self._choose(kind)
        self._choose_rewrites()
        tasks: list[KeyedWork] = [work for partition in self._partitions.values() for work in partition.tasks]
        tasks += [work for answer in self._rewrites.values() for work in answer.tasks]
        planned: Sequence[KeyedWork] = ()
        if not self._holds_back():
            planned = within_budget(tasks, self._budget, node_gains(tasks))
            self._mark_cut(planned)
        data, deletes, size = self._predicted(planned)
        return CompactionPlan(
            tasks=tuple(planned),
            reason=self._summary(planned),
            verdicts=tuple(self._verdicts()),
            replaces=self._replaces(planned),
            predicted_files=data,
            predicted_delete_files=deletes,
            predicted_bytes=size,
        )

    # ---- partitions ----------------------------------------------------------------------------------------------------

    def _judged(self) -> dict[Place, _Partition]:
        partitions: dict[Place, _Partition] = {}
        for node, figures in self._metrics.items():
            partition = partitions.setdefault(node.place, _Partition({}, PlanReasonCode.NOT_FRAGMENTED, {}))
            partition.nodes[node] = figures
            kind, partition.texts[node] = self._due(node, figures)
            if kind is not None and (partition.type is None or kind is _FULL):
                partition.type, partition.due = kind, node
        for place, partition in partitions.items():
            if self._asked is not None and place not in self._asked:
                partition.type = partition.due = None
                partition.end(PlanReasonCode.NOT_REQUESTED, "the request does not name a node of its partition")
            elif not self._properties.enabled:
                partition.type = partition.due = None
                partition.end(PlanReasonCode.DISABLED, self._properties.disabled_by)
        return partitions

    def _due(self, node: TableNode, figures: NodeMetrics) -> tuple[CompactionType | None, str]:
        """Return the type that is due on a node, and the text that says why, or why none is."""
        merges = next((kind for kind in self._moving if kind in self._types), None)
        if self._request.force:
            return (_FULL if _FULL in self._types else _MAJOR if _MAJOR in self._types else merges), _FORCED
        full = full_trigger(node, self._history, self._properties, self._now)
        if full.due and _FULL in self._types:
            return _FULL, full.text
        if self._properties.delta_rewrite:
            major = self._majors.get(node, Trigger(False, "no change waits to be merged into the base store"))
            return (merges if major.due else None), major.text
        inserts, deletes = (figures.small_data_files, figures.small_data_bytes), (figures.small_delete_files, figures.small_delete_bytes)
        minor = minor_trigger_of(node, inserts, deletes, self._history, self._properties, self._now)
        return (merges if minor.due else None), minor.text

    def _choose(self, kind: CompactionType) -> None:
        """Plan the merges of the partitions that are due for this type."""
        due = frozenset(place for place, partition in self._partitions.items() if partition.type is kind)
        if not due:
            return
        options = ToBaseOptions(
            kind,
            self._properties,
            self._content.open_transactions,
            self._held,
            self._work.busy,
            max_change_files=self._properties.max_change_files,
            partitions=due,
        )
        for found in plan_to_base(self._content.files, options):
            self._answer(self._partitions[found.spec_id, found.partition], found)

    def _answer(self, partition: _Partition, found: PartitionPlan) -> None:
        code, text = found.reason.code, found.reason.text + found.late.text
        if found.tasks:
            partition.tasks = found.tasks
        elif code is PlanReasonCode.NOT_FRAGMENTED:
            # The node is due, so its reason must not say that it is not.
            code = PlanReasonCode.NO_GAIN
        elif code in (PlanReasonCode.REFUSED, PlanReasonCode.LIVE_TWICE):
            partition.type = None
        partition.end(code, text)

    def _choose_rewrites(self) -> None:
        """Plan the merges of change files with each other, in the partitions whose changes are not merged into the base store now."""
        request, properties = self._request, self._properties
        if not (properties.delta_rewrite and properties.enabled and _MINOR in self._types):
            return
        held = self._work.change_files | self._content.held_by_sinks
        found = plan_node_rewrites(self._content.files, held, self._mask, properties, self._history, self._now, force=request.force)
        for node, answer in found.items():
            partition = self._partitions[node.place]
            # While changes of the partition are merged into the base store, newer ones can still be merged with each other.
            is_free = partition.code is PlanReasonCode.NOT_FRAGMENTED
            is_free |= partition.code is PlanReasonCode.FILES_IN_USE and bool(answer.tasks)
            if is_free and (request.nodes is None or node in request.nodes):
                self._rewrites[node] = answer

    # ---- limits --------------------------------------------------------------------------------------------------------

    def _holds_back(self) -> bool:
        """Return whether the last plan is too recent for another one, and mark the due partitions. A forced request never waits."""
        last, least = self._history.last_planned_at, self._properties.min_plan_interval
        if self._request.force or last is None or not is_pausing(last, self._properties, self._now):
            return False
        ago = duration_text(self._now - last)
        text = f"the table was planned {ago} ago, and at least {duration_text(least)} must pass between two plans"
        for partition in self._partitions.values():
            if partition.tasks:
                partition.end(PlanReasonCode.MIN_PLAN_INTERVAL, text)
        for answer in self._rewrites.values():
            if answer.tasks:
                answer.wait(PlanReasonCode.MIN_PLAN_INTERVAL, text)
        return True

    def _mark_cut(self, planned: Sequence[KeyedWork]) -> None:
        """Mark the partitions whose tasks exceeded the budget, or did not fit into the queue. Those of a partition go in all or none."""
        taken = {work.merged_place for work in planned}
        for place, partition in self._partitions.items():
            if partition.tasks and place not in taken:
                code, limit = limit_in_words(self._budget, planned, partition.tasks)
                partition.end(code, f"it waits: {limit}")
        chosen = {id(work) for work in planned}
        for answer in self._rewrites.values():
            if answer.tasks and not any(id(work) in chosen for work in answer.tasks):
                code, limit = limit_in_words(self._budget, planned, answer.tasks)
                answer.wait(code, f"it waits: {limit}")

    def _replaces(self, planned: Sequence[KeyedWork]) -> tuple[TaskId, ...]:
        places = {place for work in planned if (place := work.merged_place) is not None}
        return tuple(sorted(task_id for place in places for task_id in self._work.replaceable.get(place, ())))

    # ---- answers -------------------------------------------------------------------------------------------------------

    def _verdicts(self) -> list[NodeVerdict]:
        return [
            NodeVerdict(node, *self._answer_of(node, partition), figures)
            for partition in self._partitions.values()
            for node, figures in partition.nodes.items()
        ]

    def _answer_of(self, node: TableNode, partition: _Partition) -> tuple[CompactionType | None, PlanReason]:
        rewrite = self._rewrites.get(node)
        if rewrite is None:
            return partition.type, PlanReason(partition.code, partition.texts[node])
        return (_MINOR if rewrite.is_due else None), rewrite.reason

    def _predicted(self, planned: Sequence[KeyedWork]) -> tuple[int, int, int]:
        """Return the numbers of data files and of delete files that a reader opens after these tasks, and the bytes of both."""
        data = sum(figures.data_files for figures in self._metrics.values()) + sum(work.predicted_files for work in planned)
        deletes = sum(figures.delete_files for figures in self._metrics.values())
        size = sum(figures.data_bytes + figures.delete_bytes for figures in self._metrics.values())
        size += sum(work.predicted_bytes for work in planned)
        # Several tasks may read one file, so files are counted by path.
        read: dict[str, LiveFile] = {}
        merged: dict[str, LiveFile] = {}
        for work in planned:
            match work:
                case ToBase():
                    read.update((file.path, file) for file in (*work.inputs, *work.changes.inserts))
                    merged.update((file.path, file) for file in (*work.deletes, *work.changes.deletes))
                    deletes += len(work.changes.marked)
                case RewriteChanges():
                    found = [file for file in work.inputs if is_delete_file(file.path)]
                    merged.update((file.path, file) for file in found)
                    read.update((file.path, file) for file in work.inputs if not is_delete_file(file.path))
                    # One of the files that it writes holds deletes then.
                    data, deletes = data - bool(found), deletes + bool(found)
                case _:
                    assert_never(work)
        size += sum(file.file_size_bytes for work in planned for file in work.staying)
        size -= sum(file.file_size_bytes for file in (*read.values(), *merged.values()))
        return data - len(read), deletes - len(merged), max(0, size)

    def _summary(self, planned: Sequence[KeyedWork]) -> PlanReason:
        """Return the reason of the whole plan: what is planned, or the most important reason for planning nothing."""
        asked = [each for each in self._partitions.values() if each.code is not PlanReasonCode.NOT_REQUESTED]
        if not asked:
            return PlanReason(PlanReasonCode.NOT_REQUESTED, "none of the requested nodes has files")
        if not self._properties.enabled:
            return PlanReason(PlanReasonCode.DISABLED, self._properties.disabled_by)
        node, reason = self._most_important(asked)
        if planned:
            changes = len({file.path for work in planned for file in work.changes_read})
            places = {work.node.place: None for work in planned}
            words = f"{count_text(len(planned), 'task')} on {count_text(len(places), 'partition')}, {count_text(changes, 'change file')}"
            return PlanReason(PlanReasonCode.PLANNED, f"{words}; for example {node}: {reason.text}")
        return PlanReason(reason.code, f"{node}: {reason.text}")

    def _most_important(self, asked: Sequence[_Partition]) -> tuple[TableNode, PlanReason]:
        """The node whose reason stands for the whole plan: one of each partition, and those with merges of change files."""
        found = []
        for partition in asked:
            node = partition.due or max(partition.nodes, key=lambda each: partition.nodes[each].small_files)
            found.append((node, self._answer_of(node, partition)[1]))
        found += [(node, answer.reason) for node, answer in self._rewrites.items()]
        return min(found, key=lambda each: _ANSWERS.index(each[1].code))
