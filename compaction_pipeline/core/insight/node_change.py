"""The files that a reader of compacted rows opened before, and the files that it opens now."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from compaction_pipeline.core.queue.task import CompactionTask
from compaction_pipeline.core.tables.data_file import FileContent, LiveFile, OutputFile
from compaction_pipeline.core.tables.keyed.file_names import is_delete_file
from compaction_pipeline.core.work.kinds import TaskAction


@dataclass(frozen=True, slots=True)
class FileGroup:
    """The files on one side of a compaction."""

    data_files: int
    delete_files: int
    size_bytes: int

    @property
    def files(self) -> int:
        return self.data_files + self.delete_files


def before_and_after(tasks: Sequence[CompactionTask]) -> tuple[FileGroup, FileGroup]:
    """The files of these committed tasks before and after. A delete file that applies to inputs of several tasks counts once."""
    # Several tasks may read one change file, because their nodes share it.
    inserts = {file.path: file for task in tasks if (changes := task.work.changes) for file in changes.inserts}
    # Iceberg knows no deletes in a change store. Only the names of these files tell.
    rewrites = {task.task_id for task in tasks if task.work.action is TaskAction.REWRITE_CHANGES}
    merged = {file.path: file for task in tasks if task.task_id in rewrites for file in task.work.inputs if is_delete_file(file.path)}
    inputs = [*(file for task in tasks for file in task.work.inputs if file.path not in merged), *inserts.values()]
    deletes = {file.path: file for task in tasks for file in task.work.deletes} | merged
    deletes |= {file.path: file for task in tasks if (changes := task.work.changes) for file in changes.deletes}
    data: list[LiveFile | OutputFile] = []
    kept: dict[str, LiveFile | OutputFile] = {}
    for task in tasks:
        outputs = task.result.outputs if task.result is not None else ()
        with_deletes = {
            output.path
            for output in outputs
            if output.content is not FileContent.DATA or (task.task_id in rewrites and is_delete_file(output.path))
        }
        data += [output for output in outputs if output.path not in with_deletes]
        kept |= {output.path: output for output in outputs if output.path in with_deletes}
        if task.work.action is TaskAction.CONVERT:
            # The data files stay, and new position deletes replace some of the deletes.
            data += task.work.inputs
            kept |= {file.path: file for file in task.work.deletes if file.path not in task.work.converts}
        if (changes := task.work.changes) is not None:
            # Marked files stay, with the deletes that name them, unless a new one took their place.
            data += [file for file in task.work.inputs if file.path in changes.marked]
            again = {output.referenced_data_file for output in outputs}
            kept |= {
                file.path: file
                for file in task.work.deletes
                if file.referenced_data_file in changes.marked
                and not (file.path in task.work.converts and file.referenced_data_file in again)
            }
    return _group(inputs, deletes.values()), _group(data, kept.values())


def _group(data: Sequence[LiveFile | OutputFile], deletes: Iterable[LiveFile | OutputFile]) -> FileGroup:
    found = list(deletes)
    return FileGroup(len(data), len(found), sum(file.file_size_bytes for file in [*data, *found]))
