"""Divides the files of a partition into units, and a unit that is too large for one task into several tasks.

A unit is a connected subtree: a file joins the files of all nodes below its own. A unit within the task size is one task. A larger one is
divided in two ways, and both keep each row in one task, together with all deletes that may delete it:

- A base file at the unit's own node has rows of all nodes below, and is rewritten or marked as a whole. It leaves for a task that has no
  inserts, but all deletes of its node and of those above and below. So a base file never keeps its unit from being divided.
- What stays is divided by the next bit of the key's hash, into the two child nodes. An insert or delete file at the node, or above it, is
  in the tasks of both, and each task takes only the rows whose key lies in the task's node. The sizes of such files count by their share.

A unit is divided until it fits, or 6 levels deep: the changes of one key cannot be divided.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from compaction_pipeline.core.planning.bin_packing import first_fit_decreasing
from compaction_pipeline.core.tables.keyed.merge_on_read import KeyedInput
from compaction_pipeline.core.tables.keyed.tree import ROOT, DataTreeNode

_LEVELS = 6
"""A unit is divided at most so many levels below its own node."""


@dataclass(frozen=True, slots=True)
class UnitFiles:
    """The files of a unit, or of one task: those of the base store that may change, and the change files with rows to merge."""

    base: tuple[KeyedInput, ...] = ()
    inserts: tuple[KeyedInput, ...] = ()
    deletes: tuple[KeyedInput, ...] = ()

    @property
    def all(self) -> tuple[KeyedInput, ...]:
        return (*self.base, *self.inserts, *self.deletes)

    def of(self, node: DataTreeNode) -> UnitFiles:
        """The base files within the node, and the change files that share rows with it."""
        return UnitFiles(
            tuple(each for each in self.base if each.named.node.is_within(node)),
            tuple(each for each in self.inserts if each.named.node.shares_rows_with(node)),
            tuple(each for each in self.deletes if each.named.node.shares_rows_with(node)),
        )

    def bytes_of(self, node: DataTreeNode) -> int:
        """The bytes of the rows that lie in the node. Of a file above the node this is a share, because hashes are spread evenly."""
        return sum(each.file.file_size_bytes // max(1, (node.mask + 1) // (each.named.node.mask + 1)) for each in self.all)


@dataclass(frozen=True, slots=True)
class TaskFiles:
    """The files of one task, and the deepest node that has all rows which the task may write."""

    node: DataTreeNode
    files: UnitFiles


def units_of(files: UnitFiles) -> list[UnitFiles]:
    """Divide the files of a partition into units, in the order of the ids of their nodes."""
    nodes = {each.named.node for each in files.all}
    tops: dict[DataTreeNode, DataTreeNode] = {}
    for node in sorted(nodes, key=lambda each: each.mask):
        above = node
        while above not in tops and above != ROOT:
            above = above.parent
        tops[node] = tops.get(above, node)
    kinds: dict[DataTreeNode, tuple[list[KeyedInput], list[KeyedInput], list[KeyedInput]]] = {}
    for place, group in enumerate((files.base, files.inserts, files.deletes)):
        for each in group:
            kinds.setdefault(tops[each.named.node], ([], [], []))[place].append(each)
    return [UnitFiles(*map(tuple, kinds[top])) for top in sorted(kinds, key=lambda node: node.id)]


def divide(unit: UnitFiles, task_bytes: int) -> list[TaskFiles]:
    """Divide a unit into tasks of at most `task_bytes` bytes each, as far as that is possible. Deletes that meet no row are left out."""
    if not unit.base and not unit.inserts:
        return []
    node = _common([each.named.node for each in (*unit.base, *unit.inserts)])
    return list(_divided(node, unit.of(node), task_bytes, ((node.mask + 1) << _LEVELS) - 1))


def _divided(node: DataTreeNode, files: UnitFiles, task_bytes: int, deepest: int) -> Iterator[TaskFiles]:
    if not files.base and not files.inserts:
        return
    if files.bytes_of(node) <= task_bytes:
        yield TaskFiles(node, files)
        return
    leaving = _leaving(node, files, task_bytes)
    if leaving:
        paths = {each.file.path for each in leaving}
        rest = replace(files, base=tuple(each for each in files.base if each.file.path not in paths))
        for chosen in first_fit_decreasing([each.file.file_size_bytes for each in leaving], task_bytes):
            yield TaskFiles(node, replace(files, base=tuple(leaving[index] for index in chosen), inserts=()))
        yield from _divided(node, rest, task_bytes, deepest)
    elif node.mask >= deepest:
        yield TaskFiles(node, files)
    else:
        for child in (node.left, node.right):
            yield from _divided(child, files.of(child), task_bytes, deepest)


def _leaving(node: DataTreeNode, files: UnitFiles, task_bytes: int) -> Sequence[KeyedInput]:
    """The base files at the node that must leave the unit. When the rest of the unit fits into a task, the smallest of them stay."""
    here = sorted((each for each in files.base if each.named.node == node), key=lambda each: (each.file.file_size_bytes, each.file.path))
    room = task_bytes - files.bytes_of(node) + sum(each.file.file_size_bytes for each in here)
    stays = 0
    while stays < len(here) and here[stays].file.file_size_bytes <= room:
        room -= here[stays].file.file_size_bytes
        stays += 1
    return here[stays:]


def _common(nodes: Iterable[DataTreeNode]) -> DataTreeNode:
    """The deepest node that has all rows of these nodes."""
    found: DataTreeNode | None = None
    for node in nodes:
        found = node if found is None else found
        while not node.is_within(found):
            found = found.parent
    return found or ROOT
