"""Predicts the files of a table after a plan.

The figures of a plan come from this prediction. A law of planning uses it too: a plan made from the predicted files finds nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from compaction_pipeline.core.fragmentation.metrics import deleted_rows
from compaction_pipeline.core.tables.data_file import FileContent, LiveFile
from compaction_pipeline.core.tables.deletes.reach import DeleteReach
from compaction_pipeline.core.tables.live_files import NodeFiles, TableFiles, files_by_node
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.core.work.work import PlainWork

_DELETE_BYTES_PER_ROW = 2
_DELETE_FILE_BYTES = 1024
"""A position-delete file with one path compresses to about this size, plus `_DELETE_BYTES_PER_ROW` for each row."""


def predicted(files: TableFiles, tasks: Sequence[PlainWork]) -> TableFiles:
    """Return the table's files after all these tasks are committed with the outputs that their plan predicts.

    The outputs of a merge have the rows and bytes of its inputs. When rows move to another partition spec, their new partitions are not
    known, and the outputs have the partition ().
    """
    if not tasks:
        return files
    rewritten = {file.path for work in tasks for file in work.rewritten}
    converted = {path for work in tasks for path in work.converts}
    kept = [file for file in files.files if file.path not in rewritten and file.path not in converted]
    # Outputs have the plan's sequence number and new paths, so no delete of the plan's snapshot reaches them.
    dangling = {file.path for file in DeleteReach(files_by_node(kept), files.unpartitioned_spec_ids).dangling()}
    outputs = [output for number, work in enumerate(tasks) for output in _outputs(files, work, number)]
    return replace(
        files,
        snapshot_id=files.snapshot_id + 1,
        sequence_number=files.sequence_number + 1,
        files=(*(file for file in kept if file.path not in dangling), *outputs, *_position_deletes(files, tasks, converted)),
    )


def _outputs(files: TableFiles, work: PlainWork, number: int) -> list[LiveFile]:
    """Return the data files that a task is expected to write in place of those that leave. `number` makes their paths unique."""
    if not work.rewritten:
        return []
    # Packing depends on the bytes of a node. Were they those that remain without the deleted rows, the next plan could pack otherwise.
    size = -(-sum(file.file_size_bytes for file in work.rewritten) // max(work.predicted_files, 1))
    rows = sum(file.record_count for file in work.rewritten)
    return [
        LiveFile(
            path=f"predicted/{files.sequence_number}-{number}-{part}",
            content=FileContent.DATA,
            spec_id=work.output_spec_id,
            partition=work.node.partition if work.output_spec_id == work.node.spec_id else (),
            file_size_bytes=size,
            record_count=rows // work.predicted_files + (part < rows % work.predicted_files),
            data_sequence_number=files.sequence_number,
            # A MINOR or MAJOR sorts only what fits into its memory, so its outputs do not count as sorted.
            sort_order_id=files.sort_order_id if work.type is CompactionType.FULL else None,
        )
        for part in range(work.predicted_files)
    ]


def _position_deletes(files: TableFiles, tasks: Sequence[PlainWork], converted: set[str]) -> list[LiveFile]:
    """Return the position-delete files that the tasks are expected to write, one for each data file that they read and that stays."""
    if not converted:
        return []
    nodes = files_by_node(files.files)
    only = {node: NodeFiles(node, group.data, [file for file in group.deletes if file.path in converted]) for node, group in nodes.items()}
    reach = DeleteReach(only, files.unpartitioned_spec_ids)
    table_rows = sum(file.record_count for group in nodes.values() for file in group.data)
    spread = sum(1 for group in nodes.values() if group.data) > 1
    written = []
    for node in {work.node: None for work in tasks if work.staying}:
        deleted = deleted_rows(node, nodes[node].data, reach, spread, table_rows, count_same_sequence=False)
        for work in tasks:
            for data in work.staying if work.node == node else ():
                rows = int(deleted.get(data.path, 0.0))
                written.append(
                    LiveFile(
                        path=f"{data.path}.predicted-deletes-{files.sequence_number}",
                        content=FileContent.POSITION_DELETES,
                        spec_id=data.spec_id,
                        partition=data.partition,
                        file_size_bytes=_DELETE_FILE_BYTES + _DELETE_BYTES_PER_ROW * rows,
                        record_count=rows,
                        data_sequence_number=files.sequence_number + 1,
                        referenced_data_file=data.path,
                        path_lower=data.path,
                        path_upper=data.path,
                    )
                )
    return written
