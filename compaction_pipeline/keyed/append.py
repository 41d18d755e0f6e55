"""Appends changes to a keyed table: writes the files, in this process or on Spark, and commits them."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pyarrow as pa
from pyiceberg.table import Table

from compaction_pipeline.core.errors import RacesLost, TableRefused
from compaction_pipeline.core.tables.data_file import OutputFile
from compaction_pipeline.core.tables.keyed.changes import Batch
from compaction_pipeline.core.tables.keyed.creation import AMORO_UPSERT_KEY, CHANGE_BUCKETS_KEY, DEFAULT_BUCKETS, UPSERT_KEY, check_buckets
from compaction_pipeline.iceberg.keyed.append import append_changes
from compaction_pipeline.iceberg.keyed.sequences import fields_of_spec
from compaction_pipeline.iceberg.keyed.stores import KeyedStores
from compaction_pipeline.iceberg.scan import layout_of
from compaction_pipeline.merging.keyed.change_rows import ChangeWriterId, write_change_rows
from compaction_pipeline.merging.keyed.change_writer import ChangeTarget
from compaction_pipeline.merging.reading.file_access import FileAccess
from compaction_pipeline.merging.reading.read import TableShape
from compaction_pipeline.spark.keyed_writer import write_on_spark

_TARGET_KEY, _DEFAULT_TARGET = "write.target-file-size-bytes", 128 * 1024 * 1024


def append_rows(stores: KeyedStores, rows: Any, order_by: str | None, batch: Batch | None) -> int | None:
    """Do what `KeyedTable.write_changes` says."""
    change = stores.change
    if batch is not None and batch.has_landed(change.properties):
        return None
    target = _target(stores)
    files = FileAccess(change.io.properties, change.metadata.location)
    with closing(files):
        outputs = _written(target, rows, order_by, files)
        if not outputs and batch is None:
            return None
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


def _written(target: ChangeTarget, rows: Any, order_by: str | None, files: FileAccess) -> list[OutputFile]:
    if isinstance(rows, pa.Table):
        try:
            return write_change_rows(target, rows, order_by, files, ChangeWriterId.alone())
        except BaseException:
            files.delete_written()
            raise
    outputs = write_on_spark(target, rows, order_by, files.properties)
    files.written += [output.path for output in outputs]
    return outputs


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
