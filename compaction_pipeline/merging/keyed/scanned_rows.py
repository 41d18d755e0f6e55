"""The rows of a keyed table that a scan selects, node by node. It runs in this process, or in a Python worker of Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.visitors import bind
from pyiceberg.io.pyarrow import expression_to_pyarrow
from pyiceberg.types import NestedField

from compaction_pipeline.core.tables.keyed.merge_on_read import NodeRead
from compaction_pipeline.core.tables.table import TableLayout
from compaction_pipeline.merging.keyed.merge_on_read import KeyedReader
from compaction_pipeline.merging.reading.file_access import FileAccess
from compaction_pipeline.merging.reading.read import TableShape

_MEMORY_BYTES = 256 * 1024 * 1024
"""The limit for batches and buffers."""
_DELETE_BYTES = 256 * 1024 * 1024
"""The limit for the deletes of one tree node. More of them are kept on local disk, and found in several passes."""


@dataclass(frozen=True)
class Selection:
    """What is read of each node.

    `base` and `change` are the layouts of the two stores, and `key` the field ids of the primary key. `fields` are the columns to read,
    among them those that `row_filter` looks at; `names` are the columns of the result, in their order. `io` are the properties of the
    file access.
    """

    io: Mapping[str, str]
    base: TableLayout
    change: TableLayout
    key: tuple[int, ...]
    fields: tuple[NestedField, ...]
    names: tuple[str, ...]
    row_filter: BooleanExpression

    def batches(self, nodes: Iterable[NodeRead]) -> Iterator[pa.RecordBatch]:
        """The selected rows of these nodes, as Arrow record batches. Raises MergeFailed for a file that cannot be read."""
        base = TableShape.of(self.base)
        kept = self._arrow_filter(base)
        files = FileAccess(self.io, self.base.location, _MEMORY_BYTES, self.change.location)
        with closing(files):
            reader = KeyedReader(files, base, TableShape.of(self.change), self.key, self.fields, _MEMORY_BYTES, _DELETE_BYTES)
            for node in nodes:
                for batch in reader.batches(node):
                    rows = pa.Table.from_batches([batch])
                    if kept is not None:
                        rows = rows.filter(kept)
                    if rows.num_rows:
                        yield from rows.select(self.names).to_batches()

    def _arrow_filter(self, base: TableShape) -> pc.Expression | None:
        if isinstance(self.row_filter, AlwaysTrue):
            return None
        # The schema tells the way to a field of a struct. Without it, a top-level column of the same name would be compared.
        schema = base.schemas[self.base.schema_id]
        return expression_to_pyarrow(bind(schema, self.row_filter, case_sensitive=True), schema)
