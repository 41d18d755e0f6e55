"""Chooses the conversions of a plan.

A conversion keeps a data file and gives it one new position-delete file. This file replaces equality deletes, or several position
deletes. A delete is converted only when the plan merges or converts every data file that it reaches, because only then can the delete
file be dropped. Data files that share a converted delete form one group, even when their nodes differ. A plan takes all tasks of a
group, or none.

A fragment (a small data file) is not converted: if it got a position delete of its own, the next plan would merge it to get rid of that
delete. So it is merged at once, alone, as a task of the group. Every other data file is a segment.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from compaction_pipeline.core.planning.plain.node_view import MergeBin, NodeView
from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.core.tables.deletes.reach import DeleteReach, EqualityScope
from compaction_pipeline.core.tables.node import TableNode

_Unit = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Conversion:
    """Data files of one node and one group that stay, and the paths of the delete files that their new position deletes replace."""

    node: TableNode
    inputs: tuple[LiveFile, ...]
    converts: tuple[str, ...]
    group: str


@dataclass(frozen=True, slots=True)
class FragmentMerge:
    """A fragment that no bin joins with other files. It is merged alone, as a task of the group that shares its deletes."""

    node: TableNode
    bin: MergeBin
    group: str


@dataclass(frozen=True, slots=True)
class Conversions:
    """All conversions of a plan, and the fragments that are merged in their groups.

    `bin_groups` has the group of each merge bin that shares a converted delete, by the node and the index of the bin.
    """

    conversions: tuple[Conversion, ...] = ()
    fragments: tuple[FragmentMerge, ...] = ()
    bin_groups: Mapping[tuple[TableNode, int], str] | None = None

    def group_of(self, node: TableNode, bin_index: int) -> str:
        """Return the group of a merge bin; "" when it is in none."""
        return (self.bin_groups or {}).get((node, bin_index), "")


def choose_conversions(
    views: Mapping[TableNode, NodeView],
    bins: Mapping[TableNode, Sequence[MergeBin]],
    eligible: Collection[TableNode],
    reach: DeleteReach,
    label: str,
) -> Conversions:
    """Choose conversions for the data files of `eligible` nodes that no bin merges.

    `bins` are the merge bins that were chosen for each node. `label` is part of each group's name and makes it unique to the plan.
    """
    merged: dict[str, _Unit] = {
        file.path: ("bin", str(number), str(index))
        for number, node in enumerate(views)
        for index, each in enumerate(bins.get(node, ()))
        for file in each.inputs
    }
    staying = {file.path: (node, file) for node in views if node in eligible for file in views[node].available if file.path not in merged}
    wanted = _wanted(views, staying, merged, reach)
    if not wanted:
        return Conversions()
    groups = _Groups()
    converts: dict[str, set[str]] = {}
    for delete, reached in wanted:
        units: list[_Unit] = []
        for file in reached:
            if file.path in merged:
                units.append(merged[file.path])
            else:
                units.append(("file", file.path))
                converts.setdefault(file.path, set()).add(delete.path)
        groups.join(units)
    return _named(views, bins, staying, converts, groups, label)


def _wanted(
    views: Mapping[TableNode, NodeView], staying: Mapping[str, tuple[TableNode, LiveFile]], merged: Mapping[str, _Unit], reach: DeleteReach
) -> list[tuple[LiveFile, Sequence[LiveFile]]]:
    """Return the deletes to convert, each with the data files that it reaches.

    A delete is wanted only when every data file that it reaches stays or is merged. Position deletes are wanted only when a staying
    data file has two of them, has a wanted equality delete too, or is a fragment that loses the delete because segments are merged.
    """
    wanted: list[tuple[LiveFile, Sequence[LiveFile]]] = []
    with_equality: set[str] = set()
    scopes = [scope for node in views if (scope := reach.local.get(node)) is not None]
    for scope in (*scopes, reach.everywhere):
        for delete, reached in _coverable(scope, staying, merged):
            wanted.append((delete, reached))
            with_equality.update(file.path for file in reached if file.path in staying)
    chosen: dict[str, LiveFile] = {}
    for path, (node, file) in staying.items():
        movable = [
            delete
            for delete in reach.positions(file)
            if all(other.path in staying or other.path in merged for other in reach.reached_by_position_delete(delete))
        ]
        if len(movable) >= 2 or (movable and path in with_equality):
            chosen.update((delete.path, delete) for delete in movable)
        elif movable and views[node].is_fragment(file):
            reached = reach.reached_by_position_delete(movable[0])
            if all(other.path in merged or views[node].is_fragment(other) for other in reached):
                chosen[movable[0].path] = movable[0]
    wanted.extend((delete, reach.reached_by_position_delete(delete)) for delete in chosen.values())
    return wanted


def _coverable(
    scope: EqualityScope, staying: Mapping[str, tuple[TableNode, LiveFile]], merged: Mapping[str, _Unit]
) -> Iterable[tuple[LiveFile, Sequence[LiveFile]]]:
    """Yield the deletes of a scope that reach a staying data file, when every data file that they reach stays or is merged."""
    if not scope.deletes:
        return
    uncovered = [file.data_sequence_number for file in scope.data if file.path not in staying and file.path not in merged]
    stay = [file.data_sequence_number for file in scope.data if file.path in staying]
    if not stay:
        return
    highest = min(uncovered, default=None)
    for delete in scope.deletes:
        sequence = delete.data_sequence_number
        if sequence > min(stay) and (highest is None or sequence <= highest):
            yield delete, scope.reached_by(delete)


def _named(
    views: Mapping[TableNode, NodeView],
    bins: Mapping[TableNode, Sequence[MergeBin]],
    staying: Mapping[str, tuple[TableNode, LiveFile]],
    converts: Mapping[str, set[str]],
    groups: _Groups,
    label: str,
) -> Conversions:
    """Make the conversions and fragment merges of each group, and name the groups that have more than one task."""
    members: dict[_Unit, dict[TableNode, list[LiveFile]]] = {}
    for path in sorted(converts):
        node, file = staying[path]
        members.setdefault(groups.root(("file", path)), {}).setdefault(node, []).append(file)
    sharing: dict[_Unit, list[tuple[TableNode, int]]] = {}
    for number, node in enumerate(views):
        for index in range(len(bins.get(node, ()))):
            unit = ("bin", str(number), str(index))
            if unit in groups:
                sharing.setdefault(groups.root(unit), []).append((node, index))
    conversions: list[Conversion] = []
    fragments: list[FragmentMerge] = []
    bin_groups: dict[tuple[TableNode, int], str] = {}
    for root, by_node in members.items():
        small = [(node, file) for node, files in by_node.items() for file in files if views[node].is_fragment(file)]
        large = {node: [file for file in files if not views[node].is_fragment(file)] for node, files in by_node.items()}
        parts = [(node, part) for node, files in large.items() for part in views[node].task_parts(files)]
        shared = sharing.get(root, [])
        first = min(file.path for files in by_node.values() for file in files)
        name = f"{label}-{hashlib.sha256(first.encode()).hexdigest()[:12]}" if len(parts) + len(small) + len(shared) > 1 else ""
        bin_groups.update((place, name) for place in shared)
        fragments.extend(FragmentMerge(node, MergeBin((file,), 1), name) for node, file in small)
        for node, part in parts:
            replaced = set().union(*(converts[file.path] for file in part))
            conversions.append(Conversion(node, part, tuple(sorted(replaced)), name))
    return Conversions(tuple(conversions), tuple(fragments), bin_groups)


class _Groups:
    """Disjoint sets of merge bins and staying data files. Each set becomes one group."""

    def __init__(self) -> None:
        self._parent: dict[_Unit, _Unit] = {}

    def __contains__(self, unit: _Unit) -> bool:
        return unit in self._parent

    def root(self, unit: _Unit) -> _Unit:
        while self._parent[unit] != unit:
            self._parent[unit] = self._parent[self._parent[unit]]
            unit = self._parent[unit]
        return unit

    def join(self, units: Iterable[_Unit]) -> None:
        first: _Unit | None = None
        for unit in units:
            self._parent.setdefault(unit, unit)
            if first is None:
                first = self.root(unit)
            else:
                self._parent[self.root(unit)] = first
