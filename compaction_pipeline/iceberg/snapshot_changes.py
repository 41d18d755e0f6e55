"""Says which snapshots a commit makes of what was decided, and what each of them adds and removes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyiceberg.table.snapshots import Operation

from compaction_pipeline.core.commit.decision import CommitDecision
from compaction_pipeline.core.commit.head import HeadFiles
from compaction_pipeline.core.ids import TaskId
from compaction_pipeline.iceberg.keyed.base_commit import STATISTICS_FLAGS
from compaction_pipeline.iceberg.rewrite_files import AddedFile, SnapshotChange
from compaction_pipeline.iceberg.task_outputs import TaskOutput


def snapshot_changes(
    decision: CommitDecision, outputs: Mapping[TaskId, Sequence[TaskOutput]], head: HeadFiles, properties: Mapping[str, str]
) -> Sequence[SnapshotChange]:
    """The snapshots in their order. `properties` go into the summary of each."""
    changes = []
    if decision.replaces:
        inputs = [head.data.by_path[file.path] for task in decision.merges for file in task.work.inputs]
        merged = [AddedFile(output.file, output.live.data_sequence_number) for task in decision.merges for output in outputs[task.task_id]]
        changes.append(SnapshotChange(Operation.REPLACE, merged, [*inputs, *decision.dropped_by_replace], properties))
    if decision.conversions:
        added = [AddedFile(output.file) for task in decision.conversions for output in outputs[task.task_id]]
        changes.append(SnapshotChange(Operation.OVERWRITE, added, decision.dropped_by_overwrite, properties))
    if decision.to_base:
        # Rows change, so the operation is not `replace`. Without any file the snapshot only moves the optimized sequence.
        inputs = [head.data.by_path[file.path] for task in decision.to_base for file in task.work.rewritten]
        files = [output for task in decision.to_base for output in outputs[task.task_id]]
        added = [AddedFile(one.file, one.live.data_sequence_number if one.live.is_data else None) for one in files]
        flagged = {**properties, **STATISTICS_FLAGS}
        changes.append(SnapshotChange(Operation.OVERWRITE, added, [*inputs, *decision.dropped_by_overwrite], flagged))
    if decision.rewrites:
        # The log of changes loses rows that later changes outdo, so a reader of changes must not take the snapshot for a `replace`.
        inputs = [head.data.by_path[file.path] for task in decision.rewrites for file in task.work.inputs]
        merged = [AddedFile(one.file, one.live.data_sequence_number) for task in decision.rewrites for one in outputs[task.task_id]]
        changes.append(SnapshotChange(Operation.OVERWRITE, merged, inputs, properties))
    return changes
