"""The files of a table: those that are live in it, and those that a merge writes.

A file is live when the table's current snapshot lists it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from typing import Any

from compaction_pipeline.core.tables.node import Partition, TableNode


class FileContent(str, Enum):
    """What a file contains (Iceberg spec: `data_file.content` 0, 1 and 2)."""

    DATA = "DATA"
    POSITION_DELETES = "POSITION_DELETES"
    EQUALITY_DELETES = "EQUALITY_DELETES"


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A file that is live in the table, as its manifest entry describes it.

    `spec_id` and `partition` are the file's own; an old file may have an old partition spec. `data_sequence_number` is resolved: an
    inherited number is filled in, and it is 0 in a table of format v1. `manifest_path` is the manifest that lists the file.

    Three fields belong to position-delete files. `referenced_data_file` is set when the file deletes rows of that data file only
    (field 143, or equal path bounds). `path_lower` and `path_upper` bound the paths in it; None means that the bound is unknown.
    """

    path: str
    content: FileContent
    spec_id: int
    partition: Partition
    file_size_bytes: int
    record_count: int
    data_sequence_number: int
    manifest_path: str = ""
    added_snapshot_id: int = 0
    equality_ids: tuple[int, ...] = ()
    referenced_data_file: str | None = None
    path_lower: str | None = None
    path_upper: str | None = None
    sort_order_id: int | None = None

    @property
    def node(self) -> TableNode:
        """The node that the file belongs to, in a table that is not keyed."""
        return TableNode(self.spec_id, self.partition)

    @property
    def is_data(self) -> bool:
        return self.content is FileContent.DATA


Bounds = tuple[Any, Any]
"""The lowest and the highest value of a column in a file. Of one column all are numbers, or all are texts that sort as the values do."""


@dataclass(frozen=True, slots=True)
class BoundedFile(LiveFile):
    """A live file of a table with a sort order, with the bounds of the sort columns by field id; None for a column without bounds.

    The index keeps the bounds. The files that it returns are without them.
    """

    sort_bounds: Mapping[int, Bounds | None] = field(default_factory=dict)

    @classmethod
    def of(cls, file: LiveFile, bounds: Mapping[int, Bounds | None]) -> BoundedFile:
        """The same file with these bounds."""
        return cls(**{each.name: getattr(file, each.name) for each in fields(LiveFile)}, sort_bounds=bounds)


NOT_TOLD = {"column_sizes", "value_counts", "null_value_counts", "lower_bounds", "upper_bounds", "split_offsets", "version"}
"""The fields of an `OutputFile` that no report has: the footer of the file tells them, or its storage."""


@dataclass(frozen=True, slots=True)
class OutputFile:
    """A file that an attempt wrote, with everything that its manifest entry needs.

    The maps have Iceberg field ids as keys. Bounds are the spec's binary single-value serialization (appendix D), in hex.

    Parquet's footer has `footer_bytes` bytes, its length and the last four bytes of the file not counted. What the footer tells (column
    sizes, counts of values and NULLs, bounds, split offsets) is not believed of an optimizer: `told` leaves it out, and the server reads
    it from the file. `version` is the one that the storage gave when the footer was read; None when it told none, or nobody looked.
    """

    path: str
    content: FileContent
    spec_id: int
    partition: Partition
    file_size_bytes: int
    record_count: int
    column_sizes: Mapping[int, int] = field(default_factory=dict)
    value_counts: Mapping[int, int] = field(default_factory=dict)
    null_value_counts: Mapping[int, int] = field(default_factory=dict)
    nan_value_counts: Mapping[int, int] = field(default_factory=dict)
    lower_bounds: Mapping[int, str] = field(default_factory=dict)
    upper_bounds: Mapping[int, str] = field(default_factory=dict)
    split_offsets: tuple[int, ...] = ()
    sort_order_id: int | None = None
    referenced_data_file: str | None = None
    footer_bytes: int = 0
    version: str | None = None

    @property
    def is_data(self) -> bool:
        return self.content is FileContent.DATA

    def told(self) -> OutputFile:
        """Return the file as its worker reports it: without all that its footer and the storage tell."""
        return replace(
            self, column_sizes={}, value_counts={}, null_value_counts={}, lower_bounds={}, upper_bounds={}, split_offsets=(), version=None
        )
