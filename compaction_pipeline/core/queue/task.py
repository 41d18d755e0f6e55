"""CompactionTasks: the unit handed to Spark. These files become those files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

from compaction_pipeline.core.ids import AttemptId, RecordId, TaskId
from compaction_pipeline.core.tables.data_file import LiveFile, OutputFile
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.table import TableIdentifier


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


class EndReason(str, Enum):
    """Why an attempt or a task ended. Programs decide by this; the sentence beside it is for people only."""

    # Ends of attempts; a task whose attempts are used up keeps that of the last one.
    MERGED = "MERGED"
    FAILED = "FAILED"
    # What the files hold breaks a rule, or is not supported: no further attempt can merge them.
    REFUSED = "REFUSED"
    # A file of the task is absent, as two looks found: another attempt of it would fail as well.
    FILE_GONE = "FILE_GONE"
    # The store does not let us read or write; no fault of the task.
    NO_ACCESS = "NO_ACCESS"
    # Other rows would have been written than were read: nothing of it is used, and a check stays red.
    DIGEST_MISMATCH = "DIGEST_MISMATCH"
    # Its holder did not renew its lease.
    LOST = "LOST"
    # Its process was told to end.
    INTERRUPTED = "INTERRUPTED"
    # Ends of tasks that no attempt decides.
    # The commit found that the table had moved; the node is planned again at once.
    CONFLICT = "CONFLICT"
    # A newer plan took its files.
    REPLACED = "REPLACED"
    # Whoever planned it ended before anybody began it.
    GIVEN_UP = "GIVEN_UP"


@dataclass(frozen=True, slots=True)
class TaskWork:
    """What one task is to do; pure content, the planner's output.

    `deletes` is every delete file that applies to any of `inputs` at the plan's snapshot, whatever its node or size. Which
    applies to which input follows from `core.tables.deletes.applies`. Of a DROP_DELETES task they are the table's delete files that
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

    `end_reason` is MERGED exactly when there is no error; an error alone means FAILED.

    Law, checked by the kernel before it answers: rows_read − rows_deleted_by_position − rows_deleted_by_equality =
    rows_written and digest_read = digest_written; for CONVERT rows_written are positions written.
    """

    task_id: TaskId
    attempt_id: AttemptId
    outputs: tuple[OutputFile, ...] = ()
    rows_read: int = 0
    rows_deleted_by_position: int = 0
    rows_deleted_by_equality: int = 0
    rows_written: int = 0
    digest_read: Digest = Digest()
    digest_written: Digest = Digest()
    duration_ms: int = 0
    peak_memory_bytes: int = 0
    end_reason: EndReason = EndReason.MERGED
    error: str | None = None

    def __post_init__(self) -> None:
        if self.error is None and self.end_reason is not EndReason.MERGED:
            raise ValueError(f"an attempt of task {self.task_id!r} that ended in {self.end_reason.value} must say why")
        if self.error is not None and self.end_reason is EndReason.MERGED:
            object.__setattr__(self, "end_reason", EndReason.FAILED)


@dataclass(frozen=True, slots=True)
class CompactionTask:
    """A planned task and where it stands.

    `snapshot_id`, `sequence_number` and `schema_id` are those of the one snapshot that the plan was made from; the
    sequence number is what a merged file gets as its data sequence number. `attempt` counts from 1, 0 before the first.
    `end_reason` and `reason` say why the task, or its last attempt, ended. `result` is that of the attempt that merged the task.
    `snapshot_properties` go into the summary of the snapshots that the task is committed with, whoever commits it.
    """

    task_id: TaskId
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
    attempt_id: AttemptId | None = None
    owner: str | None = None
    lease_expires_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    end_reason: EndReason | None = None
    reason: str | None = None
    result: MergeResult | None = None
    record_id: RecordId | None = None
    snapshot_properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def current_attempt_id(self) -> AttemptId:
        """The attempt that holds the task; empty when none does."""
        return self.attempt_id or AttemptId("")
