"""A real Iceberg table on a SQLite catalog, with as many small files as a test wants. The browser tests use it too."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StringType

from compaction_pipeline.core.tables.data_file import FileContent
from compaction_pipeline.core.tables.node import PartitionValue, TableNode
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.demo.row_delta import row_delta
from compaction_pipeline.demo.write_files import write_parquet_file
from compaction_pipeline.iceberg.catalogs import SqlCatalog

SCHEMA = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "day", StringType()), identifier_field_ids=[1])
SPEC = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "day"), spec_id=0)
PROPERTIES = {
    "self-optimizing.minor.trigger.file-count": "3",
    "self-optimizing.min-plan-interval": "0",
    "self-optimizing.commit.interval": "0",
}


class Lake:
    """A lake with the table `lake.shop.orders`, and methods that write to it."""

    identifier = TableIdentifier("lake", ("shop",), "orders")

    def __init__(self, folder: Path, first_id: int = 0, name: str = "lake") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.properties = {"type": "sql", "uri": f"sqlite:///{folder / 'catalog.db'}", "warehouse": f"file://{folder / 'warehouse'}"}
        self._catalog = SqlCatalog(name, **self.properties)
        self._next_id = first_id

    @property
    def catalog(self) -> SqlCatalog:
        """The catalog itself, for what stands in front of it."""
        return self._catalog

    @property
    def orders(self) -> Table:
        return self._catalog.load_table("shop.orders")

    def load(self, table: str) -> Table:
        """A table by `namespace.name`."""
        return self._catalog.load_table(table)

    def create_orders(self, **properties: str) -> Table:
        self._catalog.create_namespace("shop")
        return self._catalog.create_table("shop.orders", SCHEMA, partition_spec=SPEC, properties={**PROPERTIES, **properties})

    def drop(self, name: str) -> None:
        """Drop a table by `namespace.name`."""
        self._catalog.drop_table(name)

    def create(self, name: str, **properties: str) -> Table:
        return self._catalog.create_table(name, SCHEMA, partition_spec=SPEC, properties={**PROPERTIES, **properties})

    def append_small_files(self, day: int, files: int, rows: int = 5, table: str = "shop.orders") -> None:
        """Commit `files` small files for one day."""
        self._append(self._catalog.load_table(table), day, files, rows)

    def _append(self, table: Table, day: int, files: int, rows: int) -> None:
        written = []
        for _ in range(files):
            first, self._next_id = self._next_id, self._next_id + rows
            data = pa.table({"id": list(range(first, first + rows)), "day": [day_text(day)] * rows}, schema=table.schema().as_arrow())
            written.append(write_parquet_file(table, data, content=FileContent.DATA, partition=Record(day_text(day)), name=f"w-{first}"))
        row_delta(table, written, [])

    def rows(self, table: str = "shop.orders") -> list[int]:
        """Every id that a reader sees, sorted."""
        return sorted(self._catalog.load_table(table).scan().to_arrow()["id"].to_pylist())

    def files(self, table: str = "shop.orders") -> int:
        return len(list(self._catalog.load_table(table).scan().plan_files()))

    def corrupt_a_file(self, day: int) -> None:
        """Make a data file of that day unreadable."""
        task = next(task for task in self.orders.scan().plan_files() if task.file.partition[0] == day_text(day))
        Path(task.file.file_path.removeprefix("file://")).write_bytes(b"PAR1 this is no Parquet file PAR1")


def day_text(day: int) -> str:
    return f"2026-01-{day:02}"


def node(day: int) -> TableNode:
    return TableNode(0, (PartitionValue("day", "string", day_text(day)),))


def key(day: int, table: str = "orders") -> str:
    """The key of a day's node in the first catalog that has the table."""
    return f"shop.{table}/day={day_text(day)}"
