"""Our upkeep beside Iceberg's `remove_orphan_files`, `rewrite_manifests` and `expire_snapshots`, on copies of the same ordinary tables,
TABLES in all (default 2).

Each work is done four times on each table: by ours, by theirs after ours, by theirs on a copy, and by ours after theirs. No table is
refused, every ref has its rows after each of them, and no file is deleted that theirs keeps. What theirs deletes and ours keeps is counted
by our rule. Both expiries leave the same snapshots and files.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import pytest

from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier
from compaction_pipeline.core.upkeep.orphan_rules import Standing
from compaction_pipeline.core.upkeep.works import UpkeepWork
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.settings import Settings
from compaction_pipeline_tests.interop.warehouse import Compactions, Warehouse
from compaction_pipeline_tests.opened import OpenedServices

_TABLES = int(os.environ.get("TABLES", "2"))
_KEPT_BY_US = {Standing.OURS, Standing.STRANGE, Standing.YOUNG, Standing.REFERENCED}
"""Standings in which ours keeps a file that theirs may delete."""
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
        """All files that lie there. Checksums of Hadoop's file system belong to other files."""
        found = (path for path in (self.warehouse.folder / "wh").rglob("*") if path.is_file())
        return {str(path) for path in found if not path.name.endswith((".crc", "version-hint.text"))}

    def manifests(self) -> int:
        """How many manifests the head has."""
        return int(self.warehouse.table(self.name).inspect.manifests().num_rows)

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


def leave_behind(warehouse: Warehouse, name: str, rng: Random) -> set[str]:
    """Leave what killed programs leave below the location of a table: files with the names of writers, and others. Returns the former."""
    folder = Path(urlsplit(warehouse.table(name).location()).path)
    a, b, c = (UUID(int=rng.getrandbits(128), version=4) for _ in range(3))
    garbage = (
        f"data/00000-7-{a}-00001.parquet",
        f"data/day=1/00000-8-{a}-0-00001-deletes.parquet",
        f"data/20260101_000000_00001_abcde-{b}.parquet",
        "data/a1-sink-0123456789abcdef-deadbeef-00001.parquet",
        f"metadata/{b}-m0.avro",
        f"metadata/snap-1-1-{b}.avro",
        f"metadata/1-{c}.stats",
    )
    others = (
        "data/part-00000.parquet",
        "data/notes.txt",
        "data/_tmp/x.parquet",
        "data/.hidden.parquet",
        f"metadata/00099-{c}.metadata.json",
    )
    for below in (*garbage, *others[:-1]):
        path = folder / below
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"12345")
    # Metadata of a commit that failed. It is a copy, because metadata that nobody can read refuses the look.
    shutil.copyfile(urlsplit(warehouse.table(name).metadata_location).path, folder / others[-1])
    return {str(folder / below) for below in garbage}


class Ours:
    """The product. Its clock stands a year later, so everything is old enough."""

    def __init__(self, warehouse: Warehouse) -> None:
        self._now = datetime.now(timezone.utc) + timedelta(days=365)
        self.services = OpenedServices(Settings(home=warehouse.folder / "state-of-upkeep"), clock=lambda: self._now)
        self.services.stores.catalogs.add(CatalogEntry("lake", warehouse.properties))

    def took_back(self, name: str) -> None:
        """Tell that the table was taken back to an earlier state on purpose."""
        self.services.expire_snapshots.forget_sightings(_identifier(name))

    def orphans(self, name: str) -> Mapping[str, Standing]:
        """Delete orphan files. Returns what each file is, as the look before the deletion found."""
        table = _identifier(name)
        self.services.one_table.refresh(table)
        self._now += timedelta(days=1)
        assert self.services.clean_orphans.look(table).refusals == (), name
        self._now += timedelta(days=1)
        cleaned = self.services.clean_orphans.delete(table, accept_share=1.0)
        assert (cleaned.refusals, cleaned.problem) == ((), None), name
        assert cleaned.found is not None
        return {urlsplit(file.path).path: standing for standing, files in cleaned.found.files.items() for file in files}

    def manifests(self, name: str) -> None:
        (done,) = self.services.commit_upkeep.carry_out(_identifier(name), UpkeepWork.MANIFESTS)
        assert done.refusal is None, name

    def snapshots(self, name: str) -> str:
        """Expire a table whole. Returns what the record says."""
        table = _identifier(name)
        self.services.one_table.refresh(table)
        first = self.services.expire_snapshots.expire(table)
        assert [store.refusal for store in first.stores] == [None], name
        self._now += timedelta(days=1)
        second = self.services.expire_snapshots.expire(table)
        return " ".join(record.summary for record in second.earlier)


def _identifier(name: str) -> TableIdentifier:
    return TableIdentifier("lake", ("db",), name)


@dataclass
class Theirs:
    """Iceberg's procedures, as its documentation calls them. Every snapshot is old, and one stays."""

    warehouse: Warehouse

    def orphans(self, name: str) -> None:
        """The procedure refuses to ask for files that are younger than a day, so all files become older."""
        old = (datetime.now(timezone.utc) - timedelta(days=9)).timestamp()
        for path in (self.warehouse.folder / "wh").rglob("*"):
            os.utime(path, (old, old))
        before = f"TIMESTAMP '{datetime.now(timezone.utc) - timedelta(days=2):%Y-%m-%d %H:%M:%S}'"
        self.warehouse.sql(f"CALL {{c}}.system.remove_orphan_files(table => 'db.{name}', older_than => {before})")

    def manifests(self, name: str) -> None:
        self.warehouse.sql(f"CALL {{c}}.system.rewrite_manifests(table => 'db.{name}', use_caching => false)")

    def snapshots(self, name: str) -> None:
        self.warehouse.sql(
            f"CALL {{c}}.system.expire_snapshots(table => 'db.{name}', older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1)"
        )


