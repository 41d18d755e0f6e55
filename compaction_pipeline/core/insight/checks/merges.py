"""Judges what merges wrote: the same rows as they read, in files of the size that the table asks for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from compaction_pipeline.core.fragmentation.verdict import NodeState
from compaction_pipeline.core.insight.checks.judgement import Failure, Judgement
from compaction_pipeline.core.queue.task import CompactionTask, EndReason, TaskAction, TaskAttempt
from compaction_pipeline.core.tables.data_file import FileContent
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.properties import TableProperties
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.words import bytes_text

# A merge puts a remainder that is smaller than a fragment into its last file. A fragment is at most half the target.
_OVERSIZE = 1.5


def rows_preserved(nodes: Sequence[NodeState], tried: Iterable[tuple[CompactionTask, Sequence[TaskAttempt]]]) -> Judgement:
    """Fail each node that had a digest mismatch and no commit since. `tried` are tasks with all their attempts.

    Only nodes whose rows were compared are judged: those with a committed merge, and those that fail.
    """
    done = {(node.table, node.node): max(node.last_done.values()) for node in nodes if node.last_done}
    failures: dict[tuple[TableIdentifier, TableNode], Failure] = {}
    for task, attempts in tried:
        mismatch = next((attempt for attempt in reversed(attempts) if attempt.end_reason is EndReason.DIGEST_MISMATCH), None)
        if mismatch is None:
            continue
        key = (task.table, task.work.node)
        last_done = done.get(key)
        if last_done is None or last_done < (mismatch.ended_at or task.created_at):
            failures.setdefault(
                key, Failure(*key, f"task {task.task_id}, attempt {mismatch.number}: {mismatch.reason or 'digests differ'}")
            )
    nothing = f"none of {len(nodes)} nodes was merged yet" if nodes else ""
    return Judgement("nodes", len({*done, *failures}), tuple(failures.values()), "with a merge", nothing)


def target_file_size(tasks: Iterable[CompactionTask]) -> Judgement:
    """Judge the files that the newest plan of each node wrote. Each task may write one file below the target, which is its remainder."""
    newest: dict[tuple[TableIdentifier, TableNode], str] = {}
    failures: dict[tuple[TableIdentifier, TableNode], Failure] = {}
    for task in tasks:
        if task.work.action is not TaskAction.MERGE or task.result is None:
            continue
        key = (task.table, task.work.node)
        if newest.setdefault(key, task.plan_id) != task.plan_id or key in failures:
            continue
        target = task.work.target_size_bytes
        sizes = sorted(output.file_size_bytes for output in task.result.outputs if output.content is FileContent.DATA)
        below = sum(size < target * TableProperties().min_target_size_ratio for size in sizes)
        if sizes and sizes[-1] > target * _OVERSIZE:
            failures[key] = Failure(
                *key, f"task {task.task_id} wrote a file of {bytes_text(sizes[-1])}, and the target is {bytes_text(target)}"
            )
        elif below > 1:
            failures[key] = Failure(
                *key,
                f"task {task.task_id} wrote {below} undersized files of {len(sizes)}: the smallest has {bytes_text(sizes[0])}, "
                f"and the target is {bytes_text(target)}",
            )
    return Judgement("nodes", len(newest), tuple(failures.values()), "with a recent merge", "there is no recent merge")
