"""Which files of the base store a merge of changes takes, and which of these stay and get position deletes.

A row of the base store comes after all changes of the transaction that the name of its file tells. So only deletes of higher transactions
can delete it, and only those in a file whose node shares rows with its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from compaction_pipeline.core.planning.keyed.cut import ChangeFile
from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.core.tables.deletes.applies import DeleteIndex
from compaction_pipeline.core.tables.keyed.merge_on_read import KeyedInput
from compaction_pipeline.core.tables.keyed.tree import DataTreeNode

MOST_MARKED = 0.1
"""A base file stays while at most this share of its rows is deleted, as far as that can be estimated."""


@dataclass(frozen=True, slots=True)
class _NodeDeletes:
    """The deletes of one node: their highest transaction, their rows, and the base rows of the nodes that share rows with it."""

    highest: int
    rows: int
    base_rows: float


class DeletedRows:
    """Tells which base files of a partition deletes of a merge may reach, and estimates how many rows of each they delete."""

    def __init__(self, base: Sequence[KeyedInput], deletes: Iterable[ChangeFile], base_deletes: Iterable[LiveFile], up_to: int) -> None:
        """`deletes` are those that are merged up to T, which is `up_to`. `base_deletes` are the base store's own in the partition."""
        self._base_deletes = DeleteIndex(base_deletes, frozenset())
        self._all_rows = sum(each.file.record_count for each in base)
        found: dict[DataTreeNode, tuple[int, int]] = {}
        for each in deletes:
            highest, rows = found.get(each.of.named.node, (-1, 0))
            found[each.of.named.node] = (max(highest, each.highest(up_to)), rows + each.of.file.record_count)
        rows_of = _rows_of(base)
        self._nodes: Mapping[DataTreeNode, _NodeDeletes] = {
            node: _NodeDeletes(highest, rows, sum(_shared(other, node) * count for other, count in rows_of.items()))
            for node, (highest, rows) in found.items()
        }

    def reach(self, base: KeyedInput) -> bool:
        """Whether a delete of the merge may delete a row of the base file."""
        node = base.named.node
        return any(each.highest > base.named.transaction_id and other.shares_rows_with(node) for other, each in self._nodes.items())

    def of_store(self, base: KeyedInput) -> tuple[LiveFile, ...]:
        """The base store's own delete files that apply to the base file."""
        return self._base_deletes.of(base.file)

    def share(self, base: KeyedInput) -> float:
        """The estimated share of the file's rows that are deleted after the merge, those that were deleted before included."""
        rows = base.file.record_count
        if not rows:
            return 1.0
        before = sum(
            delete.record_count * (1.0 if delete.referenced_data_file is not None else rows / max(self._all_rows, 1))
            for delete in self.of_store(base)
        )
        now = sum(
            each.rows * _shared(base.named.node, node) * rows / each.base_rows
            for node, each in self._nodes.items()
            if each.base_rows and each.highest > base.named.transaction_id
        )
        return (before + now) / rows


def taken(
    base: Sequence[KeyedInput], deleted: DeletedRows, up_to: int, held: Collection[str], fragment_bytes: int
) -> tuple[list[KeyedInput], list[KeyedInput]]:
    """(The base files that deletes may reach, other small ones that are worth joining with them or with inserts).

    A file that tells a transaction above T keeps its place: its rows and others cannot get one place in the log. Small files that open
    tasks hold are left alone.
    """
    reached = [each for each in base if deleted.reach(each)]
    paths = {each.file.path for each in reached} | set(held)
    small = [
        each
        for each in base
        if each.file.file_size_bytes <= fragment_bytes and each.named.transaction_id <= up_to and each.file.path not in paths
    ]
    return reached, small


def marked(reached: Iterable[KeyedInput], deleted: DeletedRows, fragment_bytes: int) -> frozenset[str]:
    """The paths of those files that stay and get position deletes: large ones with few deleted rows."""
    return frozenset(
        each.file.path for each in reached if each.file.file_size_bytes > fragment_bytes and deleted.share(each) <= MOST_MARKED
    )


def _rows_of(base: Iterable[KeyedInput]) -> Mapping[DataTreeNode, int]:
    rows: dict[DataTreeNode, int] = {}
    for each in base:
        rows[each.named.node] = rows.get(each.named.node, 0) + each.file.record_count
    return rows


def _shared(node: DataTreeNode, other: DataTreeNode) -> float:
    """The share of the rows of `node` that lie in `other` too."""
    if node.is_within(other):
        return 1.0
    return (node.mask + 1) / (other.mask + 1) if other.is_within(node) else 0.0
