"""What one attempt of a task did, and why attempts and tasks end."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from compaction_pipeline.core.ids import AttemptId, TaskId
from compaction_pipeline.core.tables.data_file import OutputFile


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
