"""Judges what merges wrote: the same rows as they read, in files of the size that the table asks for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from compaction_pipeline.core.fragmentation.verdict import NodeState
from compaction_pipeline.core.insight.checks.judgement import Failure, Judgement
from compaction_pipeline.core.queue.task import TaskAttempt
from compaction_pipeline.core.tables.data_file import FileContent, OutputFile
from compaction_pipeline.core.tables.keyed.file_names import parse_name
from compaction_pipeline.core.tables.keyed.tree import DataTreeNode
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.properties import TableProperties
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.words import bytes_text
from compaction_pipeline.core.work.ends import EndReason
from compaction_pipeline.core.work.merged import MergedWork
from compaction_pipeline.core.work.work import Work

# A merge puts a remainder that is smaller than a fragment into its last file. A fragment is at most half the target.
_OVERSIZE = 1.5


def rows_preserved(nodes: Sequence[NodeState], tried: Iterable[tuple[MergedWork[Work], Sequence[TaskAttempt]]]) -> Judgement:
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


def target_file_size(tasks: Iterable[MergedWork[Work]]) -> Judgement:
    """Judge the files that the newest plan of each node wrote. The rest of a task's rows may fill one file below the target.

    A task that merges changes into a base store may leave one such file for each tree node. Tasks that only rewrite changes are not
    judged, because their files are small by intent.
    """
    newest: dict[tuple[TableIdentifier, TableNode], str] = {}
    failures: dict[tuple[TableIdentifier, TableNode], Failure] = {}
    for task in tasks:
        if not task.work.aims_at_target or task.result is None:
            continue
        key = (task.table, task.work.node)
        if newest.setdefault(key, task.plan_id) != task.plan_id or key in failures:
            continue
        wrong = _wrong_size(task, [output for output in task.result.outputs if output.content is FileContent.DATA])
        if wrong is not None:
            failures[key] = Failure(*key, f"task {task.task_id} {wrong}")
    return Judgement("nodes", len(newest), tuple(failures.values()), "with a recent merge", "there is no recent merge")


def _wrong_size(task: MergedWork[Work], written: Sequence[OutputFile]) -> str | None:
    target = task.work.target_size_bytes
    of_tree_nodes: dict[DataTreeNode | None, list[int]] = defaultdict(list)
    for output in written:
        name = parse_name(output.path) if task.work.merged_place is not None else None
        of_tree_nodes[None if name is None else name.node].append(output.file_size_bytes)
    largest = max((output.file_size_bytes for output in written), default=0)
    if largest > target * _OVERSIZE:
        return f"wrote a file of {bytes_text(largest)}, and the target is {bytes_text(target)}"
    for sizes in of_tree_nodes.values():
        below = sum(size < target * TableProperties().min_target_size_ratio for size in sizes)
        if below > 1:
            return (
                f"wrote {below} undersized files of {len(sizes)}: the smallest has {bytes_text(min(sizes))}, "
                f"and the target is {bytes_text(target)}"
            )
    return None
