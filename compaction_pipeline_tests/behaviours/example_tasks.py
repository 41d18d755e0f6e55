"""Example tasks, and example reports of their attempts."""

from __future__ import annotations

from datetime import timedelta

from compaction_pipeline.core.queue.group import ResourceGroup
from compaction_pipeline.core.queue.task import CompactionTask
from compaction_pipeline.core.stores import Stores
from compaction_pipeline.core.tables.data_file import FileContent, OutputFile
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.output_names import partition_folder
from compaction_pipeline.core.work.kinds import CompactionType, TaskAction
from compaction_pipeline.core.work.result import Digest, MergeResult
from compaction_pipeline_tests import builders
from compaction_pipeline_tests.works import task_work

LEASE = timedelta(seconds=60)


def example(
    task_id: str,
    *,
    files: tuple[str, ...] | None = None,
    group: str = "",
    kind: CompactionType = CompactionType.MINOR,
    node: TableNode | None = None,
    inputs_kb: float = 10,
    **changes: object,
) -> CompactionTask:
    """A Pending task that merges `files`, or else two files that no other task has. Each has `inputs_kb` kB; small is ≤ 100 kB."""
    inputs = tuple(builders.data(path, inputs_kb) for path in files or (f"{task_id}-a", f"{task_id}-b"))
    deletes = (builders.equality(f"{task_id}-d"),)
    work = task_work(node or builders.node(), kind, TaskAction.MERGE, inputs, deletes, 0, 10**6, 10**5, group=group)
    return builders.task(task_id, work=work, **changes)


def make_groups(stores: Stores, *names: str) -> None:
    """Make groups that have nothing but a name."""
    for name in names:
        assert stores.groups.add(ResourceGroup(name))


def prepared(task: CompactionTask) -> MergeResult:
    """The report of an attempt that succeeded. No row was deleted."""
    rows = sum(file.record_count for file in task.work.inputs)
    folder = partition_folder(f"{builders.LAYOUT.location}/data", task.work.node.partition)
    output = OutputFile(
        f"{folder}/{task.attempt_id}-{task.task_id}-0123abcd-00000.parquet",
        FileContent.DATA,
        0,
        task.work.node.partition,
        100,
        rows,
        column_sizes={1: 10},
        lower_bounds={1: "00c3bf"},
        split_offsets=(4,),
    )
    digest = Digest(rows, 2**64 - 1, 2**63)
    return MergeResult(str(task.task_id), str(task.attempt_id), (output,), rows, 0, 0, rows, digest, digest)


def failed(task: CompactionTask, reason: str = "file a: footer unreadable") -> MergeResult:
    """The report of an attempt that failed."""
    return MergeResult(task.task_id, str(task.attempt_id), error=reason)
