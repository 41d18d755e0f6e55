"""Writes the statistics file of a base store, which has the optimized sequences. It is part of the same request as the snapshots."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.statistics import BlobMetadata, StatisticsFile

from compaction_pipeline.core.ids import RecordId
from compaction_pipeline.core.tables.keyed.optimized_sequence import (
    LEGACY_KEY,
    SEQUENCE_BLOB,
    SEQUENCE_FLAG,
    TIME_BLOB,
    TIME_FLAG,
    numbers_moved,
    payload_of,
)
from compaction_pipeline.core.tables.node import Partition
from compaction_pipeline.formats.puffin import puffin_of
from compaction_pipeline.iceberg.deletions import delete_quietly
from compaction_pipeline.iceberg.keyed.sequences import fields_of_spec, read_numbers, read_times
from compaction_pipeline.iceberg.listing import files_under
from compaction_pipeline.iceberg.rewrite_files import Transaction

STATISTICS_FLAGS = {SEQUENCE_FLAG: "true", TIME_FLAG: "true"}
"""What the summary of each snapshot of ours on a base store says."""


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
        delete_quietly(base, [path])
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


def statistics_files(base: Table, record_ids: Collection[RecordId]) -> Sequence[str]:
    """The paths of all statistics files that commits of these records wrote, live ones included."""
    found = files_under(base.io, _folder(base.metadata), recursive=False)
    return [path for path in found if path.rpartition("/")[2].partition("-")[2].removesuffix(".puffin") in record_ids]


def _folder(metadata: TableMetadata) -> str:
    # Amoro looks for leftover statistics files below `data`, wherever `write.data.path` puts the data files.
    return f"{metadata.location.rstrip('/')}/data/puffin"
