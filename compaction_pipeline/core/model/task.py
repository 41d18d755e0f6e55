"""CompactionTasks: the unit handed to Spark. These files become those files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

from compaction_pipeline.core.model.data_file import LiveFile, OutputFile
from compaction_pipeline.core.model.node import TableNode
from compaction_pipeline.core.model.table import TableIdentifier


class CompactionType(str, Enum):
    """Kind of work; where several are due: FULL, then MAJOR, then MINOR."""

    MINOR = "MINOR"
    MAJOR = "MAJOR"
    FULL = "FULL"


class TaskAction(str, Enum):
    """What a task does with its inputs."""

    # Inputs are replaced by merged outputs, deletes applied (REPLACE snapshot).
    MERGE = "MERGE"
    # Inputs stay; each gets at most one new position-delete file in place of the deletes (overwrite snapshot).
    CONVERT = "CONVERT"
    # Nothing to merge: only delete files that no live data file needs are dropped.
    DROP_DELETES = "DROP_DELETES"


class TaskStatus(str, Enum):
    """States of a task. INIT only inside the transaction that inserts a plan; FAILED, COMMITTED, CANCELED are final."""

    INIT = "INIT"
    PENDING = "PENDING"
    EXECUTING = "EXECUTING"
    PREPARED = "PREPARED"
    COMMITTED = "COMMITTED"
    FAILED = "FAILED"
    CANCELED = "CANCELED"


@dataclass(frozen=True, slots=True)
class TaskWork:
    """What one task is to do; pure content, the planner's output.

    `deletes` is every delete file that applies to any of `inputs` at the plan's snapshot, whatever its node or size. Which
    applies to which input follows from `core.files.delete_index`. Of a DROP_DELETES task they are the table's delete files that
    nothing needs. Of a CONVERT task `converts` are the paths of the deletes that its outputs replace (the others among
    `deletes` are only there to know which rows are already gone). `group` names tasks that a commit considers together (""
    for a task on its own). Sizes in bytes.
    """

    node: TableNode
    type: CompactionType
    action: TaskAction
    inputs: tuple[LiveFile, ...]
    deletes: tuple[LiveFile, ...]
    output_spec_id: int
    target_size_bytes: int
    fragment_size_bytes: int
    converts: tuple[str, ...] = ()
    group: str = ""
    predicted_files: int = 1
    predicted_bytes: int = 0

    @property
    def input_bytes(self) -> int:
        """Bytes of the data files that the task reads."""
        return sum(file.file_size_bytes for file in self.inputs)


@dataclass(frozen=True, slots=True)
class Digest:
    """Count and two seeded sums (mod 2⁶⁴) of row hashes: equal for equal bags of rows, whatever their order."""

    rows: int = 0
    sum_a: int = 0
    sum_b: int = 0


@dataclass(frozen=True, slots=True)
class MergeResult:
    """What one attempt did. `error` is None when it succeeded, else the reason in words (outputs are then empty).

    `refused`: the error is one that no further attempt can mend.
    `denied`: the store did not let the attempt read or write; no fault of the task.

    Law, checked by the kernel before it answers: rows_read − rows_deleted_by_position − rows_deleted_by_equality =
    rows_written and digest_read = digest_written; for CONVERT rows_written are positions written.
    """

    task_id: str
    attempt_id: str
    outputs: tuple[OutputFile, ...] = ()
    rows_read: int = 0
    rows_deleted_by_position: int = 0
    rows_deleted_by_equality: int = 0
    rows_written: int = 0
    digest_read: Digest = Digest()
    digest_written: Digest = Digest()
    digest_mismatch: bool = False
    duration_ms: int = 0
    peak_memory_bytes: int = 0
    error: str | None = None
    refused: bool = False
    denied: bool = False


@dataclass(frozen=True, slots=True)
class CompactionTask:
    """A planned task and where it stands.

    `snapshot_id`, `sequence_number` and `schema_id` are those of the one snapshot that the plan was made from; the
    sequence number is what a merged file gets as its data sequence number. `attempt` counts from 1, 0 before the first.
    `result` is that of the attempt that merged the task, or that found that no attempt ever can. `snapshot_properties` go into the
    summary of the snapshots that the task is committed with, whoever commits it.
    """

    task_id: str
    plan_id: str
    table: TableIdentifier
    table_uuid: str
    snapshot_id: int
    sequence_number: int
    schema_id: int
    queue: str
    priority: int
    max_attempts: int
    memory_bytes: int
    created_at: datetime
    work: TaskWork
    status: TaskStatus = TaskStatus.PENDING
    attempt: int = 0
    attempt_id: str | None = None
    owner: str | None = None
    lease_expires_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    reason: str | None = None
    result: MergeResult | None = None
    record_id: str | None = None
    snapshot_properties: Mapping[str, str] = field(default_factory=dict)
