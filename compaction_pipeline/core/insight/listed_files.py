"""The files of tables as people are shown them: in a keyed table with the store that lists each, and with what a delete file may hide."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import accumulate

from compaction_pipeline.core.tables.data_file import FileContent, LiveFile
from compaction_pipeline.core.tables.keyed.file_names import KeyedFileType, base_file, change_file
from compaction_pipeline.core.tables.keyed.keyed_files import KeyedFiles
from compaction_pipeline.core.tables.keyed.tree import DataTreeNode
from compaction_pipeline.core.tables.node import Place, TableNode

MOST_HIDDEN_PATHS = 20
"""So many files are named of those in which a delete file may hide rows."""


class Store(str, Enum):
    """Which Iceberg table lists a file."""

    TABLE = "TABLE"
    """A table that is not keyed."""
    BASE = "BASE"
    CHANGE = "CHANGE"


@dataclass(frozen=True, slots=True)
class Hidden:
    """Where a delete file of a change store may hide rows: in how many files, how many rows these have, and the paths of the first ones."""

    files: int
    rows: int
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A live file of a table.

    `kind` says what it holds: rows, inserts, deletes (of keys), position deletes or equality deletes. Of a file of a keyed table,
    `transaction` is that of its name. The rows of a `merged` file are in the base store already, so readers skip it. `hides` is None for a
    file that is no delete file of a change store.
    """

    file: LiveFile
    node: TableNode
    store: Store
    kind: str
    transaction: int | None = None
    merged: bool = False
    hides: Hidden | None = None


def listed_plain(files: Iterable[LiveFile]) -> tuple[ListedFile, ...]:
    """The files of a table that is not keyed, by node."""
    return _in_order(ListedFile(file, file.node, Store.TABLE, _KINDS[file.content]) for file in files)


def listed_keyed(files: KeyedFiles) -> tuple[ListedFile, ...]:
    """The files of both stores of a keyed table, by node. Raises TableRefused for a file whose name cannot be."""
    base = [_of_base(file) for file in files.base]
    changes = [_of_change(file, files) for file in files.changes]
    reach = _Reach(files, (*base, *changes))
    return _in_order((*base, *(replace(each, hides=reach.of(each)) if _deletes(each) else each for each in changes)))


def _in_order(files: Iterable[ListedFile]) -> tuple[ListedFile, ...]:
    def place(each: ListedFile) -> tuple[str, str, int, str, str]:
        return str(each.node), each.store.value, each.file.data_sequence_number, each.kind, each.file.path

    return tuple(sorted(files, key=place))


_KINDS: Mapping[FileContent, str] = {
    FileContent.DATA: "rows",
    FileContent.POSITION_DELETES: "position deletes",
    FileContent.EQUALITY_DELETES: "equality deletes",
}
_CHANGES: Mapping[KeyedFileType, str] = {KeyedFileType.INSERT: "inserts", KeyedFileType.EQUALITY_DELETE: "deletes"}


def _of_base(file: LiveFile) -> ListedFile:
    named = base_file(file.path)
    return ListedFile(file, TableNode(file.spec_id, file.partition, named.node), Store.BASE, _KINDS[file.content], named.transaction_id)


def _of_change(file: LiveFile, files: KeyedFiles) -> ListedFile:
    named = change_file(file.path, file.data_sequence_number)
    optimized = files.sequences.of_spec(file.spec_id).of(file.partition)
    merged = optimized is not None and file.data_sequence_number <= optimized
    node = TableNode(file.spec_id, file.partition, named.node)
    return ListedFile(file, node, Store.CHANGE, _CHANGES.get(named.type, named.type.value), named.transaction_id, merged)


def _deletes(each: ListedFile) -> bool:
    return each.kind == _CHANGES[KeyedFileType.EQUALITY_DELETE] and not each.merged


class _Reach:
    """Finds the data files that have rows which come before a delete in the log of changes.

    In a tree node they are sorted by the first transaction whose deletes reach them, so that a long log costs little more than a short one.
    """

    def __init__(self, files: KeyedFiles, listed: Sequence[ListedFile]) -> None:
        self._spans = files.row_spans
        found: dict[Place, dict[DataTreeNode, list[tuple[int, LiveFile]]]] = defaultdict(lambda: defaultdict(list))
        for each in listed:
            if each.kind in (_KINDS[FileContent.DATA], _CHANGES[KeyedFileType.INSERT]) and not each.merged:
                found[each.node.place][each.node.tree].append((self._reached_by(each), each.file))
        self._nodes = {
            place: {tree: _Sorted(sorted(data, key=lambda one: (one[0], one[1].path))) for tree, data in nodes.items()}
            for place, nodes in found.items()
        }

    def _reached_by(self, each: ListedFile) -> int:
        """The lowest transaction of a delete that reaches a row of the file. Rows of the base store come after their own transaction."""
        transaction = each.transaction or 0
        if each.store is Store.BASE:
            return transaction + 1
        span = self._spans.get(each.file.path)
        return span.lowest if span is not None else transaction

    def of(self, delete: ListedFile) -> Hidden:
        span = self._spans.get(delete.file.path)
        newest = span.highest if span is not None else delete.transaction or 0
        files, rows, paths = 0, 0, list[str]()
        for tree, data in self._nodes.get(delete.node.place, {}).items():
            if delete.node.tree.shares_rows_with(tree):
                count = bisect_right(data.reached_by, newest)
                files, rows = files + count, rows + data.rows[count]
                paths += data.paths[: min(count, MOST_HIDDEN_PATHS)]
        return Hidden(files, rows, tuple(sorted(paths)[:MOST_HIDDEN_PATHS]))


class _Sorted:
    def __init__(self, data: Sequence[tuple[int, LiveFile]]) -> None:
        self.reached_by = [number for number, _ in data]
        self.rows = list(accumulate((file.record_count for _, file in data), initial=0))
        self.paths = [file.path for _, file in data]
