"""Routes the rows that are kept: it sorts them if the table has a sort order, then sends each row to its partition."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortOrder
from pyiceberg.transforms import VoidTransform
from pyiceberg.types import IcebergType

from compaction_pipeline.core.errors import MergeFailed
from compaction_pipeline.core.tables.node import Partition, PartitionValue
from compaction_pipeline.core.work.work import Merge
from compaction_pipeline.merging.ordering import Sorter, sort_keys
from compaction_pipeline.merging.reading.evolution import arrow_schema
from compaction_pipeline.merging.reading.read import TableShape
from compaction_pipeline.merging.writing.transforms import Convert, column_path, partition_value, transformed

Write = Callable[[Partition, pa.RecordBatch], None]
"""Takes the routed rows of a partition and writes them."""


class RowRouter:
    """Routes the rows of one task."""

    def __init__(
        self, shape: TableShape, schema: Schema, spec_id: int, partition: Partition | None, memory_bytes: int, *, promises_order: bool
    ) -> None:
        """`partition` is the one partition of all rows. None when each row tells its own.

        With `promises_order`, rows are sorted whatever their size. Otherwise they are sorted when they fit the memory of the task.
        """
        self._partition = partition
        self._split = None if self._partition is not None else PartitionSplit(shape.specs[spec_id], shape, schema)
        self._order_id = shape.layout.default_sort_order_id
        order = sort_order(shape)
        keys = sort_keys(order, schema) if order is not None else None
        self._sorter: Sorter | None = None
        self.sort_column_ids = sort_column_ids(order, schema)
        if keys is not None:
            self._sorter = Sorter(arrow_schema(schema.fields), keys, memory_bytes // 6, spill=promises_order)

    @property
    def partition(self) -> Partition | None:
        """The one partition of all rows. None if they are split over several."""
        return self._partition

    @property
    def passes_through(self) -> bool:
        """Whether all rows go to one partition in the order in which they come, so that no column has to be looked into."""
        return self._sorter is None and self._partition is not None

    @property
    def sort_order_id(self) -> int | None:
        """The sort order of the rows that `finish` routes; None when they are not sorted."""
        return None if self._sorter is None or self._sorter.gave_up else self._order_id

    def add(self, batch: pa.RecordBatch, write: Write) -> None:
        """Route a batch of kept rows."""
        for back in (batch,) if self._sorter is None else self._sorter.add(batch):
            self._write(back, write)

    def finish(self, write: Write) -> None:
        """Route the rows that were held back to be sorted."""
        for batch in () if self._sorter is None else self._sorter.finish():
            self._write(batch, write)

    def close(self) -> None:
        if self._sorter is not None:
            self._sorter.close()

    def _write(self, batch: pa.RecordBatch, write: Write) -> None:
        if self._partition is not None:
            write(self._partition, batch)
            return
        assert self._split is not None
        for partition, rows in self._split.parts(batch):
            write(partition, rows)


def common_partition(work: Merge) -> Partition | None:
    """The one partition of all inputs, if they have the partition spec of the output. None otherwise: the rows are then split."""
    partitions = {(file.spec_id, file.partition) for file in work.inputs}
    if len(partitions) == 1 and next(iter(partitions))[0] == work.output_spec_id:
        return next(iter(partitions))[1]
    return None


def sort_column_ids(order: SortOrder | None, schema: Schema) -> frozenset[int]:
    """The columns by which rows are sorted; none when the order names a column or transform that we cannot sort by."""
    if order is None or sort_keys(order, schema) is None:
        return frozenset()
    return frozenset(field.source_id for field in order.fields)


def sort_order(shape: TableShape) -> SortOrder | None:
    """The default sort order of a table; None for a table without one."""
    text = shape.layout.sort_orders.get(shape.layout.default_sort_order_id)
    return SortOrder.model_validate_json(text) if text else None


class PartitionSplit:
    """Splits batches by the values of a partition spec."""

    def __init__(self, spec: PartitionSpec, shape: TableShape, schema: Schema) -> None:
        self._fields: list[tuple[str, IcebergType, Callable[[pa.RecordBatch], pa.Array]]] = []
        for field in spec.fields:
            if isinstance(field.transform, VoidTransform):
                source = shape.newest_with(field.source_id).find_field(field.source_id).field_type
                self._fields.append((field.name, field.transform.result_type(source), lambda batch: pa.nulls(batch.num_rows, pa.int32())))
                continue
            path = column_path(schema, field.source_id)
            transform = None
            if path is not None:
                transform = transformed(field.transform, schema.find_field(field.source_id).field_type)
            if path is None or transform is None:
                raise MergeFailed(
                    f"rows cannot be moved to partition spec {spec.spec_id}: field {field.name!r} ({field.transform}) cannot be computed "
                    "from the columns of the plan's schema; plan the node again"
                )
            # In manifests, a partition value has the type that the newest schema gives its column. The column may have been promoted since
            # the plan's schema.
            kind = field.transform.result_type(shape.newest_with(field.source_id).find_field(field.source_id).field_type)
            self._fields.append((field.name, kind, _column(path, transform)))

    def parts(self, batch: pa.RecordBatch) -> Iterator[tuple[Partition, pa.RecordBatch]]:
        """Each partition of a batch with its rows, in their order."""
        codes = np.zeros(batch.num_rows, dtype=np.int64)
        columns = []
        for _, _, of in self._fields:
            encoded = _storage(of(batch)).dictionary_encode(null_encoding="encode")
            columns.append(encoded)
            codes = codes * max(len(encoded.dictionary), 1) + encoded.indices.to_numpy(zero_copy_only=False)
            # The codes are numbered again, so that they stay small: each combination of values that occurs gets one number.
            codes = np.unique(codes, return_inverse=True)[1].astype(np.int64)
        for code in range(int(codes.max()) + 1 if len(codes) else 0):
            rows = np.flatnonzero(codes == code)
            values: list[PartitionValue] = []
            for (name, kind, _), encoded in zip(self._fields, columns, strict=True):
                scalar = encoded.dictionary[encoded.indices[int(rows[0])].as_py()]
                values.append(partition_value(name, kind, scalar))
            yield tuple(values), batch if len(rows) == batch.num_rows else batch.take(pa.array(rows))


def _column(path: tuple[int, ...], transform: Convert) -> Callable[[pa.RecordBatch], pa.Array]:
    def of(batch: pa.RecordBatch) -> pa.Array:
        column = batch.column(path[0])
        for index in path[1:]:
            column = pc.struct_field(column, [index])
        return transform(column)

    return of


def _storage(array: pa.Array) -> pa.Array:
    return array.storage if isinstance(array.type, pa.BaseExtensionType) else array
