"""Takes a table of changes as a person hands it in: checks that it fits the keyed table, orders it, and writes its files."""

from __future__ import annotations

import secrets
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.transforms import VoidTransform

from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.tables.data_file import OutputFile
from compaction_pipeline.core.tables.keyed.changes import CHANGE_TYPE, ChangeKind
from compaction_pipeline.core.tables.keyed.file_names import KeyedFileNames
from compaction_pipeline.merging.keyed.change_writer import StoreTarget, key_numbers, write_changes
from compaction_pipeline.merging.reading.evolution import arrow_schema
from compaction_pipeline.merging.reading.file_access import FileAccess

_BUFFER_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True)
class ChangeWriterId:
    """Which writer of a job this is: its number, and that of its task. `operation_id` is random, so no file name is used twice."""

    number: int
    task_id: int
    operation_id: int

    @classmethod
    def of(cls, number: int, task_id: int) -> ChangeWriterId:
        return cls(number, task_id, secrets.randbits(63))

    @classmethod
    def alone(cls) -> ChangeWriterId:
        return cls.of(0, 0)


def write_change_rows(
    target: StoreTarget, rows: pa.Table, order_by: str | None, files: FileAccess, writer: ChangeWriterId, *, one_change_a_key: bool = False
) -> list[OutputFile]:
    """Write the changes of an Arrow table in their order. Returns the files; nothing is committed.

    Raises ConfigError for rows that do not fit the table. With `one_change_a_key` it also raises for two changes of one key: their order
    is not known.
    """
    ordered = _in_order(rows, order_by)
    keeps = pc.is_in(ordered.column(CHANGE_TYPE), pa.array([ChangeKind.INSERT.value, ChangeKind.UPDATE_AFTER.value]))
    others = (CHANGE_TYPE, *([order_by] if order_by is not None else []))
    fitted = fitted_rows(ordered, target, others, only_deletes=not pc.any(keeps).as_py())
    repeated = repeated_key(fitted, target.key) if one_change_a_key else None
    if repeated is not None:
        raise ConfigError(f"the batch has several changes of the key {repeated}, and Spark's rows have no order: name a column in order_by")
    # The transaction is 0: the data sequence number of the commit is the transaction.
    names = KeyedFileNames(0, writer.number, writer.task_id, writer.operation_id)
    return write_changes(target, fitted, ordered.column(CHANGE_TYPE).combine_chunks(), files, names, _BUFFER_BYTES)


def key_columns(rows: pa.Table, target: StoreTarget) -> list[pa.Array]:
    """The columns of the primary key in the table's types. Raises ConfigError when they do not fit."""
    schema = arrow_schema(target.schema.fields)
    return [_column(rows, schema.field(name)).combine_chunks() for name in target.key]


def repeated_key(rows: pa.Table, key: tuple[str, ...]) -> str | None:
    """A key that several rows have, in words; None when each row has its own."""
    columns = [rows.column(name).combine_chunks() for name in key]
    first, counts = np.unique(key_numbers(columns, rows.num_rows), return_index=True, return_counts=True)[1:]
    if not (counts > 1).any():
        return None
    place = int(first[counts > 1][0])
    return ", ".join(f"{name}={column[place].as_py()!r}" for name, column in zip(key, columns, strict=True))


def _with_texts(rows: pa.Table) -> pa.Table:
    """The rows with change types of Arrow's plain type for texts. A table may have them as large texts, views or dictionaries."""
    kinds = rows.column(CHANGE_TYPE)
    try:
        texts = kinds.cast(pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ConfigError(f"column {CHANGE_TYPE!r} has the type {kinds.type}, but must hold texts, for example INSERT") from error
    return rows.set_column(rows.schema.get_field_index(CHANGE_TYPE), CHANGE_TYPE, texts)


def _in_order(rows: pa.Table, order_by: str | None) -> pa.Table:
    if CHANGE_TYPE not in rows.column_names:
        raise ConfigError(f"the rows have no column {CHANGE_TYPE!r}: it says what each row is, for example INSERT")
    if not pa.types.is_string(rows.column(CHANGE_TYPE).type):
        rows = _with_texts(rows)
    if order_by is None:
        return rows
    if order_by not in rows.column_names:
        raise ConfigError(f"order_by is {order_by!r}, but the rows have no such column")
    if rows.column(order_by).null_count:
        raise ConfigError(f"order_by is {order_by!r}, but {rows.column(order_by).null_count} rows have NULL there: their order is unknown")
    after = pc.cast(pc.equal(rows.column(CHANGE_TYPE), ChangeKind.UPDATE_AFTER.value), pa.int8())
    keyed = pa.table({"order": rows.column(order_by), "after": after, "place": pa.array(np.arange(rows.num_rows))})
    return rows.take(pc.sort_indices(keyed, sort_keys=[("order", "ascending"), ("after", "ascending"), ("place", "ascending")]))


def fitted_rows(rows: pa.Table, target: StoreTarget, others: Collection[str] = (), *, only_deletes: bool = False) -> pa.Table:
    """The rows with exactly the columns of the table, in its types. `others` are columns that may be there besides, and are left out.

    With `only_deletes` columns may be missing that do not decide where a row lies. A missing column is NULL: an insert would replace the
    values that a row has, and a delete would look for its row in the partition of NULL.

    Raises ConfigError for rows that do not fit.
    """
    schema = arrow_schema(target.schema.fields)
    unknown = [name for name in rows.column_names if name not in schema.names and name not in others]
    if unknown:
        raise ConfigError(f"the rows have a column {unknown[0]!r}, but the table's columns are {', '.join(schema.names)}")
    missing = [name for name in schema.names if name not in rows.column_names]
    unplaced = [name for name in missing if name in (*target.key, *_partitioned_by(target))]
    if unplaced and rows.num_rows:
        raise ConfigError(
            f"the rows have no column {unplaced[0]!r}, which decides where a row lies: rows that are deleted need it too; give the column"
        )
    if missing and rows.num_rows and not only_deletes:
        raise ConfigError(
            f"the rows have no column {missing[0]!r}: only rows that are all deleted may leave columns away; give the column, with NULL "
            "where a row has no value"
        )
    columns = [_column(rows, field) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def _partitioned_by(target: StoreTarget) -> list[str]:
    """The top-level columns that decide about the partition. A partition may be by a field of a struct."""
    fields = target.shape.specs[target.shape.layout.default_spec_id].fields
    sources = {field.source_id for field in fields if not isinstance(field.transform, VoidTransform)}
    return [field.name for field in target.schema.fields if sources.intersection(Schema(field).field_ids)]


def _column(rows: pa.Table, field: pa.Field) -> pa.ChunkedArray:
    if field.name not in rows.column_names:
        column = pa.chunked_array([pa.nulls(rows.num_rows, field.type)])
    else:
        column = rows.column(field.name)
        if pa.types.is_timestamp(field.type) and pa.types.is_timestamp(column.type) and (field.type.tz is None) != (column.type.tz is None):
            raise ConfigError(
                f"column {field.name!r} has the type {column.type}, but the table's is {field.type}: only one has a time zone"
            )
        try:
            column = column.cast(field.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            raise ConfigError(f"column {field.name!r} has the type {column.type}, whose values are no {field.type}: {error}") from error
    if not field.nullable and column.null_count:
        raise ConfigError(
            f"column {field.name!r} is required, but the rows have no such column"
            if field.name not in rows.column_names
            else f"column {field.name!r} is required, but {column.null_count} rows have NULL there"
        )
    return column
