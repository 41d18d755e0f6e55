"""Plans a keyed table: which partitions are due, and which tasks merge their changes.

The nodes of a partition are judged one by one, as those of a plain table are. The changes of a partition are merged all or none, so one
node that is due takes the other nodes of its partition with it. MINOR and MAJOR do the same work here; a FULL also rewrites base files that
no change reaches.

With delta-rewrite a MINOR is something else: it merges change files with each other, node by node (`node_rewrites.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from compaction_pipeline.core.fragmentation.keyed_metrics import buckets_mask, measure_keyed
from compaction_pipeline.core.fragmentation.triggers import Trigger, minor_trigger_of
from compaction_pipeline.core.fragmentation.verdict import NodeVerdict, PlanReason, PlanReasonCode
from compaction_pipeline.core.ids import TaskId
from compaction_pipeline.core.planning.budget import node_gains
from compaction_pipeline.core.planning.frame import EMPTY_TABLE, Judged, Verdicts, plan_of
from compaction_pipeline.core.planning.keyed.in_work import InWork
from compaction_pipeline.core.planning.keyed.node_rewrites import NodeAnswer, major_triggers, plan_node_rewrites
from compaction_pipeline.core.planning.keyed.to_base import PartitionPlan, ToBaseOptions, plan_to_base
from compaction_pipeline.core.planning.plan import Budget, Circumstances, CompactionPlan, FilesAfter
from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.core.tables.figures import NodeMetrics
from compaction_pipeline.core.tables.keyed.file_names import is_delete_file
from compaction_pipeline.core.tables.keyed.keyed_files import KeyedContent, KeyedFiles
from compaction_pipeline.core.tables.node import Place, TableNode
from compaction_pipeline.core.words import count_text
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.core.work.work import KeyedWork, ToBase

_MINOR, _MAJOR, _FULL = CompactionType.MINOR, CompactionType.MAJOR, CompactionType.FULL
_FORCED = "work was asked for, whatever the thresholds say"


@dataclass(slots=True)
class _Partition:
    """The decision about one partition. `type` is the type that is due; None when none is. `due` is the node that made the partition due,
    and `texts` says of each node what is due on it, or why nothing is."""

    nodes: dict[TableNode, NodeMetrics]
    code: PlanReasonCode
    texts: dict[TableNode, str]
    type: CompactionType | None = None
    due: TableNode | None = None
    tasks: Sequence[ToBase] = ()

    @property
    def beside(self) -> str:
        """What the reasons of the other nodes begin with, when one node made the partition due."""
        return f"{self.due} of the same partition is due"

    def end(self, code: PlanReasonCode, text: str) -> None:
        """Give every node of the partition this reason. What made the partition due stands before it."""
        self.code = code
        if self.due is None:
            self.texts = dict.fromkeys(self.nodes, text)
        else:
            why = {**dict.fromkeys(self.nodes, self.beside), self.due: self.texts[self.due]}
            self.texts = {node: f"{why[node]}; {text}" for node in self.nodes}


def plan_keyed(content: KeyedContent, of_base: Mapping[str, str], work: InWork, of: Circumstances, budget: Budget) -> CompactionPlan:
    """Choose the tasks of a keyed table. Pure: the same arguments give the same plan.

    `of_base` are the properties of the base store, and `work` is what open tasks hold. Raises TableRefused when it is unknown which deletes
    meet which rows.
    """
    planner = _Planner(content, of_base, work, of)
    if not planner.metrics:
        return EMPTY_TABLE
    # Plans of keyed tables have not named nodes that are cut in part yet. Who lets them makes such tables wait in line for the rest.
    return replace(plan_of(planner.judged(), planner, of, budget), cut=frozenset())


def _by_place(files: KeyedFiles) -> Mapping[Place, Sequence[LiveFile]]:
    """The live files of both stores, by their partitions."""
    found: dict[Place, list[LiveFile]] = {}
    for file in (*files.base, *files.changes):
        found.setdefault((file.spec_id, file.partition), []).append(file)
    return found


class _Planner:
    """Judges the nodes of one table."""

    def __init__(self, content: KeyedContent, of_base: Mapping[str, str], work: InWork, of: Circumstances) -> None:
        self._content, self._mask, self._work = content, buckets_mask(of_base), work
        self._properties, self._request, self._of = of.properties, of.request, of
        self.metrics: Mapping[TableNode, NodeMetrics] = measure_keyed(content.files, of_base, of.properties)
        self._asked = None if of.request.nodes is None else {node.place for node in of.request.nodes}
        # With delta-rewrite, only a MAJOR moves changes into the base store.
        self._moving = (_MAJOR,) if of.properties.delta_rewrite else (_MINOR, _MAJOR)
        self._majors = major_triggers(content.files, self._mask, of.properties) if of.properties.delta_rewrite else {}
        self._waits: dict[TableNode, PlanReason] = {}
        self._files = _by_place(content.files) if of.properties.delta_rewrite and of.waits.commits else {}
        self._partitions = self._due_partitions()
        self._rewrites: dict[TableNode, NodeAnswer] = {}

    def judged(self) -> Judged[KeyedWork]:
        """Return what is due: merges into the base store, partition by partition, and merges of change files, node by node."""
        for kind in (_FULL, _MAJOR, _MINOR):
            self._choose(kind)
        self._choose_rewrites()
        works: list[KeyedWork] = []
        due: dict[TableNode, Sequence[KeyedWork]] = {}
        kept: dict[TableNode, str] = {}
        for partition in self._partitions.values():
            if partition.tasks:
                works += partition.tasks
                due.update(dict.fromkeys(partition.nodes, partition.tasks))
                kept.update((node, partition.beside) for node in partition.nodes if node != partition.due)
        for node, answer in self._rewrites.items():
            if answer.tasks:
                works += answer.tasks
                due[node] = answer.tasks
        return Judged(self._verdicts(), works, due, node_gains(works), kept, self._waits)

    # ---- partitions ----------------------------------------------------------------------------------------------------

    def _due_partitions(self) -> dict[Place, _Partition]:
        partitions: dict[Place, _Partition] = {}
        for node, figures in self.metrics.items():
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
        merges = next((kind for kind in self._moving if kind in self._of.types), None)
        if self._request.force:
            return (_FULL if _FULL in self._of.types else _MAJOR if _MAJOR in self._of.types else merges), _FORCED
        full = self._of.full(node)
        if full.due:
            return _FULL, full.text
        if self._properties.delta_rewrite:
            major = self._majors.get(node, Trigger(False, "no change waits to be merged into the base store"))
            if major.due and (allowed := self._of.major(node, major.text, self._files.get(node.place, ()))).waits is not None:
                self._waits[node] = PlanReason(allowed.waits, allowed.text)
                return None, major.text
            return (merges if major.due else None), major.text
        inserts, deletes = (figures.small_data_files, figures.small_data_bytes), (figures.small_delete_files, figures.small_delete_bytes)
        minor = minor_trigger_of(node, inserts, deletes, self._of.history, self._properties, self._of.now)
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
            self._work.base_files,
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
        if not (properties.delta_rewrite and properties.enabled and _MINOR in self._of.types):
            return
        held = self._work.change_files | self._content.held_by_sinks
        found = plan_node_rewrites(self._content.files, held, self._mask, properties, self._of.history, self._of.now, force=request.force)
        for node, answer in found.items():
            partition = self._partitions[node.place]
            # While changes of the partition are merged into the base store, newer ones can still be merged with each other.
            is_free = partition.code is PlanReasonCode.NOT_FRAGMENTED
            is_free |= partition.code is PlanReasonCode.FILES_IN_USE and bool(answer.tasks)
            if is_free and (request.nodes is None or node in request.nodes):
                self._rewrites[node] = answer

    def _verdicts(self) -> dict[TableNode, NodeVerdict]:
        verdicts = {}
        for partition in self._partitions.values():
            for node, figures in partition.nodes.items():
                kind, reason = partition.type, PlanReason(partition.code, partition.texts[node])
                if (answer := self._rewrites.get(node)) is not None:
                    kind, reason = _MINOR if answer.is_due else None, answer.reason
                verdicts[node] = NodeVerdict(node, kind, reason, figures)
        return verdicts

    # ---- what only a keyed table knows about its plans (`frame.Kind`) ----------------------------------------------------

    def replaced_by(self, work: KeyedWork) -> Collection[TaskId]:
        """Return the tasks that merge changes of the same partition into the base store, and that nobody has begun."""
        return self._work.replaceable.get(work.merged_place, ()) if work.merged_place is not None else ()

    def after(self, planned: Sequence[KeyedWork]) -> FilesAfter:
        """Predict the files that a reader opens. Several tasks may read one file, so files are counted by path."""
        figures = self.metrics.values()
        data = sum(each.data_files for each in figures) + sum(work.predicted_files for work in planned)
        deletes = sum(each.delete_files for each in figures)
        size = sum(each.data_bytes + each.delete_bytes for each in figures) + sum(work.predicted_bytes for work in planned)
        read: dict[str, LiveFile] = {}
        applied: dict[str, LiveFile] = {}
        for work in planned:
            for file in (*work.inputs, *work.change_files):
                (applied if is_delete_file(file.path) else read)[file.path] = file
            applied.update((file.path, file) for file in work.deletes)
            # Where deletes are merged with each other, one of the predicted files holds them.
            merged = any(work.holds_deletes(file) for file in work.rewritten)
            data, deletes = data - merged, deletes + merged + len(work.staying)
            size += sum(file.file_size_bytes for file in work.staying)
        size -= sum(file.file_size_bytes for file in (*read.values(), *applied.values()))
        return FilesAfter(data - len(read), deletes - len(applied), max(0, size))

    def said_of(self, planned: Sequence[KeyedWork], verdicts: Verdicts) -> str:
        """Say how much is planned, and why in one of its nodes."""
        changes = len({file.path for work in planned for file in work.changes_read})
        places = {work.node.place: None for work in planned}
        words = f"{count_text(len(planned), 'task')} on {count_text(len(places), 'partition')}, {count_text(changes, 'change file')}"
        return f"{words}; for example {self._example(PlanReasonCode.PLANNED, verdicts)}"

    def why_none(self, code: PlanReasonCode, verdicts: Verdicts) -> str:
        """Say why nothing is planned, with one node that has this code as an example."""
        return self._example(code, verdicts)

    def _example(self, code: PlanReasonCode, verdicts: Verdicts) -> str:
        """The first node that has this code, with its reason: one node of each partition first, then those with merges of changes."""
        nodes = [each.due or max(each.nodes, key=lambda node: each.nodes[node].small_files) for each in self._partitions.values()]
        found = (verdicts[node] for node in (*nodes, *self._rewrites) if node in verdicts)
        verdict = next(verdict for verdict in found if verdict.reason.code is code)
        return f"{verdict.node}: {verdict.reason.text}"
