"""Answers questions about the deletes of whole nodes and tables: which delete files reach which data files.

A delete file reaches a data file when the spec's rules apply it to that data file. The rules are those of `applies`; a test compares
the two modules. The scope of an equality delete is its spec and partition, or the whole table when the delete is global. Within its
scope it reaches every data file with a lower sequence number. Both sides of a scope are therefore kept sorted by sequence number, and
a question is one look-up. A list of all pairs could have as many entries as data files × delete files.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence

from compaction_pipeline.core.tables.data_file import FileContent, LiveFile
from compaction_pipeline.core.tables.deletes.applies import DeleteIndex
from compaction_pipeline.core.tables.live_files import NodeFiles
from compaction_pipeline.core.tables.node import TableNode


class EqualityScope:
    """The equality deletes of one scope and its data files, both by ascending sequence number."""

    def __init__(self, deletes: Iterable[LiveFile], data: Iterable[LiveFile]) -> None:
        self.deletes = sorted(deletes, key=lambda file: (file.data_sequence_number, file.path))
        self.data = sorted(data, key=_sequence) if self.deletes else []
        self._delete_sequences = [file.data_sequence_number for file in self.deletes]
        self._data_sequences = [file.data_sequence_number for file in self.data]

    def of(self, data: LiveFile) -> Sequence[LiveFile]:
        """Return the deletes that reach a data file of this scope."""
        return self.deletes[bisect_right(self._delete_sequences, data.data_sequence_number) :] if self.deletes else ()

    def any_of(self, data: LiveFile) -> bool:
        """Return whether any delete reaches a data file of this scope."""
        return bool(self.deletes) and data.data_sequence_number < self._delete_sequences[-1]

    def reached_by(self, delete: LiveFile) -> Sequence[LiveFile]:
        """Return the data files that a delete of this scope reaches."""
        return self.data[: bisect_left(self._data_sequences, delete.data_sequence_number)]

    def dangling(self) -> Sequence[LiveFile]:
        """Return the deletes that reach no data file."""
        lowest = self._data_sequences[0] if self._data_sequences else None
        return [file for file in self.deletes if lowest is None or file.data_sequence_number <= lowest]


def _sequence(file: LiveFile) -> int:
    return file.data_sequence_number


def _copies_of_referenced(nodes: Mapping[TableNode, NodeFiles]) -> dict[str, list[LiveFile]]:
    """Return the data files with each path that a position delete names. A path that is live more than once has several copies."""
    copies: dict[str, list[LiveFile]] = {
        file.referenced_data_file: [] for group in nodes.values() for file in group.deletes if file.referenced_data_file is not None
    }
    if copies:
        for group in nodes.values():
            for file in group.data:
                if file.path in copies:
                    copies[file.path].append(file)
    return copies


def _reaches_copy(delete: LiveFile, data: LiveFile) -> bool:
    """Return whether a position delete that reaches some copy of a path reaches this one."""
    if data.data_sequence_number > delete.data_sequence_number:
        return False
    return delete.referenced_data_file is not None or (delete.spec_id, delete.partition) == (data.spec_id, data.partition)


class DeleteReach:
    """Which deletes reach which data files, for all live files of one table."""

    def __init__(self, nodes: Mapping[TableNode, NodeFiles], unpartitioned_spec_ids: frozenset[int]) -> None:
        self.unpartitioned_spec_ids = unpartitioned_spec_ids
        self.local: dict[TableNode, EqualityScope] = {}
        global_deletes: list[LiveFile] = []
        self._positions: dict[str, list[LiveFile]] = {}
        self._reached: dict[str, list[LiveFile]] = {}
        self._position_deletes: list[LiveFile] = []
        copies = _copies_of_referenced(nodes)
        for node, group in nodes.items():
            if not group.deletes:
                continue
            equalities = [file for file in group.deletes if file.content is FileContent.EQUALITY_DELETES]
            if node.spec_id in unpartitioned_spec_ids:
                global_deletes.extend(equalities)
            elif equalities:
                self.local[node] = EqualityScope(equalities, group.data)
            self._add_positions(group, copies)
        self.everywhere = EqualityScope(global_deletes, (file for group in nodes.values() for file in group.data) if global_deletes else ())
        self._nothing = EqualityScope((), ())

    def _add_positions(self, group: NodeFiles, copies: Mapping[str, Sequence[LiveFile]]) -> None:
        spread: list[LiveFile] = []
        referenced: dict[str, list[LiveFile]] = {}
        for delete in group.deletes:
            if delete.content is not FileContent.POSITION_DELETES:
                continue
            self._position_deletes.append(delete)
            if delete.referenced_data_file is None:
                spread.append(delete)
            else:
                referenced.setdefault(delete.referenced_data_file, []).append(delete)
        for path, deletes in referenced.items():
            for data in copies[path]:
                self._pair(data, [delete for delete in deletes if data.data_sequence_number <= delete.data_sequence_number])
        if spread:
            # Only DeleteIndex knows the rules for path bounds.
            index = DeleteIndex(spread, self.unpartitioned_spec_ids)
            for data in group.data:
                self._pair(data, index.of(data))

    def _pair(self, data: LiveFile, deletes: Sequence[LiveFile]) -> None:
        if not deletes:
            return
        found = self._positions.setdefault(data.path, [])
        # The list has entries already when the path has several copies, or deletes of several kinds.
        known = {id(delete) for delete in found}
        found.extend(delete for delete in deletes if id(delete) not in known)
        for delete in deletes:
            self._reached.setdefault(delete.path, []).append(data)

    def positions(self, data: LiveFile) -> Sequence[LiveFile]:
        """Return the position deletes that may hold positions of a data file."""
        # The deletes are kept by path. When the path is live more than once, some of them may reach another copy only.
        return [delete for delete in self._positions.get(data.path, ()) if _reaches_copy(delete, data)]

    def equality_scopes(self, node: TableNode) -> tuple[EqualityScope, EqualityScope]:
        """Return the two scopes of a node's data files: that of the node, and that of the whole table."""
        return (self.local.get(node, self._nothing), self.everywhere)

    def any_equality(self, node: TableNode, data: LiveFile) -> bool:
        """Return whether an equality delete reaches a data file of the node."""
        own, table = self.equality_scopes(node)
        return own.any_of(data) or table.any_of(data)

    def reached_by_position_delete(self, delete: LiveFile) -> Sequence[LiveFile]:
        """Return the data files whose rows a position delete may name."""
        return self._reached.get(delete.path, ())

    def of_all(self, node: TableNode, inputs: Sequence[LiveFile]) -> tuple[LiveFile, ...]:
        """Return every delete that reaches any of these data files of one node, in a stable order, position deletes first."""
        if not inputs:
            return ()
        positions = {delete.path: delete for data in inputs for delete in self.positions(data)}
        # An equality delete that reaches one of the inputs also reaches the oldest of them. The deletes of a scope are sorted already.
        oldest = min(inputs, key=_sequence)
        equalities = (delete for scope in self.equality_scopes(node) for delete in scope.of(oldest))
        return (*sorted(positions.values(), key=lambda file: (file.data_sequence_number, file.path)), *equalities)

    def dangling(self) -> list[LiveFile]:
        """Return the dangling delete files, which reach no live data file, sorted by path."""
        dangling = [file for file in self._position_deletes if file.path not in self._reached]
        dangling.extend(self.everywhere.dangling())
        for scope in self.local.values():
            dangling.extend(scope.dangling())
        return sorted(dangling, key=lambda file: file.path)
