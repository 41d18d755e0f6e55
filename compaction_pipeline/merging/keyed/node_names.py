"""The paths of the files that one writer of a keyed table creates: `<folder>/<partition path>/<name>`, as Amoro's writers choose them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from compaction_pipeline.core.tables.keyed.file_names import KeyedFileNames, KeyedFileType
from compaction_pipeline.core.tables.keyed.partition_paths import PathField, path_of
from compaction_pipeline.core.tables.keyed.tree import DataTreeNode
from compaction_pipeline.core.tables.node import Partition
from compaction_pipeline.core.tables.output_names import FilePaths


@dataclass(eq=False)
class KeyedPaths:
    """The paths of one writer. One count runs through all of its files, as with Amoro's writers.

    `folder` is the folder of the store's data files, and `fields` are those of the partition spec.
    """

    folder: str
    fields: Sequence[PathField]
    names: KeyedFileNames
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def of(self, node: DataTreeNode, kind: KeyedFileType) -> FilePaths:
        """The paths of the files of one node and one type. A `DataWriter` shares files only among rows that come with the same value."""
        # The number counts the files of one node only, so it is not used.
        return lambda partition, number: self.next(partition, node, kind)

    def next(self, partition: Partition, node: DataTreeNode, kind: KeyedFileType) -> str:
        """The path of the writer's next file."""
        name = self.names.name(node, kind, next(self._numbers))
        return "/".join(part for part in (self.folder, path_of(partition, self.fields), name) if part)
