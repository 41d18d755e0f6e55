"""Decides whether a tick leaves a node's waiting tasks alone, although files came to the node after these tasks were planned.

A tick may replace Pending tasks by larger ones. If it did so for every new file, a busy table would replace its tasks with each commit of
its writers, and a queue that is behind would never get shorter. So the new files must be worth a task of their own, tasks are replaced at
most once in `self-optimizing.min-plan-interval`, and a task that cannot grow is not replaced at all. A task whose commit would be a
conflict is replaced at once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from compaction_pipeline.core.fragmentation.triggers import Trigger, new_files_trigger
from compaction_pipeline.core.ids import TaskId
from compaction_pipeline.core.planning.plain.major import high_delete_ratios, joins_undersized
from compaction_pipeline.core.planning.plain.node_view import NodeView
from compaction_pipeline.core.tables.data_file import FileContent, LiveFile
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.words import moment_text
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.core.work.merged import MergedWork
from compaction_pipeline.core.work.work import Work


def why_kept(
    view: NodeView,
    deletes: Sequence[LiveFile],
    tasks: Sequence[MergedWork[Work]],
    types: Collection[CompactionType],
    full: Trigger,
    now: datetime | None,
) -> str | None:
    """Say why the new files of a node are no reason to replace its waiting tasks; None when the node must be planned again.

    `tasks` are all waiting tasks of the node, at least one, and the available files of `view` include theirs. `deletes` are the delete
    files that a reader of the node opens, `types` those that may be planned, and `full` says whether a FULL is due.

    `now` is None while the table pauses between two plans: nothing is planned then, and the pause is the reason.
    """
    if not all(_is_valid(task, view) for task in tasks):
        return None
    least = view.properties.min_plan_interval
    newest = max(task.created_at for task in tasks)
    if now is not None and now - newest < least:
        # The reason is stored, and is read later. So it names times that stay true.
        planned, again = moment_text(newest, now), moment_text(newest + least, now)
        return f"the waiting tasks were planned at {planned}; they may be replaced from {again}"
    if full.due and all(task.work.type is not CompactionType.FULL for task in tasks):
        return None
    if CompactionType.MAJOR in types and _is_major_due(view, tasks):
        return None
    taken = {file.path for task in tasks for file in task.work.inputs}
    planned_at = max(task.sequence_number for task in tasks)
    new_data = [file for file in view.available if file.path not in taken]
    # The plan of the waiting tasks decided about all delete files of its time. Those that it could not get rid of stay, and would make a
    # MINOR due for ever.
    new_deletes = [file for file in deletes if file.data_sequence_number > planned_at]
    minor = new_files_trigger(new_data, new_deletes, view.properties)
    return None if minor.due and CompactionType.MINOR in types else minor.text


def that_cannot_grow(view: NodeView, tasks: Sequence[MergedWork[Work]]) -> frozenset[TaskId]:
    """Return those of a node's waiting tasks that stay when the node is planned again, because they have the largest size already.

    The new files then get a task of their own. Tasks of a task group are not among them: a plan replaces a group as a whole.
    """
    least = view.properties.max_task_size_bytes
    return frozenset(task.task_id for task in tasks if not task.work.group and task.work.input_bytes >= least and _is_valid(task, view))


def with_whole_groups(kept: Mapping[TableNode, str], waiting: Mapping[TableNode, Sequence[MergedWork[Work]]]) -> Mapping[TableNode, str]:
    """Return the kept nodes, without those that share a task group with a node that is planned again.

    A plan replaces all waiting tasks of a group together. So it must plan all their nodes. `waiting` are the waiting tasks of the nodes
    that the plan decides about.
    """
    left = dict(kept)
    while True:
        broken = {task.work.group for node, tasks in waiting.items() if node not in left for task in tasks if task.work.group}
        lost = [node for node in left if any(task.work.group in broken for task in waiting[node])]
        if not lost:
            return left
        for node in lost:
            del left[node]


def _is_valid(task: MergedWork[Work], view: NodeView) -> bool:
    """Return whether nothing has happened to the files of a waiting task that would make its commit a conflict."""
    work = task.work
    live = {file.path: file.data_sequence_number for file in view.available}
    if any(live.get(file.path) != file.data_sequence_number for file in work.inputs):
        return False
    reaching = {delete.path: delete for delete in view.reach.of_all(view.node, work.inputs)}
    planned = {delete.path for delete in work.deletes}
    if not planned <= reaching.keys():
        return False
    if not work.rewritten:
        # The inputs of a conversion stay, so deletes that came later still apply to them.
        return True
    # Outputs get the sequence number of the plan. So a later equality delete of the same partition spec applies to them too, and no other.
    same_spec = work.output_spec_id == work.node.spec_id
    return all(
        same_spec and delete.content is FileContent.EQUALITY_DELETES and delete.data_sequence_number > task.sequence_number
        for path, delete in reaching.items()
        if path not in planned
    )


def _is_major_due(view: NodeView, tasks: Sequence[MergedWork[Work]]) -> bool:
    """Return whether a MAJOR is due for files that no waiting MAJOR or FULL takes."""
    covered = {file.path for task in tasks if task.work.type is not CompactionType.MINOR for file in task.work.inputs}
    rest = view.with_available([file for file in view.available if file.path not in covered])
    return bool(high_delete_ratios(rest, False)) or joins_undersized(rest)
