"""Orphan files of both stores of a keyed table go, and what either store needs stays."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
import pytest

from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline_tests.iceberg.lake import SCHEMA
from compaction_pipeline_tests.iceberg.reached import reached
from compaction_pipeline_tests.keyed.change_logs import row
from compaction_pipeline_tests.keyed.program import TABLE
from compaction_pipeline_tests.services.upkeep.cleaning import UUID, deleted
from compaction_pipeline_tests.services.upkeep.expiring import DAY
from compaction_pipeline_tests.services.upkeep.test_expiry_of_keyed_tables import Expiring

NAME = "1-I-0-00000-7-{}-00001.parquet"


@pytest.fixture
def keyed(tmp_path: Path) -> Iterator[Expiring]:
    keyed = Expiring(tmp_path)
    yield keyed
    keyed.services.close()


def test_a_plain_table_beside_a_keyed_one_is_cleaned(keyed: Expiring) -> None:
    """The index notes the places of both stores under the name of the base store, and reads no file of them."""
    keyed.insert(row(1))
    assert keyed.compact()
    table = keyed.base.catalog.create_table("db.plain", SCHEMA)
    table.append(pa.table({"id": [*range(1000)], "name": ["n"] * 1000}, schema=table.schema().as_arrow()))
    services, plain = keyed.services, TableIdentifier("lake", ("db",), "plain")
    services.explore_catalogs.explore()
    services.one_table.refresh(plain)
    stray = f"{table.location()}/data/00000-0-{UUID.format(1)}-00001.parquet"
    Path(urlsplit(stray).path).write_bytes(b"12345")
    keyed.pass_time(4 * DAY)
    assert services.clean_orphans.look(plain).refusals == ()
    keyed.pass_time(DAY)
    assert deleted(services.clean_orphans.delete(plain)) == [stray]
    assert table.scan().count() == 1000


def test_stray_files_of_both_stores_go_and_live_files_of_both_stay(keyed: Expiring) -> None:
    keyed.insert(row(1))
    assert keyed.compact()
    keyed.insert(row(2))
    strays = [f"{store.metadata.location}/data/{NAME.format(number)}" for number, store in enumerate((keyed.base, keyed.change), 1)]
    for path in strays:
        Path(urlsplit(path).path).parent.mkdir(parents=True, exist_ok=True)
        Path(urlsplit(path).path).write_bytes(b"12345")
    keyed.services.one_table.refresh(TABLE)
    keyed.pass_time(4 * DAY)
    assert keyed.services.clean_orphans.look(TABLE).refusals == ()
    keyed.pass_time(DAY)
    cleaned = keyed.services.clean_orphans.delete(TABLE, accept_share=1.0)
    assert (cleaned.refusals, cleaned.problem) == ((), None)
    assert set(strays) == set(deleted(cleaned))
    assert all(Path(path).exists() for store in (keyed.base, keyed.change) for path in reached(store))
    keyed.check([row(1), row(2)])
