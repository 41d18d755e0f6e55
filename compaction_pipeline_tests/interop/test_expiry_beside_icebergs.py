"""Our expiry beside Iceberg's `expire_snapshots`, on copies of the same ordinary tables, TABLES in all (default 5).

No table is refused, the same snapshots and files are left, and every ref has its rows, also after the second of the two.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from random import Random
from typing import Any

import pytest

from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.settings import Settings
from compaction_pipeline_tests.interop.warehouse import Compactions, Warehouse
from compaction_pipeline_tests.opened import OpenedServices

_TABLES = int(os.environ.get("TABLES", "5"))
_LAYOUTS = (
    "'write.object-storage.enabled'='false'",
    "'write.object-storage.enabled'='true'",
    "'write.data.path'='file://{folder}/wh/elsewhere-{name}'",
    "'write.metadata.path'='file://{folder}/wh/metadata-of-{name}'",
)
_PARTITIONS = ("", "PARTITIONED BY (day)", "PARTITIONED BY (bucket(3, id))")


@dataclass
class Copied:
    """A table, and a copy of its files and of its place in the catalog, so that two tools can begin from the same state."""

    warehouse: Warehouse
    name: str

    def keep(self) -> None:
        shutil.copytree(self.warehouse.folder / "wh", self.warehouse.folder / "kept", dirs_exist_ok=False)
        self._place = self.warehouse.table(self.name).metadata_location

    def restore(self) -> None:
        shutil.rmtree(self.warehouse.folder / "wh")
        shutil.copytree(self.warehouse.folder / "kept", self.warehouse.folder / "wh")
        with sqlite3.connect(self.warehouse.folder / "catalog.db", timeout=30) as catalog:
            catalog.execute("UPDATE iceberg_tables SET metadata_location = ? WHERE table_name = ?", (self._place, self.name))

    def files(self) -> set[str]:
        """The files that lie there, without the metadata.json files. Checksums of Hadoop's file system belong to other files."""
        found = (path for path in (self.warehouse.folder / "wh").rglob("*") if path.is_file())
        return {str(path) for path in found if not path.name.endswith((".metadata.json", ".crc", ".txt"))}

    def snapshots(self) -> set[int]:
        return {one.snapshot_id for one in self.warehouse.table(self.name).metadata.snapshots}

    def rows(self) -> dict[str, list[Any]]:
        """The rows of every ref, as Java reads them."""
        refs = self.warehouse.table(self.name).metadata.refs
        return {ref: sorted(map(repr, self.warehouse.java_rows(self.name, ref))) for ref in refs}


def write(warehouse: Warehouse, compactions: Compactions, name: str, rng: Random) -> None:
    """Give a table a history of appends, deletes, refs and compactions."""
    version, layout, partitions = rng.choice("122"), rng.choice(_LAYOUTS), rng.choice(_PARTITIONS)
    mode = rng.choice(("merge-on-read", "copy-on-write")) if version == "2" else "copy-on-write"
    properties = f"'format-version'='{version}', 'write.delete.mode'='{mode}', {layout.format(folder=warehouse.folder, name=name)}"

    def sql(text: str) -> None:
        warehouse.sql(text, name)

    sql(f"CREATE TABLE {{t}} (id BIGINT, day INT, name STRING) USING iceberg {partitions} TBLPROPERTIES ({properties})")
    steps: dict[str, Callable[[], object]] = {
        "append": lambda: sql(f"INSERT INTO {{t}} SELECT id, id % 3, 'n' FROM range({rng.randint(0, 50)}, 60)"),
        "delete": lambda: sql(f"DELETE FROM {{t}} WHERE id % 7 = {rng.randint(0, 6)}"),
        "delete_day": lambda: sql(f"DELETE FROM {{t}} WHERE day = {rng.randint(0, 2)}"),
        "overwrite": lambda: sql("INSERT OVERWRITE {t} SELECT id, id % 3, 'o' FROM range(10)"),
        "rewrite": lambda: sql(f"CALL {{c}}.system.rewrite_data_files(table => 'db.{name}', options => map('rewrite-all', 'true'))"),
        "rewrite_manifests": lambda: sql(f"CALL {{c}}.system.rewrite_manifests('db.{name}')"),
        "compact": lambda: compactions.compact(rng.choice((CompactionType.MAJOR, CompactionType.FULL)), name),
        "statistics": lambda: sql(f"CALL {{c}}.system.compute_table_stats(table => 'db.{name}')"),
    }
    sql("INSERT INTO {t} SELECT id, id % 3, 'a' FROM range(30)")
    for number in range(rng.randint(3, 7)):
        steps[rng.choice(sorted(steps))]()
        if rng.random() < 0.25:
            sql(f"ALTER TABLE {{t}} CREATE TAG tag{number}")
        if rng.random() < 0.2:
            sql(f"ALTER TABLE {{t}} CREATE BRANCH side{number}")
            warehouse.sql("INSERT INTO {t} SELECT id, 1, 'b' FROM range(5)", f"{name}.branch_side{number}")
        if rng.random() < 0.15:
            snapshots = warehouse.table(name).metadata.snapshots
            sql(f"CALL {{c}}.system.set_current_snapshot('db.{name}', {rng.choice(snapshots).snapshot_id})")
    sql("INSERT INTO {t} SELECT id, id % 3, 'z' FROM range(3)")


@pytest.fixture
def ours(warehouse: Warehouse) -> Iterator[Callable[[str], str]]:
    """Expires a table whole, and returns what the record says. Its clock stands a year later, so everything is old enough."""
    now = [datetime.now(timezone.utc) + timedelta(days=365)]
    services = OpenedServices(Settings(home=warehouse.folder / "state-of-expiry"), clock=lambda: now[0])
    services.stores.catalogs.add(CatalogEntry("lake", warehouse.properties))

    def expire(name: str) -> str:
        table = TableIdentifier("lake", ("db",), name)
        services.one_table.refresh(table)
        first = services.expire_snapshots.expire(table)
        assert [store.refusal for store in first.stores] == [None], name
        now[0] += timedelta(days=1)
        second = services.expire_snapshots.expire(table)
        return " ".join(record.summary for record in second.earlier)

    yield expire
    services.close()


def theirs(warehouse: Warehouse, name: str) -> None:
    """Expire a table by Iceberg's procedure, with the same properties: every snapshot is old, and one stays."""
    warehouse.sql(
        f"CALL {{c}}.system.expire_snapshots(table => 'db.{name}', older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1)"
    )


@pytest.mark.interop
@pytest.mark.timeout(0)
def test_our_expiry_leaves_the_same_snapshots_and_files_as_icebergs_own(
    warehouse: Warehouse, compactions: Compactions, ours: Callable[[str], str]
) -> None:
    rng = Random(int(os.environ.get("COMPACTION_SEED", "20261126")))
    for number in range(_TABLES):
        table = Copied(warehouse, f"t{number}")
        write(warehouse, compactions, table.name, rng)
        table.keep()
        rows = table.rows()
        said = ours(table.name)
        left = table.snapshots(), table.files()
        assert table.rows() == rows, f"{table.name}: {said}"
        theirs(warehouse, table.name)
        assert (table.rows(), table.files()) == (rows, left[1]), f"{table.name}: theirs after ours"
        table.restore()
        theirs(warehouse, table.name)
        assert (table.snapshots(), table.files()) == left, f"{table.name}: {said}"
        ours(table.name)
        assert (table.rows(), table.files()) == (rows, left[1]), f"{table.name}: ours after theirs"
        shutil.rmtree(warehouse.folder / "kept")
        warehouse.sql("DROP TABLE {t} PURGE", table.name)
