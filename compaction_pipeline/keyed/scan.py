"""Reads the rows of a keyed table: base rows and inserts, without those that later deletes delete (merge-on-read)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.parser import parse
from pyiceberg.expressions.visitors import bind, expression_evaluator, extract_field_ids, inclusive_projection
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField
from pyparsing import ParseBaseException

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

    def __init__(self, stores: KeyedStores, row_filter: str | BooleanExpression, selected_fields: Sequence[str] | None) -> None:
        """Use `KeyedTable.scan`."""
        self._stores = stores
        schema = stores.base.schema()
        self._fields = _top_level(schema, selected_fields, stores.name)
        expression, looked_at = _parsed(schema, row_filter, stores.name)
        needed = {field.field_id for field in self._fields} | looked_at
        self._selection = Selection(
            io=with_change_store(stores.base.io.properties, stores.change.io.properties),
            base=layout_of(stores.base.metadata),
            change=layout_of(stores.change.metadata),
            key=stores.key,
            fields=(*self._fields, *(field for field in schema.fields if field.field_id in needed and field not in self._fields)),
            names=tuple(field.name for field in self._fields),
            row_filter=expression,
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
    if isinstance(names, str):
        raise ConfigError(f"selected_fields is the text {names!r} but must be a list of columns, for example [{names!r}]")
    by_name = {field.name: field for field in schema.fields}
    unknown = [name for name in names if name not in by_name]
    if unknown:
        raise ConfigError(f"table {table} has no column {unknown[0]!r}: its columns are {', '.join(by_name)}")
    return [by_name[name] for name in dict.fromkeys(names)]


def _parsed(schema: Schema, row_filter: str | BooleanExpression, table: str) -> tuple[BooleanExpression, set[int]]:
    """The filter, and the ids of the top-level columns that it looks at."""
    try:
        expression = parse(row_filter) if isinstance(row_filter, str) else row_filter
        found = extract_field_ids(bind(schema, expression, case_sensitive=True))
    except ParseBaseException as error:
        raise ConfigError(
            f"row_filter {row_filter!r} of table {table} cannot be understood; write comparisons such as "
            "id = 1, name in ('a', 'b') or day is not null, joined by and, or, not"
        ) from error
    except (ValueError, TypeError, NotImplementedError) as error:
        columns = ", ".join(f"{field.name} ({field.field_type})" for field in schema.fields)
        raise ConfigError(f"row_filter {row_filter!r} does not fit table {table}: {error}; its columns are {columns}") from error
    return expression, {schema.find_field(str(schema.find_column_name(number)).split(".")[0]).field_id for number in found}


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
