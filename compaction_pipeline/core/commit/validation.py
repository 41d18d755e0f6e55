"""Decides for each task whether it may still be committed on the head, from the head's files alone.

The rules need no history of the table, so they also work when the snapshot of the plan has expired. They find every task that a
rollback, a replaced branch or a newer commit has made wrong. The numbers of the rules are those in `iceberg/CONTRACT.md`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence

from compaction_pipeline.core.commit.head import Bucket, HeadFiles, bucket_of, is_global, is_partition_scoped, within_bounds
from compaction_pipeline.core.errors import assert_never
from compaction_pipeline.core.ids import TaskId
from compaction_pipeline.core.tables.data_file import FileContent, LiveFile
from compaction_pipeline.core.work.expected import expected_of
from compaction_pipeline.core.work.merged import MergedWork
from compaction_pipeline.core.work.work import Convert, DropDeletes, Merge, RewriteChanges, ToBase, Work

PathsIn = Callable[[LiveFile], "frozenset[str] | None"]
"""Returns the paths of the data files that a position-delete file names; None when the delete file is gone and cannot be read."""

OutputsOf = Callable[[MergedWork[Work]], Sequence[LiveFile]]
"""Returns a task's outputs as the commit would add them: with their sequence numbers, and the partition values of the head."""


def validate(tasks: Sequence[MergedWork[Work]], head: HeadFiles, outputs_of: OutputsOf, paths_in: PathsIn) -> Mapping[TaskId, str]:
    """Return the reason, by task id, of each task that may not be committed. Any subset of the other tasks may be committed."""
    conflicts: dict[TaskId, str] = {}
    taken: dict[str, str] = {}
    for task in tasks:
        reason = _reason(task, head, outputs_of, paths_in)
        if reason is None:
            # Two tasks that rewrite one file would double its rows. A sound plan never contains such tasks.
            shared = next((file.path for file in task.work.inputs if file.path in taken), None)
            reason = None if shared is None else f"{shared} is an input of task {taken[shared]} too"
        if reason is None:
            taken.update((file.path, task.task_id) for file in task.work.inputs)
        else:
            conflicts[task.task_id] = reason
    return conflicts


def _reason(task: MergedWork[Work], head: HeadFiles, outputs_of: OutputsOf, paths_in: PathsIn) -> str | None:
    """Return why a task may not be committed; None when it may."""
    work = task.work
    match work:
        case DropDeletes():
            # The commit decides about its delete files once it knows what else goes in.
            return None
        case Convert() | RewriteChanges():
            # A file that stays is the same file, so deletes that were added meanwhile still apply to it.
            return _unfit(task, head, paths_in)
        case Merge() | ToBase():
            data = [output for output in outputs_of(task) if output.is_data] if (reason := _unfit(task, head, paths_in)) is None else []
            return reason or _new_delete(task, head, data, paths_in)
        case _:
            return assert_never(work)


def _unfit(task: MergedWork[Work], head: HeadFiles, paths_in: PathsIn) -> str | None:
    """Return why the result, the inputs or the deletes of a task do not fit the head; None when they do."""
    return (
        _unfit_result(task)
        or _number_of_the_future(task, head)
        or _moved_input(task, head)
        or _duplicate_delete(task, head)
        or _lost_delete(task, head, paths_in)
    )


def _unfit_result(task: MergedWork[Work]) -> str | None:
    """Return why the result of a task cannot be what its work asked for; None when it can."""
    if task.result is None or task.result.error is not None:
        return "it has no result: " + (task.result.error or "" if task.result else "it was not merged")
    written = sum(output.record_count for output in task.work.counted(task.result.outputs))
    if written != task.result.rows_written:
        return f"its outputs hold {written} rows but its merge wrote {task.result.rows_written}"
    contents = expected_of(task.work).contents
    staying = {file.path: file for file in task.work.staying}
    for output in task.result.outputs:
        if output.content is FileContent.DATA and FileContent.DATA in contents:
            continue
        if FileContent.POSITION_DELETES not in contents:
            return f"its output {output.path} holds {output.content.value} but a merge writes data files"
        data = staying.get(output.referenced_data_file or "")
        if output.content is not FileContent.POSITION_DELETES or data is None:
            return f"its output {output.path} is not a position-delete file of one of its inputs that stay"
        if output.spec_id != data.spec_id:
            return f"its output {output.path} has partition spec {output.spec_id} but its input {data.path} has {data.spec_id}"
    return None


