"""Chooses the change files of a keyed table that are merged with each other: delta-rewrite.

The small insert files of a tree node become one insert file, and its small delete files one delete file. Each row keeps its own transaction
and offset, so the change log of the node says the same before and after, and nothing moves into the base store. A reader opens fewer files.

Any subset of a node's files may be merged, because each row is judged by its own place in the log. Two rules choose the subset:

- A file is taken only when its transaction equals its data sequence number. The merged file gets the highest data sequence number of its
  inputs, and readers skip a file by that number. A file whose name tells another transaction belongs to a writer that began a transaction
  earlier, and both numbers of it count.
- A file that was merged before is taken again only when the other inputs of its kind have at least as many bytes. So a file at least
  doubles whenever its bytes are written again, each byte is written O(log) times, and at most O(log) small merged files stay in a node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from compaction_pipeline.core.fragmentation.keyed_metrics import bucket_of
from compaction_pipeline.core.fragmentation.triggers import Trigger, minor_trigger_of
from compaction_pipeline.core.fragmentation.verdict import NodeHistory, PlanReason, PlanReasonCode
from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.core.tables.keyed.keyed_files import KeyedFiles
from compaction_pipeline.core.tables.keyed.merge_on_read import KeyedInput, PartitionRead, partitions_to_read
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.properties import TableProperties
from compaction_pipeline.core.words import count_text


@dataclass(frozen=True, slots=True)
class DeltaRewrite:
    """Change files of one node to merge with each other. A kind of which only one file would be merged is left out.

    The merged files get `data_sequence_number`.
    """

    node: TableNode
    inserts: tuple[LiveFile, ...]
    deletes: tuple[LiveFile, ...]

    @property
    def files(self) -> tuple[LiveFile, ...]:
        """All files that are merged: inserts, then deletes."""
        return (*self.inserts, *self.deletes)

    @property
    def data_sequence_number(self) -> int:
        """The highest data sequence number of the files."""
        return max(file.data_sequence_number for file in self.files)


@dataclass(frozen=True, slots=True)
class NodeRewrites:
    """What is to be merged in one node, and the reason for it or for nothing."""

    node: TableNode
    reason: PlanReason
    rewrites: tuple[DeltaRewrite, ...] = ()


def plan_delta_rewrites(
    files: KeyedFiles,
    held: Collection[str],
    properties: TableProperties,
    history: NodeHistory,
    now: datetime,
    mask: int,
    *,
    force: bool = False,
) -> tuple[NodeRewrites, ...]:
    """Plan each node that has change files which readers do not skip. Pure: the same arguments give the same plan.

    `held` are the paths of change files that other tasks rewrite, or that a sink still grows. `history` knows the buckets of the table,
    whose mask is `mask`. With `force` the thresholds do not count.
    Raises TableRefused when it is unknown which deletes meet which rows, as `partitions_to_read` says.
    """
    copies = {path for path, count in Counter(file.path for file in files.changes).items() if count > 1}
    found = []
    for read in partitions_to_read(files.base, files.changes, files.sequences):
        for tree in sorted({each.named.node for each in (*read.inserts, *read.deletes)}, key=lambda node: node.id):
            node = TableNode(read.spec_id, read.partition, tree)
            inserts, deletes = (_Kind(_of_node(read, kind, node), files.row_spans, held, copies, properties) for kind in _KINDS)
            seen_as = TableNode(node.spec_id, node.partition, bucket_of(tree, mask))
            trigger = minor_trigger_of(seen_as, inserts.amount, deletes.amount, history, properties, now)
            with_held = minor_trigger_of(seen_as, inserts.amount_with_held, deletes.amount_with_held, history, properties, now)
            found.append(_judged(node, inserts, deletes, properties, trigger, waits=with_held.due, force=force))
    return tuple(found)


_KINDS = ("inserts", "deletes")


def _of_node(read: PartitionRead, kind: str, node: TableNode) -> list[KeyedInput]:
    return [each for each in getattr(read, kind) if each.named.node == node.tree]


class _Kind:
    """The insert files, or the delete files, of a node: those to merge, and how many others are small."""

    def __init__(
        self,
        inputs: Sequence[KeyedInput],
        row_spans: Mapping[str, object],
        held: Collection[str],
        copies: Collection[str],
        properties: TableProperties,
    ) -> None:
        small = [each for each in inputs if each.file.file_size_bytes <= properties.fragment_size_bytes]
        fit = [each for each in small if each.named.transaction_id == each.file.data_sequence_number and each.file.path not in copies]
        free = [each.file for each in fit if each.file.path not in held]
        self._held = [each.file for each in fit if each.file.path in held]
        self.held, self.unfit = len(self._held), len(small) - len(fit)
        self.files = _doubling([file for file in free if file.path not in row_spans], [file for file in free if file.path in row_spans])
        self.waiting = len(free) - len(self.files)

    @property
    def amount(self) -> tuple[int, int]:
        """How many files there are to merge, and their bytes."""
        return _amount(self.files)

    @property
    def amount_with_held(self) -> tuple[int, int]:
        """How many there would be if nobody held a file, and their bytes."""
        return _amount([*self.files, *self._held])


def _amount(files: Sequence[LiveFile]) -> tuple[int, int]:
    return len(files), sum(file.file_size_bytes for file in files)


def _doubling(new: Sequence[LiveFile], merged: Sequence[LiveFile]) -> list[LiveFile]:
    """The new files, and the most merged ones of which each finds as many bytes beside it as it has."""
    ascending = sorted(merged, key=lambda file: (file.file_size_bytes, file.path))
    beside, taken = sum(file.file_size_bytes for file in new), 0
    for count, file in enumerate(ascending, start=1):
        if file.file_size_bytes <= beside:
            taken = count
        beside += file.file_size_bytes
    return [*new, *ascending[:taken]]


def _judged(
    node: TableNode, inserts: _Kind, deletes: _Kind, properties: TableProperties, trigger: Trigger, *, waits: bool, force: bool
) -> NodeRewrites:
    """Decide about a node. `waits` is True when it would be due if nobody held a file."""
    if not (trigger.due or force):
        code = PlanReasonCode.FILES_IN_USE if waits else PlanReasonCode.NOT_FRAGMENTED
        return NodeRewrites(node, PlanReason(code, f"{trigger.text}{_left_out(inserts, deletes)}"))
    rewrites = tuple(_bins(node, inserts.files, deletes.files, properties.task_size_bytes))
    if not rewrites:
        text = f"no two change files of one kind can be merged{_left_out(inserts, deletes)}"
        return NodeRewrites(node, PlanReason(PlanReasonCode.NO_GAIN, text))
    count = sum(len(each.files) for each in rewrites)
    why = trigger.text if trigger.due else "work was asked for, whatever the thresholds say"
    return NodeRewrites(node, PlanReason(PlanReasonCode.PLANNED, f"{why}: {count_text(count, 'change file')} are merged"), rewrites)


def _left_out(inserts: _Kind, deletes: _Kind) -> str:
    """Which small files do not count, and why."""
    held, unfit, waiting = (getattr(inserts, name) + getattr(deletes, name) for name in ("held", "unfit", "waiting"))
    texts = []
    if waiting:
        texts.append(f"{count_text(waiting, 'merged file')} that wait{'s' if waiting == 1 else ''} for as many new bytes")
    if held:
        texts.append(f"{count_text(held, 'small change file')} held by other tasks or by a sink")
    if unfit:
        texts.append(f"{count_text(unfit, 'small change file')} of a transaction that began before its commit, or live twice")
    return f"; beside {' and '.join(texts)}" if texts else ""


def _bins(node: TableNode, inserts: Sequence[LiveFile], deletes: Sequence[LiveFile], task_bytes: int) -> Iterator[DeltaRewrite]:
    """Divide the files into tasks of at most `task_bytes`, in the order of the log. So each merged file has few transactions."""
    delete_paths = {file.path for file in deletes}
    bins: list[list[LiveFile]] = [[]]
    size = 0
    for file in sorted((*inserts, *deletes), key=lambda file: (file.data_sequence_number, file.path)):
        if bins[-1] and size + file.file_size_bytes > task_bytes:
            bins.append([])
            size = 0
        bins[-1].append(file)
        size += file.file_size_bytes
    for files in bins:
        kinds = [[file for file in files if (file.path in delete_paths) is is_delete] for is_delete in (False, True)]
        gaining = [tuple(kind) if len(kind) > 1 else () for kind in kinds]
        if any(gaining):
            yield DeltaRewrite(node, gaining[0], gaining[1])
