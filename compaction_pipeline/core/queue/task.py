"""A CompactionTask: the unit of work that is handed to Spark. A task turns some files into other files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum

from compaction_pipeline.core.ids import AttemptId, RecordId, TaskId
from compaction_pipeline.core.tables.data_file import LiveFile, OutputFile
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.table import TableIdentifier, TableLayout


class CompactionType(str, Enum):
    """A kind of work. When several are due, FULL comes before MAJOR, and MAJOR before MINOR."""

    MINOR = "MINOR"
    """Merges the small files of a node."""
    MAJOR = "MAJOR"
    """Merges the small files too, rewrites files with many deleted rows, and joins undersized files."""
    FULL = "FULL"
    """Rewrites every data file of a node whose rewrite gains something."""


class TaskAction(str, Enum):
    """What a task does with its inputs."""

    # Merged outputs replace the inputs, with the deletes applied. The task is committed in a REPLACE snapshot.
    MERGE = "MERGE"
    # The inputs stay. Each gets at most one new position-delete file in place of its deletes. The task is committed in an overwrite
    # snapshot.
    CONVERT = "CONVERT"
    # The task has no inputs. It only drops dangling delete files, which no live data file needs.
    DROP_DELETES = "DROP_DELETES"
    # Changes of a keyed table are merged into its base store. Outputs replace some inputs, and position deletes mark the deleted rows of
    # the others. The task is committed in an overwrite snapshot.
    TO_BASE = "TO_BASE"
    # Change files of one tree node of a keyed table are merged with each other. Outputs replace the inputs in the change store. The task is
    # committed in an overwrite snapshot of that store.
    REWRITE_CHANGES = "REWRITE_CHANGES"


def written_layout(action: TaskAction, layout: TableLayout) -> TableLayout:
    """The layout of what a task with this action writes to: the table, or the change store of the keyed table that has this layout."""
    return layout.keyed.change if action is TaskAction.REWRITE_CHANGES and layout.keyed is not None else layout


class TaskStatus(str, Enum):
    """The states of a task. `core.queue.transitions` says which may follow which.

    INIT exists only inside the transaction that inserts a plan. COMMITTED and CANCELED are final. FAILED is final unless the task has a
    `retry_at`.
    """

    INIT = "INIT"
    PENDING = "PENDING"
    EXECUTING = "EXECUTING"
    PREPARED = "PREPARED"
    COMMITTED = "COMMITTED"
    FAILED = "FAILED"
    CANCELED = "CANCELED"


class EndReason(str, Enum):
    """Why an attempt or a task ended. Programs decide by this value; the text beside it is for people only."""

    # Ends of attempts. A task whose attempts are used up keeps the reason of the last one.

    MERGED = "MERGED"
    FAILED = "FAILED"
    # The content of the files breaks a rule or is not supported, so no further attempt can merge them.
    REFUSED = "REFUSED"
    # Two looks found a file of the task absent, so another attempt would fail too.
    FILE_GONE = "FILE_GONE"
    # The store denied the process access. This is no fault of the task.
    NO_ACCESS = "NO_ACCESS"
    # The credentials that the catalog gave for the task ended while it was merged.
    CREDENTIALS_ENDED = "CREDENTIALS_ENDED"
    # The rows to write differed from the rows that were read. No output is used, and a check in Dagster stays red.
    DIGEST_MISMATCH = "DIGEST_MISMATCH"
    # The report of the attempt cannot be true. No output is used, and the task goes to another worker.
    REPORT_REFUSED = "REPORT_REFUSED"
    # The holder did not renew the lease of the attempt, or an optimizer no longer names the attempt.
    LOST = "LOST"
    # The attempt took longer than an attempt may take, although its holder renewed the lease.
    TIMED_OUT = "TIMED_OUT"
    # The process was told to end, or the answer to an optimizer's poll did not arrive.
    INTERRUPTED = "INTERRUPTED"

    # Ends of tasks that no attempt decides.

    # The commit found that the table had changed. The node is planned again at once.
    CONFLICT = "CONFLICT"
    # A newer plan took the task's files.
    REPLACED = "REPLACED"
    # A data file of the task was no longer part of the table when the task was to be tried again. The node is judged again.
    OUTDATED = "OUTDATED"
    # The process that planned the task ended before anybody began it, or a person canceled the task.
    GIVEN_UP = "GIVEN_UP"


@dataclass(frozen=True, slots=True)
class ChangeSpan:
    """The changes that a TO_BASE task merges into the base store, and how.

    `inserts` and `deletes` are files of the change store. Of their rows, those with a transaction above `above` and up to `up_to` count. A
    file without a column of transactions is filtered as a whole, by its data sequence number. `above` is the optimized sequence of the
    partition that the plan read; None means that all rows up to `up_to` count. When the task is committed, the optimized sequence of its
    partition becomes `up_to`. `change_snapshot_id` is the snapshot of the change store that the plan was made from. When no task of the
    group has a change file, `up_to` is `above`, or 0 when there is none: the files of the base store are merged with each other.

    `marked` are the paths of those inputs that stay: the rows that die in them get position deletes. The other inputs are rewritten.
    `tasks` is how many tasks the task group has. They merge all changes of one partition together, so they are committed all or none.
    """

    inserts: tuple[LiveFile, ...]
    deletes: tuple[LiveFile, ...]
    above: int | None
    up_to: int
    change_snapshot_id: int
    marked: tuple[str, ...] = ()
    tasks: int = 1


@dataclass(frozen=True, slots=True)
class TaskWork:
    """What one task is to do, as the planner decided.

    `deletes` are all delete files that apply to any of `inputs` at the plan's snapshot, whatever their node or size.
    `core.tables.deletes.applies` says which of them apply to which input. For a DROP_DELETES task `deletes` are the dangling delete
    files of the table. For a CONVERT task `converts` are the paths of the deletes that its outputs replace; the other `deletes` only
    tell which rows are deleted already. For a TO_BASE task they are the position deletes of single marked files: where a file gets a new
    one, it has their rows too.

    For a REWRITE_CHANGES task `inputs` are files of the change store, and there are no `deletes`: those are among the inputs.

    `changes` is set for a TO_BASE task only. Its `inputs` are the data files of the base store whose rows the task may change, and its
    `deletes` those of the base store. Its node is a tree node: the deepest one that holds all rows that the task writes.

    `group` names a task group: tasks that are planned and committed together. It is "" for a task on its own. It has nothing to do with
    resource groups. The plan expects `predicted_files` outputs with `predicted_bytes` bytes in all.
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
    changes: ChangeSpan | None = None

    @property
    def input_bytes(self) -> int:
        """Bytes of the data files that the task reads, and of the change files."""
        return sum(file.file_size_bytes for file in (*self.inputs, *self.change_files))

    @property
    def rewritten(self) -> tuple[LiveFile, ...]:
        """The data files that leave the table when the task is committed."""
        if self.action is TaskAction.CONVERT:
            return ()
        staying = frozenset(self.changes.marked) if self.changes is not None else frozenset()
        return tuple(file for file in self.inputs if file.path not in staying)

    @property
    def small_files(self) -> int:
        """How many small data files, and how many delete files and change files of any size, the task reads.

        Readers open each of them until the task is committed.
        """
        small = sum(file.file_size_bytes <= self.fragment_size_bytes for file in self.inputs)
        return small + len(self.deletes) + len(self.change_files)

    @property
    def is_of_keyed_table(self) -> bool:
        """Whether the task reads change files."""
        return self.action in (TaskAction.TO_BASE, TaskAction.REWRITE_CHANGES)

    @property
    def change_files(self) -> tuple[LiveFile, ...]:
        """The change files that a TO_BASE task reads: inserts, then deletes."""
        return (*self.changes.inserts, *self.changes.deletes) if self.changes is not None else ()

    @property
    def files_read(self) -> int:
        """How many data files and change files the task reads. Delete files that it applies to them are not among them."""
        return len(self.inputs) + len(self.change_files)


