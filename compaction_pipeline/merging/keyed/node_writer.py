"""Sends rows to the files of the tree nodes that their keys lie in."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema

from compaction_pipeline.core.errors import MergeFailed
from compaction_pipeline.core.tables.keyed.file_names import KeyedFileType
from compaction_pipeline.core.tables.keyed.tree import DataTreeNode
from compaction_pipeline.core.tables.node import Partition
from compaction_pipeline.core.tables.output_names import FilePaths
from compaction_pipeline.merging.keyed.key_hashes import key_hashes
from compaction_pipeline.merging.keyed.node_names import KeyedPaths
from compaction_pipeline.merging.writing.write import DataWriter


class NodeWriter:
    """Writes rows of one node into files of this node, or of the nodes below it that have `mask`.

    `key` are the field ids of the primary key, which are top-level columns of `schema`. When `mask` is that of the node, keys are not
    looked at: the files that the rows come from have told their node.
    """

    def __init__(self, writer: DataWriter, paths: KeyedPaths, node: DataTreeNode, mask: int, schema: Schema, key: Sequence[int]) -> None:
        self._writer, self._paths, self._node, self._mask = writer, paths, node, mask
        ids = [field.field_id for field in schema.fields]
        self._columns = [ids.index(number) for number in key]
        self._types = [str(schema.find_field(number).field_type) for number in key]
        self._names: dict[DataTreeNode, FilePaths] = {}

    def write(self, partition: Partition, batch: pa.RecordBatch) -> None:
        """Put the rows into files of this partition, in their order."""
        if self._mask == self._node.mask:
            self._writer.write(partition, batch, self._of(self._node))
            return
        hashes = key_hashes([batch.column(index) for index in self._columns], self._types, batch.num_rows)
        if ((hashes & self._node.mask) != self._node.index).any():
            raise MergeFailed(f"a row on its way to the tree node {self._node.id} has a key of another node; report this as a fault")
        indices = hashes & self._mask
        for index in np.unique(indices).tolist():
            rows = np.flatnonzero(indices == index)
            part = batch if len(rows) == batch.num_rows else batch.take(pa.array(rows))
            self._writer.write(partition, part, self._of(DataTreeNode(self._mask, index)))

    def _of(self, node: DataTreeNode) -> FilePaths:
        return self._names.setdefault(node, self._paths.of(node, KeyedFileType.BASE))
