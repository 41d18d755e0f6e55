"""Merges changes of a keyed table into its base store with the kernel, for tests: makes tasks, runs them, and commits what they wrote.

It plans in the simplest way. A test chooses how far changes are merged, how partitions are split into tasks, and which files stay.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from compaction_pipeline.core.ids import AttemptId
from compaction_pipeline.core.queue.task import CompactionTask
from compaction_pipeline.core.tables.data_file import FileContent, LiveFile
from compaction_pipeline.core.tables.keyed.file_names import KeyedFileType, base_file, change_file
from compaction_pipeline.core.tables.keyed.partition_paths import path_of
from compaction_pipeline.core.tables.keyed.tree import ROOT, DataTreeNode
from compaction_pipeline.core.tables.node import Partition, TableNode
from compaction_pipeline.core.tables.table import TableLayout
from compaction_pipeline.core.work.kinds import CompactionType, TaskAction
from compaction_pipeline.core.work.result import MergeResult
from compaction_pipeline.core.work.work import ChangeSpan
from compaction_pipeline.iceberg.keyed.sequences import fields_of_spec, read_sequences
from compaction_pipeline.iceberg.keyed.stores import load_stores
from compaction_pipeline.merging.deletes.shared_deletes import SharedDeletes
from compaction_pipeline.merging.keyed.to_base import merge_changes
from compaction_pipeline_tests.builders import task as task_builder
from compaction_pipeline_tests.keyed.change_logs import ChangeLog
from compaction_pipeline_tests.merging.counted_files import CountedFiles
from compaction_pipeline_tests.works import merge_task, task_work

MIB = 1024 * 1024


@dataclass(frozen=True)
class Choices:
    """How tasks are made. Nodes of base files that are deeper than `mask` lie in tasks of their own. `marked` are paths of base files."""

    mask: int = 0
    marked: Collection[str] = ()
    memory_bytes: int = 256 * MIB
    target_bytes: int = 128 * MIB
    type: CompactionType = CompactionType.MAJOR


def layout_of_table(log: ChangeLog, **properties: str) -> TableLayout:
    """The layout of both stores as they are now; `properties` of the base store are added."""
    layout = load_stores(log.catalog, ("db", "t")).layout
    return replace(layout, properties={**layout.properties, **{key.replace("__", "."): value for key, value in properties.items()}})


def task_of(
    log: ChangeLog,
    up_to: int,
    tree: DataTreeNode = ROOT,
    partition: Partition = (),
    choices: Choices = Choices(),
    *,
    inputs: Sequence[LiveFile] | None = None,
    inserts: Sequence[LiveFile] | None = None,
    deletes: Sequence[LiveFile] | None = None,
) -> CompactionTask:
    """A task of one node of a partition. The files that are not given are all that have rows of the node, except base files above it."""
    base = [file for file in log.base_files() if file.partition == partition or not file.is_data]
    changes = [file for file in log.change_files() if file.partition == partition and _node(file).shares_rows_with(tree)]
    if inputs is None:
        inputs = [file for file in base if file.is_data and base_file(file.path).node.is_within(tree)]
    chosen = [_of_kind(changes, kind) if given is None else given for kind, given in (("I", inserts), ("ED", deletes))]
    sequences = read_sequences("db.t", log.base.refresh().metadata, log.base.io)
    span = ChangeSpan(
        tuple(chosen[0]),
        tuple(chosen[1]),
        sequences.of(partition),
        up_to,
        change_snapshot_id=1,
        marked=tuple(file.path for file in inputs if file.path in choices.marked),
    )
    native = tuple(file for file in base if not file.is_data)
    converts = tuple(delete.path for delete in native if delete.referenced_data_file in span.marked)
    spec = log.base.spec().spec_id
    work = task_work(
        TableNode(spec, partition, tree),
        choices.type,
        TaskAction.TO_BASE,
        tuple(inputs),
        native,
        spec,
        choices.target_bytes,
        choices.target_bytes // 8,
        converts=converts,
        changes=span,
    )
    return task_builder(
        "plan7-00003",
        plan_id="plan7",
        table_uuid=str(log.base.metadata.table_uuid),
        sequence_number=log.base.metadata.last_sequence_number,
        schema_id=log.base.metadata.current_schema_id,
        memory_bytes=choices.memory_bytes,
        work=work,
        attempt=1,
        attempt_id=AttemptId("ab12cd34"),
    )


def _of_kind(files: Sequence[LiveFile], kind: str) -> list[LiveFile]:
    return [file for file in files if change_file(file.path, 1).type is KeyedFileType(kind)]


def _node(file: LiveFile) -> DataTreeNode:
    return change_file(file.path, 1).node


def run(log: ChangeLog, task: CompactionTask, **properties: str) -> MergeResult:
    """Merge, without a commit. A failure is a result with an error."""
    return merge_task(task, layout_of_table(log, **properties), {})


def opened_by(log: ChangeLog, task: CompactionTask) -> list[str]:
    """The paths of the files that a merge opens, once each time. What it writes is deleted."""
    layout = layout_of_table(log)
    counted = CountedFiles({}, layout.location)
    merge_changes(task.merge_input(layout), counted, SharedDeletes())
    counted.delete_written()
    return counted.opened


def small_batches(patch: pytest.MonkeyPatch) -> None:
    """Let files be read in batches of at most three rows. Small files would else have one batch each, and hide what goes wrong between."""
    patch.setattr("compaction_pipeline.merging.reading.read.MIN_BATCH_ROWS", 1)
    patch.setattr("compaction_pipeline.merging.reading.read.MAX_BATCH_ROWS", 3)


def compact(log: ChangeLog, up_to: int, choices: Choices = Choices(), **properties: str) -> list[MergeResult]:
    """Merge the changes of all partitions up to a transaction, and commit everything at once."""
    tasks = [task for partition in _partitions(log) for task in _tasks(log, up_to, partition, choices)]
    results = [run(log, task, **properties) for task in tasks]
    for result in results:
        assert result.error is None, result.error
    removed = [file for task in tasks for file in task.work.inputs if file.path not in choices.marked]
    removed += [delete for task, result in zip(tasks, results, strict=True) for delete in _converted(task, result)]
    fields = fields_of_spec(log.base.metadata)
    sequences = {path_of(partition, fields): up_to for partition in _partitions(log)}
    log.replace_base([output for result in results for output in result.outputs], removed, sequences)
    return results


def _converted(task: CompactionTask, result: MergeResult) -> Iterator[LiveFile]:
    """The position deletes of marked files that got new ones. A commit of the product drops them too."""
    again = {output.referenced_data_file for output in result.outputs}
    return (delete for delete in task.work.deletes if delete.path in task.work.converts and delete.referenced_data_file in again)


def _partitions(log: ChangeLog) -> list[Partition]:
    files = [file for file in (*log.base_files(), *log.change_files()) if file.content is FileContent.DATA]
    return list(dict.fromkeys(file.partition for file in files))


def _tasks(log: ChangeLog, up_to: int, partition: Partition, choices: Choices) -> Iterator[CompactionTask]:
    """One task for each node with the mask, and one for base files that lie above these nodes."""
    if not choices.mask:
        yield task_of(log, up_to, ROOT, partition, choices)
        return
    data = [file for file in log.base_files() if file.partition == partition and file.is_data]
    above = [file for file in data if base_file(file.path).node.mask < choices.mask]
    if above:
        yield task_of(log, up_to, ROOT, partition, choices, inputs=above, inserts=())
    for index in range(choices.mask + 1):
        yield task_of(log, up_to, DataTreeNode(choices.mask, index), partition, choices)


def names_of(results: Sequence[MergeResult]) -> list[str]:
    """The names of all files that were written, sorted."""
    return sorted(output.path.rpartition("/")[2] for result in results for output in result.outputs)


def figures(result: MergeResult) -> dict[str, Any]:
    """The counts of a result."""
    counts = ("rows_read", "rows_deleted_by_position", "rows_deleted_by_equality", "rows_written", "rows_kept")
    return {name: getattr(result, name) for name in counts}
