"""Builders of small Iceberg data and delete files, and of the tasks that merge them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortOrder
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

from compaction_pipeline.core.queue.task import CompactionTask
from compaction_pipeline.core.tables.data_file import FileContent, LiveFile, OutputFile
from compaction_pipeline.core.tables.node import Partition, TableNode
from compaction_pipeline.core.tables.table import TableIdentifier, TableLayout
from compaction_pipeline.core.work.kinds import CompactionType, TaskAction
from compaction_pipeline.core.work.result import MergeResult
from compaction_pipeline.formats.parquet.footer import Footer
from compaction_pipeline.merging.deletes.positions import POSITION_DELETE_SCHEMA
from compaction_pipeline.merging.reading.evolution import arrow_field, arrow_schema
from compaction_pipeline_tests.works import merge_task, task_work

MIB = 1024 * 1024
SIMPLE = Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "name", StringType(), required=False))


@dataclass
class Table:
    """The files of one table in a folder. The sequence number of a file is the number of files written before it, plus one."""

    folder: Path
    schemas: list[Schema] = field(default_factory=lambda: [SIMPLE])
    specs: list[PartitionSpec] = field(default_factory=lambda: [PartitionSpec(spec_id=0)])
    order: SortOrder | None = None
    properties: dict[str, str] = field(default_factory=dict)
    unpartitioned: frozenset[int] = frozenset({0})
    inputs: list[LiveFile] = field(default_factory=list)
    deletes: list[LiveFile] = field(default_factory=list)
    written: int = 0

    @property
    def schema(self) -> Schema:
        return self.schemas[-1]

    def append(
        self,
        rows: Sequence[Mapping[str, Any]] | pa.Table,
        *,
        schema: Schema | None = None,
        partition: Partition = (),
        spec_id: int = 0,
        sequence: int | None = None,
        **options: Any,
    ) -> LiveFile:
        """Write a data file with these rows. A `pa.Table` is written unchanged."""
        table = rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(list(rows), arrow_schema((schema or self.schema).fields))
        file = self._write(table, FileContent.DATA, partition, spec_id, sequence, **options)
        self.inputs.append(file)
        return file

    def delete_equal(
        self,
        rows: Sequence[Mapping[str, Any]],
        fields: Sequence[NestedField],
        *,
        ids: tuple[int, ...] | None = None,
        partition: Partition = (),
        spec_id: int = 0,
        sequence: int | None = None,
    ) -> LiveFile:
        """Write an equality-delete file over these fields."""
        table = pa.Table.from_pylist(list(rows), pa.schema([arrow_field(each) for each in fields]))
        file = self._write(table, FileContent.EQUALITY_DELETES, partition, spec_id, sequence)
        file = replace(file, equality_ids=ids or tuple(each.field_id for each in fields))
        self.deletes.append(file)
        return file

    def delete_positions(
        self, positions: Sequence[tuple[str, int]], *, partition: Partition = (), spec_id: int = 0, sequence: int | None = None
    ) -> LiveFile:
        """Write a position-delete file. When it names only one data file, it is marked as belonging to that file."""
        schema = arrow_schema(POSITION_DELETE_SCHEMA.fields)
        table = pa.Table.from_pylist([{"file_path": path, "pos": position} for path, position in positions], schema)
        file = self._write(table, FileContent.POSITION_DELETES, partition, spec_id, sequence)
        paths = {path for path, _ in positions}
        file = replace(
            file, referenced_data_file=next(iter(paths)) if len(paths) == 1 else None, path_lower=min(paths), path_upper=max(paths)
        )
        self.deletes.append(file)
        return file

    def _write(
        self, table: pa.Table, content: FileContent, partition: Partition, spec_id: int, sequence: int | None, **options: Any
    ) -> LiveFile:
        self.written += 1
        path = self.folder / f"in-{self.written}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, path, **({"compression": "zstd", "store_schema": False, "write_page_checksum": True} | options))
        return LiveFile(
            path=str(path),
            content=content,
            spec_id=spec_id,
            partition=partition,
            file_size_bytes=path.stat().st_size,
            record_count=table.num_rows,
            data_sequence_number=self.written if sequence is None else sequence,
        )

    def layout(self) -> TableLayout:
        order = self.order or SortOrder(order_id=0)
        return TableLayout(
            location=str(self.folder / "table"),
            format_version=2,
            schema_id=len(self.schemas) - 1,
            schemas={
                number: schema.model_copy(update={"schema_id": number}).model_dump_json() for number, schema in enumerate(self.schemas)
            },
            default_spec_id=self.specs[-1].spec_id,
            specs={spec.spec_id: spec.model_dump_json() for spec in self.specs},
            default_sort_order_id=order.order_id,
            sort_orders={order.order_id: order.model_dump_json()},
            unpartitioned_spec_ids=self.unpartitioned,
            properties=self.properties,
        )

    def task(
        self,
        *,
        action: TaskAction = TaskAction.MERGE,
        kind: CompactionType = CompactionType.MAJOR,
        target: int = 128 * MIB,
        memory: int = 256 * MIB,
        converts: Sequence[LiveFile] = (),
        output_spec_id: int | None = None,
        schema_id: int | None = None,
    ) -> CompactionTask:
        node = TableNode(self.inputs[0].spec_id, self.inputs[0].partition) if self.inputs else TableNode(0)
        work = task_work(
            node=node,
            type=kind,
            action=action,
            inputs=tuple(self.inputs),
            deletes=tuple(self.deletes),
            output_spec_id=node.spec_id if output_spec_id is None else output_spec_id,
            target_size_bytes=target,
            fragment_size_bytes=target // 8,
            converts=tuple(file.path for file in converts),
        )
        return CompactionTask(
            task_id="task-1",
            plan_id="plan-1",
            table=TableIdentifier("lake", ("shop",), "orders"),
            table_uuid="uuid",
            snapshot_id=1,
            sequence_number=self.written,
            schema_id=len(self.schemas) - 1 if schema_id is None else schema_id,
            queue="default",
            priority=0,
            max_attempts=4,
            memory_bytes=memory,
            created_at=datetime(2026, 1, 1, tzinfo=timezone.utc),
            work=work,
            attempt=1,
            attempt_id="attempt-1",
        )

    def merge(self, **options: Any) -> MergeResult:
        """Merge all files in this process."""
        return merge_task(self.task(**options), self.layout(), {})

    def merged_rows(self, **options: Any) -> list[dict[str, Any]]:
        """Merge all files, which must succeed. Returns the rows after the merge."""
        result = self.merge(**options)
        assert result.error is None, result.error
        return rows_of(result.outputs)


def rows_of(outputs: Sequence[OutputFile]) -> list[dict[str, Any]]:
    """The rows of written files, in the order of the files."""
    return [row for output in outputs for row in pq.read_table(output.path, partitioning=None).to_pylist()]


def footer_of(path: str | Path) -> Footer:
    """The footer of a Parquet file."""
    data = Path(path).read_bytes()
    return Footer.of(data[-8 - int.from_bytes(data[-8:-4], "little") : -8])


def chunk_bytes(path: str | Path) -> list[bytes]:
    """The bytes of a file's column chunks, row group by row group."""
    data = Path(path).read_bytes()
    return [data[chunk.start : chunk.start + chunk.length] for group in footer_of(path).groups for chunk in group.chunks]


def copied(inputs: Sequence[LiveFile], outputs: Sequence[OutputFile]) -> list[bool]:
    """For each column chunk of the inputs, in order: True when an output contains its bytes."""
    written = [Path(output.path).read_bytes() for output in outputs]
    return [any(chunk in each for each in written) for file in inputs for chunk in chunk_bytes(file.path)]


def integer(number: int, name: str) -> NestedField:
    return NestedField(number, name, IntegerType(), required=False)


def long(number: int, name: str) -> NestedField:
    return NestedField(number, name, LongType(), required=False)


def text(number: int, name: str) -> NestedField:
    return NestedField(number, name, StringType(), required=False)
