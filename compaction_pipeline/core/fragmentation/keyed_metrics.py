"""Computes the figures of the nodes of a keyed table.

A file counts in the node that its name tells, and only once, so that the figures of all nodes add up to the table. A file of a node that
lies deeper than the table's buckets counts in the bucket above it. Changes that are in the base store already count nowhere, because
readers skip them.

The change files are the small files of a node, whatever their size: they are what a merge of changes takes away. Where change files are
merged with each other instead, only those count as small that are.
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
from compaction_pipeline.core.tables.properties import TableProperties


def measure_keyed(files: KeyedFiles, of_base: Mapping[str, str], properties: TableProperties) -> dict[TableNode, NodeMetrics]:
    """Return the NodeMetrics of every node that has files. `of_base` are the properties of the base store.

    Raises TableRefused as `partitions_to_read` does.
    """
    mask = buckets_mask(of_base)
    small_bytes = properties.fragment_size_bytes if properties.delta_rewrite else None
    nodes: dict[TableNode, _Files] = {}
    for read in partitions_to_read(files.base, files.changes, files.sequences):
        for tree, kind, file in _placed(read):
            node = TableNode(read.spec_id, read.partition, bucket_of(tree, mask))
            getattr(nodes.setdefault(node, _Files()), kind).append(file)
    return {node: found.metrics(small_bytes) for node, found in nodes.items()}


@dataclass(slots=True)
class _Files:
    """The files of one node: data files of the base store, inserts and deletes of the change store, delete files of the base store."""

    base: list[LiveFile] = field(default_factory=list)
    inserts: list[LiveFile] = field(default_factory=list)
    deletes: list[LiveFile] = field(default_factory=list)
    base_deletes: list[LiveFile] = field(default_factory=list)

    def metrics(self, small_bytes: int | None) -> NodeMetrics:
        """The figures. `small_bytes` is the size up to which a change file is small; None when each of them is."""
        small_inserts, small_deletes = _small(self.inserts, small_bytes), _small(self.deletes, small_bytes)
        of_base = [file for file in self.base_deletes if file.content is FileContent.EQUALITY_DELETES]
        equalities = len(self.deletes) + len(of_base)
        equality_rows = sum(file.record_count for file in (*self.deletes, *of_base))
        rows = sum(file.record_count for file in (*self.base, *self.inserts))
        deleted = sum(file.record_count for file in (*self.deletes, *self.base_deletes))
        return NodeMetrics(
            data_files=len(self.base) + len(self.inserts),
            small_data_files=len(small_inserts),
            small_data_bytes=_bytes(small_inserts),
            data_bytes=_bytes(self.base) + _bytes(self.inserts),
            position_delete_files=len(self.deletes) + len(self.base_deletes) - equalities,
            equality_delete_files=equalities,
            small_delete_files=len(small_deletes),
            small_delete_bytes=_bytes(small_deletes),
            delete_bytes=_bytes(self.deletes) + _bytes(self.base_deletes),
            rows=rows,
            deleted_rows_estimate=min(rows, deleted),
            equality_delete_rows=equality_rows,
            deleted_positions=min(rows, deleted - equality_rows),
        )


def _placed(read: PartitionRead) -> Iterable[tuple[DataTreeNode, str, LiveFile]]:
    """The node of each file of a partition, and the field of `_Files` that it belongs to."""
    for kind in ("base", "inserts", "deletes"):
        for each in getattr(read, kind):
            yield each.named.node, kind, each.file
    for file in read.base_deletes:
        yield base_file(file.path).node, "base_deletes", file


def buckets_mask(properties: Mapping[str, str]) -> int:
    """The mask of the table's buckets. A number of buckets that cannot be counts as the default, because it only matters for figures."""
    text = properties.get(BASE_BUCKETS_KEY, "").strip()
    buckets = int(text) if text.isascii() and text.isdigit() else DEFAULT_BUCKETS
    return buckets - 1 if buckets > 0 and not buckets & (buckets - 1) else DEFAULT_BUCKETS - 1


def bucket_of(tree: DataTreeNode, mask: int) -> DataTreeNode:
    """The bucket that a node counts in: itself, or the one above it."""
    return tree if tree.mask <= mask else DataTreeNode(mask, tree.index & mask)


def _small(files: Sequence[LiveFile], small_bytes: int | None) -> Sequence[LiveFile]:
    return files if small_bytes is None else [file for file in files if file.file_size_bytes <= small_bytes]


def _bytes(files: Sequence[LiveFile]) -> int:
    return sum(file.file_size_bytes for file in files)
