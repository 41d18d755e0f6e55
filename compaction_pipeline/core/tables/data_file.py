"""Files of a table: those that are live in it and those that a merge writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from compaction_pipeline.core.tables.node import Partition, TableNode


class FileContent(str, Enum):
    """What a file holds (spec: `data_file.content` 0, 1, 2)."""

    DATA = "DATA"
    POSITION_DELETES = "POSITION_DELETES"
    EQUALITY_DELETES = "EQUALITY_DELETES"


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A file that is live in the table, as its manifest entry describes it.

    Sequence numbers are resolved (inherited ones filled in; 0 on v1). `partition_spec_id` and `partition` are the
    file's own, which for an old file may be an old spec. Of a position-delete file `referenced_data_file` is set when it
    deletes from that one file only (field 143, or equal path bounds), and `path_lower`/`path_upper` bound the paths in
    it (None: unknown). `manifest_path` names the manifest that lists the file.
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
        """The node of a plain table that the file belongs to."""
        return TableNode(self.spec_id, self.partition)

    @property
    def is_data(self) -> bool:
        return self.content is FileContent.DATA


@dataclass(frozen=True, slots=True)
class OutputFile:
    """A file that an attempt wrote, with all that its manifest entry needs.

    Maps are by Iceberg field id; bounds are the spec's binary single-value serialization (appendix D) in hex.
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
