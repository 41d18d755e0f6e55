"""Decides what one attempt puts into the base store of a keyed table: which partitions get their changes merged.

The tasks of one task group merge all changes of one partition, up to one sequence number. They go in together or not at all: with them the
optimized sequence of the partition moves, and readers skip the changes up to it from then on. So the group conflicts when one of its tasks
does, or when the partition's optimized sequence is not the one that the plan read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from compaction_pipeline.core.commit.candidates import Candidates
from compaction_pipeline.core.commit.dangling_deletes import Converted, dangling_deletes
from compaction_pipeline.core.commit.head import DataIndex, HeadFiles, HeadLayout
from compaction_pipeline.core.commit.validation import OutputsOf, PathsIn, validate
from compaction_pipeline.core.ids import TaskId
from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.core.tables.keyed.file_names import KeyedFileType, base_file, change_file
from compaction_pipeline.core.tables.keyed.optimized_sequence import OptimizedSequences
from compaction_pipeline.core.tables.keyed.partition_paths import PartitionKey, key_of, looks_like_null, path_of
from compaction_pipeline.core.tables.node import Partition
from compaction_pipeline.core.work.merged import MergedWork, by_kind
from compaction_pipeline.core.work.work import ChangeSpan, ToBase, Work

TaskGroup = tuple[MergedWork[ToBase], ...]


@dataclass(frozen=True, slots=True)
class BaseDecision:
    """The merges of changes that are committed, the reason for each task that is left out, and the delete files that the snapshot drops."""

    survivors: Sequence[MergedWork[ToBase]]
    conflicts: Mapping[TaskId, str]
    dropped: Sequence[LiveFile]


@dataclass(frozen=True, slots=True)
class KeyedHead:
    """What a commit to a base store must know besides the files of the head.

    `sequences` are the optimized sequences in the metadata that the attempt is built on, and `spec_id` is its default partition spec.
    `change_snapshots` are the head of the change store and its ancestors; each has the field ids of the columns that its rows may have.
    `change_partitions` are the partitions of the change store's live files; they are needed for partitions with a NULL only.
    `late_files` are the change store's live files that are newer than what the tasks merge, by partition.
    `paths_of` gives the paths of the base store's data files in a snapshot; None when the metadata has no such snapshot.
    """

    sequences: OptimizedSequences
    spec_id: int
    change_snapshots: Mapping[int, frozenset[int]]
    change_partitions: frozenset[Partition]
    late_files: Mapping[Partition, Sequence[LiveFile]]
    paths_of: Callable[[int], frozenset[str] | None]


def task_groups(tasks: Iterable[MergedWork[Work]]) -> Sequence[TaskGroup]:
    """The TO_BASE tasks by task group. A task without a group is a group of its own."""
    groups: dict[tuple[str, str, TaskId], list[MergedWork[ToBase]]] = defaultdict(list)
    for task in by_kind(tasks).to_base:
        groups[task.plan_id, task.work.group, TaskId("") if task.work.group else task.task_id].append(task)
    return [tuple(group) for group in groups.values()]


def with_their_groups(tasks: Sequence[MergedWork[Work]], found: Collection[TaskId]) -> tuple[TaskId, ...]:
    """These tasks, and all tasks of the same task groups, in the order of `tasks`."""
    whole = {task.task_id for group in task_groups(tasks) if any(task.task_id in found for task in group) for task in group}
    return tuple(task.task_id for task in tasks if task.task_id in found or task.task_id in whole)


def decide_to_base(candidates: Candidates, head: HeadFiles, keyed: KeyedHead, paths_in: PathsIn) -> BaseDecision:
    """Validate the tasks, salvage the partitions without a conflict, and find the delete files that can be dropped."""
    tasks, unfit, outputs_of = candidates.tasks, candidates.unfit, candidates.outputs_of
    groups = task_groups(tasks)
    conflicts = {
        task.task_id: f"a {task.work.action.value} task would not keep the optimized sequence of a keyed table's base store; plan it again"
        for task in candidates.others_than(task for group in groups for task in group)
    }
    live: dict[Partition, list[LiveFile]] = defaultdict(list)
    for file in head.data.by_path.values():
        live[file.partition].append(file)
    rules = _GroupRules(keyed, live, head.layout)
    merged: list[MergedWork[ToBase]] = []
    for group in groups:
        reasons = {task.task_id: unfit[task.task_id] for task in group if task.task_id in unfit}
        whole = rules.reason(group)
        if not reasons and whole is None:
            reasons = dict(validate(group, head, outputs_of, paths_in) or rules.wrong_outputs(group, outputs_of))
        if whole is None and not reasons:
            rules.take(group)
            merged += group
        for task in group if whole or reasons else ():
            conflicts[task.task_id] = whole or reasons.get(task.task_id) or _of_another(reasons)
    removed = {file.path for task in merged for file in task.work.rewritten}
    added = [output for task in merged for output in outputs_of(task) if output.is_data]
    data = DataIndex([*(file for path, file in head.data.by_path.items() if path not in removed), *added], head.layout)
    readable = frozenset(delete.path for task in tasks for delete in task.work.deletes)
    single = [delete for path, delete in head.deletes.items() if path not in head.duplicate_deletes]
    gone = dangling_deletes(single, data, paths_in, readable, _converted(merged)) if merged else ()
    return BaseDecision(tuple(merged), conflicts, gone)


def _converted(merged: Sequence[MergedWork[ToBase]]) -> Converted:
    """The position deletes of marked files whose rows new position deletes have, each with its data file.

    A new one also has a row that was not deleted before, and no two of the old ones have one row. So it is larger than all old ones
    together. Where it is not, nobody knows what it has, and the old ones stay.
    """
    found: dict[str, frozenset[str]] = {}
    for task in merged:
        held: dict[str, list[LiveFile]] = defaultdict(list)
        for delete in task.work.deletes:
            if delete.path in task.work.converts and delete.referenced_data_file is not None:
                held[delete.referenced_data_file].append(delete)
        for output in task.result.outputs if task.result is not None else ():
            data = output.referenced_data_file
            if data is not None and output.record_count > sum(delete.record_count for delete in held[data]):
                found.update((delete.path, frozenset((data,))) for delete in held[data])
    return found


def _of_another(reasons: Mapping[TaskId, str]) -> str:
    task_id, reason = next(iter(reasons.items()))
    return f"task {task_id}, which merges changes of the same partition, cannot be committed: {reason}"


class _GroupRules:
    """The rules about a task group as a whole. `live` are the live data files of the base store by partition."""

    def __init__(self, keyed: KeyedHead, live: Mapping[Partition, Sequence[LiveFile]], layout: HeadLayout) -> None:
        self._keyed = keyed
        self._live = live
        self._layout = layout
        self._taken: dict[PartitionKey, TaskId] = {}

    def take(self, group: TaskGroup) -> None:
        """Note that this group goes in: its partition's optimized sequence moves, so that no other group of the partition fits any more."""
        self._taken[self._key(group)] = group[0].task_id

    def reason(self, group: TaskGroup) -> str | None:
        """Why the group may not be committed, as far as its plan and the two stores tell; None when it may."""
        changes = group[0].work.changes
        return (
            self._broken_plan(group, changes)
            or self._moved_sequence(group, changes)
            or self._shared_number(group)
            or self._lost_changes(group, changes)
            or self._late_changes(group, changes)
            or self._unread_file(group)
        )

    def wrong_outputs(self, group: TaskGroup, outputs_of: OutputsOf) -> Mapping[TaskId, str]:
        """The reasons of the tasks whose outputs lie in another place, or whose names say that their rows came later than they may."""
        reasons: dict[TaskId, str] = {}
        for task in group:
            changes = task.work.changes
            for output in outputs_of(task):
                if output.partition != task.work.node.partition or output.spec_id != self._keyed.spec_id:
                    reasons[task.task_id] = f"its output {output.path} is of another partition than its task"
                elif output.is_data:
                    named = base_file(output.path)
                    if named.type is not KeyedFileType.BASE or not named.node.is_within(task.work.node.tree):
                        reasons[task.task_id] = f"the name of its output {output.path} does not say that it holds base rows of its node"
                    elif named.transaction_id > changes.up_to:
                        reasons[task.task_id] = (
                            f"its output {output.path} is named after transaction {named.transaction_id}, but it has changes up to "
                            f"{changes.up_to}: later deletes would not reach them"
                        )
        return reasons

    def _key(self, group: TaskGroup) -> PartitionKey:
        return key_of(group[0].work.node.partition, self._keyed.sequences.fields)

    def _broken_plan(self, group: TaskGroup, changes: ChangeSpan) -> str | None:
        """All tasks of the plan must be here, and must mean the same span of changes of one partition."""
        if len(group) != changes.tasks:
            return f"{len(group)} tasks of its partition are to be committed, but {changes.tasks} were planned: changes would be lost"
        if any(_said(task) != _said(group[0]) for task in group):
            return "the tasks of its partition were planned from different snapshots, or for different changes"
        node = group[0].work.node
        if node.spec_id != self._keyed.spec_id or any(task.work.output_spec_id != self._keyed.spec_id for task in group):
            return f"it was planned for partition spec {node.spec_id}, but the base store writes spec {self._keyed.spec_id} now"
        read = [file for task in group for file in (*task.work.inputs, *task.work.change_files)]
        stray = next((file.path for file in read if file.partition != node.partition), None)
        return None if stray is None else f"its file {stray} is of another partition than its task"

    def _moved_sequence(self, group: TaskGroup, changes: ChangeSpan) -> str | None:
        """Rule (a): the optimized sequence is the one that the plan read. Otherwise rows would be merged twice, or lost."""
        other = self._taken.get(self._key(group))
        if other is not None:
            return f"task {other} of another plan merges changes of the same partition in this commit"
        if not self._moves_rightly(group, changes):
            return f"it was planned to move the optimized sequence of its partition from {changes.above} to {changes.up_to}"
        now = self._keyed.sequences.of(group[0].work.node.partition)
        if now == changes.above:
            return None
        return f"the optimized sequence of its partition is {now}, but {changes.above} was planned with: its changes may be merged already"

    @staticmethod
    def _moves_rightly(group: TaskGroup, changes: ChangeSpan) -> bool:
        """Whether the number grows with the changes that are merged, and stays where it is when there are none."""
        if not _has_changes(group):
            return changes.up_to == (changes.above or 0)
        return changes.up_to > (-1 if changes.above is None else changes.above)

    def _shared_number(self, group: TaskGroup) -> str | None:
        """One number stands for all partitions with this path. When there are several, no reader could tell which one it is about. Amoro
        takes it for that of NULL."""
        key, partition, fields = self._key(group), group[0].work.node.partition, self._keyed.sequences.fields
        others = {*self._live, *self._keyed.change_partitions} - {partition} if None in key else set()
        if not looks_like_null(partition, key) and all(key_of(other, fields) != key for other in others):
            return None
        return (
            f"{path_of(partition, fields)!r} is the path of two partitions, NULL and a text, and one optimized sequence would stand for "
            "both; give the rows of one of them another partition value"
        )

    def _lost_changes(self, group: TaskGroup, changes: ChangeSpan) -> str | None:
        """Rule (b) about the change store: the plan's snapshot is part of its history, and the base store has its columns."""
        if not _has_changes(group):
            return None
        columns = self._keyed.change_snapshots.get(changes.change_snapshot_id)
        if columns is None:
            return (
                f"snapshot {changes.change_snapshot_id} of the change store, which the plan read, is not its head or one of the head's "
                "ancestors: the change store was rolled back, or the snapshot was expired"
            )
        missing = columns - self._layout.field_ids.get(group[0].schema_id, frozenset())
        return f"the change store has column id {min(missing)}, which the base store did not have at the plan" if missing else None

    def _late_changes(self, group: TaskGroup, changes: ChangeSpan) -> str | None:
        """No change has landed of a transaction that the commit would pass over.

        Readers apply such a change to the rows that are there now. The new base files would count as later than it. The plan made sure of
        this for the files that it saw. A file that lands between this check and the commit is as late as one that lands after the commit.
        """
        for file in self._keyed.late_files.get(group[0].work.node.partition, ()):
            transaction = change_file(file.path, file.data_sequence_number).transaction_id
            if transaction <= changes.up_to < file.data_sequence_number:
                return (
                    f"change file {file.path} of transaction {transaction} has landed, and the commit would pass it over, because it moves "
                    f"the optimized sequence of its partition to {changes.up_to}"
                )
        return None

    def _unread_file(self, group: TaskGroup) -> str | None:
        """Every base file whose rows the changes delete was read, or was left alone by the plan on purpose.

        A file that came after the plan may hold rows which a reader deletes by changes of the group. These changes end with the commit.
        """
        spans = [task.work.changes for task in group]
        deletes = [change_file(file.path, file.data_sequence_number) for span in spans for file in span.deletes]
        inputs = {file.path for task in group for file in task.work.inputs}
        reached = []
        for file in self._live.get(group[0].work.node.partition, ()) if deletes else ():
            named = base_file(file.path)
            if file.path not in inputs and any(
                delete.transaction_id > named.transaction_id and delete.node.shares_rows_with(named.node) for delete in deletes
            ):
                reached.append(file.path)
        planned = (self._keyed.paths_of(group[0].snapshot_id) or frozenset()) if reached else frozenset()
        new = next((path for path in reached if path not in planned), None)
        return f"data file {new} came after the plan, and changes that the plan read may delete its rows" if new is not None else None


def _has_changes(group: TaskGroup) -> bool:
    """Whether the group merges any change. If not, it merges files of the base store with each other."""
    return any(task.work.change_files for task in group)


def _said(task: MergedWork[ToBase]) -> object:
    work, changes = task.work, task.work.changes
    span = changes.above, changes.up_to, changes.change_snapshot_id, changes.tasks
    return span, task.snapshot_id, task.sequence_number, task.schema_id, work.node.spec_id, work.node.partition
