"""A small real lake for tests: a SQL catalog on SQLite, tables on local files, writers, and merges in plain Python.

It shares no code with the kernel. The rows of a merge come from the reference reader.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StringType

from compaction_pipeline.core.commit.ports import CommitOutcome
from compaction_pipeline.core.queue.task import CompactionTask, TaskStatus
from compaction_pipeline.core.tables.data_file import FileContent, LiveFile, OutputFile
from compaction_pipeline.core.tables.deletes.applies import DeleteIndex
from compaction_pipeline.core.tables.table import CatalogEntry, TableHead, TableIdentifier
from compaction_pipeline.core.work.kinds import CompactionType, TaskAction
from compaction_pipeline.core.work.result import MergeResult
from compaction_pipeline.demo.row_delta import row_delta
from compaction_pipeline.demo.write_files import write_parquet_file
from compaction_pipeline.iceberg.catalogs.open_catalogs import Catalogs
from compaction_pipeline.iceberg.catalogs.rest_catalog import RequestLimits
from compaction_pipeline.iceberg.commit.committer import IcebergCommitter
from compaction_pipeline.iceberg.manifests.entries import read_entries
from compaction_pipeline.iceberg.manifests.partitions import partition_record, partition_struct
from compaction_pipeline.iceberg.table_scan import IcebergScan
from compaction_pipeline_tests.copied_files import copied_file
from compaction_pipeline_tests.reference_reader import located_rows, reference_rows
from compaction_pipeline_tests.works import task_work

SCHEMA = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "name", StringType()), identifier_field_ids=[1])
NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)


class Lake:
    """A catalog `lake` with its scan, and a committer that never sleeps. It is in `folder` unless its properties say otherwise."""

    def __init__(
        self,
        folder: Path,
        catalog_name: str = "lake",
        *,
        properties: Mapping[str, str] | None = None,
        namespace: str = "db",
        limits: RequestLimits = RequestLimits(),
    ) -> None:
        self.folder = folder
        self.namespace = namespace
        self.properties = properties or {
            "type": "sql",
            "uri": f"sqlite:///{folder}/catalog.db",
            "warehouse": f"file://{folder}/wh",
            "init_catalog_tables": "true",
            "catalog-name": catalog_name,
        }
        self.catalogs = Catalogs(lambda name: CatalogEntry(name, self.properties), limits)
        self.scan = IcebergScan(self.catalogs)
        self.committer = IcebergCommitter(self.catalogs, sleep=lambda seconds: None)
        self.catalog = self.catalogs.catalog("lake")
        self.catalog.create_namespace_if_not_exists(namespace)

    def table(
        self,
        name: str = "t",
        schema: Schema = SCHEMA,
        spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        version: int = 2,
        properties: Mapping[str, str] | None = None,
    ) -> LakeTable:
        created = self.catalog.create_table(
            (self.namespace, name), schema, partition_spec=spec, properties={"format-version": str(version), **(properties or {})}
        )
        return LakeTable(self, TableIdentifier("lake", (self.namespace,), name), created)


class LakeTable:
    """One table. It is written as streaming writers do, planned and merged by this class, and committed by the product."""

    def __init__(self, lake: Lake, identifier: TableIdentifier, table: Table) -> None:
        self.lake = lake
        self.identifier = identifier
        self.table = table
        self._names = (f"f{number:04d}" for number in itertools.count())

    # ---- writing -----------------------------------------------------------------------------------------------------

    def data_file(self, rows: Sequence[Mapping[str, Any]], partition: Record | None = None, spec_id: int | None = None) -> OutputFile:
        self.table.refresh()
        return self._data_file(rows, next(self._names), partition, spec_id)

    def one_row_files(self, rows: Iterable[Mapping[str, Any]]) -> list[OutputFile]:
        """A data file of an unpartitioned table for each of these rows."""
        self.table.refresh()
        return [self._one_row_file(row, next(self._names)) for row in rows]

    def _one_row_file(self, row: Mapping[str, Any], name: str) -> OutputFile:
        return copied_file(self.table, name, row, lambda: self._data_file([row], name))

    def _data_file(
        self, rows: Sequence[Mapping[str, Any]], name: str, partition: Record | None = None, spec_id: int | None = None
    ) -> OutputFile:
        arrow = pa.Table.from_pylist([dict(row) for row in rows], schema=schema_to_pyarrow(self.table.schema()))
        return write_parquet_file(self.table, arrow, content=FileContent.DATA, partition=partition, spec_id=spec_id, name=name)

    def insert(self, *rows: Mapping[str, Any], partition: Record | None = None, spec_id: int | None = None) -> OutputFile:
        file = self.data_file(rows, partition, spec_id)
        row_delta(self.table, [file])
        return file

    def ids(self, *ids: int) -> OutputFile:
        """Insert rows with these ids."""
        return self.insert(*({"id": one, "name": f"n{one}"} for one in ids))

    def equality_file(
        self, values: Mapping[str, Sequence[Any]], ids: Sequence[int] = (1,), partition: Record | None = None, spec_id: int | None = None
    ) -> OutputFile:
        self.table.refresh()
        return write_parquet_file(
            self.table,
            pa.table(dict(values)),
            content=FileContent.EQUALITY_DELETES,
            equality_ids=ids,
            partition=partition,
            spec_id=spec_id,
            name=next(self._names),
        )

    def delete_ids(self, *ids: int, partition: Record | None = None, spec_id: int | None = None) -> OutputFile:
        """Delete by equality on `id`."""
        file = self.equality_file({"id": pa.array(ids, pa.int64())}, (1,), partition, spec_id)
        row_delta(self.table, equality_deletes=[(file, [1])])
        return file

    def position_file(
        self, positions: Sequence[tuple[str, int]], *, referenced: bool = True, partition: Record | None = None, spec_id: int | None = None
    ) -> OutputFile:
        self.table.refresh()
        paths = {path for path, _ in positions}
        return write_parquet_file(
            self.table,
            pa.table({"file_path": [path for path, _ in positions], "pos": [pos for _, pos in positions]}),
            content=FileContent.POSITION_DELETES,
            partition=partition,
            spec_id=spec_id,
            referenced_data_file=paths.pop() if referenced and len(paths) == 1 else None,
            name=next(self._names),
        )

    def delete_positions(self, *positions: tuple[str, int], referenced: bool = True, partition: Record | None = None) -> OutputFile:
        file = self.position_file(positions, referenced=referenced, partition=partition)
        row_delta(self.table, position_deletes=[file])
        return file

    # ---- reading -----------------------------------------------------------------------------------------------------

    def head(self) -> TableHead:
        return self.lake.scan.head(self.identifier)

    def files(self) -> list[LiveFile]:
        head = self.head()
        if head.snapshot_id is None:
            return []
        manifests = self.lake.scan.manifests(self.identifier, head.snapshot_id)
        return [file for manifest in manifests for file in self.lake.scan.live_files(self.identifier, manifest)]

    def paths(self, content: FileContent) -> set[str]:
        return {file.path for file in self.files() if file.content is content}

    def rows(self) -> list[dict[str, Any]]:
        self.table.refresh()
        return reference_rows(self.table)

    def live_ids(self) -> list[int]:
        """The ids of the rows that a reader sees, sorted. Rows that are there twice count twice."""
        return sorted(row["id"] for row in self.rows())

    def entries(self) -> list[Any]:
        """Every manifest entry of the head, also the DELETED ones."""
        self.table.refresh()
        snapshot = self.table.current_snapshot()
        assert snapshot is not None
        return [entry for manifest in snapshot.manifests(self.table.io) for entry in read_entries(self.table.io, manifest, live_only=False)]

    def judged_entries(self) -> list[Any]:
        """Every manifest entry of the head, read by fastavro, which shares no code with the product's decoder."""
        self.table.refresh()
        snapshot = self.table.current_snapshot()
        assert snapshot is not None
        entries: list[Any] = []
        for manifest in snapshot.manifests(self.table.io):
            with self.table.io.new_input(manifest.manifest_path).open() as stream:
                entries += list(fastavro.reader(io.BytesIO(stream.read())))
        return entries

    # ---- compacting --------------------------------------------------------------------------------------------------

    def merge(self, inputs: Iterable[str] | None = None, task_id: str = "m1", *, output_spec_id: int | None = None) -> CompactionTask:
        """Plan and merge these data files (None means all) at the head. Returns a Prepared task."""
        return self._task(TaskAction.MERGE, inputs, task_id, output_spec_id=output_spec_id)

    def planned(self, inputs: Iterable[str], task_id: str) -> CompactionTask:
        """Plan a merge as `merge` does, but do not read or write any row."""
        return self._task(TaskAction.MERGE, inputs, task_id, merged=False)

    def convert(self, inputs: Iterable[str], converts: Iterable[str], task_id: str = "c1") -> CompactionTask:
        return self._task(TaskAction.CONVERT, inputs, task_id, converts=tuple(converts))

    def drop(self, task_id: str = "d1") -> CompactionTask:
        """A task that drops the table's dangling delete files."""
        task = self._task(TaskAction.DROP_DELETES, [], task_id)
        deletes = tuple(file for file in self.files() if not file.is_data)
        return replace(task, work=replace(task.work, deletes=deletes))

    def commit(self, *tasks: CompactionTask, record: str = "record-1") -> CommitOutcome:
        return self.lake.committer.commit(self.identifier, record, tasks)

    def _task(
        self,
        action: TaskAction,
        inputs: Iterable[str] | None,
        task_id: str,
        converts: tuple[str, ...] = (),
        output_spec_id: int | None = None,
        merged: bool = True,
    ) -> CompactionTask:
        head = self.head()
        files = self.files()
        wanted = None if inputs is None else set(inputs)
        chosen = tuple(file for file in files if file.is_data and (wanted is None or file.path in wanted))
        index = DeleteIndex([file for file in files if not file.is_data], head.layout.unpartitioned_spec_ids)
        deletes = {(delete.path, delete.data_sequence_number): delete for file in chosen for delete in index.of(file)}
        spec_id = chosen[0].spec_id if chosen and output_spec_id is None else output_spec_id or 0
        outputs = self._outputs(action, chosen, head, task_id, spec_id) if merged else ()
        assert head.snapshot_id is not None
        work = task_work(
            node=chosen[0].node if chosen else files[0].node,
            type=CompactionType.MINOR,
            action=action,
            inputs=chosen,
            deletes=tuple(deletes.values()),
            output_spec_id=spec_id,
            target_size_bytes=1 << 27,
            fragment_size_bytes=1 << 24,
            converts=converts,
        )
        return CompactionTask(
            task_id=task_id,
            plan_id="plan",
            table=self.identifier,
            table_uuid=head.table_uuid,
            snapshot_id=head.snapshot_id,
            sequence_number=head.sequence_number,
            schema_id=head.layout.schema_id,
            queue="default",
            priority=0,
            max_attempts=4,
            memory_bytes=1 << 30,
            created_at=NOW,
            work=work,
            status=TaskStatus.PREPARED,
            result=MergeResult(task_id, "a1", outputs, rows_written=sum(output.record_count for output in outputs)),
        )

    def _outputs(
        self, action: TaskAction, chosen: Sequence[LiveFile], head: TableHead, task_id: str, spec_id: int
    ) -> tuple[OutputFile, ...]:
        self.table.refresh()
        located = [row for row in located_rows(self.table, head.snapshot_id) if row.entry.path in {file.path for file in chosen}]
        name = f"{task_id}-1-{next(self._names)}"
        if action is TaskAction.MERGE and located:
            struct = partition_struct(self.table.metadata, spec_id)
            arrow = pa.Table.from_pylist([row.row for row in located], schema=schema_to_pyarrow(self.table.schema()))
            partition = partition_record(struct, chosen[0].partition) if chosen[0].spec_id == spec_id else self.new_partition
            return (write_parquet_file(self.table, arrow, content=FileContent.DATA, partition=partition, spec_id=spec_id, name=name),)
        if action is not TaskAction.CONVERT:
            return ()
        outputs = []
        for number, file in enumerate(chosen):
            live = {row.position for row in located if row.entry.path == file.path}
            gone = [(file.path, position) for position in range(file.record_count) if position not in live]
            if gone:
                struct = partition_struct(self.table.metadata, file.spec_id)
                outputs.append(
                    write_parquet_file(
                        self.table,
                        pa.table({"file_path": [path for path, _ in gone], "pos": [position for _, position in gone]}),
                        content=FileContent.POSITION_DELETES,
                        partition=partition_record(struct, file.partition),
                        spec_id=file.spec_id,
                        referenced_data_file=file.path,
                        name=f"{name}-{number}",
                    )
                )
        return tuple(outputs)

    new_partition: Record | None = None
    """The partition record for a merge that moves rows to another spec."""
