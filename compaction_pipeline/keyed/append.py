"""Appends a table of changes to a keyed table: checks the rows, writes the files, commits them."""

from __future__ import annotations

import secrets
from contextlib import closing
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table

from compaction_pipeline.core.errors import ConfigError, RacesLost, TableRefused
from compaction_pipeline.core.tables.keyed.changes import CHANGE_TYPE, Batch, ChangeKind
from compaction_pipeline.core.tables.keyed.creation import AMORO_UPSERT_KEY, CHANGE_BUCKETS_KEY, DEFAULT_BUCKETS, UPSERT_KEY, check_buckets
from compaction_pipeline.iceberg.keyed.append import append_changes
from compaction_pipeline.iceberg.keyed.sequences import fields_of_spec
from compaction_pipeline.iceberg.keyed.stores import KeyedStores
from compaction_pipeline.iceberg.scan import layout_of
from compaction_pipeline.merging.keyed.change_writer import ChangeTarget, write_changes
from compaction_pipeline.merging.reading.evolution import arrow_schema
from compaction_pipeline.merging.reading.file_access import FileAccess
from compaction_pipeline.merging.reading.read import TableShape

_BUFFER_BYTES = 64 * 1024 * 1024
_TARGET_KEY, _DEFAULT_TARGET = "write.target-file-size-bytes", 128 * 1024 * 1024


def append_rows(stores: KeyedStores, rows: Any, order_by: str | None, batch: Batch | None) -> int | None:
    """Do what `KeyedTable.write_changes` says."""
    change = stores.change
    if batch is not None and batch.has_landed(change.properties):
        return None
    target = _target(stores)
    ordered = _in_order(rows, order_by)
    fitted = _fitted(ordered, target, order_by)
    if not fitted.num_rows and batch is None:
        return None
    files = FileAccess(change.io.properties, change.metadata.location)
    with closing(files):
        kinds = ordered.column(CHANGE_TYPE).combine_chunks()
        try:
            outputs = write_changes(target, fitted, kinds, files, secrets.randbits(63), _BUFFER_BYTES)
        except BaseException:
            files.delete_written()
            raise
        try:
            sequence = append_changes(change, outputs, batch, _same_layout(change))
        except (RacesLost, TableRefused):
            # These two say that nothing was committed. After any other error, an interruption too, the files may be live.
            files.delete_written()
            raise
        if sequence is None:
            # Another writer has committed this batch meanwhile.
            files.delete_written()
        return sequence


def _target(stores: KeyedStores) -> ChangeTarget:
    change, properties = stores.change, stores.change.properties
    schema = stores.base.schema()
    if schema.as_struct() != change.schema().as_struct():
        raise TableRefused(
            f"table {stores.name}: the columns of the change store are not those of the base store: finish the change of the schema in both"
        )
    buckets = int(properties.get(CHANGE_BUCKETS_KEY, DEFAULT_BUCKETS))
    check_buckets(buckets)
    return ChangeTarget(
        shape=TableShape.of(layout_of(change.metadata)),
        fields=fields_of_spec(change.metadata),
        key=tuple(str(schema.find_column_name(number)) for number in stores.key),
        placed_by=tuple(name for field in change.spec().fields if "." not in (name := str(schema.find_column_name(field.source_id)))),
        buckets=buckets,
        upsert=any(properties.get(key, "").lower() == "true" for key in (UPSERT_KEY, AMORO_UPSERT_KEY)),
        target_size_bytes=int(properties.get(_TARGET_KEY, _DEFAULT_TARGET)),
    )


def _same_layout(change: Table) -> Any:
    """A check that refuses metadata with other columns or partitions than the files were written for."""
    schema_id, spec_id = change.metadata.current_schema_id, change.metadata.default_spec_id

    def check(now: Table) -> None:
        if (now.metadata.current_schema_id, now.metadata.default_spec_id) != (schema_id, spec_id):
            raise TableRefused(
                f"change store {'.'.join(now.name())} got other columns or partitions while changes were written: write them again"
            )

    return check


def _in_order(rows: Any, order_by: str | None) -> Any:
    if CHANGE_TYPE not in rows.column_names:
        raise ConfigError(f"the rows have no column {CHANGE_TYPE!r}: it says what each row is, for example INSERT")
    if order_by is None:
        return rows
    if order_by not in rows.column_names:
        raise ConfigError(f"order_by is {order_by!r}, but the rows have no such column")
    if rows.column(order_by).null_count:
        raise ConfigError(f"order_by is {order_by!r}, but {rows.column(order_by).null_count} rows have NULL there: their order is unknown")
    after = pc.cast(pc.equal(rows.column(CHANGE_TYPE), ChangeKind.UPDATE_AFTER.value), pa.int8())
    keyed = pa.table({"order": rows.column(order_by), "after": after, "place": pa.array(np.arange(rows.num_rows))})
    return rows.take(pc.sort_indices(keyed, sort_keys=[("order", "ascending"), ("after", "ascending"), ("place", "ascending")]))


def _fitted(rows: Any, target: ChangeTarget, order_by: str | None) -> Any:
    """The rows with exactly the columns of the table, in its types. Raises ConfigError for rows that do not fit."""
    schema = arrow_schema(target.schema.fields)
    unknown = [name for name in rows.column_names if name not in (*schema.names, CHANGE_TYPE, order_by)]
    if unknown:
        raise ConfigError(f"the rows have a column {unknown[0]!r}, but the table's columns are {', '.join(schema.names)}")
    columns = [_column(rows, field) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def _column(rows: Any, field: Any) -> Any:
    if field.name not in rows.column_names:
        column = pa.chunked_array([pa.nulls(rows.num_rows, field.type)])
    else:
        column = rows.column(field.name)
        try:
            column = column.cast(field.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            raise ConfigError(f"column {field.name!r} has the type {column.type}, whose values are no {field.type}: {error}") from error
    if not field.nullable and column.null_count:
        raise ConfigError(f"column {field.name!r} is required, but {column.null_count} rows have NULL there or the column is missing")
    return column
