"""Writes keyed tables file by file, as Amoro's writers and its optimizer do, for tests of readers.

It shares no code with the product's own writer of keyed tables. A test says what is in each file, and what the file is called.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.statistics import BlobMetadata, StatisticsFile
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StringType, TimestampType

from compaction_pipeline.core.tables.data_file import FileContent, LiveFile, OutputFile
from compaction_pipeline.demo.row_delta import row_delta
from compaction_pipeline.formats.puffin import puffin_of
from compaction_pipeline.iceberg.manifests.entries import data_file_of
from compaction_pipeline.iceberg.manifests.live_files import read_live_files
from compaction_pipeline.iceberg.manifests.partitions import PartitionReader, partition_struct
from compaction_pipeline.iceberg.rewrite_files import AddedFile, SnapshotChange, Transaction
from compaction_pipeline.iceberg.scan import manifests_of
from compaction_pipeline.keyed import KeyedTable
from compaction_pipeline.merging.deletes.positions import POSITION_DELETE_SCHEMA
from compaction_pipeline_tests.interop.amoro_reader import amoro_rows
from compaction_pipeline_tests.keyed.acting_catalog import ActingCatalog
from compaction_pipeline_tests.reference_reader import Row, bag_difference

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "region", StringType()),
    NestedField(3, "ts", TimestampType()),
    NestedField(4, "v", StringType()),
)
_OFFSET = pa.field("_file_offset", pa.int64(), metadata={"PARQUET:field_id": "2147482645"})
_TRANSACTION = pa.field("_transaction_id", pa.int64(), metadata={"PARQUET:field_id": "2147482646"})

LoggedRow = tuple[Row] | tuple[Row, int] | tuple[Row, int, int]
"""A row of a change file and its offset. In a file with rows of several transactions, its transaction too. Other programs write neither."""


class ChangeLog:
    """A keyed table `db.t` in an empty catalog, which may have more properties."""

    def __init__(
        self,
        folder: Path,
        schema: Schema = SCHEMA,
        key: Sequence[str] = ("id",),
        spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        **properties: str,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.catalog = ActingCatalog("lake", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/wh", **properties)
        self.catalog.create_namespace("db")
        common = {"table-format": "MIXED_ICEBERG", "mixed-format.primary-key-fields": ",".join(key)}
        base = {**common, "mixed-format.table-store": "base", "mixed-format.change.identifier": "db.t_change_"}
        change = {**common, "mixed-format.table-store": "change"}
        self.base = self.catalog.create_table("db.t", schema, partition_spec=spec, properties=base)
        self.change = self.catalog.create_table("db.t_change_", schema, partition_spec=spec, properties=change)
        self._numbers = itertools.count(1)

    # ---- writing

    def changes(self, node: int, kind: str, transaction: int, rows: Sequence[LoggedRow], *, name: str | None = None) -> OutputFile:
        """Write a change file of node `node` (its id). `kind` is I or ED, and `name` replaces the name that Amoro would give it."""
        extra = [_OFFSET, _TRANSACTION][: len(rows[0]) - 1]
        name = name or f"{node}-{kind}-{transaction}-00000-0-{next(self._numbers)}-00001"
        return _written(self.change, [row[0] for row in rows], extra, [row[1:] for row in rows], name)

    def base_rows(self, node: int, transaction: int, rows: Sequence[Row], *, name: str | None = None) -> OutputFile:
        """Write a file of the base store."""
        return _written(self.base, rows, [], [], name or f"{node}-B-{transaction}-00000-0-{next(self._numbers)}-00001")

    def begin(self) -> int:
        """Begin a transaction as Spark does: by an empty commit. Returns its number."""
        row_delta(self.change, properties={"tx.begin.signature": "test"})
        return self.sequence

    def commit(self, *files: OutputFile, operation: Operation = Operation.APPEND) -> int:
        """Commit change files. Returns their data sequence number."""
        transaction = Transaction(self.change.refresh())
        struct = partition_struct(self.change.metadata, self.change.spec().spec_id)
        transaction.stage(SnapshotChange(operation, [AddedFile(data_file_of(file, struct)) for file in files]))
        transaction.commit()
        return self.sequence

    @property
    def sequence(self) -> int:
        """The data sequence number of the change store's newest snapshot."""
        snapshot = self.change.refresh().current_snapshot()
        return (snapshot.sequence_number or 0) if snapshot is not None else 0

    def commit_base(
        self, *files: OutputFile, deleted: Mapping[str, Sequence[int]] | None = None, sequences: Mapping[str, int] | None = None
    ) -> None:
        """Commit base files, and delete rows of older ones by position. `sequences` are the optimized sequences by partition path."""
        positions = []
        if deleted:
            pairs = [(path, position) for path, each in deleted.items() for position in each]
            positions = [positions_file(self.base, pairs, f"1-PD-0-00000-0-{next(self._numbers)}-00001")]
        flags = {"optimized-sequence.exist": "true"} if sequences is not None else {}
        row_delta(self.base, files, positions, properties=flags)
        if sequences is not None:
            self._set_statistics(sequences)

    def replace_base(self, added: Sequence[OutputFile], removed: Sequence[LiveFile], sequences: Mapping[str, int]) -> None:
        """Commit what a merge of changes wrote: put in these files, take out those, and set the optimized sequences."""
        transaction = Transaction(self.base.refresh())
        struct = partition_struct(self.base.metadata, self.base.spec().spec_id)
        files = [AddedFile(data_file_of(file, struct)) for file in added]
        properties = {"optimized-sequence.exist": "true"}
        transaction.stage(SnapshotChange(Operation.OVERWRITE, files, removed, properties=properties))
        transaction.commit()
        self._set_statistics(sequences)

    def _set_statistics(self, sequences: Mapping[str, int]) -> None:
        snapshot = self.base.refresh().current_snapshot()
        assert snapshot is not None
        written = puffin_of([("optimized-sequence", json.dumps(sequences).encode())], snapshot.snapshot_id, snapshot.sequence_number or 0)
        path = f"{self.base.location()}/data/puffin/{snapshot.snapshot_id}-{next(self._numbers)}.puffin"
        with self.base.io.new_output(path).create() as stream:
            stream.write(written.content)
        statistics = StatisticsFile(
            snapshot_id=snapshot.snapshot_id, statistics_path=path, file_size_in_bytes=len(written.content),
            file_footer_size_in_bytes=written.footer_size_bytes, blob_metadata=[BlobMetadata(**blob) for blob in written.blob_metadata],
        )  # fmt: skip
        with self.base.update_statistics() as update:
            update.set_statistics(statistics)

    def number(self) -> int:
        """A number that no file name has yet."""
        return next(self._numbers)

    # ---- reading

    def base_files(self) -> list[LiveFile]:
        """The live files of the base store, deletes too."""
        return _live(self.base.refresh())

    def change_files(self) -> list[LiveFile]:
        """The live files of the change store."""
        return _live(self.change.refresh())

    def scanned(self) -> list[Row]:
        """The rows that the product reads."""
        rows: list[Row] = KeyedTable.open(self.catalog, "db.t").scan().to_arrow().to_pylist()
        return rows

    def judged(self) -> list[Row]:
        """The rows that Amoro's rules give."""
        return amoro_rows(self.base.refresh().metadata_location, self.change.refresh().metadata_location)

    def check(self, expected: Sequence[Row]) -> None:
        """Both readers find exactly these rows."""
        assert bag_difference(self.judged(), expected) == "", "the reader of Amoro's rules"
        assert bag_difference(self.scanned(), expected) == "", "the product"