@dataclass(frozen=True, slots=True)
class Digest:
    """The number of rows, and two seeded sums of row hashes (mod 2⁶⁴). The same rows have the same digest in any order."""

    rows: int = 0
    sum_a: int = 0
    sum_b: int = 0


@dataclass(frozen=True, slots=True)
class MergeResult:
    """What one attempt did. `error` is None after a success; otherwise it is the reason in words, and there are no outputs.

    `end_reason` is MERGED if and only if there is no error. A result that gives an error but no other end reason becomes FAILED.
    Raises ValueError when there is no error but the end reason is not MERGED.

    The kernel checks two laws before it returns a result: rows_read − rows_deleted_by_position − rows_deleted_by_equality =
    rows_written + rows_kept, and digest_read = digest_written. For a CONVERT task `rows_written` counts the positions that were written.

    For a TO_BASE task `rows_read` counts the rows of its base files and those inserts that it applies. A row that a delete of its key
    deletes counts as deleted by equality. `rows_written` and the digests are of the rows in new data files alone, and `rows_kept` are the
    living rows of the marked files, which stay where they are. The new position deletes of a marked file hold those of its rows that die
    now, and repeat the positions of the delete files in `converts`. For other tasks `rows_kept` is 0.

    For a REWRITE_CHANGES task all rows of its inputs count, deletes too. A row that another row of the task outdoes counts as deleted by
    equality.
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
    rows_kept: int = 0

    def __post_init__(self) -> None:
        if self.error is None and self.end_reason is not EndReason.MERGED:
            raise ValueError(f"an attempt of task {self.task_id!r} that ended in {self.end_reason.value} must say why")
        if self.error is not None and self.end_reason is EndReason.MERGED:
            object.__setattr__(self, "end_reason", EndReason.FAILED)

    def told(self) -> MergeResult:
        """Return the result as its worker reports it: without what the footers of its files tell."""
        return replace(self, outputs=tuple(output.told() for output in self.outputs))


@dataclass(frozen=True, slots=True)
class CompactionTask:
    """A planned task and its state.

    `snapshot_id`, `sequence_number` and `schema_id` are those of the one snapshot that the plan was made from. A merged file gets this
    sequence number as its data sequence number. (For a REWRITE_CHANGES task `schema_id` is that of the change store, and a merged file gets
    the highest sequence number of the task's inputs.) `attempt` is the number of the last attempt, from 1; it is 0 before the first.
    `owner` holds the current attempt until `lease_expires_at`. `end_reason` and `reason` say why the task, or its last attempt, ended.
    `failures` and `losses` count ends of attempts, as `core.queue.attempts` says. `waiting_since` is when the task began to wait for a
    worker; None means `created_at`. `started_at` and `failed_at` are those of the last attempt that began and of the last one that failed.
    A FAILED task with a `retry_at` waits: it is tried again from that time on. `ended_at` is set once the task has ended.
    `result` is that of the attempt that merged the task. `record_id` is the record of the commit that claimed the task.
    `snapshot_properties` go into the summaries of the snapshots with which the task is committed, whoever commits it.
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
    failures: int = 0
    losses: int = 0
    waiting_since: datetime | None = None
    failed_at: datetime | None = None
    retry_at: datetime | None = None
    prepared_at: datetime | None = None
    committed_at: datetime | None = None

    @property
    def times(self) -> Mapping[str, datetime | None]:
        """The times of the task's life by name, in the order in which they mostly come. A time that has not come is None."""
        return {
            "created_at": self.created_at,
            "waiting_since": self.waiting_since or self.created_at,
            "started_at": self.started_at,
            "failed_at": self.failed_at,
            "retry_at": self.retry_at,
            "prepared_at": self.prepared_at,
            "committed_at": self.committed_at,
            "ended_at": self.ended_at,
        }

    @property
    def is_final(self) -> bool:
        """Whether the task has ended and never changes again."""
        if self.status is TaskStatus.FAILED:
            return self.retry_at is None
        return self.status in (TaskStatus.COMMITTED, TaskStatus.CANCELED)

    @property
    def waits_for_retry(self) -> bool:
        """Whether the last attempt failed and the task waits to be tried again. It still holds its files."""
        return self.status is TaskStatus.FAILED and self.retry_at is not None

    @property
    def is_to_be_merged(self) -> bool:
        """Whether the task waits for a worker, is being merged, or waits to be tried again."""
        return self.status in (TaskStatus.PENDING, TaskStatus.EXECUTING) or self.waits_for_retry

    @property
    def current_attempt_id(self) -> AttemptId:
        """The id of the attempt that holds the task; "" when none does."""
        return self.attempt_id or AttemptId("")


@dataclass(frozen=True, slots=True)
class TaskAttempt:
    """One try of a task: who held it, and why it ended.

    `claimed` is the end that its optimizer reported, when nobody else had seen it and the attempt therefore counts as FAILED.
    `application` is the id of the Spark application that it ran in, as its worker says; "" when none is known.
    """

    attempt_id: AttemptId
    task_id: TaskId
    number: int
    owner: str
    started_at: datetime
    ended_at: datetime | None = None
    end_reason: EndReason | None = None
    reason: str | None = None
    claimed: EndReason | None = None
    application: str = ""
