"""Our deletion of orphan files beside Iceberg's `remove_orphan_files`, on the same ordinary tables, TABLES in all (default 5).

No table is refused, and no file is deleted that Iceberg's procedure keeps. What that one deletes and ours keeps is counted by our rule.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections import Counter
from datetime import datetime, timedelta, timezone
from pathlib import Path
from random import Random
from urllib.parse import urlsplit
from uuid import UUID

import pytest

from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier
from compaction_pipeline.core.upkeep.orphan_rules import Standing
from compaction_pipeline.settings import Settings
from compaction_pipeline_tests.interop.test_expiry_beside_icebergs import write
from compaction_pipeline_tests.interop.warehouse import Compactions, Warehouse
from compaction_pipeline_tests.opened import OpenedServices

_TABLES = int(os.environ.get("TABLES", "5"))
_KEPT_BY_US = {Standing.OURS, Standing.STRANGE, Standing.YOUNG, Standing.REFERENCED}
"""Standings in which ours keeps a file that theirs may delete."""


def leave_behind(warehouse: Warehouse, name: str, rng: Random) -> set[str]:
    """Leave what killed programs leave below the location of a table: files with the names of writers, and others."""
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
    others = ("data/part-00000.parquet", "data/notes.txt", "data/_tmp/x.parquet", "data/.hidden.parquet")
    for below in (*garbage, *others):
        path = folder / below
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"12345")
    return {str(folder / below) for below in garbage}


def theirs(warehouse: Warehouse, name: str) -> set[str]:
    """What Iceberg's procedure would delete. It refuses to ask for files that are younger than a day, so all files become older."""
    old = (datetime.now(timezone.utc) - timedelta(days=9)).timestamp()
    for path in (warehouse.folder / "wh").rglob("*"):
        os.utime(path, (old, old))
    before = f"TIMESTAMP '{datetime.now(timezone.utc) - timedelta(days=2):%Y-%m-%d %H:%M:%S}'"
    rows = warehouse.sql(f"CALL {{c}}.system.remove_orphan_files(table => 'db.{name}', older_than => {before}, dry_run => true)")
    return {urlsplit(row[0]).path for row in rows}


@pytest.mark.interop
@pytest.mark.timeout(0)
def test_nothing_is_deleted_that_icebergs_own_procedure_keeps(warehouse: Warehouse, compactions: Compactions) -> None:
    rng = Random(int(os.environ.get("COMPACTION_SEED", "20261126")))
    now = [datetime.now(timezone.utc) + timedelta(days=365)]
    services = OpenedServices(Settings(home=warehouse.folder / "state-of-orphans"), clock=lambda: now[0])
    services.stores.catalogs.add(CatalogEntry("lake", warehouse.properties))
    kept, both = Counter[str](), 0
    for number in range(_TABLES):
        name = f"t{number}"
        write(warehouse, compactions, name, rng)
        garbage = leave_behind(warehouse, name, rng)
        table = TableIdentifier("lake", ("db",), name)
        services.one_table.refresh(table)
        rows = {ref: sorted(map(repr, warehouse.java_rows(name, ref))) for ref in warehouse.table(name).metadata.refs}
        their_orphans = theirs(warehouse, name)
        first = services.clean_orphans.look(table)
        assert first.refusals == (), name
        now[0] += timedelta(days=1)
        cleaned = services.clean_orphans.delete(table, accept_share=1.0)
        assert (cleaned.refusals, cleaned.problem) == ((), None), name
        ours = {urlsplit(file.path).path for deletion in cleaned.deletions for file in deletion.deleted}
        assert ours <= their_orphans, f"{name}: {sorted(ours - their_orphans)}"
        assert garbage <= ours, f"{name}: {sorted(garbage - ours)}"
        assert not any(Path(path).exists() for path in ours)
        assert cleaned.found is not None
        standings = {urlsplit(file.path).path: standing for standing, files in cleaned.found.files.items() for file in files}
        more = Counter(standings[path].value for path in their_orphans - ours)
        assert set(more) <= {one.value for one in _KEPT_BY_US}
        kept, both = kept + more, both + len(ours)
        assert rows == {ref: sorted(map(repr, warehouse.java_rows(name, ref))) for ref in rows}, name
        warehouse.sql("DROP TABLE {t} PURGE", name)
        shutil.rmtree(warehouse.folder / "wh" / "db" / name, ignore_errors=True)
    services.close()
    sys.stdout.write(f"\norphans beside Iceberg's: both delete {both}; only theirs, by our rule: {dict(kept)}\n")
