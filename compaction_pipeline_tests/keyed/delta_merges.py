"""Merges change files of a keyed table with each other, with the kernel and the commit of the product, for tests.

A test chooses the files. They are of one node, and each has the transaction that its data sequence number tells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from compaction_pipeline.core.ids import AttemptId
from compaction_pipeline.core.queue.task import CompactionTask
from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.core.tables.keyed.file_names import change_file
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.table import KeyedLayout, TableLayout
from compaction_pipeline.core.work.kinds import CompactionType, TaskAction
from compaction_pipeline.core.work.result import MergeResult
from compaction_pipeline.iceberg.keyed.replace_changes import replace_changes
from compaction_pipeline.iceberg.keyed.stores import load_stores
from compaction_pipeline.merging.keyed.rewrite_changes import rewrite_changes
from compaction_pipeline_tests.builders import task as task_builder
from compaction_pipeline_tests.keyed.change_logs import ChangeLog
from compaction_pipeline_tests.merging.counted_files import CountedFiles
from compaction_pipeline_tests.works import merge_task, task_work

MIB = 1024 * 1024


def task_of(log: ChangeLog, files: Sequence[LiveFile], memory_bytes: int = 256 * MIB, target_bytes: int = 128 * MIB) -> CompactionTask:
    """A task that merges these change files of one node."""
    node = TableNode(files[0].spec_id, files[0].partition, change_file(files[0].path, 1).node)
    work = task_work(
        node, CompactionType.MINOR, TaskAction.REWRITE_CHANGES, tuple(files), (), node.spec_id, target_bytes, target_bytes // 8
    )
    metadata = log.change.refresh().metadata
    return task_builder(
        "plan7-00003",
        plan_id="plan7",
        table_uuid=str(metadata.table_uuid),
        sequence_number=metadata.last_sequence_number,
        schema_id=metadata.current_schema_id,
        memory_bytes=memory_bytes,
        work=work,
        attempt=1,
        attempt_id=AttemptId("ab12cd34"),
    )


def layout_of(log: ChangeLog, **properties: str) -> TableLayout:
    """The layout of both stores. `properties` of the change store are added; "__" stands for a dot."""
    layout = load_stores(log.catalog, ("db", "t")).layout
    assert layout.keyed is not None
    change = layout.keyed.change
    change = replace(change, properties={**change.properties, **{key.replace("__", "."): value for key, value in properties.items()}})
    return replace(layout, keyed=KeyedLayout(change, layout.keyed.primary_key))


def run(log: ChangeLog, task: CompactionTask, **properties: str) -> MergeResult:
    """Merge, without a commit. `properties` of the change store are added. A failure is a result with an error."""
    return merge_task(task, layout_of(log, **properties), {})


def opened_by(log: ChangeLog, files: Sequence[LiveFile], memory_bytes: int = 256 * MIB, **properties: str) -> list[str]:
    """The paths of the files that a merge of these opens, once each time. What it writes is deleted."""
    layout = layout_of(log, **properties)
    counted = CountedFiles({}, layout.location)
    rewrite_changes(task_of(log, files, memory_bytes).merge_input(layout), counted)
    counted.delete_written()
    return counted.opened


def rewrite(log: ChangeLog, files: Sequence[LiveFile], memory_bytes: int = 256 * MIB, **properties: str) -> MergeResult:
    """Merge the files and commit the outputs in their place."""
    result = run(log, task_of(log, files, memory_bytes), **properties)
    assert result.error is None, result.error
    replace_changes(load_stores(log.catalog, ("db", "t")), files, result.outputs, lambda seconds: None)
    return result
