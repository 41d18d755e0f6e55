"""Reads the optimized sequence of each partition from the metadata of a base store (Amoro: `MixedTableUtil.readOptimizedSequence`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from pyiceberg.io import FileIO
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.statistics import StatisticsFile

from compaction_pipeline.core.errors import TableRefused
from compaction_pipeline.core.planning.keyed.refusals import refuse_lost_sequences, refuse_set_back
from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.core.tables.keyed.optimized_sequence import (
    LEGACY_KEY,
    SEQUENCE_BLOB,
    SEQUENCE_FLAG,
    TIME_BLOB,
    TIME_FLAG,
    OptimizedSequences,
    numbers_of_blob,
    numbers_of_expired,
    numbers_of_properties,
    sequences_by_spec,
)
from compaction_pipeline.core.tables.keyed.partition_paths import PathField, path_fields
from compaction_pipeline.formats.puffin import DamagedPuffin, blobs_of
from compaction_pipeline.iceberg.failures import translated
from compaction_pipeline.iceberg.manifests.partitions import partition_struct, partition_types
from compaction_pipeline.iceberg.second_look import looked_at_twice

_READS_AT_ONCE = 16
"""A base store may have thousands of snapshots, each with a small statistics file of its own, and storage answers after milliseconds."""


def fields_of_spec(metadata: TableMetadata) -> tuple[PathField, ...]:
    """The fields of a table's default partition spec, as paths of partitions name them."""
    return fields_by_spec(metadata)[metadata.default_spec_id]


def fields_by_spec(metadata: TableMetadata) -> dict[int, tuple[PathField, ...]]:
    """The fields of each partition spec of a table."""
    types = {number: [str(kind) for kind in partition_types(partition_struct(metadata, number))] for number in metadata.specs()}
    return {number: path_fields(spec.model_dump_json(), types[number]) for number, spec in metadata.specs().items()}


def _by_spec(numbers: Mapping[str, int], metadata: TableMetadata) -> OptimizedSequences:
    return sequences_by_spec(numbers, fields_by_spec(metadata), metadata.default_spec_id)


def read_sequences(name: str, metadata: TableMetadata, io: FileIO, expired: Mapping[str, int] | None = None) -> OptimizedSequences:
    """The optimized sequences at the head of a base store. `name` is the table's name, for messages.

    They stand in the statistics file of the newest snapshot that says so. Without such a snapshot, a property of old versions counts.
    Raises TableRefused when a snapshot says that it has them, and they cannot be found or read; and when the base store lacks changes that
    have left the change store, as `expired` says (`numbers_of_expired`).
    """
    numbers = read_numbers(name, metadata, io)
    found = _by_spec(numbers, metadata)
    # Almost always the texts are alike. To read thousands of them as partitions takes as long as everything else.
    unlike = {path: number for path, number in (expired or {}).items() if numbers.get(path, -1) < number}
    refuse_set_back(name, found, _by_spec(unlike, metadata))
    return found


def read_history(name: str, metadata: TableMetadata, io: FileIO, most: int) -> list[tuple[Snapshot, OptimizedSequences]]:
    """The optimized sequences of the newest `most` snapshots that have them, from the head of a base store on, newest first.

    The history ends before a snapshot whose statistics file is no longer in the metadata. Raises as `read_sequences`.
    """
    known: list[tuple[Snapshot, OptimizedSequences]] = []
    for snapshot in flagged_snapshots(metadata):
        if len(known) == most or (known and not _statistics_of(snapshot, metadata.statistics)):
            break
        known.append((snapshot, numbers_at(name, metadata, snapshot, io)))
    return known


def read_all_sequences(name: str, metadata: TableMetadata, io: FileIO) -> Iterator[tuple[Snapshot, OptimizedSequences]]:
    """The optimized sequences that a reader of each snapshot of a base store finds, from the oldest snapshot on.

    It does not matter whether a ref reaches the snapshot. Of snapshots that have their numbers from one, the oldest stands for all.
    Raises as `read_sequences`.
    """
    says: dict[int, Snapshot] = {}
    first: dict[int | None, tuple[Snapshot, Snapshot | None]] = {}
    # A parent has a lower sequence number than its children.
    for snapshot in sorted(metadata.snapshots, key=lambda one: one.sequence_number or 0):
        flagged = snapshot if _is_flagged(snapshot) else says.get(snapshot.parent_snapshot_id or 0)
        if flagged is not None:
            says[snapshot.snapshot_id] = flagged
        first.setdefault(flagged.snapshot_id if flagged is not None else None, (snapshot, flagged))

    def read(snapshot: Snapshot, flagged: Snapshot | None) -> tuple[Snapshot, OptimizedSequences]:
        if flagged is None:
            return snapshot, _by_spec(numbers_of_properties(metadata.properties), metadata)
        return snapshot, numbers_at(name, metadata, flagged, io)

    pairs = list(first.values())
    with ThreadPoolExecutor(_READS_AT_ONCE, thread_name_prefix="sequences") as pool:
        # The caller may stop, so no more is read than the threads read at once.
        for start in range(0, len(pairs), _READS_AT_ONCE):
            yield from pool.map(lambda pair: read(*pair), pairs[start : start + _READS_AT_ONCE])


