"""Checks merged files before a commit adds them: they are on storage as they were written, and in the right partition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from compaction_pipeline.core.commit.head import HeadFiles
from compaction_pipeline.core.errors import CommitConflict, OutputUnusable
from compaction_pipeline.core.storage_failures import StorageFailure, storage_failure
from compaction_pipeline.core.tables.data_file import FileContent, LiveFile, OutputFile
from compaction_pipeline.core.tables.table import data_folder
from compaction_pipeline.core.words import printable
from compaction_pipeline.core.work.expected import expected_of
from compaction_pipeline.core.work.merged import MergedWork
from compaction_pipeline.core.work.work import Work
from compaction_pipeline.formats.file_io.local_files import local_path, local_version
from compaction_pipeline.formats.file_io.stored_file import StoredFile
from compaction_pipeline.iceberg.failures import translated
from compaction_pipeline.iceberg.manifests.entries import EntryCheck, data_file_of
from compaction_pipeline.iceberg.manifests.partitions import PartitionReader, partition_struct
from compaction_pipeline.iceberg.opened_paths import check_no_link


@dataclass(frozen=True)
class TaskOutput:
    """A file to add, in the form of the manifest and in the form that the rules need."""

    file: DataFile
    live: LiveFile


def outputs_of(task: MergedWork[Work]) -> Sequence[OutputFile]:
    """The merged files of a task; none when it has no result."""
    return task.result.outputs if task.result is not None else ()


def outputs_are_live(task: MergedWork[Work], head: HeadFiles) -> bool:
    """Whether outputs of the task are in the table already, under any record."""
    return any(output.path in head.data.by_path or output.path in head.deletes for output in outputs_of(task))


def check_constants(task: MergedWork[Work], head: HeadFiles) -> None:
    """Check that the partition values that were merged are still those of the manifest.

    A file may lack an identity-partitioned column. The merge then filled it with the value in the plan. Raises CommitConflict.
    """
    for data in task.work.inputs:
        live = head.data.by_path.get(data.path)
        if live is not None and repr([one.value for one in live.partition]) != repr([one.value for one in data.partition]):
            raise CommitConflict(f"its input {data.path} is of partition {live.partition} but was merged as one of {data.partition}")


def prepared_output(
    task: MergedWork[Work], output: OutputFile, loaded: Table, head: HeadFiles, entries: EntryCheck, number: int
) -> TaskOutput:
    """A merged file as an entry of this head's manifests. `number` is its data sequence number.

    Raises CommitConflict if it does not fit the head, if no manifest can hold it, or if it is not on storage as it was written.
    """
    metadata = loaded.metadata
    if output.spec_id not in metadata.specs():
        raise CommitConflict(f"its output {output.path} has partition spec {output.spec_id}, which the table no longer has")
    struct = partition_struct(metadata, output.spec_id)
    try:
        file = data_file_of(output, struct)
        entries.check(file)
    except CommitConflict:
        raise
    except Exception as error:
        # Encoders raise anything for values that do not fit. Only this task has them.
        raise OutputUnusable(
            f"its output {output.path} is described wrongly, so no manifest can hold it ({type(error).__name__}: {printable(str(error))})"
        ) from error
    # The partition as this head writes it: a type may have been promoted since the plan.
    partition = PartitionReader(struct).read(file.partition)
    # An output of a conversion has the place of one input. The inputs of other work have all one place, if their rows do not tell it.
    only_positions = FileContent.DATA not in expected_of(task.work).contents
    for data in task.work.inputs:
        live = head.data.by_path.get(data.path)
        if live is None or live.spec_id != output.spec_id or (only_positions and data.path != output.referenced_data_file):
            continue
        if live.partition != partition:
            raise CommitConflict(f"its output {output.path} is of another partition than its input {data.path}")
    _check_on_storage(loaded, task, output)
    live = LiveFile(
        path=output.path,
        content=output.content,
        spec_id=output.spec_id,
        partition=partition,
        file_size_bytes=output.file_size_bytes,
        record_count=output.record_count,
        data_sequence_number=number,
        referenced_data_file=output.referenced_data_file,
    )
    return TaskOutput(file, live)


def _check_on_storage(loaded: Table, task: MergedWork[Work], output: OutputFile) -> None:
    # If an output was removed, or was not written completely, its rows would be lost once the inputs are gone.
    with translated(f"output {output.path}", is_file=True):
        try:
            folder = data_folder(loaded.metadata.location, loaded.metadata.properties)
            check_no_link(output.path, folder, [file.path for file in task.work.inputs])
            size, version = _on_storage(loaded, output.path)
        except FileNotFoundError:
            # With the inputs, more is missing than this file. The node is planned again then.
            kind = OutputUnusable if _answers_for(loaded, task) else CommitConflict
            raise kind(f"its output {output.path} is missing on storage") from None
        except CommitConflict:
            raise
        except Exception as error:
            # PyIceberg raises TypeError for a folder, for example. A store that is busy will answer later. One that answers for an input of
            # the task has something against this file alone.
            if storage_failure(error) is StorageFailure.PASSING or not _answers_for(loaded, task):
                raise
            raise OutputUnusable(f"its output {output.path} cannot be opened: {printable(str(error))}") from error
    if size != output.file_size_bytes:
        raise OutputUnusable(f"its output {output.path} has {size} bytes on storage but {output.file_size_bytes} were written")
    if version is not None and output.version is not None and version != output.version:
        # The file whose footer was read is gone, so nothing is known of this one.
        raise OutputUnusable(f"its output {output.path} was replaced after it was merged: its version is {version}, not {output.version}")


def _on_storage(loaded: Table, path: str) -> tuple[int, str | None]:
    """The size and the version of a file. The version is None where the storage tells none."""
    found = loaded.io.new_input(path)
    size, local = len(found), local_path(path)
    if isinstance(found, StoredFile):
        return size, found.version
    return size, local_version(local) if local is not None else None


def _answers_for(loaded: Table, task: MergedWork[Work]) -> bool:
    """Whether the storage answers now for a file that the task read; for the table's metadata when it read none of this store."""
    known = next((file.path for file in task.work.inputs), loaded.metadata_location)
    try:
        return len(loaded.io.new_input(known)) > 0
    except Exception:
        return False
