"""Expiry of both stores of a keyed table beside Iceberg's own, on copies of the same table.

Iceberg's `expireSnapshots` takes each store for a plain table. It may take away the snapshot that says which changes are merged, and then
readers by Amoro's rules find these rows twice. Ours keeps that snapshot. Of a table that lost it, this program reads and writes nothing.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from compaction_pipeline.core.errors import TableRefused
from compaction_pipeline.core.planning.plan import PlanRequest
from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier
from compaction_pipeline.core.upkeep.works import UpkeepWork
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.settings import Settings
from compaction_pipeline_tests.interop.amoro_reader import amoro_rows
from compaction_pipeline_tests.interop.racing import Say
from compaction_pipeline_tests.keyed.example import Example
from compaction_pipeline_tests.opened import OpenedServices
from compaction_pipeline_tests.reference_reader import bag_difference
from compaction_pipeline_tests.scenarios.examples.unpacking import CATALOG_NAME, catalog_properties

pytestmark = pytest.mark.interop

_TABLE = TableIdentifier("lake", ("db",), "t")
_STORES = ("t", "t_change_")


class Keyed:
    """A keyed table that Amoro wrote, the product, and Iceberg's Java library. The product's clock stands a year later: all is old."""

    def __init__(self, name: str, folder: Path, spark: Any) -> None:
        self.example, self._spark, self._copy = Example(name, folder), spark, folder / "copy"
        self._now = datetime.now(timezone.utc) + timedelta(days=365)
        self.services = OpenedServices(Settings(home=folder / "state"), clock=lambda: self._now)
        self.services.stores.catalogs.add(CatalogEntry("lake", catalog_properties(self.example.home)))
        self.services.explore_catalogs.explore()
        self.services.one_table.refresh(_TABLE)

    def keep(self) -> None:
        shutil.copytree(self.example.home / "wh", self._copy)
        self._places = {one: self.store(one).metadata_location for one in _STORES}

    def restore(self) -> None:
        shutil.rmtree(self.example.home / "wh")
        shutil.copytree(self._copy, self.example.home / "wh")
        with closing(sqlite3.connect(self.example.home / "catalog.db", timeout=30)) as catalog, catalog:
            for one, place in self._places.items():
                catalog.execute("UPDATE iceberg_tables SET metadata_location = ? WHERE table_name = ?", (place, one))
        self.services.expire_snapshots.forget_sightings(_TABLE)

    def store(self, name: str) -> Any:
        return self.example.catalog.load_table(f"db.{name}")

    def files(self) -> set[str]:
        return {str(path) for path in (self.example.home / "wh").rglob("*") if path.is_file() and not path.name.endswith(".crc")}

    def content(self) -> set[str]:
        """The files without those of metadata.json, of which each commit makes one."""
        return {path for path in self.files() if not path.endswith(".metadata.json")}

    def by_amoros_rules(self) -> list[dict[str, Any]]:
        base, change = (self.store(one).metadata_location for one in _STORES)
        return amoro_rows(base, change)

    def read(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.example.table.scan().to_arrow().to_pylist()
        return rows

    def check(self) -> None:
        """Check the rows of every reader."""
        assert bag_difference(self.by_amoros_rules(), self.example.expected) == ""
        assert bag_difference(self.read(), self.example.expected) == ""

    def twice(self) -> int:
        """How many rows a reader by Amoro's rules finds too many."""
        return len(self.by_amoros_rules()) - len(self.example.expected)

    def says_what_is_merged(self) -> list[int]:
        return [
            one.snapshot_id for one in self.store("t").metadata.snapshots if "optimized-sequence.exist" in one.summary.additional_properties
        ]

    def our_snapshots(self) -> None:
        expired = self.services.expire_snapshots.expire(_TABLE)
        assert [store.refusal for store in expired.stores] == [None, None]
        self._now += timedelta(days=1)
        for record in self.services.expire_snapshots.expire(_TABLE).earlier:
            assert record.reason is None, record.reason

    def their_snapshots(self) -> None:
        """Every snapshot is old, and one of each store stays."""
        for one in _STORES:
            self._java(one).expireSnapshots().expireOlderThan(4_102_444_800_000).retainLast(1).commit()

    def _java(self, store: str) -> Any:
        jvm, home = self._spark._jvm, self.example.home
        catalog = jvm.org.apache.iceberg.jdbc.JdbcCatalog()
        catalog.setConf(jvm.org.apache.hadoop.conf.Configuration())
        uri = f"jdbc:sqlite:{home}/catalog.db?busy_timeout=60000"
        catalog.initialize(CATALOG_NAME, {"uri": uri, "warehouse": f"file://{home}/wh", "jdbc.schema-version": "V1"})
        return catalog.loadTable(jvm.org.apache.iceberg.catalog.TableIdentifier.parse(f"db.{store}"))


@pytest.fixture
def keyed(tmp_path: Path, iceberg_spark: Any) -> Iterator[Keyed]:
    """A table with a merge, after which a batch was written into the base store: its newest snapshot does not say what is merged."""
    keyed = Keyed("amoro_keyed_unpart", tmp_path, iceberg_spark)
    yield keyed
    keyed.services.close()


def test_icebergs_expiry_alone_takes_what_says_which_changes_are_merged_and_then_nothing_is_read_or_merged(keyed: Keyed, say: Say) -> None:
    keyed.keep()
    before = keyed.content()
    [says] = keyed.says_what_is_merged()
    keyed.our_snapshots()
    keyed.check()
    by_ours = before - keyed.content()
    assert keyed.says_what_is_merged() == [says]
    keyed.their_snapshots()
    after_ours = keyed.twice()

    keyed.restore()
    keyed.check()
    keyed.their_snapshots()
    by_theirs = before - keyed.content()
    assert by_ours < by_theirs
    assert (keyed.says_what_is_merged(), list(keyed.store("t").metadata.statistics)) == ([], [])
    # It is theirs that does it, with ours before it or without.
    assert keyed.twice() == after_ours > 0
    say(f"both expiries delete {len(by_ours)} files, theirs {len(by_theirs - by_ours)} more; {after_ours} rows come twice after theirs")

    places = {one: keyed.store(one).metadata_location for one in _STORES}
    left = keyed.files()
    with pytest.raises(TableRefused, match="they could appear twice"):
        keyed.read()
    for kind in CompactionType:
        done = keyed.services.compact_tables.compact(_TABLE, PlanRequest((kind,), force=True))
        assert (done.tasks, done.records) == ((), ()), kind
        assert "they could appear twice" in done.plan.reason.text
    for work in (UpkeepWork.CHANGE_FILES, UpkeepWork.OLD_ROWS, UpkeepWork.MANIFESTS):
        [tried] = keyed.services.commit_upkeep.carry_out(_TABLE, work)
        assert "they could appear twice" in (tried.refusal or "")
    assert {one: keyed.store(one).metadata_location for one in _STORES} == places
    assert keyed.files() == left
