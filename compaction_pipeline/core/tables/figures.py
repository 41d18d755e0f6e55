"""The figures of a node: how many files a reader opens, and how large they are."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.words import bytes_text, count_text, mean_text


@dataclass(frozen=True, slots=True)
class NodeMetrics:
    """The figures of one node at one snapshot. A file is small when it has at most target size / fragment ratio bytes.

    `deleted_rows_estimate` is at most `rows`. `equality_delete_rows` are the rows of the equality-delete files that reach data files of the
    node, and `deleted_positions` the rows that position deletes take from them; fractions are rounded up.
    """

    data_files: int = 0
    small_data_files: int = 0
    small_data_bytes: int = 0
    data_bytes: int = 0
    position_delete_files: int = 0
    equality_delete_files: int = 0
    small_delete_files: int = 0
    small_delete_bytes: int = 0
    delete_bytes: int = 0
    rows: int = 0
    deleted_rows_estimate: int = 0
    equality_delete_rows: int = 0
    deleted_positions: int = 0

    @property
    def tells_deletes(self) -> bool:
        """Whether the rows of deletes are known by kind. Figures that an older version of this program stored have only the estimate."""
        return not self.deleted_rows_estimate or self.equality_delete_rows + self.deleted_positions > 0

    @property
    def files(self) -> int:
        """The number of files that a reader of the node opens."""
        return self.data_files + self.delete_files

    @property
    def delete_files(self) -> int:
        return self.position_delete_files + self.equality_delete_files

    @property
    def small_files(self) -> int:
        return self.small_data_files + self.small_delete_files

    @property
    def fragmentation(self) -> float:
        """Small files / live files; 0 for a node without files. From 0 to 1."""
        return self.small_files / self.files if self.files else 0.0


@dataclass(frozen=True, slots=True)
class NodeFigures:
    """Sums over the files of a node. The state database computes them, so that no file has to be loaded.

    `metrics` has no estimate of deleted rows, because that needs the files. A data file is undersized when it is not small but has at
    most `self-optimizing.min-target-size-ratio` × target size bytes. `max_sequence_number` is the highest of all files of the node.
    """

    metrics: NodeMetrics
    undersized_files: int = 0
    max_sequence_number: int = 0


@dataclass(frozen=True, slots=True)
class MeasuredNode:
    """A node and its figures. `changed_snapshot_id` is the snapshot at which its files were last found to have changed.

    `small_since` is when the node was first found to have enough small files for a MINOR; None when it has not enough. `overlap_depth` is
    how many data files a look-up on the sort columns may open; None when the table has no sort order, or when it is not known.
    """

    node: TableNode
    metrics: NodeMetrics
    changed_snapshot_id: int | None
    small_since: datetime | None = None
    overlap_depth: int | None = None


@dataclass(frozen=True, slots=True)
class MetadataFigures:
    """What a reader of a table gets through before it opens a file. Of a keyed table these are the sums over both stores.

    `metadata_bytes` is the size of `metadata.json` without compression. `manifests` are those of the newest snapshot, and
    `manifests_opened` is how many of them a reader of one partition opens, on average over at most a hundred partitions. Both are None for
    a keyed table.
    """

    snapshots: int
    metadata_bytes: int
    manifests: int | None = None
    manifests_opened: float | None = None

    @property
    def text(self) -> str:
        """The figures as a sentence."""
        loaded = f"each reader loads metadata of {bytes_text(self.metadata_bytes)} with {count_text(self.snapshots, 'snapshot')}"
        if self.manifests is None or self.manifests_opened is None:
            return loaded
        return f"{loaded}; a reader of one partition opens {mean_text(self.manifests_opened)} of {count_text(self.manifests, 'manifest')}"
