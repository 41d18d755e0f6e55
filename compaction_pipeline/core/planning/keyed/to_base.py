"""Plans the merge of changes into the base store of a keyed table, partition by partition: change → base.

All tasks of a partition are one task group, because the optimized sequence belongs to the whole partition: it becomes T only together with
every change up to T. Each change file with rows to merge is in a task of the partition. So a commit of the group proves that all were read.

A partition without a change is planned too, when it is asked for: then T is the optimized sequence that the partition has. A FULL takes
what is worth a rewrite there, the other types join small base files. New base files are not called by a higher transaction than the ones
that they replace, and changes that land meanwhile are above T. So such changes reach the new files as they would have reached the old ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from compaction_pipeline.core.fragmentation.verdict import PlanReason, PlanReasonCode
from compaction_pipeline.core.planning.bin_packing import output_count
from compaction_pipeline.core.planning.keyed.base_files import DeletedRows, marked, taken
from compaction_pipeline.core.planning.keyed.cut import ChangeFile, LateChanges, choose_cut, late_changes
from compaction_pipeline.core.planning.keyed.units import TaskFiles, UnitFiles, divide, units_of
from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.core.tables.keyed.keyed_files import KeyedFiles
from compaction_pipeline.core.tables.keyed.merge_on_read import KeyedInput, PartitionRead, partitions_to_read
from compaction_pipeline.core.tables.keyed.optimized_sequence import OptimizedSequences
from compaction_pipeline.core.tables.keyed.partition_paths import PartitionKey, key_of, looks_like_null, path_of
from compaction_pipeline.core.tables.keyed.transactions import BegunTransaction
from compaction_pipeline.core.tables.keyed.tree import ROOT
from compaction_pipeline.core.tables.node import Partition, TableNode
from compaction_pipeline.core.tables.properties import TableProperties
from compaction_pipeline.core.words import count_text, time_text
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.core.work.work import ChangeSpan, ToBase


@dataclass(frozen=True, slots=True)
class ToBaseOptions:
    """How changes are to be merged.

    `open_transactions` have begun and not ended. `held` are the paths of base files that open tasks hold, and `busy` are the partitions
    (spec id, values) of which changes are being merged already. A task reads at most `task_bytes` bytes as far as a unit can be divided;
    None means the table's task size. A merge of one partition reads at most `max_change_files` change files; None is no limit. Only
    `partitions` are planned; None means all.
    """

    type: CompactionType
    properties: TableProperties
    open_transactions: tuple[BegunTransaction, ...] = ()
    held: frozenset[str] = frozenset()
    busy: frozenset[tuple[int, Partition]] = frozenset()
    task_bytes: int | None = None
    max_change_files: int | None = None
    partitions: frozenset[tuple[int, Partition]] | None = None


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """What is to be done in one partition: its tasks, all of one group, and the reason for them or for having none.

    `above` is the optimized sequence that the plan read. `late` counts the changes of transactions that were passed over.
    """

    spec_id: int
    partition: Partition
    above: int | None
    reason: PlanReason
    tasks: tuple[ToBase, ...] = ()
    late: LateChanges = LateChanges()


def plan_to_base(files: KeyedFiles, options: ToBaseOptions) -> tuple[PartitionPlan, ...]:
    """Plan each partition that has live files, or those that the options name.

    Raises TableRefused when it is unknown which deletes meet which rows, as `partitions_to_read` says.
    """
    partitions = partitions_to_read(files.base, files.changes, files.sequences)
    shared = _shared_paths(partitions, files.sequences)
    # A file that left the change store for the base store as it is may be live in both.
    copies = (_copies(files.base), _copies(files.changes))
    return tuple(
        _Planner(files, options, read).plan(f"to-base-{files.change_snapshot_id}-{number}", shared, copies)
        for number, read in enumerate(partitions)
        if options.partitions is None or (read.spec_id, read.partition) in options.partitions
    )


def _shared_paths(partitions: Iterable[PartitionRead], sequences: OptimizedSequences) -> frozenset[PartitionKey]:
    """The keys that stand for NULL and for a text: those of a text that looks like NULL, and those that several partitions have."""
    keys = [(read.partition, key_of(read.partition, sequences.fields)) for read in partitions]
    counts = Counter(key for _, key in keys)
    return frozenset(key for partition, key in keys if counts[key] > 1 or looks_like_null(partition, key))


_Copies = tuple[frozenset[str], frozenset[str]]
"""The paths that are live more than once in the base store, and in the change store."""


def _copies(files: Iterable[LiveFile]) -> frozenset[str]:
    return frozenset(path for path, count in Counter(file.path for file in files).items() if count > 1)


class _Planner:
    """Plans one partition."""

    def __init__(self, files: KeyedFiles, options: ToBaseOptions, read: PartitionRead) -> None:
        self._files, self._options, self._read = files, options, read
        self._inserts, self._deletes = self._change_files(read.inserts), self._change_files(read.deletes)
        self._fragment_bytes = options.properties.fragment_size_bytes

    def _change_files(self, inputs: Iterable[KeyedInput]) -> list[ChangeFile]:
        spans = self._files.row_spans
        return [ChangeFile(each, spans.get(each.file.path)) for each in inputs]

    def plan(self, group: str, shared: Collection[PartitionKey], copies: _Copies) -> PartitionPlan:
        read, options = self._read, self._options
        changes = [*self._inserts, *self._deletes]
        problem = self._problem(shared, copies)
        if problem is not None:
            return self._answer(problem)
        cut = choose_cut(changes, read.optimized, options.open_transactions, options.max_change_files)
        up_to = cut.up_to
        if up_to is None and cut.reason.code is PlanReasonCode.NOT_FRAGMENTED:
            up_to = read.optimized or 0
        if up_to is None:
            return self._answer(cut.reason)
        late = next((each for each in options.open_transactions if each.transaction_id <= up_to), None)
        if late is not None:
            return self._answer(_still_open(late, up_to))
        if (read.spec_id, read.partition) in options.busy:
            return self._answer(
                PlanReason(PlanReasonCode.FILES_IN_USE, "tasks of the partition wait or are merged, and its changes are merged all or none")
            )
        works = self._works(up_to, group)
        held = next((file.path for work in works for file in work.inputs if file.path in options.held), None)
        if held is not None:
            text = f"another task holds base file {held}, and the changes of a partition are merged all or none"
            return self._answer(PlanReason(PlanReasonCode.FILES_IN_USE, text))
        reason = cut.reason if cut.up_to is not None else _without_changes(cut.reason, works)
        return self._answer(reason, [_one_of(work, len(works)) for work in works])

    def _answer(self, reason: PlanReason, tasks: Sequence[ToBase] = ()) -> PartitionPlan:
        read = self._read
        late = late_changes([*self._inserts, *self._deletes], read.optimized)
        return PartitionPlan(read.spec_id, read.partition, read.optimized, reason, tuple(tasks), late)

    def _problem(self, shared: Collection[PartitionKey], copies: _Copies) -> PlanReason | None:
        read, fields = self._read, self._files.sequences.fields
        if shared and key_of(read.partition, fields) in shared:
            return PlanReason(
                PlanReasonCode.REFUSED,
                f"{path_of(read.partition, fields)!r} is the path of two partitions, NULL and a text, and the base store keeps one "
                "optimized sequence for both: nobody could tell whose changes are in it. Give the rows of one of them another value",
            )
        in_base = [file.path for file in (*(each.file for each in read.base), *read.base_deletes) if file.path in copies[0]]
        in_change = [each.file.path for each in (*read.inserts, *read.deletes) if each.file.path in copies[1]]
        if in_base or in_change:
            return PlanReason(
                PlanReasonCode.LIVE_TWICE,
                f"file {(in_base + in_change)[0]} is live more than once, and a merge could not tell the copies apart: remove the path "
                "from the store, and add it once if its rows belong to the table",
            )
        return None

    # ---- tasks -------------------------------------------------------------------------------------------------------

    def _works(self, up_to: int, group: str) -> list[ToBase]:
        above, read = self._read.optimized, self._read
        inserts = tuple(each.of for each in self._inserts if each.has_rows(above, up_to))
        deletes = [each for each in self._deletes if each.has_rows(above, up_to)]
        deleted = DeletedRows(read.base, deletes, read.base_deletes, up_to)
        base, stays = self._base(deleted, up_to)
        units = units_of(UnitFiles(base, inserts, tuple(each.of for each in deletes)))
        task_bytes = self._options.task_bytes or self._options.properties.task_size_bytes
        has_changes = bool(inserts or deletes)
        divided = [task for unit in units for task in divide(self._gaining(unit, deleted, stays, has_changes), task_bytes)]
        tasks = [task for task in divided if not self._is_idle(task.files, deleted)]
        met = {each.file.path for task in tasks for each in task.files.deletes}
        rest = tuple(each.of for each in deletes if each.of.file.path not in met)
        if rest:
            # These deletes meet no row. Their task has nothing to do, but shows the commit that no change was overlooked.
            tasks.append(TaskFiles(ROOT, UnitFiles(deletes=rest)))
        return [self._work(task, deleted, stays, up_to, group) for task in tasks]

    def _base(self, deleted: DeletedRows, up_to: int) -> tuple[tuple[KeyedInput, ...], frozenset[str]]:
        """(The base files that may be inputs, the paths of those that stay and get position deletes)."""
        if self._options.type is CompactionType.FULL:
            return tuple(each for each in self._read.base if each.named.transaction_id <= up_to), frozenset()
        reached, small = taken(self._read.base, deleted, up_to, self._options.held, self._fragment_bytes)
        return (*reached, *small), marked(reached, deleted, self._fragment_bytes)

    def _gaining(self, unit: UnitFiles, deleted: DeletedRows, stays: Collection[str], has_changes: bool) -> UnitFiles:
        """The unit without base files whose rewrite would gain nothing. `has_changes` tells whether the partition has changes to merge."""
        if self._options.type is CompactionType.FULL and not self._is_merged(unit, deleted):
            return unit
        rewritten = [each for each in unit.base if each.file.path not in stays]
        if unit.inserts or (len(rewritten) > 1 and (unit.deletes or not has_changes)):
            return unit
        return UnitFiles(tuple(each for each in unit.base if deleted.reach(each)), unit.inserts, unit.deletes)

    def _is_idle(self, files: UnitFiles, deleted: DeletedRows) -> bool:
        """Whether a task would write the rows of its base files into as many files again, and nothing else."""
        if self._options.type is CompactionType.FULL:
            return self._is_merged(files, deleted)
        return not files.inserts and not files.deletes and len(files.base) < 2

    def _is_merged(self, unit: UnitFiles, deleted: DeletedRows) -> bool:
        """Whether a FULL finds nothing to do in a unit: no change, no delete of the base store, no file to join and none to split.

        Where the table wants a FULL to rewrite all files, any base file is something to do.
        """
        properties = self._options.properties
        if properties.full_rewrites_all and unit.base:
            return False
        size = sum(each.file.file_size_bytes for each in unit.base)
        return not (
            unit.inserts
            or unit.deletes
            or len(unit.base) > output_count(size, properties.target_size_bytes, self._fragment_bytes)
            or any(deleted.of_store(each) or each.file.file_size_bytes > properties.oversized_bytes for each in unit.base)
        )

    def _work(self, task: TaskFiles, deleted: DeletedRows, stays: Collection[str], up_to: int, group: str) -> ToBase:
        read, properties, files = self._read, self._options.properties, task.files
        written = [each.file.file_size_bytes for each in files.base if each.file.path not in stays]
        size = sum(written) + UnitFiles(inserts=files.inserts).bytes_of(task.node)
        outputs = output_count(size, properties.target_size_bytes, self._fragment_bytes) if written or files.inserts else 0
        even = -(-size // max(outputs, 1))
        applied = {delete.path: delete for each in files.base for delete in deleted.of_store(each)}
        return ToBase(
            node=TableNode(read.spec_id, read.partition, task.node),
            type=self._options.type,
            inputs=_plain(files.base),
            deletes=tuple(applied.values()),
            converts=tuple(path for path, delete in applied.items() if delete.referenced_data_file in stays),
            output_spec_id=read.spec_id,
            target_size_bytes=max(properties.target_size_bytes, even) if outputs <= 1 else even,
            fragment_size_bytes=self._fragment_bytes,
            group=group,
            predicted_files=outputs + len(files.base) - len(written),
            predicted_bytes=size,
            changes=ChangeSpan(
                inserts=_plain(files.inserts),
                deletes=_plain(files.deletes),
                above=read.optimized,
                up_to=up_to,
                change_snapshot_id=self._files.change_snapshot_id,
                marked=tuple(each.file.path for each in files.base if each.file.path in stays),
            ),
        )


def _without_changes(reason: PlanReason, works: Sequence[ToBase]) -> PlanReason:
    """The reason for tasks that merge no change, or for having none. `reason` says that there is no change."""
    if not works:
        return PlanReason(reason.code, f"{reason.text}, and a rewrite of its base files would gain nothing")
    data = len({file.path for work in works for file in work.inputs})
    deletes = len({file.path for work in works for file in work.deletes})
    text = f"{reason.text}: {count_text(data, 'base file')} with {count_text(deletes, 'delete file')} of the base store"
    return PlanReason(PlanReasonCode.PLANNED, f"{text} are merged with each other")


def _still_open(late: BegunTransaction, up_to: int) -> PlanReason:
    text = (
        f"transaction {late.transaction_id} began at {time_text(late.begun_at)} and has not ended: it may bring deletes for base files that"
    )
    return PlanReason(PlanReasonCode.FILES_IN_USE, f"{text} must not be called by transaction {up_to} before it ends, so they wait")


def _one_of(work: ToBase, tasks: int) -> ToBase:
    """The work as one of so many tasks of its partition."""
    return replace(work, changes=replace(work.changes, tasks=tasks))


def _plain(inputs: Iterable[KeyedInput]) -> tuple[LiveFile, ...]:
    return tuple(each.file for each in inputs)