def _live(table: Table) -> list[LiveFile]:
    snapshot = table.current_snapshot()
    manifests = manifests_of(snapshot, table.io) if snapshot is not None else ()
    return [file for manifest in manifests for file in read_live_files(table.io, table.metadata, manifest)]


def row(number: int, region: str | None = None, v: str | None = None) -> Row:
    return {"id": number, "region": region, "ts": None, "v": v}


def _written(table: Table, rows: Sequence[Row], extra: Sequence[pa.Field], values: Sequence[Sequence[int]], name: str) -> OutputFile:
    schema = schema_to_pyarrow(table.schema())
    data = pa.Table.from_pylist(list(rows), schema=schema)
    for place, field in enumerate(extra):
        data = data.append_column(field, pa.array([each[place] for each in values], pa.int64()))
    spec = table.spec()
    records = {partition_of(table, each) for each in rows}
    assert len(records) <= 1, "all rows of a file are in one partition"
    return _stored(table, data, Record(*next(iter(records), [None] * len(spec.fields))), FileContent.DATA, name)


def partition_of(table: Table, values: Row) -> tuple[Any, ...]:
    """The partition of a row."""
    return tuple(_partition_value(table, field, values) for field in table.spec().fields)


def _partition_value(table: Table, field: Any, values: Row) -> Any:
    source = table.schema().find_field(field.source_id)
    value = values[source.name]
    scalar = pa.scalar(value, schema_to_pyarrow(Schema(source)).field(0).type) if value is not None else None
    internal = scalar.value if scalar is not None and isinstance(source.field_type, TimestampType) else value
    return field.transform.transform(source.field_type)(internal)


def positions_file(table: Table, pairs: Sequence[tuple[str, int]], name: str, partition: Record | None = None) -> OutputFile:
    """Write a position-delete file with these (path, position) pairs. It names its data file where there is only one."""
    rows = pa.Table.from_arrays(
        [pa.array([path for path, _ in sorted(pairs)]), pa.array([position for _, position in sorted(pairs)], pa.int64())],
        schema=schema_to_pyarrow(POSITION_DELETE_SCHEMA),
    )
    written = _stored(table, rows, partition or Record(), FileContent.POSITION_DELETES, name)
    paths = {path for path, _ in pairs}
    return replace(written, referenced_data_file=paths.pop()) if len(paths) == 1 else written


def _stored(table: Table, data: pa.Table, partition: Record, content: FileContent, name: str) -> OutputFile:
    path = f"{table.location()}/data/{name}.parquet"
    output = table.io.new_output(path)
    with output.create(overwrite=True) as stream:
        pq.write_table(data, stream)
    struct = partition_struct(table.metadata, table.spec().spec_id)
    return OutputFile(path, content, table.spec().spec_id, PartitionReader(struct).read(partition), len(output), len(data))
