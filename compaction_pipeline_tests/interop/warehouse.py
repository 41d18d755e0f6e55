"""A SQL catalog on SQLite that Spark, Flink, PyIceberg and the product share, and checks of its tables.

`Compactions` is the real product on that catalog. It has its own state database, and compacts as the command line does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from compaction_pipeline.core.insight.compaction import Compaction
from compaction_pipeline.core.planning.plan import PlanRequest
from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.core.work.merge_engine import MergeEngine
from compaction_pipeline.iceberg.catalogs import load_catalog
from compaction_pipeline.settings import Settings
from compaction_pipeline_tests.opened import OpenedServices
from compaction_pipeline_tests.reference_reader import Row, bag_difference, reference_rows
from compaction_pipeline_tests.scenarios.java_reader import frame_rows
from compaction_pipeline_tests.scenarios.soundness import faults

Register = Callable[[str, str, str], Any]
_PATIENCE_MS = 60_000
"""How long each writer waits for the others, because SQLite allows one writer at a time."""


class Warehouse:
    """A folder with the catalog and its tables, in the namespace `database`."""

    database = "db"

    def __init__(self, folder: Path, register: Register) -> None:
        self.folder = folder
        self.name = f"c{uuid4().hex[:8]}"
        self.properties = {
            "type": "sql",
            "uri": f"sqlite:///{folder}/catalog.db?timeout={_PATIENCE_MS // 1000}",
            "warehouse": f"file://{folder}/wh",
            "init_catalog_tables": "true",
            "catalog-name": self.name,
        }
        self.catalog = load_catalog(self.name, **self.properties)
        self.catalog.create_namespace_if_not_exists(self.database)
        self.spark = register(self.name, f"{folder}/catalog.db?busy_timeout={_PATIENCE_MS}", f"file://{folder}/wh")

    @property
    def flink_catalog(self) -> dict[str, str]:
        """The properties of the same catalog for Flink."""
        return {
            "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
            "uri": f"jdbc:sqlite:{self.folder}/catalog.db?busy_timeout={_PATIENCE_MS}",
            "warehouse": f"file://{self.folder}/wh",
            "jdbc.schema-version": "V1",
        }

    def sql(self, text: str, table: str = "t") -> list[Any]:
        """Run a statement in Spark. In its text `{t}` is the table and `{c}` the catalog."""
        rows: list[Any] = self.spark.sql(text.replace("{t}", f"{self.name}.{self.database}.{table}").replace("{c}", self.name)).collect()
        return rows

    def table(self, name: str = "t") -> Any:
        return self.catalog.load_table((self.database, name))

    def java_rows(self, table: str = "t", ref: str = "main") -> list[Row]:
        """The rows of a branch or tag, as Iceberg's Java library reads them."""
        return frame_rows(self.spark.sql(f"SELECT * FROM {self.name}.{self.database}.{table} VERSION AS OF '{ref}'"))

    def check(self, expected: Iterable[Row], table: str = "t", when: str = "") -> None:
        """Check that Java and the reference reader see exactly these rows, and that the metadata is sound."""
        loaded, rows = self.table(table), list(expected)
        found = {"reference": reference_rows(loaded), "Java": self.java_rows(table)}
        wrong = {reader: difference for reader, seen in found.items() if (difference := bag_difference(seen, rows))}
        assert not wrong, when
        assert faults(loaded) == [], when


class Compactions:
    """The product, running on a warehouse."""

    def __init__(self, warehouse: Warehouse, engine: MergeEngine | None = None) -> None:
        self._database = warehouse.database
        settings = Settings(home=warehouse.folder / f"state-{uuid4().hex[:8]}", merge_engine="in-process")
        self.services = OpenedServices(settings, engine_override=engine)
        self.services.stores.catalogs.add(CatalogEntry("lake", warehouse.properties))

    def compact(self, kind: CompactionType, table: str = "t") -> Compaction:
        """Force a compaction of this type."""
        request = PlanRequest(types=(kind,), force=True)
        return self.services.compact_tables.compact(TableIdentifier("lake", (self._database,), table), request)

    def close(self) -> None:
        self.services.stores.close()


def live_files(table: Any) -> Sequence[Any]:
    """The data files and delete files of the head."""
    files: Sequence[Any] = table.inspect.files().to_pylist()
    return files
