"""Reads what a plan of change merges is made from, and refuses tables whose changes must not be merged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyiceberg.schema import Schema
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.types import PrimitiveType

from compaction_pipeline.core.commit.record import RECORD_ID_PROPERTY
from compaction_pipeline.core.planning.keyed.refusals import (
    FlaggedSnapshot,
    refuse_lowered_sequences,
    refuse_other_columns,
    refuse_other_optimizer,
    refuse_partitioning,
    refuse_promoted_keys,
)
from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.core.tables.keyed.keyed_files import KeyedFiles
from compaction_pipeline.iceberg.keyed.kept_manifests import KeptManifests
from compaction_pipeline.iceberg.keyed.sequences import ancestors, fields_by_spec, read_history, refuse_lost
from compaction_pipeline.iceberg.keyed.stores import KeyedStores

_MOST_HISTORY = 5
"""So many snapshots with optimized sequences are compared. Each is one small file to read."""


def read_keyed_files(stores: KeyedStores, kept: KeptManifests | None = None) -> KeyedFiles:
    """The live files of both stores, with everything that a plan of change merges needs of them.

    Manifests that `kept` knows are not read again. Raises TableRefused when it is unknown what the files hold, or when the changes of the
    table must not be merged.
    """
    with (kept or KeptManifests()).look(stores.change, stores.base) as look:
        base, changes = stores.files(look.files)
        _refuse(stores, base)
        sequences, spans = stores.sequences(), look.row_spans()
    snapshot = stores.change.metadata.snapshot_by_name(MAIN_BRANCH)
    # A change store without a snapshot has no files, so no task will name this number.
    number = snapshot.snapshot_id if snapshot is not None else 0
    return KeyedFiles(tuple(base), tuple(changes), sequences, number, spans)


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