def _number_of_the_future(task: MergedWork[Work], head: HeadFiles) -> str | None:
    """Rule 6: the table has had the sequence number of the plan.

    When a catalog rolls snapshots back, or a person restores older metadata, the table counts on from a lower number. With the number of
    its plan, an output would then be newer than the deletes that other writers commit next, and these would miss its rows.
    """
    if task.sequence_number <= head.layout.last_sequence_number:
        return None
    return (
        f"the plan was made at sequence number {task.sequence_number}, but the table's last one is {head.layout.last_sequence_number}: "
        "snapshots were rolled back since"
    )


def _moved_input(task: MergedWork[Work], head: HeadFiles) -> str | None:
    """Rule 1: every input is live with the data sequence number that the plan saw."""
    replaced = {file.path for file in task.work.rewritten}
    for file in task.work.inputs:
        live = head.data.by_path.get(file.path)
        if live is None:
            return f"input {file.path} is no longer live"
        if file.path in head.data.duplicates:
            return f"input {file.path} is live more than once: a rewrite would take one copy of its rows and leave the other"
        if live.data_sequence_number != file.data_sequence_number:
            return (
                f"input {file.path} has data sequence number {live.data_sequence_number} but was planned with {file.data_sequence_number}"
            )
        if file.path in replaced and live.data_sequence_number > task.sequence_number:
            return (
                f"input {file.path} has data sequence number {live.data_sequence_number}, "
                f"but the plan was made at sequence number {task.sequence_number}"
            )
    return None


def _duplicate_delete(task: MergedWork[Work], head: HeadFiles) -> str | None:
    """Every delete file that the task applied must be live once: of two copies, the path does not tell which one was applied."""
    paths = [delete.path for delete in task.work.deletes]
    duplicate = next((path for path in paths if path in head.duplicate_deletes), None)
    if duplicate is None and len(set(paths)) < len(paths):
        duplicate = next(path for path, count in Counter(paths).items() if count > 1)
    return None if duplicate is None else f"it applied delete file {duplicate}, which is live more than once"


def _lost_delete(task: MergedWork[Work], head: HeadFiles, paths_in: PathsIn) -> str | None:
    """Rule 3: every delete that the task applied is still live."""
    for delete in task.work.deletes:
        live = head.deletes.get(delete.path)
        if live is not None and live.data_sequence_number == delete.data_sequence_number:
            continue
        if is_partition_scoped(delete) and live is None:
            held = paths_in(delete)
            if held is not None and not any(file.path in held for file in task.work.inputs):
                continue
        return f"it applied delete file {delete.path}, which is no longer live"
    return None


def _new_delete(task: MergedWork[Work], head: HeadFiles, outputs: Sequence[LiveFile], paths_in: PathsIn) -> str | None:
    """Rules 2, 4 and 5: with the outputs in place of the inputs, each delete of the head still deletes the same rows."""
    applied = {delete.path for delete in task.work.deletes}
    inputs = [head.data.by_path[file.path] for file in task.work.rewritten]
    buckets = {bucket_of(file) for file in (*inputs, *outputs)}
    old, new = _EqualityReach(inputs), _EqualityReach(outputs)
    for delete in head.deletes_near(buckets, [file.path for file in inputs]):
        if delete.path in applied:
            continue
        if delete.content is FileContent.POSITION_DELETES:
            reason = _new_positions(delete, inputs, paths_in)
        else:
            reason = _new_equality(task, head, delete, old, new)
        if reason is not None:
            return reason
    return None


