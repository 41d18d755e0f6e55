"""Works of any kind, made from the fields of all kinds, and the merge of tasks of the queue. Tests are written in these words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from compaction_pipeline.core.queue.task import CompactionTask
from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.table import TableLayout
from compaction_pipeline.core.work import report
from compaction_pipeline.core.work.kinds import CompactionType, TaskAction
from compaction_pipeline.core.work.result import MergeResult
from compaction_pipeline.core.work.work import Convert, DropDeletes, Merge, RewriteChanges, ToBase, Work
from compaction_pipeline.merging import kernel
from compaction_pipeline.merging.reported import judge as judging
from compaction_pipeline.merging.reported import verify

KINDS: Mapping[TaskAction, type[Any]] = {
    TaskAction.MERGE: Merge,
    TaskAction.CONVERT: Convert,
    TaskAction.DROP_DELETES: DropDeletes,
    TaskAction.TO_BASE: ToBase,
    TaskAction.REWRITE_CHANGES: RewriteChanges,
}


def _constants(kind: type[Any]) -> dict[str, Any]:
    """The fields that a kind of work always has empty, and its action."""
    return {field.name: field.default for field in fields(kind) if field.type in ("None", "tuple[()]") or field.name == "action"}


def task_work(
    node: TableNode,
    type: CompactionType,
    action: TaskAction,
    inputs: Sequence[LiveFile],
    deletes: Sequence[LiveFile],
    output_spec_id: int,
    target_size_bytes: int,
    fragment_size_bytes: int,
    **others: Any,
) -> Any:
    """The work of this kind. Raises ValueError when it is to have something that its kind never has."""
    given = {
        "node": node,
        "type": type,
        "inputs": tuple(inputs),
        "deletes": tuple(deletes),
        "output_spec_id": output_spec_id,
        "target_size_bytes": target_size_bytes,
        "fragment_size_bytes": fragment_size_bytes,
        **others,
    }
    kind = KINDS[action]
    constants = _constants(kind)
    wrong = {name: given[name] for name, value in constants.items() if name in given and given[name] != value}
    if wrong:
        raise ValueError(f"{kind.__name__} never has {wrong}")
    return kind(**{name: value for name, value in given.items() if name not in constants})


def as_kind(work: Work, action: TaskAction, **changed: Any) -> Any:
    """The work as one of another kind, with some fields changed. What that kind never has is left out."""
    kind = KINDS[action]
    names = {field.name for field in fields(kind)} - _constants(kind).keys()
    same = {field.name: getattr(work, field.name) for field in fields(work) if field.name in names}
    return kind(**{**same, **{name: value for name, value in changed.items() if name in names}})


def merge_task(task: CompactionTask, layout: TableLayout, file_io: Mapping[str, str], *arguments: Any, **options: Any) -> MergeResult:
    return kernel.merge_task(task.merge_input(layout), file_io, *arguments, **options)


def judge(task: CompactionTask, result: MergeResult, layout: TableLayout, file_io: Mapping[str, str]) -> MergeResult:
    return judging.judge(task.merge_input(layout), result, file_io)


def verify_rows(task: CompactionTask, result: MergeResult, layout: TableLayout, file_io: Mapping[str, str]) -> str | None:
    return verify.verify_rows(task.merge_input(layout), result, file_io)


def report_problem(task: CompactionTask, result: MergeResult, layout: TableLayout) -> str | None:
    return report.report_problem(task.merge_input(layout), result)


def metrics_problem(task: CompactionTask, result: MergeResult, layout: TableLayout) -> str | None:
    return report.metrics_problem(task.merge_input(layout), result)
