"""Computes the figures of the nodes of a keyed table.

A file counts in the node that its name tells, and only once, so that the figures of all nodes add up to the table. A file of a node that
lies deeper than the table's buckets counts in the bucket above it. Changes that are in the base store already count nowhere, because
readers skip them.

The change files are the small files of a node, whatever their size: they are what a merge of changes takes away.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from compaction_pipeline.core.tables.data_file import FileContent, LiveFile
from compaction_pipeline.core.tables.figures import NodeMetrics
from compaction_pipeline.core.tables.keyed.creation import BASE_BUCKETS_KEY, DEFAULT_BUCKETS
from compaction_pipeline.core.tables.keyed.file_names import base_file
from compaction_pipeline.core.tables.keyed.keyed_files import KeyedFiles
from compaction_pipeline.core.tables.keyed.merge_on_read import PartitionRead, partitions_to_read
from compaction_pipeline.core.tables.keyed.tree import DataTreeNode
from compaction_pipeline.core.tables.node import TableNode


def measure_keyed(files: KeyedFiles, properties: Mapping[str, str]) -> dict[TableNode, NodeMetrics]:
    """Return the NodeMetrics of every node that has files. `properties` are those of the base store.

    Raises TableRefused as `partitions_to_read` does.
    """
    mask = _mask(properties)
    nodes: dict[TableNode, _Files] = {}
    for read in partitions_to_read(files.base, files.changes, files.sequences):
        for tree, kind, file in _placed(read):
            node = TableNode(read.spec_id, read.partition, _bucket(tree, mask))
            getattr(nodes.setdefault(node, _Files()), kind).append(file)
    return {node: found.metrics() for node, found in nodes.items()}


@dataclass(slots=True)
class _Files:
    """The files of one node: data files of the base store, inserts and deletes of the change store, delete files of the base store."""

    base: list[LiveFile] = field(default_factory=list)
    inserts: list[LiveFile] = field(default_factory=list)
    deletes: list[LiveFile] = field(default_factory=list)
    base_deletes: list[LiveFile] = field(default_factory=list)

    def metrics(self) -> NodeMetrics:
        equalities = len(self.deletes) + sum(file.content is FileContent.EQUALITY_DELETES for file in self.base_deletes)
        rows = sum(file.record_count for file in (*self.base, *self.inserts))
        deleted = sum(file.record_count for file in (*self.deletes, *self.base_deletes))
        return NodeMetrics(
            data_files=len(self.base) + len(self.inserts),
            small_data_files=len(self.inserts),
            small_data_bytes=_bytes(self.inserts),
            data_bytes=_bytes(self.base) + _bytes(self.inserts),
            position_delete_files=len(self.deletes) + len(self.base_deletes) - equalities,
            equality_delete_files=equalities,
            small_delete_files=len(self.deletes),
            small_delete_bytes=_bytes(self.deletes),
            delete_bytes=_bytes(self.deletes) + _bytes(self.base_deletes),
            rows=rows,
            deleted_rows_estimate=min(rows, deleted),
        )


def _placed(read: PartitionRead) -> Iterable[tuple[DataTreeNode, str, LiveFile]]:
    """The node of each file of a partition, and the field of `_Files` that it belongs to."""
    for kind in ("base", "inserts", "deletes"):
        for each in getattr(read, kind):
            yield each.named.node, kind, each.file
    for file in read.base_deletes:
        yield base_file(file.path).node, "base_deletes", file


def _mask(properties: Mapping[str, str]) -> int:
    """The mask of the table's buckets. A number of buckets that cannot be counts as the default, because it only matters for figures."""
    text = properties.get(BASE_BUCKETS_KEY, "").strip()
    buckets = int(text) if text.isascii() and text.isdigit() else DEFAULT_BUCKETS
    return buckets - 1 if buckets > 0 and not buckets & (buckets - 1) else DEFAULT_BUCKETS - 1


def _bucket(tree: DataTreeNode, mask: int) -> DataTreeNode:
    return tree if tree.mask <= mask else DataTreeNode(mask, tree.index & mask)


def _bytes(files: Sequence[LiveFile]) -> int:
    return sum(file.file_size_bytes for file in files)
