"""A real Iceberg table, and beside it the truth: a plain list of the rows that a reader must see.

The writers here do to a table what Flink, Spark and people do. Every method is one step. It draws its choices from `rng`, and
changes the truth by plain Python. It never reads the rows back, except that a step which deletes rows by position asks the
reference reader for their positions.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform, Transform, TruncateTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
)

from compaction_pipeline.core.tables.data_file import FileContent, LiveFile, OutputFile
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.demo.row_delta import row_delta
from compaction_pipeline.demo.write_files import write_parquet_file
from compaction_pipeline.iceberg.catalogs import SqlCatalog
from compaction_pipeline.iceberg.manifests.entries import data_file_of
from compaction_pipeline.iceberg.manifests.live_files import read_live_files
from compaction_pipeline.iceberg.manifests.partitions import partition_struct
from compaction_pipeline.iceberg.rewrite_files import AddedFile, SnapshotChange, Transaction
from compaction_pipeline_tests.reference_reader import (
    DATA,
    Entry,
    LocatedRow,
    canonical,
    entries_of,
    live_entries,
    local_path,
    located_rows,
    manifests_of,
    metadata_of,
)
from compaction_pipeline_tests.scenarios.modelled_values import FIRST_SCHEMA, ModelledRow, arrow_table, named, random_row

Layout = tuple[tuple[int, Transform[Any, Any]], ...]

_LAYOUTS: tuple[Layout, ...] = (
    (),
    ((2, IdentityTransform()),),
    ((1, BucketTransform(3)),),
    ((2, IdentityTransform()), (1, BucketTransform(2))),
    ((7, DayTransform()),),
    ((8, DayTransform()),),
    ((3, TruncateTransform(1)),),
    ((5, IdentityTransform()),),
)
"""Partition layouts by (source column, transform)."""

_KEY_COLUMNS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 19)
"""Columns that equality deletes may name, as long as the schema has them."""

_NEEDS_DELETES = ("upsert", "delete_by_equality", "delete_by_equality_in_one_partition", "delete_by_position")

_NEVER_DROPPED = frozenset({1, 2})

Place = tuple[int, tuple[Any, ...]]
"""A spec id and canonical partition values."""


class ModelledTable:
    """One table, its writers and its truth. `truth` holds the rows at the head, and `history` the rows of every snapshot."""

    identifier = TableIdentifier("lake", ("db",), "t")

    def __init__(
        self,
        home: Path,
        rng: Random,
        *,
        format_version: int | None = None,
        layout: Layout | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        self.catalog_properties = {"type": "sql", "uri": f"sqlite:///{home}/catalog.db", "warehouse": f"file://{home}/wh"}
        self.catalog = SqlCatalog("lake", **self.catalog_properties)
        self.catalog.create_namespace("db")
        self.format_version = format_version or (1 if rng.random() < 0.1 else 2)
        layout = rng.choice(_LAYOUTS) if layout is None else layout
        self.table: Table = self.catalog.create_table(
            "db.t",
            FIRST_SCHEMA,
            partition_spec=PartitionSpec(
                *(PartitionField(source, 1000 + n, transform, f"p{n}_{source}") for n, (source, transform) in enumerate(layout))
            ),
            sort_order=SortOrder(SortField(1, IdentityTransform()), SortField(3, IdentityTransform()))
            if rng.random() < 0.3
            else SortOrder(),
            properties={
                "format-version": str(self.format_version),
                "self-optimizing.target-size": str(rng.choice((12_000, 24_000, 100_000))),
                "self-optimizing.max-task-size-bytes": str(rng.choice((1, 30_000, 134_217_728))),
                "self-optimizing.fragment-ratio": str(rng.choice((2, 4))),
                "self-optimizing.minor.trigger.file-count": str(rng.choice((2, 4))),
                "self-optimizing.major.trigger.duplicate-ratio": rng.choice(("0.1", "0.5")),
                "compaction.respec.quiet-interval": rng.choice(("0", "0", "86400000")),
                "commit.manifest-merge.enabled": rng.choice(("true", "false")),
                "commit.manifest.min-count-to-merge": "3",
                # Retries of a lost race wait; the test has no time to.
                "commit.retry.min-wait-ms": "1",
                "commit.retry.max-wait-ms": "2",
                **(properties or {}),
            },
        )
        self.truth: list[ModelledRow] = []
        self.history: dict[int | None, list[ModelledRow]] = {None: []}
        self._numbers = iter(range(1_000_000))

    # ---- what others ask ---------------------------------------------------------------------------------------------

    @property
    def schema(self) -> Schema:
        return self.table.schema()

    def reopen(self) -> None:
        """Open the catalog again, after its database file was replaced."""
        self.catalog.close()
        self.catalog = SqlCatalog("lake", **self.catalog_properties)
        self.reload()

    def reload(self) -> Table:
        self.table = self.catalog.load_table("db.t")
        return self.table

    def head_id(self) -> int | None:
        snapshot = self.reload().current_snapshot()
        return None if snapshot is None else snapshot.snapshot_id

    def expected(self, snapshot_id: int | None = None) -> list[dict[str, Any]]:
        """The rows that a reader must see at the head, or at a snapshot, in the current schema."""
        rows = self.truth if snapshot_id is None else self.history[snapshot_id]
        return [named(row, self.schema.fields) for row in rows]

    def live_files(self) -> list[LiveFile]:
        """The head's live files, as the product reads them."""
        snapshot = self.table.current_snapshot()
        manifests = snapshot.manifests(self.table.io) if snapshot else []
        return [file for manifest in manifests for file in read_live_files(self.table.io, self.table.metadata, manifest)]

    def remember(self) -> None:
        """Remember the truth of the head, for a later rollback to it."""
        self.history[self.head_id()] = list(self.truth)

    def write(self, kind: str, rng: Random) -> None:
        """Do one step by its method's name. A table of format v1 takes no delete files, so rows are appended to it instead."""
        getattr(self, "append" if self.format_version == 1 and kind in _NEEDS_DELETES else kind)(rng)

    # ---- writers -----------------------------------------------------------------------------------------------------

    def append(self, rng: Random) -> None:
        """Append as a batch writer does. Sometimes the writer still knows an older schema or an older spec."""
        schema = self._some_schema(rng)
        rows = [random_row(rng, schema) for _ in range(rng.choice((1, 2, 5, 20, 60)))]
        self.append_rows(rows, schema, self._some_spec(rng, schema))

    def append_rows(self, rows: Sequence[ModelledRow], schema: Schema | None = None, spec_id: int | None = None) -> None:
        """Append these rows, one file per partition."""
        spec_id = self.table.metadata.default_spec_id if spec_id is None else spec_id
        row_delta(self.table, data=[file for file, _, _ in self._data_files(rows, schema or self.schema, spec_id)])
        self.truth += rows

    def append_with_pyiceberg(self, rng: Random) -> None:
        """PyIceberg's own append, which may merge manifests. (It can write identity partitions only.)"""
        if any(str(item.transform) != "identity" for item in self.table.spec().fields):
            return self.append(rng)
        rows = [random_row(rng, self.schema) for _ in range(rng.choice((1, 5, 20)))]
        self.table.append(arrow_table(rows, self.schema))
        self.truth += rows
        return None

    def upsert(self, rng: Random) -> None:
        """Upsert as Flink does: delete the keys by equality, add the rows, and delete repeated keys of the same commit by position."""
        keys = [rng.randrange(40) for _ in range(rng.choice((1, 3, 10)))]
        rows = [{**random_row(rng, self.schema), 1: key} for key in keys]
        last = {row[1]: row for row in rows}
        deletes = self._equality_deletes(rng, (1,), list(last.values()))
        batch = self._data_files(rows, self.schema, self.table.metadata.default_spec_id)
        doubles = []
        for file, record, written in batch:
            gone = [(file.path, position) for position, row in enumerate(written) if last[row[1]] is not row]
            if gone:
                doubles.append(self._position_file(gone, file.spec_id, record, referenced=rng.random() < 0.5))
        row_delta(self.table, data=[file for file, _, _ in batch], position_deletes=doubles, equality_deletes=deletes)
        self.truth = [row for row in self.truth if row.get(1) not in last] + list(last.values())

    def delete_by_equality(self, rng: Random) -> None:
        """Delete by one or two columns. Some keys are of existing rows and one is random; NULL and NaN are among them."""
        columns = [item for item in self.schema.fields if item.field_id in _KEY_COLUMNS]
        ids = tuple(sorted(item.field_id for item in rng.sample(columns, rng.choice((1, 1, 2)))))
        keys = [*rng.sample(self.truth, min(len(self.truth), rng.choice((1, 3)))), random_row(rng, self.schema)]
        row_delta(self.table, equality_deletes=self._equality_deletes(rng, ids, keys))
        self._forget_keys(ids, keys)

    def delete_by_equality_in_one_partition(self, rng: Random) -> None:
        """Delete by equality in one partition. Such a delete does not reach rows of other partitions."""
        places = [place for place in self._places() if not self._is_unpartitioned(place[0])]
        if not places:
            return
        spec_id, values = rng.choice(sorted(places, key=repr))
        located = [row for row in located_rows(self.table) if (row.entry.spec_id, row.entry.partition) == (spec_id, values)]
        if not located:
            return
        here = rng.sample(located, min(len(located), 3))
        # Some keys are also those of rows in other partitions, and those rows stay.
        elsewhere = rng.sample(self.truth, min(len(self.truth), rng.choice((0, 10, 40))))
        chosen = {canonical(row.row[self._name(1)]) for row in here} | {canonical(row.get(1)) for row in elsewhere}
        keys = [row for row in self.truth if canonical(row.get(1)) in chosen]
        file = self._equality_file((1,), keys, spec_id, self._places()[(spec_id, values)])
        row_delta(self.table, equality_deletes=[(file, (1,))])
        self._forget_rows(row for row in located if canonical(row.row[self._name(1)]) in chosen)

    def delete_by_position(self, rng: Random) -> None:
        """Delete by position as Spark's merge-on-read does: one delete file for each data file, or one for each partition."""
        located = located_rows(self.table)
        if not located:
            return
        chosen = rng.sample(located, min(len(located), rng.choice((1, 4, 15))))
        by_file: dict[Any, list[LocatedRow]] = defaultdict(list)
        per_file = rng.random() < 0.5
        for row in chosen:
            by_file[row.entry.path if per_file else (row.entry.spec_id, row.entry.partition)].append(row)
        files = [
            self._position_file(
                [(row.entry.path, row.position) for row in rows], rows[0].entry.spec_id, _record(rows[0].entry), referenced=per_file
            )
            for rows in by_file.values()
        ]
        row_delta(self.table, position_deletes=files)
        self._forget_rows(chosen)

    # ---- people ------------------------------------------------------------------------------------------------------

    def evolve_schema(self, rng: Random) -> None:
        """Add, drop, rename, promote or move a column, which may be nested."""
        schema = self.schema
        number = next(self._numbers)
        top = [item for item in schema.fields if item.field_id not in self._current_sources()]
        droppable = [item for item in top if item.field_id not in _NEVER_DROPPED]
        narrow = [item for item in schema.fields if isinstance(item.field_type, (IntegerType, FloatType, DecimalType))]
        nested = [item for item in schema.fields if isinstance(item.field_type, StructType)]
        with self.table.update_schema(allow_incompatible_changes=False) as update:
            choice = rng.choice(("add", "add again", "drop", "rename", "promote", "move", "nested"))
            if choice == "add":
                update.add_column(f"c{number}", rng.choice((LongType(), StringType(), DoubleType())))
            elif choice == "add again" and len(droppable) > 6:
                # The column is dropped and added again under its name. It gets a new id, so the old values must not come back.
                item = rng.choice(droppable)
                update.delete_column(item.name)
                update.add_column(item.name, item.field_type if isinstance(item.field_type, PrimitiveType) else StringType())
            elif choice == "drop" and len(droppable) > 6:
                update.delete_column(rng.choice(droppable).name)
            elif choice == "rename":
                update.rename_column(rng.choice(schema.fields).name, f"r{number}")
            elif choice == "promote" and narrow:
                item = rng.choice(narrow)
                update.update_column(item.name, _promoted(item))
            elif choice == "move":
                update.move_first(rng.choice(schema.fields).name)
            elif choice == "nested" and nested:
                item = rng.choice(nested)
                inside = item.field_type.fields if isinstance(item.field_type, StructType) else ()
                if rng.random() < 0.5 or len(inside) < 2:
                    update.add_column((item.name, f"n{number}"), StringType())
                else:
                    update.delete_column((item.name, rng.choice(inside).name))

    def evolve_partitions(self, rng: Random) -> None:
        """Change to another partition layout. Files of the old layouts stay."""
        present = {item.field_id for item in self.schema.fields}
        layout = rng.choice([layout for layout in _LAYOUTS if all(source in present for source, _ in layout)])
        current = {(item.source_id, str(item.transform)) for item in self.table.spec().fields if str(item.transform) != "void"}
        if current == {(source, str(transform)) for source, transform in layout}:
            return
        number = next(self._numbers)
        with self.table.update_spec() as update:
            for item in self.table.spec().fields:
                if str(item.transform) != "void":
                    update.remove_field(item.name)
        self.reload()
        with self.table.update_spec() as update:
            for source, transform in layout:
                update.add_field(self._name(source), transform, f"p{number}_{source}")

    def expire_snapshots(self, rng: Random) -> None:
        """Expire some old snapshots. Half the time also delete their files from storage, as Java does."""
        metadata = self.table.metadata
        head = self.table.current_snapshot()
        old = [snapshot.snapshot_id for snapshot in metadata.snapshots if head is not None and snapshot.snapshot_id != head.snapshot_id]
        if not old:
            return
        before = reachable_files(metadata_of(self.table))
        chosen = rng.sample(old, rng.randint(1, len(old)))
        self.table.maintenance.expire_snapshots().by_ids(chosen).commit()
        self.reload()
        if rng.random() < 0.5:
            for path in sorted(before - reachable_files(metadata_of(self.table))):
                os.remove(local_path(path))

    def roll_back(self, rng: Random) -> None:
        """Roll the table back to an ancestor of the head."""
        known, ancestor = [], self.table.current_snapshot()
        while ancestor is not None and ancestor.parent_snapshot_id is not None:
            ancestor = self.table.snapshot_by_id(ancestor.parent_snapshot_id)
            if ancestor is not None and ancestor.snapshot_id in self.history:
                known.append(ancestor.snapshot_id)
        if not known:
            return
        chosen = rng.choice(known[:6])
        self.table.manage_snapshots().rollback_to_snapshot(chosen).commit()
        self.truth = list(self.history[chosen])

    # ---- other engines' maintenance ----------------------------------------------------------------------------------

    def rewrite_as_another_engine(self, rng: Random) -> None:
        """Compact some files of one partition as another engine does: write their live rows to one file, at the head's sequence number."""
        snapshot = self.table.current_snapshot()
        entries = self._some_data_files(rng, at_least=2)
        if snapshot is None or not entries:
            return
        sequence = (snapshot.sequence_number or 0) if self.format_version == 2 else None
        self._replace(Operation.REPLACE, entries, [row for row in located_rows(self.table) if row.entry in entries], sequence)

    def delete_by_copy_on_write(self, rng: Random) -> None:
        """Rewrite a file without some of its rows (operation `overwrite`, a new sequence number)."""
        entries = self._some_data_files(rng, at_least=1)[:1]
        if not entries:
            return
        located = [row for row in located_rows(self.table) if row.entry in entries]
        gone = [row for row in located if rng.random() < 0.3]
        self._replace(Operation.OVERWRITE, entries, [row for row in located if row not in gone], None)
        self._forget_rows(gone)

    def _replace(self, operation: Operation, entries: Sequence[Entry], rows: Sequence[LocatedRow], sequence: int | None) -> None:
        added = []
        if rows:
            file = write_parquet_file(
                self.table,
                arrow_table([_by_id(row.row, self.schema.fields) for row in rows], self.schema),
                content=FileContent.DATA,
                partition=_record(entries[0]),
                spec_id=entries[0].spec_id,
                name=(name := self._file_name("foreign")),
                parquet=_some_format(name),
            )
            added = [AddedFile(data_file_of(file, partition_struct(self.table.metadata, file.spec_id)), sequence)]
        paths = {entry.path for entry in entries}
        removed = [file for file in self.live_files() if file.path in paths]
        transaction = Transaction(self.table)
        transaction.stage(SnapshotChange(operation, added, removed, {"engine-name": "another"}))
        transaction.commit()

    # ---- parts -------------------------------------------------------------------------------------------------------

    def _some_schema(self, rng: Random) -> Schema:
        # A writer may have started before a schema change. Its columns must still exist, but may be narrower.
        if rng.random() < 0.7:
            return self.schema
        fits = [schema for schema in self.table.schemas().values() if _is_narrower(schema, self.schema)]
        return rng.choice(sorted(fits, key=lambda schema: schema.schema_id))

    def _some_spec(self, rng: Random, schema: Schema) -> int:
        current = int(self.table.metadata.default_spec_id)
        if rng.random() < 0.8:
            return current
        ids = {item.field_id for item in schema.fields}
        fits = [spec_id for spec_id, spec in self.table.specs().items() if all(item.source_id in ids for item in spec.fields)]
        return rng.choice(sorted(fits)) if fits else current

    def _data_files(self, rows: Sequence[ModelledRow], schema: Schema, spec_id: int) -> list[tuple[OutputFile, Record, list[ModelledRow]]]:
        """Write rows as one file for each partition. Returns each file with its partition and its rows in their order."""
        spec = self.table.specs()[spec_id]
        by_partition: dict[tuple[Any, ...], list[ModelledRow]] = defaultdict(list)
        for row in rows:
            values = [self._partition_value(item, row) for item in spec.fields]
            by_partition[tuple(values)].append(row)
        files = []
        for partition, members in by_partition.items():
            file = write_parquet_file(
                self.table,
                arrow_table(members, schema),
                content=FileContent.DATA,
                partition=Record(*partition),
                spec_id=spec_id,
                schema_id=schema.schema_id,
                name=(name := self._file_name("data")),
                parquet=_some_format(name),
            )
            files.append((file, Record(*partition), members))
        return files

    def _partition_value(self, item: PartitionField, row: ModelledRow) -> Any:
        if str(item.transform) == "void":
            return None
        kind = self.schema.find_type(item.source_id)
        return item.transform.transform(kind)(_held(row.get(item.source_id)))

    def _equality_deletes(self, rng: Random, ids: tuple[int, ...], keys: Sequence[ModelledRow]) -> list[tuple[OutputFile, tuple[int, ...]]]:
        """Delete files that reach every row with these keys: a global one, or one for each partition (or each that holds such a row)."""
        unpartitioned = [spec_id for spec_id in self.table.specs() if self._is_unpartitioned(spec_id)]
        if unpartitioned and rng.random() < 0.4:
            spec_id = rng.choice(sorted(unpartitioned))
            return [(self._equality_file(ids, keys, spec_id, Record(*[None] * len(self.table.specs()[spec_id].fields))), ids)]
        places = self._places()
        if rng.random() < 0.5:
            gone = self._key_set(ids, keys)
            holding = {
                (row.entry.spec_id, row.entry.partition)
                for row in located_rows(self.table)
                if tuple(canonical(row.row[self._name(column)]) for column in ids) in gone
            }
            places = {place: record for place, record in places.items() if place in holding}
        return [(self._equality_file(ids, keys, spec_id, record), ids) for (spec_id, _), record in places.items()]

    def _equality_file(self, ids: tuple[int, ...], keys: Sequence[ModelledRow], spec_id: int, record: Record) -> OutputFile:
        columns = Schema(*(item for item in self.schema.fields if item.field_id in ids))
        return write_parquet_file(
            self.table,
            arrow_table(keys, columns),
            content=FileContent.EQUALITY_DELETES,
            partition=record,
            spec_id=spec_id,
            equality_ids=ids,
            name=self._file_name("equality"),
        )

    def _position_file(self, positions: Sequence[tuple[str, int]], spec_id: int, record: Record, *, referenced: bool) -> OutputFile:
        rows = pa.table({"file_path": [path for path, _ in positions], "pos": [position for _, position in positions]})
        return write_parquet_file(
            self.table,
            rows,
            content=FileContent.POSITION_DELETES,
            partition=record,
            spec_id=spec_id,
            referenced_data_file=positions[0][0] if referenced else None,
            name=self._file_name("position"),
        )

    def _some_data_files(self, rng: Random, at_least: int) -> list[Entry]:
        by_place: dict[Place, list[Entry]] = defaultdict(list)
        for entry in live_entries(metadata_of(self.table)):
            if entry.content == DATA:
                by_place[(entry.spec_id, entry.partition)].append(entry)
        choices = [entries for _, entries in sorted(by_place.items(), key=repr) if len(entries) >= at_least]
        if not choices:
            return []
        entries = rng.choice(choices)
        return rng.sample(entries, rng.randint(at_least, len(entries)))

    def _places(self) -> dict[Place, Record]:
        """The specs and partitions that hold live data files."""
        return {
            (entry.spec_id, entry.partition): _record(entry) for entry in live_entries(metadata_of(self.table)) if entry.content == DATA
        }

    def _is_unpartitioned(self, spec_id: int) -> bool:
        return all(str(item.transform) == "void" for item in self.table.specs()[spec_id].fields)

    def _current_sources(self) -> set[int]:
        return {item.source_id for item in self.table.spec().fields} | {item.source_id for item in self.table.sort_order().fields}

    def _name(self, column: int) -> str:
        return self.schema.find_column_name(column) or ""

    def _key_set(self, ids: Sequence[int], keys: Iterable[ModelledRow]) -> set[tuple[Any, ...]]:
        return {tuple(canonical(row.get(column)) for column in ids) for row in keys}

    def _forget_keys(self, ids: Sequence[int], keys: Sequence[ModelledRow]) -> None:
        gone = self._key_set(ids, keys)
        self.truth = [row for row in self.truth if tuple(canonical(row.get(column)) for column in ids) not in gone]

    def _forget_rows(self, located: Iterable[LocatedRow]) -> None:
        gone = Counter(canonical(row.row) for row in located)
        kept = []
        for row in self.truth:
            shown = canonical(named(row, self.schema.fields))
            if gone[shown]:
                gone[shown] -= 1
            else:
                kept.append(row)
        assert not +gone, f"the reader showed rows that the truth lacks: {+gone}"
        self.truth = kept

    def _file_name(self, kind: str) -> str:
        return f"{kind}-{next(self._numbers)}"


