"""What one attempt of a task did, and why attempts and tasks end."""

from __future__ import annotations

from dataclasses import dataclass, replace

from compaction_pipeline.core.ids import AttemptId, TaskId
from compaction_pipeline.core.tables.data_file import OutputFile
from compaction_pipeline.core.work.ends import EndReason


@dataclass(frozen=True, slots=True)
class Digest:
    """The number of rows, and two seeded sums of row hashes (mod 2⁶⁴). The same rows have the same digest in any order."""

    rows: int = 0
    sum_a: int = 0
    sum_b: int = 0


@dataclass(frozen=True, slots=True)
class UsedSoFar:
    """What an attempt that still runs has used, as whoever waits for its merge sees it: the same figures as in its result."""

    cpu_ms: int
    peak_memory_bytes: int


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

    `cpu_ms` is the processor time that the worker's process used for this attempt, and `overhead_cpu_ms` what the process used between its
    attempt before and this one. The JVM of Spark is in neither. They are None when unknown, as in reports of earlier releases.
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
    cpu_ms: int | None = None
    overhead_cpu_ms: int | None = None

    def __post_init__(self) -> None:
        if self.error is None and self.end_reason is not EndReason.MERGED:
            raise ValueError(f"an attempt of task {self.task_id!r} that ended in {self.end_reason.value} must say why")
        if self.error is not None and self.end_reason is EndReason.MERGED:
            object.__setattr__(self, "end_reason", EndReason.FAILED)

    def told(self) -> MergeResult:
        """Return the result as its worker reports it: without what the footers of its files tell."""
        return replace(self, outputs=tuple(output.told() for output in self.outputs))