def read_expired(change: TableMetadata, base: TableMetadata) -> OptimizedSequences:
    """The highest data sequence number of each partition that has left the change store. Raises TableRefused when it cannot be read."""
    return _by_spec(numbers_of_expired(change.properties), base)


def flagged_snapshots(metadata: TableMetadata) -> Iterator[Snapshot]:
    """The head of a base store and its ancestors, as far as their summaries say that they have optimized sequences, newest first."""
    return filter(_is_flagged, ancestors(metadata))


def _is_flagged(snapshot: Snapshot) -> bool:
    return snapshot.summary is not None and SEQUENCE_FLAG in snapshot.summary.additional_properties


def refuse_lost(metadata: TableMetadata, base_files: Iterable[LiveFile], *, to_write: bool = True) -> None:
    """Raise TableRefused when a base store with these live files has merged changes, but does not say which.

    A reader that does not write (`to_write` is False) must read what Amoro reads. So it refuses only a table whose history is cut off and
    whose files tell of merged changes: a snapshot that is gone may have said which.
    """
    chain = list(ancestors(metadata))
    # PyIceberg's expire_snapshots also forgets who the parent was. The first snapshot of a table has the sequence number 1.
    cut_off = bool(chain) and (chain[-1].parent_snapshot_id is not None or (chain[-1].sequence_number or 0) > 1)
    if to_write or cut_off:
        refuse_lost_sequences(
            base_files,
            has_flagged_snapshot=any(True for _ in flagged_snapshots(metadata)),
            legacy=_by_spec(numbers_of_properties(metadata.properties), metadata) if LEGACY_KEY in metadata.properties else None,
            parents_expired=to_write and cut_off,
        )


def read_numbers(name: str, metadata: TableMetadata, io: FileIO) -> dict[str, int]:
    """The optimized sequences at the head of a base store by the texts of their partitions, as they are written. Raises as
    `read_sequences` does."""
    for snapshot in flagged_snapshots(metadata):
        return numbers_of_blob(_payload(name, snapshot, metadata.statistics, io))
    return numbers_of_properties(metadata.properties)


def read_times(metadata: TableMetadata, io: FileIO) -> dict[str, int]:
    """When the base files of each partition were last rewritten (epoch ms), by the texts of the partitions. No row depends on it, so a
    snapshot without its blob has none."""
    for snapshot in ancestors(metadata):
        if snapshot.summary is not None and TIME_FLAG in snapshot.summary.additional_properties:
            paths = [file.statistics_path for file in metadata.statistics if file.snapshot_id == snapshot.snapshot_id]
            payloads = [payload for path in paths for payload in blobs_in(io, path, TIME_BLOB)]
            return numbers_of_blob(payloads[0]) if len(payloads) == 1 else {}
    return numbers_of_properties(metadata.properties, times=True)


def numbers_at(name: str, metadata: TableMetadata, snapshot: Snapshot, io: FileIO) -> OptimizedSequences:
    """The optimized sequences that a snapshot's own statistics file holds. Raises TableRefused when it has none."""
    return _by_spec(numbers_of_blob(_payload(name, snapshot, metadata.statistics, io)), metadata)


def ancestors(metadata: TableMetadata) -> Iterator[Snapshot]:
    """The head of a table and its ancestors that are not expired, newest first."""
    by_id = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    snapshot = metadata.snapshot_by_name(MAIN_BRANCH)
    while snapshot is not None:
        yield snapshot
        snapshot = by_id.get(snapshot.parent_snapshot_id) if snapshot.parent_snapshot_id is not None else None


def _payload(name: str, snapshot: Snapshot, statistics: Sequence[StatisticsFile], io: FileIO) -> bytes:
    files = _statistics_of(snapshot, statistics)
    if len(files) != 1:
        raise _lost(name, snapshot, f"{len(files)} statistics files of the snapshot have a blob {SEQUENCE_BLOB!r}, but one must")
    path = files[0].statistics_path
    payloads = blobs_in(io, path, SEQUENCE_BLOB)
    if len(payloads) != 1:
        raise _lost(name, snapshot, f"its statistics file {path} has {len(payloads)} such blobs, but must have one")
    return payloads[0]


def _statistics_of(snapshot: Snapshot, statistics: Sequence[StatisticsFile]) -> list[StatisticsFile]:
    return [
        file
        for file in statistics
        if file.snapshot_id == snapshot.snapshot_id and any(str(blob.type) == SEQUENCE_BLOB for blob in file.blob_metadata)
    ]


def _lost(name: str, snapshot: Snapshot, why: str) -> TableRefused:
    return TableRefused(
        f"table {name}: snapshot {snapshot.snapshot_id} of the base store says '{SEQUENCE_FLAG}', but {why}; "
        "which changes are already in the base store is unknown. Roll the table back to a snapshot with its statistics file"
    )


def blobs_in(io: FileIO, path: str, kind: str) -> list[bytes]:
    """The payloads of the blobs of this type in a statistics file. Raises TableRefused for a file that cannot be read."""
    content = _content(io, path)
    try:
        return blobs_of(content, kind)
    except DamagedPuffin as error:
        raise TableRefused(f"statistics file {path} cannot be read: {error}; restore it") from error


@looked_at_twice
def _content(io: FileIO, path: str) -> bytes:
    with translated(f"statistics file {path}", is_file=True), io.new_input(path).open() as stream:
        return bytes(stream.read())
