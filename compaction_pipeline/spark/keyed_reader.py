"""Reads the rows of a keyed table on Spark: each tree node is read by one Spark task."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from uuid import UUID

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, TimeType, UUIDType
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.tables.keyed.merge_on_read import NodeRead
from compaction_pipeline.merging.keyed.scanned_rows import Selection
from compaction_pipeline.merging.reading.evolution import arrow_schema


def read_on_spark(spark: SparkSession, selection: Selection, nodes: Sequence[NodeRead]) -> DataFrame:
    """The selected rows of these nodes, as a Spark DataFrame. The files are read when the DataFrame is used.

    UUIDs become text, as Iceberg's own Spark reader gives them, and fixed bytes become binary. Raises ConfigError for a column whose type
    Spark lacks.
    """
    by_name = {field.name: field for field in selection.fields}
    fields = [by_name[name] for name in selection.names]
    for field in fields:
        _refuse_what_spark_lacks(field)
    schema = pa.schema([pa.field(each.name, _spark_type(each.type), each.nullable) for each in arrow_schema(fields)])
    # The bytes are made by this process, and read by the workers of its own session.
    work = spark.createDataFrame([(bytearray(pickle.dumps(node)),) for node in nodes], "node binary")
    return work.repartition(max(1, len(nodes))).mapInArrow(_read(selection, schema), from_arrow_schema(schema, prefer_timestamp_ntz=True))


def _read(selection: Selection, schema: pa.Schema) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        nodes = (pickle.loads(node.as_py()) for batch in batches for node in batch.column(0))
        for batch in selection.batches(nodes):
            columns = [_for_spark(column, field.type) for column, field in zip(batch.columns, schema, strict=True)]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)

    return read


def _refuse_what_spark_lacks(field: NestedField) -> None:
    for inner in Schema(field).field_ids:
        kind = Schema(field).find_type(inner)
        nested_uuid = isinstance(kind, UUIDType) and inner != field.field_id
        if isinstance(kind, TimeType) or nested_uuid:
            inside = "" if inner == field.field_id else " inside"
            raise ConfigError(
                f"column {field.name!r} has a {kind}{inside}, which Spark cannot read: name the other columns in selected_fields"
            )


def _spark_type(kind: pa.DataType) -> pa.DataType:
    """The Arrow type in which Spark gets a column."""
    if kind == pa.uuid():
        return pa.string()
    if pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, _spark_type(each.type), each.nullable) for each in kind])
    if pa.types.is_map(kind):
        return pa.map_(_spark_type(kind.key_type), _spark_type(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_spark_type(kind.value_type))
    return kind


def _for_spark(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if column.type == pa.uuid():
        return pa.array([None if each is None else str(UUID(bytes=each)) for each in column.storage.to_pylist()], pa.string())
    return column.cast(kind)
