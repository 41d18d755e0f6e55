"""What a commit to the base store of a keyed table needs besides the commit of a plain table.

It reads both stores, and writes the statistics file with the optimized sequences, which is part of the same request as the snapshot.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.statistics import BlobMetadata, StatisticsFile

from compaction_pipeline.core.commit.base_decision import KeyedHead, task_groups
from compaction_pipeline.core.errors import TableRefused
from compaction_pipeline.core.ids import RecordId
from compaction_pipeline.core.queue.task import CompactionTask
from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.core.tables.keyed.optimized_sequence import (
    LEGACY_KEY,
    SEQUENCE_BLOB,
    SEQUENCE_FLAG,
    TIME_BLOB,
    TIME_FLAG,
    numbers_moved,
    payload_of,
)
from compaction_pipeline.core.tables.keyed.partition_paths import key_of
from compaction_pipeline.core.tables.node import Partition
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.work.kinds import TaskAction
from compaction_pipeline.formats.puffin import puffin_of
from compaction_pipeline.iceberg.catalogs.open_catalogs import Catalogs
from compaction_pipeline.iceberg.keyed.sequences import ancestors, fields_of_spec, read_numbers, read_sequences, read_times, refuse_lost
from compaction_pipeline.iceberg.keyed.stores import files_of, load_known_stores
from compaction_pipeline.iceberg.listing import files_under
from compaction_pipeline.iceberg.manifests.live_files import read_live_files
from compaction_pipeline.iceberg.rewrite_files import SnapshotChange, Transaction, delete_quietly
from compaction_pipeline.iceberg.scan import manifests_of

STATISTICS_FLAGS = {SEQUENCE_FLAG: "true", TIME_FLAG: "true"}
"""What the summary of each snapshot of ours on a base store says."""


def merges_changes(tasks: Sequence[CompactionTask]) -> bool:
    """Whether these tasks are to be committed to the base store of a keyed table."""
    return any(task.work.action is TaskAction.TO_BASE for task in tasks)


def load_for_commit(catalogs: Catalogs, table: TableIdentifier) -> tuple[Table, Table]:
    """The base store `table` and its change store. Raises TableRefused when they are not the stores of one keyed table."""
    stores = load_known_stores(catalogs, table)
    if stores.base.metadata.format_version != 2:
        raise TableRefused(f"the base store {table} has format version {stores.base.metadata.format_version}, but keyed tables have 2")
    return stores.base, stores.change


def keyed_head(name: str, base: Table, change: Table, tasks: Sequence[CompactionTask], base_files: Iterable[LiveFile]) -> KeyedHead:
    """What `decide_to_base` must know of the stores. `base_files` are the live data files of the base store.

    Raises TableRefused when the optimized sequences are lost.
    """
    metadata = base.metadata
    # Somebody may have expired the snapshot with the sequences since the plan. Then they look as if nothing had ever been merged.
    refuse_lost(metadata, base_files)
    fields = fields_of_spec(metadata)
    nodes = {
        task.work.node for task in tasks if task.work.action is TaskAction.TO_BASE and task.work.node.spec_id == metadata.default_spec_id
    }
    changes = files_of(change, change.metadata.snapshot_by_name(MAIN_BRANCH))
    may_share = any(None in key_of(node.partition, fields) for node in nodes)
    return KeyedHead(
        sequences=read_sequences(name, metadata, base.io),
        spec_id=metadata.default_spec_id,
        change_snapshots=_columns_of_history(change.metadata),
        change_partitions=frozenset(file.partition for file in changes) if may_share else frozenset(),
        late_files=_files_after(change, min((task.work.changes.up_to for task in tasks if task.work.changes), default=0)),
        paths_of=lambda snapshot_id: _paths(base, snapshot_id),
    )


def moved_sequences(merged: Sequence[CompactionTask]) -> dict[Partition, int]:
    """The optimized sequences that a commit of these tasks gives to their partitions."""
    return {group[0].work.node.partition: group[0].work.changes.up_to for group in task_groups(merged) if group[0].work.changes}


def attach_statistics(name: str, base: Table, transaction: Transaction, written_by: str, moved: Mapping[Partition, int]) -> None:
    """Write the statistics file of the staged snapshots, and make it a part of the transaction.

    It holds the numbers of the metadata that the transaction is built on, and the new ones of the partitions in `moved`. `written_by` is
    part of its name: the id of a record, or the name of another commit.
    """
    metadata, last = base.metadata, transaction.staged[-1].snapshot
    fields = fields_of_spec(metadata)
    sequences = numbers_moved(read_numbers(name, metadata, base.io), moved, fields)
    times = numbers_moved(read_times(metadata, base.io), dict.fromkeys(moved, last.timestamp_ms), fields)
    blobs = [(SEQUENCE_BLOB, payload_of(sequences)), (TIME_BLOB, payload_of(times))]
    written = puffin_of(blobs, last.snapshot_id, last.sequence_number or 0)
    path = f"{_folder(metadata)}/{last.snapshot_id}-{written_by}.puffin"
    try:
        with base.io.new_output(path).create(overwrite=True) as stream:
            stream.write(written.content)
    except Exception:
        delete_quietly(base.io, [path])
        raise
    # The property of old versions would count again if the snapshots with the numbers were expired one day.
    transaction.remove_properties([LEGACY_KEY] if LEGACY_KEY in metadata.properties else [])
    transaction.set_statistics(
        StatisticsFile(
            snapshot_id=staged.snapshot.snapshot_id,
            statistics_path=path,
            file_size_in_bytes=len(written.content),
            file_footer_size_in_bytes=written.footer_size_bytes,
            blob_metadata=[BlobMetadata(**blob) for blob in written.blob_metadata],
        )
        for staged in transaction.staged
    )


def stage_nothing(name: str, base: Table, transaction: Transaction, written_by: str) -> None:
    """Stage a snapshot that changes no file and keeps every optimized sequence. If this fails, the written files are deleted."""
    try:
        transaction.stage(SnapshotChange(Operation.OVERWRITE, properties=STATISTICS_FLAGS))
        attach_statistics(name, base, transaction, written_by, {})
    except Exception:
        delete_quietly(base.io, transaction.written)
        raise


def statistics_files(base: Table, record_ids: Collection[RecordId]) -> Sequence[str]:
    """The paths of all statistics files that commits of these records wrote, live ones included."""
    found = files_under(base.io, _folder(base.metadata), recursive=False)
    return [path for path in found if path.rpartition("/")[2].partition("-")[2].removesuffix(".puffin") in record_ids]


def _folder(metadata: TableMetadata) -> str:
    # Amoro looks for leftover statistics files below `data`, wherever `write.data.path` puts the data files.
    return f"{metadata.location.rstrip('/')}/data/puffin"


def _columns_of_history(metadata: TableMetadata) -> dict[int, frozenset[int]]:
    """The head of the change store and its ancestors, each with the field ids that its rows may have and that the store still has."""
    schemas = {schema.schema_id: frozenset(schema.field_ids) for schema in metadata.schemas}
    now = schemas[metadata.current_schema_id]
    of_snapshots = {one.snapshot_id: now if one.schema_id is None else schemas.get(one.schema_id, now) for one in ancestors(metadata)}
    return {number: columns & now for number, columns in of_snapshots.items()}


def _files_after(change: Table, sequence: int) -> Mapping[Partition, Sequence[LiveFile]]:
    """The live files of the change store with a data sequence number above this one, by partition."""
    files: dict[Partition, list[LiveFile]] = defaultdict(list)
    snapshot = change.metadata.snapshot_by_name(MAIN_BRANCH)
    for manifest in manifests_of(snapshot, change.io) if snapshot is not None else ():
        # No entry of a manifest is newer than the manifest.
        if (manifest.sequence_number or 0) > sequence:
            for file in read_live_files(change.io, change.metadata, manifest):
                if file.data_sequence_number > sequence:
                    files[file.partition].append(file)
    return files


def _paths(table: Table, snapshot_id: int) -> frozenset[str] | None:
    snapshot = table.metadata.snapshot_by_id(snapshot_id)
    return frozenset(file.path for file in files_of(table, snapshot) if file.is_data) if snapshot is not None else None
