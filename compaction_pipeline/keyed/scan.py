"""Reads the rows of a keyed table: base rows and inserts, without those that later deletes delete (merge-on-read)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.visitors import bind, expression_evaluator, extract_field_ids, inclusive_projection
from pyiceberg.io.pyarrow import expression_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.core.tables.node import Partition
from compaction_pipeline.iceberg.keyed.stores import KeyedStores
from compaction_pipeline.iceberg.manifests.partitions import partition_record, partition_struct
from compaction_pipeline.iceberg.scan import layout_of
from compaction_pipeline.merging.keyed.merge_on_read import KeyedReader
from compaction_pipeline.merging.reading.evolution import arrow_schema
from compaction_pipeline.merging.reading.file_access import FileAccess
from compaction_pipeline.merging.reading.read import TableShape

_MEMORY_BYTES = 256 * 1024 * 1024
"""The limit for batches and buffers."""
_DELETE_BYTES = 256 * 1024 * 1024
"""The limit for the deletes of one tree node. More of them are kept on local disk, and found in several passes."""


class KeyedScan:
    """The rows of a keyed table at one moment: that at which the scan was made. Each method reads the table anew."""

    def __init__(self, stores: KeyedStores, row_filter: BooleanExpression, selected_fields: Sequence[str] | None) -> None:
        """Use `KeyedTable.scan`."""
        self._stores = stores
        schema = stores.base.schema()
        self._row_filter = row_filter
        self._fields = _top_level(schema, selected_fields, stores.name)
        self._filter = _arrow_filter(schema, row_filter)
        needed = {field.field_id for field in self._fields} | _top_ids(schema, row_filter)
        self._read = [*self._fields, *(field for field in schema.fields if field.field_id in needed and field not in self._fields)]

    def to_batches(self) -> Iterator[Any]:
        """The rows as Arrow record batches, in no order.

        Batches and buffers take at most 256 MiB, and the deletes of one tree node about as much. More deletes are kept on local disk.
        """
        stores = self._stores
        files = FileAccess(stores.base.io.properties, stores.base.metadata.location, _MEMORY_BYTES)
        with closing(files):
            base, change = (TableShape.of(layout_of(table.metadata)) for table in (stores.base, stores.change))
            reader = KeyedReader(files, base, change, stores.key, self._read, _MEMORY_BYTES, _DELETE_BYTES)
            for node in stores.nodes(_partition_filter(stores, self._row_filter)):
                for batch in reader.batches(node):
                    yield from self._result(batch)

    def to_arrow(self) -> Any:
        """The rows as an Arrow table."""
        return pa.Table.from_batches(self.to_batches(), schema=self.schema)

    def to_pandas(self) -> Any:
        """The rows as a pandas DataFrame."""
        return self.to_arrow().to_pandas()

    @property
    def schema(self) -> Any:
        """The Arrow schema of the result. Its fields carry Iceberg's field ids."""
        return arrow_schema(self._fields)

    def _result(self, batch: Any) -> Iterator[Any]:
        rows = pa.Table.from_batches([batch])
        if self._filter is not None:
            rows = rows.filter(self._filter)
        if rows.num_rows:
            yield from rows.select([field.name for field in self._fields]).to_batches()


def _top_level(schema: Schema, names: Sequence[str] | None, table: str) -> list[NestedField]:
    if names is None:
        return list(schema.fields)
    by_name = {field.name: field for field in schema.fields}
    unknown = [name for name in names if name not in by_name]
    if unknown:
        raise ConfigError(f"table {table} has no column {unknown[0]!r}: its columns are {', '.join(by_name)}")
    return [by_name[name] for name in dict.fromkeys(names)]


def _arrow_filter(schema: Schema, row_filter: BooleanExpression) -> Any | None:
    if isinstance(row_filter, AlwaysTrue):
        return None
    # The schema tells the way to a field of a struct. Without it, a top-level column of the same name would be compared.
    return expression_to_pyarrow(bind(schema, row_filter, case_sensitive=True), schema)


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
