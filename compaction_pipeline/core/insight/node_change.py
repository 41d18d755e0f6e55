"""The files that a reader of compacted rows opened before, and the files that it opens now."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from compaction_pipeline.core.errors import assert_never
from compaction_pipeline.core.tables.data_file import LiveFile, OutputFile
from compaction_pipeline.core.work.merged import MergedWork
from compaction_pipeline.core.work.work import Convert, DropDeletes, Merge, RewriteChanges, ToBase, Work


@dataclass(frozen=True, slots=True)
class FileGroup:
    """The files on one side of a compaction."""

    data_files: int
    delete_files: int
    size_bytes: int

    @property
    def files(self) -> int:
        return self.data_files + self.delete_files


def before_and_after(tasks: Sequence[MergedWork[Work]]) -> tuple[FileGroup, FileGroup]:
    """The files of these committed tasks before and after. A delete file that applies to inputs of several tasks counts once."""
    inputs: list[LiveFile] = []
    # Several tasks may read one change file, because their nodes share it.
    inserts: dict[str, LiveFile] = {}
    deletes: dict[str, LiveFile] = {}
    data: list[LiveFile | OutputFile] = []
    kept: dict[str, LiveFile | OutputFile] = {}
    for task in tasks:
        work, outputs = task.work, task.result.outputs if task.result is not None else ()
        inputs += [file for file in work.inputs if not work.holds_deletes(file)]
        deletes |= {file.path: file for file in work.inputs if work.holds_deletes(file)} | {file.path: file for file in work.deletes}
        # What a task does not rewrite stays, with those of its deletes that no new one replaces.
        data += [*work.staying, *(output for output in outputs if not work.holds_deletes(output))]
        kept |= {output.path: output for output in outputs if work.holds_deletes(output)}
        match work:
            case Convert():
                kept |= {file.path: file for file in work.deletes if file.path not in work.converts}
            case ToBase():
                inserts |= {file.path: file for file in work.changes.inserts}
                deletes |= {file.path: file for file in work.changes.deletes}
                again = {output.referenced_data_file for output in outputs}
                kept |= {
                    file.path: file
                    for file in work.deletes
                    if file.referenced_data_file in work.changes.marked
                    and not (file.path in work.converts and file.referenced_data_file in again)
                }
            case Merge() | DropDeletes() | RewriteChanges():
                pass
            case _:
                assert_never(work)
    return _group([*inputs, *inserts.values()], deletes.values()), _group(data, kept.values())


def _group(data: Sequence[LiveFile | OutputFile], deletes: Iterable[LiveFile | OutputFile]) -> FileGroup:
    found = list(deletes)
    return FileGroup(len(data), len(found), sum(file.file_size_bytes for file in [*data, *found]))
