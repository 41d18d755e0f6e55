"""Clones that the index follows. It has the files of their newest snapshot, as of its last read, and an expiry keeps the others too."""

from __future__ import annotations

from pathlib import Path

import pytest

from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier
from compaction_pipeline_tests.iceberg.lake import Lake
from compaction_pipeline_tests.services.house import House
from compaction_pipeline_tests.services.upkeep.cleaning import local, looked_at
from compaction_pipeline_tests.services.upkeep.expiring import DAY, HOUR, expired, files_of, gone_on, snapshots

CLONE = TableIdentifier("second", ("db",), "clone")


@pytest.mark.parametrize(
    "named_by", ["a tag, before the first look", "a tag, two days after all was read", "the newest snapshot, after the last look"]
)
def test_what_a_clone_names_stays_though_the_index_does_not_have_it(house: House, tmp_path: Path, named_by: str) -> None:
    table = house.fragmented("t", 12)
    (tmp_path / "two").mkdir()
    second = Lake(tmp_path / "two")
    house.services.stores.catalogs.add(CatalogEntry("second", second.properties))
    shared = files_of(table, snapshots(table)[0])[0]
    clone = second.table("clone")
    house.services.explore_catalogs.explore()
    by_tag = named_by.startswith("a tag")
    if named_by != "a tag, before the first look":
        clone.ids(77)
        house.services.one_table.refresh(CLONE)
    if named_by == "a tag, two days after all was read":
        looked_at(house, table)
        house.pass_time(2 * DAY)
    clone.table.refresh()
    clone.table.add_files([shared], check_duplicate_files=False)
    if by_tag:
        head = clone.table.refresh().current_snapshot()
        assert head is not None
        clone.table.manage_snapshots().create_tag(head.snapshot_id, "release").commit()
        clone.table.delete("id >= 0")
        house.services.one_table.refresh(CLONE)
    house.services.compact_tables.compact(table.identifier)
    house.pass_time(6 * DAY)
    expired(house, table)
    house.pass_time(2 * HOUR)
    gone_on(house, table)
    assert local(shared).exists()
