"""A table after the tasks of a plan were committed with random outcomes, and the triple that such a commit must lower.

It uses neither `prediction.py` nor `deletes/reach.py` of the core. It decides by the plain rule of the spec which data files a delete
reaches, and a partition-scoped position delete names the paths that the test chose.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from compaction_pipeline.core.tables.data_file import FileContent, LiveFile
from compaction_pipeline.core.tables.live_files import TableFiles
from compaction_pipeline.core.work.kinds import CompactionType, TaskAction
from compaction_pipeline.core.work.work import Work

_OUTPUT = "merged-"


def reaches(delete: LiveFile, data: LiveFile, unpartitioned_spec_ids: frozenset[int]) -> bool:
    """True when the delete applies to the data file, by the words of the spec."""
    same_place = (delete.spec_id, delete.partition) == (data.spec_id, data.partition)
    if delete.content is FileContent.EQUALITY_DELETES:
        in_scope = same_place or delete.spec_id in unpartitioned_spec_ids
        return in_scope and data.data_sequence_number < delete.data_sequence_number
    if data.data_sequence_number > delete.data_sequence_number:
        return False
    if delete.referenced_data_file is not None:
        return delete.referenced_data_file == data.path
    if not same_place:
        return False
    above = delete.path_lower is None or delete.path_lower <= data.path
    return above and (delete.path_upper is None or data.path <= delete.path_upper)


def triple(files: TableFiles) -> tuple[int, int, int]:
    """The number of equality-delete files, of pairs of a data file and a delete that applies to it, and of files.

    A partition-scoped position delete does not count as a pair with a merged file of the same sequence number. It is older than that file,
    so it cannot name it.
    """
    data = [file for file in files.files if file.is_data]
    deletes = [file for file in files.files if not file.is_data]
    pairs = sum(
        1
        for delete in deletes
        for file in data
        if reaches(delete, file, files.unpartitioned_spec_ids)
        and not (
            delete.content is FileContent.POSITION_DELETES
            and delete.referenced_data_file is None
            and delete.data_sequence_number == file.data_sequence_number
            and file.path.startswith(_OUTPUT)
        )
    )
    equalities = sum(1 for file in deletes if file.content is FileContent.EQUALITY_DELETES)
    return (equalities, pairs, len(files.files))


def committed(
    files: TableFiles,
    tasks: Sequence[Work],
    held: Mapping[str, frozenset[str]],
    kept_ratio: Callable[[], float],
    matches: Callable[[], bool],
) -> TableFiles:
    """The table after these tasks. `held` gives the paths that each partition-scoped position delete names."""
    live = {file.path: file for file in files.files}
    converted = {(path, file.path) for work in tasks for file in work.inputs for path in work.converts}
    outputs: list[LiveFile] = []
    for number, work in enumerate(tasks):
        for file in work.inputs:
            if work.action is TaskAction.MERGE:
                del live[file.path]
            elif matches():
                outputs.append(
                    LiveFile(
                        path=f"deletes-{files.sequence_number}-of-{file.path}",
                        content=FileContent.POSITION_DELETES,
                        spec_id=file.spec_id,
                        partition=file.partition,
                        file_size_bytes=1000,
                        record_count=1,
                        data_sequence_number=files.sequence_number + 1,
                        referenced_data_file=file.path,
                        path_lower=file.path,
                        path_upper=file.path,
                    )
                )
        if work.action is TaskAction.MERGE:
            outputs.extend(_merged(files, work, number, kept_ratio() if work.deletes else 1.0))
    everything = [*live.values(), *outputs]
    data = [file for file in everything if file.is_data]
    dangling = {
        delete.path
        for delete in live.values()
        if not delete.is_data
        and not any(_needs(file, delete, files, live, held) and (delete.path, file.path) not in converted for file in data)
    }
    return replace(
        files,
        snapshot_id=files.snapshot_id + 1,
        sequence_number=files.sequence_number + 1,
        files=tuple(file for file in everything if file.path not in dangling),
    )


def _needs(data: LiveFile, delete: LiveFile, files: TableFiles, kept: Mapping[str, LiveFile], held: Mapping[str, frozenset[str]]) -> bool:
    # An older position delete cannot name a file that was just written.
    if delete.content is FileContent.POSITION_DELETES and data.path not in held.get(delete.path, kept):
        return False
    return reaches(delete, data, files.unpartitioned_spec_ids)


def _merged(files: TableFiles, work: Work, number: int, kept: float) -> list[LiveFile]:
    size, rows = int(work.input_bytes * kept), int(sum(file.record_count for file in work.inputs) * kept)
    if rows == 0 or size == 0:
        return []
    count = max(size // work.target_size_bytes + (size % work.target_size_bytes > work.fragment_size_bytes), 1)
    sizes = [work.target_size_bytes] * (count - 1)
    return [
        LiveFile(
            path=f"{_OUTPUT}{files.sequence_number}-{number}-{part}",
            content=FileContent.DATA,
            spec_id=work.output_spec_id,
            partition=work.node.partition,
            file_size_bytes=part_bytes,
            record_count=max(rows // count, 1),
            data_sequence_number=files.sequence_number,
            sort_order_id=files.sort_order_id if work.type is CompactionType.FULL else None,
        )
        for part, part_bytes in enumerate([*sizes, size - sum(sizes)])
    ]