def _new_positions(delete: LiveFile, inputs: Sequence[LiveFile], paths_in: PathsIn) -> str | None:
    """Rule 2: every position delete that applies to an input was applied.

    No position delete of another writer can reach an output, because no other writer knew the output's path.
    """
    reached = [file.path for file in inputs if file.data_sequence_number <= delete.data_sequence_number]
    if delete.referenced_data_file is not None:
        reached = [path for path in reached if path == delete.referenced_data_file]
    else:
        reached = [
            file.path
            for file in inputs
            if file.data_sequence_number <= delete.data_sequence_number
            and bucket_of(file) == bucket_of(delete)
            and within_bounds(delete, file.path)
        ]
        if reached:
            held = paths_in(delete)
            reached = reached if held is None else [path for path in reached if path in held]
    return f"it did not apply delete file {delete.path}, which deletes rows of input {reached[0]} by position" if reached else None


class _EqualityReach:
    """Says whether an equality delete reaches any or all of some data files, without a look at each of them.

    The lowest and the highest data sequence number of a bucket tell it. A writer may have added thousands of deletes since the plan, and
    a task may have thousands of inputs.
    """

    def __init__(self, files: Sequence[LiveFile]) -> None:
        self._spans: dict[Bucket, tuple[int, int]] = {}
        for file in files:
            bucket, sequence = bucket_of(file), file.data_sequence_number
            low, high = self._spans.get(bucket, (sequence, sequence))
            self._spans[bucket] = (min(low, sequence), max(high, sequence))

    @property
    def is_empty(self) -> bool:
        return not self._spans

    def any_of(self, delete: LiveFile, everywhere: bool) -> bool:
        """Return whether the delete reaches any of the files. `everywhere` is True for a delete that reaches all buckets."""
        return any(low < delete.data_sequence_number for low, _ in self._in_scope(delete, everywhere))

    def all_of(self, delete: LiveFile, everywhere: bool) -> bool:
        """Return whether the delete reaches all of the files; True when there are none."""
        spans = self._in_scope(delete, everywhere)
        return len(spans) == len(self._spans) and all(high < delete.data_sequence_number for _, high in spans)

    def _in_scope(self, delete: LiveFile, everywhere: bool) -> Collection[tuple[int, int]]:
        if everywhere:
            return self._spans.values()
        span = self._spans.get(bucket_of(delete))
        return () if span is None else (span,)


def _new_equality(task: MergedWork[Work], head: HeadFiles, delete: LiveFile, inputs: _EqualityReach, outputs: _EqualityReach) -> str | None:
    """Rules 4 and 5, about an equality delete that the task did not apply.

    When it reaches an input, it must be newer than the plan and reach all outputs. When it reaches an output, it must reach all inputs.
    """
    everywhere = is_global(delete, head.layout)
    if task.work.merged_place is not None and (inputs.any_of(delete, everywhere) or outputs.any_of(delete, everywhere)):
        # The outputs also hold rows of the change store, which the delete does not reach there.
        return f"it did not apply delete file {delete.path}, which would delete rows of the changes too once they are in the base store"
    if inputs.any_of(delete, everywhere):
        if delete.data_sequence_number <= task.sequence_number:
            return f"it did not apply delete file {delete.path}, which existed when the task was planned and applies to the task's inputs"
        if not outputs.all_of(delete, everywhere):
            return f"delete file {delete.path} deletes rows of the task's inputs but would not reach the task's outputs"
        dropped = set(delete.equality_ids) - head.layout.field_ids.get(task.schema_id, frozenset())
        if dropped and not outputs.is_empty:
            return f"delete file {delete.path} deletes by column id {min(dropped)}, which the task's outputs do not have"
    if outputs.any_of(delete, everywhere) and not inputs.all_of(delete, everywhere):
        return f"delete file {delete.path} would reach the task's outputs but does not reach all the task's inputs"
    return None
