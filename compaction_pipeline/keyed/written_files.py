"""Writes the files of one write to a store of a keyed table, in this process or on Spark. Nothing is committed here."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from compaction_pipeline.core.errors import ConfigError, TableRefused
from compaction_pipeline.core.tables.data_file import OutputFile
from compaction_pipeline.core.tables.keyed.creation import (
    BASE_BUCKETS_KEY,
    CHANGE_BUCKETS_KEY,
    DEFAULT_BUCKETS,
    check_buckets,
)
from compaction_pipeline.core.tables.keyed.key_reading import is_upsert
from compaction_pipeline.iceberg.keyed.sequences import fields_of_spec
from compaction_pipeline.iceberg.keyed.stores import KeyedStores
from compaction_pipeline.iceberg.scan import layout_of
from compaction_pipeline.merging.keyed.change_rows import ChangeWriterId
from compaction_pipeline.merging.keyed.change_writer import StoreTarget
from compaction_pipeline.merging.reading.file_access import FileAccess
from compaction_pipeline.merging.reading.read import TableShape
from compaction_pipeline.spark.keyed_writer import RowsWriter, write_on_spark

_TARGET_KEY, _DEFAULT_TARGET = "write.target-file-size-bytes", 128 * 1024 * 1024


def write_files(target: StoreTarget, rows: Any, write: RowsWriter, files: FileAccess) -> list[OutputFile]:
    """Write an Arrow table or a Spark DataFrame with `write`. When that fails, no file stays. Raises ConfigError for anything else."""
    if isinstance(rows, pa.Table):
        try:
            return write(target, rows, files, ChangeWriterId.alone())
        except BaseException:
            files.delete_written()
            raise
    if not hasattr(rows, "mapInArrow"):
        raise ConfigError(
            f"the rows are a {type(rows).__name__} but must be an Arrow table or a Spark DataFrame: use pyarrow.Table.from_pylist"
        )
    outputs = write_on_spark(target, rows, write, files.properties)
    files.written += [output.path for output in outputs]
    return outputs


def change_target(stores: KeyedStores) -> StoreTarget:
    """The change store, to be written."""
    return _target(stores, is_base=False)


def base_target(stores: KeyedStores) -> StoreTarget:
    """The base store, to be written."""
    return _target(stores, is_base=True)


def _target(stores: KeyedStores, *, is_base: bool) -> StoreTarget:
    store, key = (stores.base, BASE_BUCKETS_KEY) if is_base else (stores.change, CHANGE_BUCKETS_KEY)
    schema, change = stores.base.schema(), stores.change.properties
    if schema.as_struct() != stores.change.schema().as_struct():
        raise TableRefused(
            f"table {stores.name}: the columns of the change store are not those of the base store: finish the change of the schema in both"
        )
    buckets = int(store.properties.get(key, DEFAULT_BUCKETS))
    check_buckets(buckets)
    return StoreTarget(
        shape=TableShape.of(layout_of(store.metadata)),
        fields=fields_of_spec(store.metadata),
        key=tuple(str(schema.find_column_name(number)) for number in stores.key),
        placed_by=tuple(name for field in store.spec().fields if "." not in (name := str(schema.find_column_name(field.source_id)))),
        buckets=buckets,
        upsert=is_upsert(change),
        target_size_bytes=int(store.properties.get(_TARGET_KEY, _DEFAULT_TARGET)),
    )
