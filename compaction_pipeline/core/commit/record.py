"""CompactionRecords: what one commit of ours did, all its tasks together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

from compaction_pipeline.core.ids import RecordId, TaskId
from compaction_pipeline.core.queue.task import CompactionType
from compaction_pipeline.core.tables.table import TableIdentifier

RECORD_ID_PROPERTY = "compaction-pipeline.record-id"
"""Snapshot summary key that carries our record id."""


class RecordStatus(str, Enum):
    """OPEN: written before the first attempt. UNKNOWN: the catalog's answer got lost; settled by reading the table."""

    OPEN = "OPEN"
    COMMITTED = "COMMITTED"
    FAILED = "FAILED"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True)
class CommitFigures:
    """Counted from manifests at the commit: of the whole table before and after, and of the tasks that went in.

    `files_*` count data files, `delete_files_*` delete files, `bytes_*` both, over the whole table. Sizes in bytes.
    """

    files_before: int = 0
    files_after: int = 0
    delete_files_before: int = 0
    delete_files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    input_files: int = 0
    input_bytes: int = 0
    output_files: int = 0
    output_bytes: int = 0
    delete_files_dropped: int = 0
    delete_files_added: int = 0


@dataclass(frozen=True, slots=True)
class CompactionRecord:
    """One commit: table, snapshots, tasks, figures, durations, conflicts (task id → reason).

    `failed` (task id → reason) are tasks of the same plans that could not be merged, as far as known at the commit: they are not among
    `task_ids`.

    `answered`: every request of it was answered for certain, so none may still arrive (False where nobody knows).

    `queue_ms` is the longest that a task waited, `merge_ms` what all merges took together, `commit_ms` from claim to end.
    """

    record_id: RecordId
    table: TableIdentifier
    status: RecordStatus
    created_at: datetime
    task_ids: tuple[TaskId, ...]
    types: tuple[CompactionType, ...] = ()
    node_keys: tuple[str, ...] = ()
    committed_task_ids: tuple[TaskId, ...] = ()
    conflicts: Mapping[TaskId, str] = field(default_factory=dict)
    snapshot_before: int | None = None
    snapshot_after: int | None = None
    figures: CommitFigures = CommitFigures()
    rows: int = 0
    rows_deleted: int = 0
    predicted_files: int = 0
    predicted_bytes: int = 0
    queue_ms: int = 0
    merge_ms: int = 0
    commit_ms: int = 0
    attempts: int = 0
    ended_at: datetime | None = None
    reason: str | None = None
    run_id: str | None = None
    answered: bool = False
    failed: Mapping[TaskId, str] = field(default_factory=dict)

    @property
    def left_out(self) -> str | None:
        """What of its plans is not in, in words with the first reason of each kind; None when all is."""
        parts = [
            f"{len(reasons)} {word}, e.g. {next(iter(reasons))}: {next(iter(reasons.values()))}"
            for word, reasons in (("conflict(s)", self.conflicts), ("task(s) failed", self.failed))
            if reasons
        ]
        return "; ".join(parts) or None