def _some_format(name: str) -> dict[str, Any]:
    """The Parquet settings of a file, drawn by its name. So a merge copies the bytes of some files, and decodes others."""
    rng = Random(name)
    return {
        "use_dictionary": rng.random() < 0.3,
        "data_page_version": rng.choice(("1.0", "2.0")),
        "row_group_size": rng.choice((10, 1000, 1000)),
        "compression": rng.choice(("zstd", "zstd", "zstd", "snappy")),
    }


def _record(entry: Entry) -> Record:
    """The partition of an entry in PyIceberg's form, with dates as days."""
    return Record(*(_held(value) for value in entry.file["partition"].values()))


def _held(value: Any) -> Any:
    if isinstance(value, datetime):
        return (value - datetime(1970, 1, 1)) // timedelta(microseconds=1)
    return (value - date(1970, 1, 1)).days if isinstance(value, date) else value


def _by_id(row: Mapping[str, Any], fields: Iterable[NestedField]) -> ModelledRow:
    """A row of the reference reader, keyed by field id."""
    return {item.field_id: _value_by_id(row[item.name], item.field_type) for item in fields}


def _value_by_id(value: Any, kind: IcebergType) -> Any:
    if value is None:
        return None
    if isinstance(kind, StructType):
        return _by_id(value, kind.fields)
    if isinstance(kind, MapType):
        # `canonical` values of a map's primitives are (type, value) pairs.
        return {key[1]: item[1] for key, item in value}
    return value


def _promoted(item: NestedField) -> PrimitiveType:
    kind = item.field_type
    if isinstance(kind, DecimalType):
        return DecimalType(min(38, kind.precision + 9), kind.scale)
    return LongType() if isinstance(kind, IntegerType) else DoubleType()


def _is_narrower(schema: Schema, current: Schema) -> bool:
    """True when every column of an older schema still exists, under whatever name and width."""
    old, new = schema.fields, {item.field_id: item for item in current.fields}
    return all(item.field_id in new and (item.field_type.is_primitive or item.field_type == new[item.field_id].field_type) for item in old)


def reachable_files(metadata: Mapping[str, Any]) -> set[str]:
    """Every file that a snapshot of the metadata names."""
    paths: set[str] = set()
    for snapshot in metadata.get("snapshots", []):
        paths.add(snapshot["manifest-list"])
        for manifest in manifests_of(snapshot):
            paths.add(manifest["manifest_path"])
            paths.update(entry.path for entry in entries_of(manifest))
    return paths
