"""Writes one Parquet file at a time, for the demo, tests and benchmarks.

Merges never use this; the kernel in `merging/` writes their files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.locations import load_location_provider
from pyiceberg.typedef import Record

from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.tables.data_file import FileContent, OutputFile
from compaction_pipeline.formats.parquet.leaves import leaves
from compaction_pipeline.iceberg.manifests.partitions import PartitionReader, partition_struct
from compaction_pipeline.merging.deletes.positions import POSITION_DELETE_SCHEMA
from compaction_pipeline.merging.writing.metrics import MetricsModes, NanCounter, may_have_bounds


def write_parquet_file(
    table: Table,
    rows: pa.Table,
    *,
    content: FileContent,
    partition: Record | None = None,
    spec_id: int | None = None,
    equality_ids: Sequence[int] = (),
    referenced_data_file: str | None = None,
    name: str,
    schema_id: int | None = None,
    parquet: Mapping[str, Any] | None = None,
) -> OutputFile:
    """Write `rows` as `name`.parquet below the table's data location, and describe the file. Nothing is committed.

    Columns are matched by name with the schema `schema_id`, by default the current one. An equality-delete file holds the columns of
    `equality_ids`. A position-delete file holds `file_path` and `pos`, and is sorted here. `partition` is the record of the spec `spec_id`,
    by default the current one. `parquet` are options of PyArrow's writer. Raises ConfigError for rows that do not fit.
    """
    schema = _file_schema(table, content, equality_ids, schema_id)
    rows = _fitted(rows, schema, content, name)
    path = load_location_provider(table.metadata.location, table.metadata.properties).new_data_location(f"{name}.parquet")
    output = table.io.new_output(path)
    with output.create(overwrite=True) as stream:
        pq.write_table(
            rows, stream, **{"compression": "zstd", "store_decimal_as_integer": True, "write_page_checksum": True, **(parquet or {})}
        )
    with output.to_input_file().open() as stream:
        metadata = pq.read_metadata(stream)
    # If path bounds were cut, a reader could not see which file the positions belong to.
    metrics = {"write.metadata.metrics.default": "full"} if content is FileContent.POSITION_DELETES else table.metadata.properties
    statistics = data_file_statistics_from_parquet_metadata(
        metadata, compute_statistics_plan(schema, metrics), parquet_path_to_id_mapping(schema)
    ).to_serialized_dict()
    nans = NanCounter(schema, MetricsModes.of(schema, metrics))
    nans.add(rows)
    claimed = {leaf.field_id for leaf in leaves(schema) if may_have_bounds(leaf.type, nans.counts.get(leaf.field_id))}
    used_spec = table.metadata.default_spec_id if spec_id is None else spec_id
    struct = partition_struct(table.metadata, used_spec)
    record = partition if partition is not None else Record()
    if len(record) != len(struct.fields):
        raise ConfigError(f"file {name!r} has {len(record)} partition values but spec {used_spec} has {len(struct.fields)} fields")
    return OutputFile(
        path=path,
        content=content,
        spec_id=used_spec,
        partition=PartitionReader(struct).read(record),
        file_size_bytes=len(output),
        record_count=len(rows),
        column_sizes=statistics["column_sizes"] or {},
        value_counts=statistics["value_counts"] or {},
        null_value_counts=statistics["null_value_counts"] or {},
        nan_value_counts=nans.counts,
        lower_bounds={key: value.hex() for key, value in (statistics["lower_bounds"] or {}).items() if key in claimed},
        upper_bounds={key: value.hex() for key, value in (statistics["upper_bounds"] or {}).items() if key in claimed},
        split_offsets=tuple(statistics["split_offsets"] or ()),
        referenced_data_file=referenced_data_file,
    )


def _fitted(rows: pa.Table, schema: Schema, content: FileContent, name: str) -> pa.Table:
    """The rows with exactly the columns of the schema; positions are sorted. Raises ConfigError for rows that do not fit."""
    missing = [column.name for column in schema.fields if column.name not in rows.column_names and column.required]
    if missing:
        raise ConfigError(f"file {name!r} lacks the required columns {missing}: add them to the rows")
    target = schema_to_pyarrow(schema)
    rows = pa.table(
        [
            rows.column(column.name).cast(column.type) if column.name in rows.column_names else pa.nulls(len(rows), column.type)
            for column in target
        ],
        schema=target,
    )
    if content is FileContent.POSITION_DELETES:
        rows = rows.sort_by([("file_path", "ascending"), ("pos", "ascending")])
    return rows


def _file_schema(table: Table, content: FileContent, equality_ids: Sequence[int], schema_id: int | None) -> Schema:
    if content is FileContent.POSITION_DELETES:
        return POSITION_DELETE_SCHEMA
    schema = table.metadata.schema() if schema_id is None else table.schemas()[schema_id]
    if content is FileContent.DATA:
        return schema
    columns = [column for column in schema.fields if column.field_id in equality_ids]
    if not equality_ids or len(columns) != len(set(equality_ids)):
        raise ConfigError(f"equality ids are {list(equality_ids)} but must be top-level columns of schema {schema.schema_id}")
    return Schema(*columns)
