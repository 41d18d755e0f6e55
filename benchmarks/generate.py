"""Makes tables for the benchmarks of the data path. Spark writes them in any size, with deletes of both kinds.

A warehouse has one SQLite catalog that Spark (through Iceberg's JDBC catalog) and PyIceberg share. So the peer and the product work on
the same table. Scale 1 is at least 2 GB of zstd files of 4–8 MB.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
from measure import CATALOG, PACKAGE, spark_settings
from pyiceberg.table import Table

from compaction_pipeline.core.queue.task import CompactionTask
from compaction_pipeline.core.tables.data_file import FileContent, LiveFile
from compaction_pipeline.core.tables.deletes.applies import DeleteIndex
from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier, TableLayout
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.core.work.merge_engine import MergeEngine
from compaction_pipeline.core.work.result import MergeResult
from compaction_pipeline.core.work.work import Merge
from compaction_pipeline.demo.row_delta import row_delta
from compaction_pipeline.demo.write_files import write_parquet_file
from compaction_pipeline.iceberg.catalogs.open_catalogs import Catalogs
from compaction_pipeline.iceberg.table_scan import IcebergScan
from compaction_pipeline.spark.session import SparkSessions

TARGET_BYTES = 128 * 1024 * 1024
_SQLITE_JDBC = "org.xerial:sqlite-jdbc:3.46.1.3"


@dataclass(frozen=True)
class Rows:
    """A kind of rows.

    `columns` maps each column to a Spark expression over `id`, which counts from 0. `rows_per_file` rows make a file of 4–8 MB, and
    `files_at_scale_1` files make at least 2 GB.
    """

    columns: Mapping[str, str]
    key: tuple[str, ...]
    rows_per_file: int
    files_at_scale_1: int


_WORDS = "'furiously', 'carefully', 'quickly', 'deposits', 'accounts', 'requests', 'packages', 'ideas', 'foxes', 'pending', 'final', 'bold'"


def _one_of(literals: str, count: int, seed: int) -> str:
    return f"element_at(array({literals}), cast(rand({seed}) * {count} as int) + 1)"


ORDERS = Rows(
    {
        "id": "id",
        "customer": "cast(rand(1) * 1000000 as bigint)",
        "quantity": "cast(rand(2) * 50 as bigint)",
        "price": "cast(rand(3) * 10000 as decimal(12, 2))",
        "discount": "rand(4)",
        "status": _one_of("'OPEN', 'PAID', 'SENT', 'DONE'", 4, 5),
        "region": "concat('region-', cast(rand(6) * 25 as int))",
        "ordered_at": "timestamp_seconds(1700000000 + cast(rand(7) * 10000000 as bigint))",
        "comment": "concat('order ', hex(cast(rand(8) * 1000000000000 as bigint)), ' of ', hex(cast(rand(9) * 1000000000 as bigint)))",
    },
    ("id",),
    150_000,
    400,
)

LINEITEM = Rows(
    {
        "l_orderkey": "cast(floor(id / 4) as bigint)",
        "l_partkey": "cast(rand(1) * 200000 as bigint)",
        "l_suppkey": "cast(rand(2) * 10000 as bigint)",
        "l_linenumber": "cast(id % 4 + 1 as int)",
        "l_quantity": "cast(cast(rand(3) * 50 as int) + 1 as decimal(15, 2))",
        "l_extendedprice": "cast(900 + rand(4) * 100000 as decimal(15, 2))",
        "l_discount": "cast(cast(rand(5) * 11 as int) / 100 as decimal(15, 2))",
        "l_tax": "cast(cast(rand(6) * 9 as int) / 100 as decimal(15, 2))",
        "l_returnflag": _one_of("'A', 'N', 'R'", 3, 7),
        "l_linestatus": _one_of("'O', 'F'", 2, 8),
        "l_shipdate": "date_add(date'1992-01-01', cast(rand(9) * 2500 as int))",
        "l_commitdate": "date_add(date'1992-02-01', cast(rand(10) * 2500 as int))",
        "l_receiptdate": "date_add(date'1992-01-15', cast(rand(11) * 2500 as int))",
        "l_shipinstruct": _one_of("'DELIVER IN PERSON', 'COLLECT COD', 'NONE', 'TAKE BACK RETURN'", 4, 12),
        "l_shipmode": _one_of("'REG AIR', 'AIR', 'RAIL', 'SHIP', 'TRUCK', 'MAIL', 'FOB'", 7, 13),
        "l_comment": f"concat_ws(' ', {', '.join(_one_of(_WORDS, 12, seed) for seed in range(14, 18))})",
    },
    ("l_orderkey", "l_linenumber"),
    120_000,
    440,
)
"""TPC-H's table lineitem. Columns, types and cardinalities are TPC-H's, and the values are our own."""


class Warehouse:
    """A folder of tables. A Spark session that knows Iceberg, and PyIceberg, both use its catalog."""

    def __init__(self, folder: Path, *, master: str = "local[2]", driver_memory: str = "4g", java_options: str = "") -> None:
        self.folder = folder
        uri = f"{folder}/catalog.db"
        peer = f"spark.sql.catalog.{CATALOG}"
        self.sessions = SparkSessions(
            spark_settings(
                folder,
                master=master,
                driver_memory=driver_memory,
                extra={
                    "spark.jars.packages": f"{PACKAGE},{_SQLITE_JDBC}",
                    f"{peer}.type": "jdbc",
                    f"{peer}.uri": f"jdbc:sqlite:{uri}",
                    f"{peer}.jdbc.schema-version": "V1",
                    # PyIceberg commits between two statements of Spark, so Spark must load the table each time.
                    f"{peer}.cache-enabled": "false",
                    # As many partitions as cores. Spark's default, 200, would spend most of a small query on empty tasks.
                    "spark.sql.shuffle.partitions": "2",
                    "spark.driver.extraJavaOptions": java_options,
                },
            )
        )
        self.properties = {
            "type": "sql",
            "uri": f"sqlite:///{uri}",
            "warehouse": f"file://{folder}/warehouse",
            "init_catalog_tables": "true",
        }
        self.catalogs = Catalogs(lambda name: CatalogEntry(name, self.properties))
        self.catalogs.catalog(CATALOG).create_namespace_if_not_exists("db")

    @property
    def session(self) -> Any:
        return self.sessions.session()

    def table(self, name: str, rows: Rows, files: int, rows_per_file: int, properties: Mapping[str, str] | None = None) -> GeneratedTable:
        """Create a table of `files` data files, which Spark writes in one commit."""
        frame = self.session.range(0, files * rows_per_file, 1, files)
        frame = frame.selectExpr(*[f"{expression} as {column}" for column, expression in rows.columns.items()])
        writer = frame.writeTo(f"{CATALOG}.db.{name}")
        for key, value in {"write.parquet.compression-codec": "zstd", "write.delete.mode": "merge-on-read", **(properties or {})}.items():
            writer = writer.tableProperty(key, value)
        writer.option("write.distribution-mode", "none").create()
        return GeneratedTable(self, TableIdentifier(CATALOG, ("db",), name), rows)


@contextmanager
def warehouse(folder: Path, **options: Any) -> Iterator[Warehouse]:
    """A warehouse whose Spark session ends with the block."""
    opened = Warehouse(folder, **options)
    try:
        yield opened
    finally:
        opened.sessions.stop()


@dataclass
class GeneratedTable:
    """One table. It lists its files as our own scan does, commits deletes, and can be merged whole by either side."""

    warehouse: Warehouse
    identifier: TableIdentifier
    rows: Rows
    _written: int = field(default=0)

    @property
    def sql_name(self) -> str:
        return str(self.identifier)

    def loaded(self) -> Table:
        return self.warehouse.catalogs.load(self.identifier)

    def snapshot_id(self) -> int:
        snapshot = self.loaded().current_snapshot()
        assert snapshot is not None
        return snapshot.snapshot_id

    def files(self) -> list[LiveFile]:
        """Every live file of the newest snapshot."""
        scan = IcebergScan(self.warehouse.catalogs)
        head = scan.head(self.identifier)
        assert head.snapshot_id is not None
        return [
            file for manifest in scan.manifests(self.identifier, head.snapshot_id) for file in scan.live_files(self.identifier, manifest)
        ]

    def layout(self, output_folder: Path) -> TableLayout:
        """The table's layout, but with another output folder, so that no commit can pick up what a benchmark writes."""
        head = IcebergScan(self.warehouse.catalogs).head(self.identifier)
        return replace(head.layout, properties={**head.layout.properties, "write.data.path": str(output_folder)})

    # ---- deletes

    def delete_by_equality(self, *keys: pa.Table) -> None:
        """Commit one equality-delete file for each table of keys, all in one snapshot, as a streaming writer does."""
        table = self.loaded()
        deletes = []
        for each in keys:
            self._written += 1
            ids = [table.schema().find_field(name).field_id for name in each.column_names]
            name = f"equality-{self._written:05d}"
            file = write_parquet_file(table, each, content=FileContent.EQUALITY_DELETES, equality_ids=ids, name=name)
            deletes.append((file, ids))
        row_delta(table, equality_deletes=deletes)

    def delete_positions(self, *positions: pa.Table) -> None:
        """Commit one position-delete file for each table of `file_path` and `pos`, all in one snapshot. Each may name many data files."""
        table = self.loaded()
        deletes = []
        for each in positions:
            self._written += 1
            deletes.append(write_parquet_file(table, each, content=FileContent.POSITION_DELETES, name=f"position-{self._written:05d}"))
        row_delta(table, position_deletes=deletes)

    def delete_by_position(self, condition: str) -> None:
        """Run a merge-on-read DELETE of Spark, which writes position-delete files."""
        self.warehouse.session.sql(f"delete from {self.sql_name} where {condition}")

    def roll_back(self, snapshot_id: int) -> None:
        self.warehouse.session.sql(f"call {CATALOG}.system.rollback_to_snapshot('db.{self.identifier.name}', {snapshot_id})").collect()

    # ---- merges of everything

    def tasks(self, *, memory_bytes: int = 1 << 30, target_bytes: int = TARGET_BYTES) -> list[CompactionTask]:
        """Tasks for all files of the table, each of at most `target_bytes`, as a plan would cut them."""
        files = self.files()
        layout = IcebergScan(self.warehouse.catalogs).head(self.identifier).layout
        index = DeleteIndex([file for file in files if not file.is_data], layout.unpartitioned_spec_ids)
        bins: list[list[LiveFile]] = [[]]
        for file in sorted((file for file in files if file.is_data), key=lambda file: file.path):
            if bins[-1] and sum(each.file_size_bytes for each in bins[-1]) + file.file_size_bytes > target_bytes:
                bins.append([])
            bins[-1].append(file)
        return [self._task(number, inputs, index, layout, memory_bytes, target_bytes) for number, inputs in enumerate(bins)]

    def _task(
        self, number: int, inputs: Sequence[LiveFile], index: DeleteIndex, layout: TableLayout, memory_bytes: int, target_bytes: int
    ) -> CompactionTask:
        deletes = {delete.path: delete for file in inputs for delete in index.of(file)}
        work = Merge(
            node=inputs[0].node,
            type=CompactionType.MAJOR,
            inputs=tuple(inputs),
            deletes=tuple(deletes.values()),
            output_spec_id=inputs[0].spec_id,
            target_size_bytes=target_bytes,
            fragment_size_bytes=target_bytes // 8,
        )
        return CompactionTask(
            task_id=f"task-{number}",
            plan_id="plan",
            table=self.identifier,
            table_uuid="",
            snapshot_id=1,
            sequence_number=1,
            schema_id=layout.schema_id,
            queue="default",
            priority=0,
            max_attempts=1,
            memory_bytes=memory_bytes,
            created_at=datetime.now(timezone.utc),
            work=work,
            attempt=1,
            attempt_id="attempt",
        )

    def rewrite(self, snapshot_id: int, target_bytes: int = TARGET_BYTES) -> None:
        """Merge the whole table with the peer, and roll the commit back at once."""
        self.warehouse.session.sql(
            f"call {CATALOG}.system.rewrite_data_files(table => 'db.{self.identifier.name}', options => map('rewrite-all', 'true', "
            f"'target-file-size-bytes', '{target_bytes}', 'max-file-group-size-bytes', '{target_bytes}', "
            "'max-concurrent-file-group-rewrites', '2'))"
        ).collect()
        self.roll_back(snapshot_id)


def merged(engine: MergeEngine, tasks: Sequence[CompactionTask], layout: TableLayout) -> list[MergeResult]:
    """The results of a merge. Ends the benchmark when a task failed."""
    results = list(engine.merge([each.merge_input(layout) for each in tasks], {}))
    for result in results:
        if result.error is not None:
            raise SystemExit(result.error)
    return results


def total_bytes(files: Sequence[LiveFile]) -> int:
    return sum(file.file_size_bytes for file in files if file.is_data)
