"""Decides which merges of change files with each other one attempt puts into the change store of a keyed table.

A merged file takes the place of exactly those files that were read. Whatever else was committed meanwhile, inserts, deletes, or a merge of
changes into the base store, keeps its meaning, because each row keeps its place in the log of changes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from compaction_pipeline.core.commit.candidates import Candidates
from compaction_pipeline.core.commit.head import HeadFiles
from compaction_pipeline.core.errors import TableRefused
from compaction_pipeline.core.ids import TaskId
from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.core.tables.keyed.file_names import KeyedFile, KeyedFileType, change_file
from compaction_pipeline.core.work.merged import MergedWork, by_kind
from compaction_pipeline.core.work.work import RewriteChanges, Work


@dataclass(frozen=True, slots=True)
class RewriteDecision:
    """The merges of change files that are committed, and the reason for each task that is left out."""

    survivors: Sequence[MergedWork[RewriteChanges]]
    conflicts: Mapping[TaskId, str]


def by_store(prepared: Iterable[MergedWork[Work]], task_ids: Collection[TaskId] | None) -> Sequence[Sequence[TaskId]]:
    """Return which tasks each commit takes, of those in `task_ids`; None means all. There is one commit at least, which may have none.

    A commit names its tasks. A task that is merged meanwhile may be of the other store, so it waits for the next time.

    Merges of change files with each other go into another store than all other tasks. They go first: the others may move changes into the
    base store, and readers skip these changes from then on.
    """
    asked = [task for task in prepared if task_ids is None or task.task_id in task_ids]
    rewrites = [task.task_id for task in by_kind(asked).rewrites]
    taken = frozenset(rewrites)
    others = [task.task_id for task in asked if task.task_id not in taken]
    return [ids for ids in (rewrites, others) if ids] or [[]]


def decide_rewrites(candidates: Candidates, head: HeadFiles) -> RewriteDecision:
    """Validate the tasks, and salvage those without a conflict. `head` has the live files of the change store."""
    rewrites = by_kind(candidates.tasks).rewrites
    conflicts = {
        task.task_id: candidates.unfit.get(task.task_id)
        or f"a {task.work.action.value} task changes the table itself, and this commit changes its change store; plan it again"
        for task in candidates.others_than(rewrites)
    }
    taken: dict[str, TaskId] = {}
    survivors = []
    for task in rewrites:
        reason = candidates.unfit.get(task.task_id) or _reason(task, head, candidates)
        shared = next((file.path for file in task.work.inputs if file.path in taken), None)
        if reason is None and shared is not None:
            reason = f"{shared} is an input of task {taken[shared]} too"
        if reason is None:
            taken.update((file.path, task.task_id) for file in task.work.inputs)
            survivors.append(task)
        else:
            conflicts[task.task_id] = reason
    return RewriteDecision(tuple(survivors), conflicts)


def _reason(task: MergedWork[RewriteChanges], head: HeadFiles, candidates: Candidates) -> str | None:
    if task.result is None or task.result.error is not None:
        return "it has no result: " + (task.result.error or "" if task.result else "it was not merged")
    return _moved_input(task, head) or _wrong_output(task, candidates.outputs_of(task))


def _moved_input(task: MergedWork[RewriteChanges], head: HeadFiles) -> str | None:
    """Each input is live once, with the sequence number that it had. Otherwise its rows would be there twice, or lost."""
    for file in task.work.inputs:
        live = head.data.by_path.get(file.path)
        if live is None:
            return f"change file {file.path} is no longer live: another merge took it, or it was removed"
        if file.path in head.data.duplicates:
            return f"change file {file.path} is live more than once: a merge would take one copy of its rows and leave the other"
        if live.data_sequence_number != file.data_sequence_number:
            return (
                f"change file {file.path} has the data sequence number {live.data_sequence_number}, but it was planned with "
                f"{file.data_sequence_number}"
            )
    return None


def _wrong_output(task: MergedWork[RewriteChanges], outputs: Sequence[LiveFile]) -> str | None:
    """Deletes and rows meet by partition, node and type, so a merged file says the same of itself as those that it replaces."""
    work = task.work
    rows = dict.fromkeys((KeyedFileType.INSERT, KeyedFileType.EQUALITY_DELETE), 0)
    most = dict(rows)
    for file in work.inputs:
        named = _named(file)
        if named is None or named.type not in rows or named.node != work.node.tree:
            return f"the name of its input {file.path} does not say that it holds changes of its node"
        if (file.spec_id, file.partition) != (work.node.spec_id, work.node.partition):
            return f"its input {file.path} is of another partition than its task"
        most[named.type] += file.record_count
    for output in outputs:
        named = _named(output)
        if named is None or named.type not in rows or named.node != work.node.tree:
            return f"the name of its output {output.path} does not say that it holds changes of its node"
        if named.transaction_id != output.data_sequence_number:
            return f"the name of its output {output.path} tells a transaction, but its rows have several"
        if (output.spec_id, output.partition) != (work.node.spec_id, work.node.partition):
            return f"its output {output.path} is of another partition than its task"
        rows[named.type] += output.record_count
    return _wrong_rows(rows, most)


def _wrong_rows(rows: Mapping[KeyedFileType, int], most: Mapping[KeyedFileType, int]) -> str | None:
    """`rows` counts what the outputs of each type hold, and `most` what the inputs hold."""
    for kind, count in rows.items():
        if count > most[kind]:
            return f"its outputs of type {kind.value} hold {count} rows, but its inputs hold {most[kind]}"
    if most[KeyedFileType.EQUALITY_DELETE] and not rows[KeyedFileType.EQUALITY_DELETE]:
        return "it read deletes and wrote none, but the last delete of each key must stay"
    return None


def _named(file: LiveFile) -> KeyedFile | None:
    try:
        return change_file(file.path, file.data_sequence_number)
    except TableRefused:
        return None
