"""Which ends of attempts an optimizer may report, and which of them are believed at its word.

Some ends harm more than the attempt. The task is given up, the table shows that its storage denies access, or a check in Dagster turns red.
Such an end needs a witness: the server's own look at the files, or an optimizer that registered with another token. Without one, the
attempt has merely failed, and is tried again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from compaction_pipeline.core.queue.task import TaskAttempt
from compaction_pipeline.core.work.ends import EndReason
from compaction_pipeline.core.work.result import MergeResult

REPORTED = frozenset(
    {
        EndReason.MERGED,
        EndReason.FAILED,
        EndReason.REFUSED,
        EndReason.FILE_GONE,
        EndReason.NO_ACCESS,
        EndReason.CREDENTIALS_ENDED,
        EndReason.DIGEST_MISMATCH,
        EndReason.INTERRUPTED,
    }
)
"""The ends of an attempt that an optimizer may report."""
NEED_A_WITNESS = frozenset({EndReason.REFUSED, EndReason.FILE_GONE, EndReason.NO_ACCESS, EndReason.DIGEST_MISMATCH})
"""The ends that harm more than the attempt."""
MOST_INTERRUPTED = 3
"""So many attempts of a task may be given back by optimizers of one token. From then on it counts as a failure."""
MOST_REFUSED = 3
"""So many refused reports of the optimizers of one token within `COUNTED_HOURS` block the token.

Only the first refused report of a task counts. A second one may mean that a rule about reports is wrong for this table. So it counts as a
failure of the task, which ends after its retries, and nobody is blamed. Otherwise one such task would block one token after the other.
"""
COUNTED_HOURS = 1


def said_before(end_reason: EndReason, earlier: Iterable[TaskAttempt], own: Collection[str]) -> bool:
    """Return whether an optimizer of another token said the same of an earlier attempt of the task.

    `own` are the optimizers that registered with the token of the one that says it now.
    """
    return any(attempt.claimed is end_reason and attempt.owner not in own for attempt in earlier)


def interrupted_too_often(result: MergeResult, earlier: Iterable[TaskAttempt], own: Collection[str]) -> MergeResult:
    """Return the result of an attempt that was given back; a failure when the optimizers of its token, `own`, did so too often before."""
    before = sum(attempt.end_reason is EndReason.INTERRUPTED and attempt.owner in own for attempt in earlier)
    return result if before < MOST_INTERRUPTED else replace(result, end_reason=EndReason.FAILED)


def without_witness(result: MergeResult, optimizer_id: str) -> MergeResult:
    """Return the result that an attempt gets whose end nobody else has seen: it has failed."""
    said = f"optimizer {optimizer_id} says {result.end_reason.value}, which neither the server nor an optimizer of another token has seen"
    return replace(result, end_reason=EndReason.FAILED, error=f"{said}: {result.error}")