@pytest.fixture
def ours(warehouse: Warehouse) -> Iterator[Ours]:
    ours = Ours(warehouse)
    yield ours
    ours.services.close()


class Beside:
    """One table, and the works of both sides on copies of it."""

    def __init__(self, table: Copied, ours: Ours, theirs: Theirs) -> None:
        self._table, self._ours, self._theirs = table, ours, theirs
        table.keep()
        self._rows, self.before = table.rows(), table.files()

    def done(self, work: Callable[[Any], Callable[[str], Any]]) -> tuple[Any, set[str], set[str], set[str], set[str]]:
        """Returns what ours said, and the files after ours, after theirs after ours, after theirs, and after ours after theirs."""
        name = self._table.name
        said = work(self._ours)(name)
        after = [self._checked("ours")]
        work(self._theirs)(name)
        after.append(self._checked("theirs after ours"))
        self._table.restore()
        self._ours.took_back(name)
        self._table.warehouse.sql("REFRESH TABLE {t}", name)
        work(self._theirs)(name)
        after.append(self._checked("theirs"))
        work(self._ours)(name)
        after.append(self._checked("ours after theirs"))
        shutil.rmtree(self._table.warehouse.folder / "kept")
        return (said, *after)

    def _checked(self, when: str) -> set[str]:
        assert self._table.rows() == self._rows, f"{self._table.name}: {when}"
        return self._table.files()


@pytest.mark.interop
@pytest.mark.timeout(0)
def test_our_upkeep_does_what_icebergs_does_and_deletes_nothing_that_theirs_keeps(
    warehouse: Warehouse, compactions: Compactions, ours: Ours
) -> None:
    rng, theirs = Random(int(os.environ.get("COMPACTION_SEED", "20261126"))), Theirs(warehouse)
    counts, kept = Counter[str](), Counter[str]()
    for number in range(_TABLES):
        table = Copied(warehouse, f"t{number}")
        write(warehouse, compactions, table.name, rng)
        garbage = leave_behind(warehouse, table.name, rng)
        kept += _orphans(Beside(table, ours, theirs), garbage, counts)
        # Few small manifests are reason enough for ours, as for theirs.
        warehouse.sql("ALTER TABLE {t} SET TBLPROPERTIES ('commit.manifest.min-count-to-merge'='2')", table.name)
        _manifests(Beside(table, ours, theirs), table, counts)
        _snapshots(Beside(table, ours, theirs), table, counts)
        warehouse.sql("DROP TABLE {t} PURGE", table.name)
        shutil.rmtree(warehouse.folder / "wh" / "db" / table.name, ignore_errors=True)
    sys.stdout.write(f"\nbeside Iceberg's, {_TABLES} tables: {dict(counts)}; orphans that only theirs deletes, by our rule: {dict(kept)}\n")


def _orphans(beside: Beside, garbage: set[str], counts: Counter[str]) -> Counter[str]:
    """Delete orphan files. Returns which kinds of files only theirs deletes."""
    standings, after_ours, theirs_after_ours, after_theirs, ours_after_theirs = beside.done(lambda side: side.orphans)
    by_ours, by_theirs = beside.before - after_ours, beside.before - after_theirs
    assert garbage <= by_ours <= by_theirs, sorted(by_ours - by_theirs)
    # Only the place of metadata.json differs: the two write none here.
    assert theirs_after_ours == after_theirs == ours_after_theirs
    only_theirs = {path: standings[path] for path in by_theirs - by_ours}
    assert set(only_theirs.values()) <= _KEPT_BY_US
    counts["orphans that both delete"] += len(by_ours)
    return Counter(f"{standing.value} {_kind(path)}" for path, standing in only_theirs.items())


def _kind(path: str) -> str:
    name = Path(path).name
    return "metadata.json" if name.endswith(".metadata.json") else name


def _manifests(beside: Beside, table: Copied, counts: Counter[str]) -> None:
    before = table.manifests()
    seen: list[int] = []

    def rewrite(side: Any) -> Callable[[str], None]:
        def rewritten(name: str) -> None:
            side.manifests(name)
            seen.append(table.manifests())

        return rewritten

    _, *after = beside.done(rewrite)
    ours, _, theirs, _ = seen
    assert ours <= theirs, table.name
    assert all(beside.before <= files for files in after), "a rewrite of manifests deletes nothing"
    counts["manifests before"] += before
    counts["manifests after ours"] += ours
    counts["manifests after theirs"] += theirs


def _snapshots(beside: Beside, table: Copied, counts: Counter[str]) -> None:
    left: list[set[int]] = []

    def expire(side: Any) -> Callable[[str], None]:
        def expired(name: str) -> None:
            side.snapshots(name)
            left.append(table.snapshots())

        return expired

    before = len(table.snapshots())
    _, *after = beside.done(expire)
    named = [{path for path in files if not path.endswith(".metadata.json")} for files in after]
    assert left[0] == left[2], table.name
    assert named[0] == named[1] == named[2] == named[3], table.name
    counts["snapshots that both remove"] += before - len(left[0])
    counts["files that both expiries delete"] += len(beside.before - after[0])
