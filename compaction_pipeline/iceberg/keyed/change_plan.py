"""Reads what a plan of change merges is made from, and refuses tables whose changes must not be merged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.manifest import ManifestContent, ManifestEntryStatus, ManifestFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation
from pyiceberg.types import PrimitiveType

from compaction_pipeline.core.commit.record import RECORD_ID_PROPERTY
from compaction_pipeline.core.errors import TableRefused
from compaction_pipeline.core.planning.keyed.refusals import (
    FlaggedSnapshot,
    refuse_lowered_sequences,
    refuse_other_columns,
    refuse_other_optimizer,
    refuse_partitioning,
    refuse_promoted_keys,
)
from compaction_pipeline.core.tables.columns import TRANSACTION_ID
from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.core.tables.keyed.keyed_files import KeyedFiles, TransactionSpan
from compaction_pipeline.iceberg.failures import translated
from compaction_pipeline.iceberg.keyed.sequences import ancestors, fields_by_spec, read_history, refuse_lost
from compaction_pipeline.iceberg.keyed.stores import KeyedStores
from compaction_pipeline.iceberg.manifests.entries import readable
from compaction_pipeline.iceberg.manifests.entry_decoder import DecodedEntry, ManifestDecoder
from compaction_pipeline.iceberg.scan import manifests_of
from compaction_pipeline.iceberg.second_look import looked_at_twice

_MOST_HISTORY = 5
"""So many snapshots with optimized sequences are compared. Each is one small file to read."""


def read_keyed_files(stores: KeyedStores) -> KeyedFiles:
    """The live files of both stores, with everything that a plan of change merges needs of them.

    Raises TableRefused when it is unknown what the files hold, or when the changes of the table must not be merged.
    """
    base, changes = stores.files()
    _refuse(stores, base)
    sequences = stores.sequences()
    snapshot = stores.change.metadata.snapshot_by_name(MAIN_BRANCH)
    # A change store without a snapshot has no files, so no task will name this number.
    number = snapshot.snapshot_id if snapshot is not None else 0
    return KeyedFiles(tuple(base), tuple(changes), sequences, number, read_row_spans(stores.change))


def read_row_spans(change: Table) -> dict[str, TransactionSpan]:
    """The paths of live change files that tell the transaction of each row, and the bounds of these transactions.

    Bounds in a file's manifest entry mark it. A file without them is opened when it may have the column all the same: when its entry has no
    bounds at all, or when nothing says that a writer of changes appended it.
    """
    snapshot = change.metadata.snapshot_by_name(MAIN_BRANCH)
    appended = {
        each.snapshot_id for each in change.metadata.snapshots if each.summary is not None and each.summary.operation is Operation.APPEND
    }
    spans: dict[str, TransactionSpan] = {}
    for manifest in manifests_of(snapshot, change.io) if snapshot is not None else ():
        if manifest.content == ManifestContent.DATA:
            for entry in _live_entries(change, manifest):
                span = _span(entry)
                added_by = manifest.added_snapshot_id if entry.snapshot_id is None else entry.snapshot_id
                if span is None and (added_by not in appended or not entry.lower_bounds):
                    span = _span_in_file(change, entry.path)
                if span is not None:
                    spans[entry.path] = span
    return spans


def _span_in_file(change: Table, path: str) -> TransactionSpan | None:
    """The bounds of the transactions that a file tells; None when it has no such column, or no row."""

    @looked_at_twice
    def read() -> TransactionSpan | None:
        with translated(f"change file {path}", is_file=True), change.io.new_input(path).open() as stream, pq.ParquetFile(stream) as file:
            wanted = str(TRANSACTION_ID).encode()
            names = [field.name for field in file.schema_arrow if (field.metadata or {}).get(b"PARQUET:field_id") == wanted]
            if not names or not file.metadata.num_rows:
                return None
            numbers = file.read(columns=names[:1]).column(0)
            if numbers.null_count:
                raise TableRefused(f"change file {path} does not tell the transaction of each of its rows; write the file anew")
            found = pc.min_max(numbers)
            return TransactionSpan(found["min"].as_py(), found["max"].as_py())

    return read()


def _live_entries(change: Table, manifest: ManifestFile) -> Sequence[DecodedEntry]:
    @looked_at_twice
    def read() -> Sequence[DecodedEntry]:
        with change.io.new_input(manifest.manifest_path).open() as stream:
            content = stream.read()
        with readable(f"manifest {manifest.manifest_path}"):
            entries = ManifestDecoder(content).entries(with_bounds=True)
            return [entry for entry in entries if entry.status != ManifestEntryStatus.DELETED]

    return read()


def _span(entry: DecodedEntry) -> TransactionSpan | None:
    lower = (entry.lower_bounds or {}).get(TRANSACTION_ID)
    upper = (entry.upper_bounds or {}).get(TRANSACTION_ID)
    if lower is None or upper is None or len(lower) != 8 or len(upper) != 8:
        return None
    return TransactionSpan(int.from_bytes(lower, "little", signed=True), int.from_bytes(upper, "little", signed=True))


# ---- refusals --------------------------------------------------------------------------------------------------------


def refuse_unsure(stores: KeyedStores, base: Sequence[LiveFile]) -> None:
    """Raise TableRefused for a table of which it is unsure which deletes meet which rows, or which changes are in its base store.

    `base` are the live files of the base store.
    """
    metadata = stores.base.metadata
    refuse_partitioning(f"the base store of table {stores.name}", fields_by_spec(metadata))
    refuse_partitioning(f"the change store of table {stores.name}", fields_by_spec(stores.change.metadata))
    refuse_promoted_keys(_key_types(stores))
    refuse_other_columns(_columns(stores.base.schema()), _columns(stores.change.schema()))
    refuse_lost(metadata, base)
    history = read_history(stores.name, metadata, stores.base.io, _MOST_HISTORY)
    refuse_lowered_sequences(
        [
            FlaggedSnapshot(snapshot.snapshot_id, sequences, snapshot.summary.additional_properties if snapshot.summary else {})
            for snapshot, sequences in history
        ]
    )


def _refuse(stores: KeyedStores, base: Sequence[LiveFile]) -> None:
    refuse_unsure(stores, base)
    metadata = stores.base.metadata
    summaries = [(each.snapshot_id, each.summary.additional_properties if each.summary else {}) for each in ancestors(metadata)]
    refuse_other_optimizer(summaries, RECORD_ID_PROPERTY)


def _key_types(stores: KeyedStores) -> Mapping[str, Sequence[str]]:
    """The types that each column of the primary key has had in either store, by its name now."""
    schemas: list[Schema] = [schema for store in (stores.base, stores.change) for schema in store.metadata.schemas]
    return {
        str(stores.base.schema().find_column_name(number)): [
            str(field.field_type) for schema in schemas for field in schema.fields if field.field_id == number
        ]
        for number in stores.key
    }


def _columns(schema: Schema) -> Mapping[int, tuple[str, str]]:
    """The full name and the type of each column by its field id."""
    return {number: (str(schema.find_column_name(number)), _own_type(schema, number)) for number in schema.field_ids}


def _own_type(schema: Schema, number: int) -> str:
    """The type of a column. The columns in a struct, a list or a map are compared by themselves."""
    kind = schema.find_type(number)
    return str(kind) if isinstance(kind, PrimitiveType) else type(kind).__name__
