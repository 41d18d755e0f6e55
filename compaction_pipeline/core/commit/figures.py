"""Counts for the record of a commit: files and bytes of the whole table before and after, and of what was merged."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from compaction_pipeline.core.commit.record import CommitFigures
from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.core.work.merged import MergedWork
from compaction_pipeline.core.work.work import Work


def commit_figures(
    files: Sequence[LiveFile],
    tasks: Sequence[MergedWork[Work]],
    written: Sequence[LiveFile],
    dropped: Sequence[LiveFile] = (),
    deletes: Collection[str] = (),
) -> CommitFigures:
    """Return the figures of a commit to a table with these live files. It puts the `written` files in the place of those that the tasks
    rewrite.

    `dropped` are the delete files that leave the table besides. `deletes` are as for `counted`.
    """
    by_path = {file.path: file for file in files}
    inputs = [by_path.get(file.path, file) for task in tasks for file in task.work.rewritten]
    merged = [file for file in written if file.is_data]
    gone = {file.path for file in (*inputs, *dropped)}
    after = [*(file for file in files if file.path not in gone), *written]
    return counted(files, after, inputs, merged, (len(dropped), len(written) - len(merged)), deletes)


def counted(
    before: Sequence[LiveFile],
    after: Sequence[LiveFile],
    inputs: Sequence[LiveFile],
    outputs: Sequence[LiveFile],
    other_deletes: tuple[int, int],
    deletes: Collection[str] = (),
) -> CommitFigures:
    """Return the figures of a commit with these files in the whole table before and after. It merged `inputs` into `outputs`.

    `other_deletes` are how many other delete files went and came. `deletes` are paths of files that hold deletes although their content
    does not say so, as in a change store.
    """
    data_before, data_after, merged, written = (
        sum(file.is_data and file.path not in deletes for file in files) for files in (before, after, inputs, outputs)
    )
    dropped, added = other_deletes
    return CommitFigures(
        files_before=data_before,
        files_after=data_after,
        delete_files_before=len(before) - data_before,
        delete_files_after=len(after) - data_after,
        bytes_before=sum(file.file_size_bytes for file in before),
        bytes_after=sum(file.file_size_bytes for file in after),
        input_files=merged,
        input_bytes=sum(file.file_size_bytes for file in inputs),
        output_files=written,
        output_bytes=sum(file.file_size_bytes for file in outputs),
        delete_files_dropped=dropped + len(inputs) - merged,
        delete_files_added=added + len(outputs) - written,
    )
