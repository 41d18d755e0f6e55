"""Reads the rows of a keyed table: base rows and inserts, without those that later deletes delete (merge-on-read)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.visitors import bind, expression_evaluator, extract_field_ids, inclusive_projection
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.core.tables.keyed.merge_on_read import NodeRead
from compaction_pipeline.core.tables.node import Partition
from compaction_pipeline.iceberg.file_io import with_change_store
from compaction_pipeline.iceberg.keyed.stores import KeyedStores
from compaction_pipeline.iceberg.manifests.partitions import partition_record, partition_struct
from compaction_pipeline.iceberg.scan import layout_of
from compaction_pipeline.merging.keyed.scanned_rows import Selection
from compaction_pipeline.merging.reading.evolution import arrow_schema
from compaction_pipeline.spark.keyed_reader import read_on_spark


class KeyedScan:
    """The rows of a keyed table at one moment: that at which the scan was made. Each method reads the table anew."""

    def __init__(self, stores: KeyedStores, row_filter: BooleanExpression, selected_fields: Sequence[str] | None) -> None:
        """Use `KeyedTable.scan`."""
        self._stores = stores
        schema = stores.base.schema()
        self._fields = _top_level(schema, selected_fields, stores.name)
        needed = {field.field_id for field in self._fields} | _top_ids(schema, row_filter)
        self._selection = Selection(
            io=with_change_store(stores.base.io.properties, stores.change.io.properties),
            base=layout_of(stores.base.metadata),
            change=layout_of(stores.change.metadata),
            key=stores.key,
            fields=(*self._fields, *(field for field in schema.fields if field.field_id in needed and field not in self._fields)),
            names=tuple(field.name for field in self._fields),
            row_filter=row_filter,
        )

    def to_batches(self) -> Iterator[Any]:
        """The rows as Arrow record batches, in no order.

        Batches and buffers take at most 256 MiB, and the deletes of one tree node about as much. More deletes are kept on local disk.
        """
        return self._selection.batches(self._nodes())

    def to_arrow(self) -> Any:
        """The rows as an Arrow table."""
        return pa.Table.from_batches(self.to_batches(), schema=self.schema)

    def to_pandas(self) -> Any:
        """The rows as a pandas DataFrame."""
        return self.to_arrow().to_pandas()

    def to_spark(self, spark: Any) -> Any:
        """The rows as a DataFrame of this Spark session. Each tree node is read by one Spark task, when the DataFrame is used.

        UUIDs become text. Raises ConfigError for a column whose type Spark lacks.
        """
        return read_on_spark(spark, self._selection, self._nodes())

    @property
    def schema(self) -> Any:
        """The Arrow schema of the result. Its fields carry Iceberg's field ids."""
        return arrow_schema(self._fields)

    def _nodes(self) -> Sequence[NodeRead]:
        return self._stores.nodes(_partition_filter(self._stores, self._selection.row_filter))


def _top_level(schema: Schema, names: Sequence[str] | None, table: str) -> list[NestedField]:
    if names is None:
        return list(schema.fields)
    by_name = {field.name: field for field in schema.fields}
    unknown = [name for name in names if name not in by_name]
    if unknown:
        raise ConfigError(f"table {table} has no column {unknown[0]!r}: its columns are {', '.join(by_name)}")
    return [by_name[name] for name in dict.fromkeys(names)]


def _top_ids(schema: Schema, row_filter: BooleanExpression) -> set[int]:
    """The ids of the top-level columns that the filter looks at."""
    found = extract_field_ids(bind(schema, row_filter, case_sensitive=True))
    return {schema.find_field(str(schema.find_column_name(number)).split(".")[0]).field_id for number in found}


def _partition_filter(stores: KeyedStores, row_filter: BooleanExpression) -> Callable[[LiveFile], bool]:
    """Tells whether the partition of a file may have rows that the filter keeps."""
    metadata = stores.base.metadata
    struct = partition_struct(metadata, metadata.default_spec_id)
    if isinstance(row_filter, AlwaysTrue) or not struct.fields:
        return lambda file: True
    project = inclusive_projection(metadata.schema(), metadata.spec(), case_sensitive=True)
    may_match = expression_evaluator(Schema(*struct.fields), project(row_filter), case_sensitive=True)
    known: dict[Partition, bool] = {}

    def wanted(file: LiveFile) -> bool:
        if file.spec_id != metadata.default_spec_id:
            return True
        if file.partition not in known:
            known[file.partition] = may_match(partition_record(struct, file.partition))
        return known[file.partition]

    return wanted
