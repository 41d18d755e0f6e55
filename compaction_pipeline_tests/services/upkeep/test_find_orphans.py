"""The dry run: it finds what nobody needs, on real tables, and refuses where another table may need it."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
import pytest

from compaction_pipeline.core.errors import StorageUnavailable
from compaction_pipeline.core.stores import Stores
from compaction_pipeline.core.tables.table import CatalogEntry
from compaction_pipeline.core.upkeep.orphan_rules import Standing
from compaction_pipeline.core.upkeep.orphans import OrphanDecision, confirmed
from compaction_pipeline.iceberg.upkeep.look_at_files import IcebergFilesLooker
from compaction_pipeline.iceberg.upkeep.remove_snapshots import Removal, remove
from compaction_pipeline.services.upkeep.find_orphans import FindOrphans
from compaction_pipeline.services.upkeep.other_places import OtherPlaces
from compaction_pipeline.services.upkeep.other_tables import OtherTables
from compaction_pipeline_tests.builders import NOW, task
from compaction_pipeline_tests.core.upkeep.listings import standing
from compaction_pipeline_tests.iceberg.lake import Lake, LakeTable
from compaction_pipeline_tests.state import sqlite_stores

UUID = "ce13f4d2-9c1c-4d51-9f0a-2d3f6c1f7a55"
DAY = timedelta(days=1)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    folder = tmp_path / "lake"
    folder.mkdir()
    return Lake(folder)


@pytest.fixture
def stores(tmp_path: Path, lake: Lake) -> Stores:
    made = sqlite_stores(tmp_path)
    made.catalogs.add(CatalogEntry("lake", lake.properties))
    return made


@pytest.fixture
def table(lake: Lake) -> LakeTable:
    made = lake.table()
    append(made, *range(1000))
    return made


Find = Callable[..., OrphanDecision]


@pytest.fixture
def find(lake: Lake, stores: Stores) -> Find:
    """Look at a table some days after today, by default ten."""

    def found(table: LakeTable, days: float = 10, **options: object) -> OrphanDecision:
        now = datetime.now(timezone.utc) + days * DAY
        looker = IcebergFilesLooker(lake.catalogs)
        tables = OtherTables(stores.catalogs, stores.tables, stores.files, lake.scan, lambda: now)
        places = OtherPlaces(stores.catalogs, lake.scan, tables, looker, stores.orphans, lambda: now)
        finding = FindOrphans(looker, stores.catalogs, stores.tasks, stores.records, stores.upkeep, places)
        return finding.find(table.identifier, now, **options).decision  # type: ignore[arg-type]

    return found


def append(table: LakeTable, *ids: int) -> None:
    table.table.append(pa.table({"id": list(ids), "name": [f"name {one}" for one in ids]}, schema=table.table.schema().as_arrow()))


def put(table: LakeTable, name: str, folder: str = "data", content: bytes = b"12345") -> str:
    """Put a file below the location, and return its path as the table writes paths."""
    path = f"{table.table.metadata.location}/{folder}/{name}"
    local = Path(urlsplit(path).path)
    local.parent.mkdir(parents=True, exist_ok=True)
    local.write_bytes(content)
    return path


def test_a_file_of_a_failed_write_is_found_once_it_is_old_and_confirmed_a_day_later(table: LakeTable, find: Find) -> None:
    stray = put(table, f"00000-0-{UUID}-00001.parquet")
    assert standing(stray, find(table, 0)) is Standing.YOUNG
    first, second = find(table, 10), find(table, 11)
    assert (first.refusals, [file.path for file in first.orphans.files]) == ((), [stray])
    assert [file.path for file in confirmed(first.orphans, second.orphans)] == [stray]
    # Somebody writes the file anew.
    local = Path(urlsplit(stray).path)
    local.write_bytes(b"54321")
    os.utime(local, (0, 0))
    assert confirmed(first.orphans, find(table, 11).orphans) == ()


def test_files_of_stored_tasks_are_ours(table: LakeTable, find: Find, stores: Stores) -> None:
    planned = task("0123456789ab-00001", table=table.identifier)
    left = put(table, "ba9876543210-0123456789ab-00001-deadbeef-00001.parquet")
    assert standing(left, find(table)) is Standing.ORPHAN
    stores.index.add(table.identifier)
    assert stores.tasks.insert([planned], (), NOW)
    assert standing(left, find(table)) is Standing.OURS


def test_leftovers_of_a_killed_merging_sink_are_found(table: LakeTable, find: Find) -> None:
    left = put(table, "a1-sink-0123456789abcdef-deadbeef-00001.parquet")
    assert [file.path for file in find(table).orphans.files] == [left]


def test_a_streaming_writer_keeps_files_for_a_week(table: LakeTable, find: Find) -> None:
    stray = put(table, f"00000-0-{UUID}-00001.parquet")
    assert standing(stray, find(table, 4)) is Standing.ORPHAN
    table.table.append(
        pa.table({"id": [1], "name": ["x"]}, schema=table.table.schema().as_arrow()),
        snapshot_properties={"flink.job-id": "j", "flink.operator-id": "o", "flink.max-committed-checkpoint-id": "1"},
    )
    assert standing(stray, find(table, 4)) is Standing.YOUNG
    assert standing(stray, find(table, 8)) is Standing.ORPHAN


def test_a_table_beside_it_with_a_longer_name_is_no_reason_to_refuse(table: LakeTable, find: Find) -> None:
    beside = table.lake.table("t2")
    append(beside, 1)
    decision = find(table)
    assert decision.refusals == ()
    assert all(file.path.startswith(f"{table.table.metadata.location}/") for files in decision.files.values() for file in files)


def test_a_table_that_lies_in_it_refuses(table: LakeTable, find: Find) -> None:
    inner = f"{table.table.metadata.location}/inner"
    table.lake.catalog.create_table(("db", "inner"), table.table.schema(), location=inner)
    refusals = find(table).refusals
    assert any("lake.db.inner" in sentence and inner in sentence for sentence in refusals)
    assert any("another table lies or lay below" in sentence for sentence in refusals)
    # A table that is dropped and whose files stay refuses too: its metadata tells of it, and so does the state database.
    table.lake.catalog.drop_table(("db", "inner"))
    refusals = find(table).refusals
    assert any("table lake.db.inner (as it was seen earlier), are the same or lie in each other" in sentence for sentence in refusals)
    assert any("another table lies or lay below" in sentence for sentence in refusals)


def test_a_table_that_was_registered_twice_refuses(table: LakeTable, find: Find) -> None:
    table.lake.catalog.register_table(("db", "again"), table.table.metadata_location)
    [sentence] = find(table).refusals
    assert "lake.db.again" in sentence


def test_a_table_of_a_catalog_that_does_not_answer_leaves_everything_unknown(
    table: LakeTable, find: Find, stores: Stores, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(catalog: str) -> None:
        raise StorageUnavailable(f"catalog {catalog} did not answer")

    monkeypatch.setattr(lake.scan, "every_table", silent)
    with pytest.raises(StorageUnavailable, match="did not answer"):
        find(table)


def test_an_expired_snapshots_files_are_found_when_no_metadata_tells_of_them(lake: Lake, find: Find) -> None:
    """Another engine expired snapshots and was killed before it deleted their files, and old metadata was deleted."""
    table = lake.table(properties={"write.metadata.previous-versions-max": "1"})
    append(table, 1)
    append(table, *range(5000))
    table.table.refresh()
    old, new = table.table.metadata.snapshots
    remove(lake.catalogs.load(table.identifier), Removal([old.snapshot_id], ()))
    assert find(table).totals[Standing.ORPHAN].files == 0
    current = Path(urlsplit(lake.catalogs.load(table.identifier).metadata_location).path)
    for metadata in set(current.parent.glob("*.metadata.json")) - {current}:
        metadata.unlink()
    found = {file.path for file in find(table, accept_share=1.0).orphans.files}
    assert old.manifest_list in found
    assert new.manifest_list not in found
    # Its data and its manifest live on in the newer snapshot.
    assert not any(path.endswith((".parquet", "-m0.avro")) for path in found)
