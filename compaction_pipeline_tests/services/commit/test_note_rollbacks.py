"""A commit of ours that the catalog takes back is told in its record, its nodes are planned again, and nothing is deleted for that."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from pyiceberg.table.snapshots import Operation

from compaction_pipeline.core.commit.record import CompactionRecord
from compaction_pipeline.core.upkeep.works import UpkeepWork
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline_tests.iceberg.lake import LakeTable
from compaction_pipeline_tests.iceberg.reached import files_on_disk
from compaction_pipeline_tests.keyed.change_logs import row
from compaction_pipeline_tests.services.house import House
from compaction_pipeline_tests.services.upkeep.expiring import set_pointer
from compaction_pipeline_tests.services.upkeep.test_expiry_of_keyed_tables import Expiring

ALLOWED = "compaction.catalog-may-roll-back"
POLARIS = "polaris.internal.conflict-resolution.by-operation-type.replace"
LAKEKEEPER = "lakekeeper.rollbackable"


def taken_back(table: LakeTable, snapshots: int = 1) -> None:
    """Take back the newest snapshots as Polaris does: it removes them, sets main to the one before, and lowers the last sequence number.

    Source: `CatalogHandlerUtils.commit` and `setAppropriateLastSeqNumber` of Polaris, commit 4b42186383089e2083ba857a0211c4ab36965703.
    """
    now = table.table.refresh()
    path = Path(urlsplit(now.metadata_location).path)
    metadata = json.loads(path.read_text())
    for _ in range(snapshots):
        head = next(one for one in metadata["snapshots"] if one["snapshot-id"] == metadata["current-snapshot-id"])
        before = next(one for one in metadata["snapshots"] if one["snapshot-id"] == head["parent-snapshot-id"])
        metadata["snapshots"].remove(head)
        metadata["snapshot-log"] = [one for one in metadata["snapshot-log"] if one["snapshot-id"] != head["snapshot-id"]]
        metadata["current-snapshot-id"] = metadata["refs"]["main"]["snapshot-id"] = before["snapshot-id"]
        metadata["last-sequence-number"] = before["sequence-number"]
    new = path.with_name(f"99999-{path.name[6:]}")
    new.write_text(json.dumps(metadata))
    set_pointer(table, f"file://{new}")


def compacted_now(house: House, table: LakeTable) -> CompactionRecord:
    assert house.services.compact_tables.compact(table.identifier).committed
    return house.services.stores.records.records(table.identifier)[0]


def stored(house: House, record: CompactionRecord) -> CompactionRecord:
    return house.services.stores.records.record(record.record_id)


def looked(house: House, table: LakeTable) -> None:
    house.services.refresh_files.refresh(table.identifier)


@pytest.mark.parametrize("writes_in_between", [True, False])
def test_a_rollback_is_told_in_the_record_and_the_node_is_planned_again(house: House, writes_in_between: bool) -> None:
    table = house.fragmented("t", 12)
    rows = table.rows()
    record = compacted_now(house, table)
    looked(house, table)
    assert house.services.plan_tables.explain(table.identifier).tasks == ()
    files = files_on_disk(table.table)
    taken_back(table)
    if writes_in_between:
        table.ids(100)
    looked(house, table)
    after = stored(house, record)
    assert (after.rolled_back_at, after.merged_away) == (house.now, 0)
    assert "the catalog rolled it back" in after.summary
    assert house.services.stores.records.merged_away()[table.identifier] == 0
    assert files <= files_on_disk(table.table)
    assert house.services.compact_tables.compact(table.identifier).committed
    assert sorted(one["id"] for one in table.rows()) == sorted([one["id"] for one in rows] + ([100] if writes_in_between else []))
    house.services.maintain_tables.maintain()
    assert files <= files_on_disk(table.table)


def test_two_commits_that_were_taken_back_at_once_are_both_told(house: House) -> None:
    table = house.fragmented("t", 12)
    first = compacted_now(house, table)
    for number in range(12):
        table.ids(100 + number)
    house.pass_time(120)
    assert house.services.compact_tables.compact(table.identifier).committed
    looked(house, table)
    assert stored(house, first).rolled_back_at is None
    taken_back(table, len(table.table.refresh().metadata.snapshots) - 1)
    looked(house, table)
    told = house.services.stores.records.records(table.identifier)
    assert len(told) == 2
    assert {record.rolled_back_at for record in told} == {house.now}


def test_an_interval_of_the_work_that_was_taken_back_does_not_hold_its_node(house: House) -> None:
    day = timedelta(days=1)
    table = house.fragmented("t", 3, self_optimizing__full__trigger__interval=str(int(day.total_seconds() * 1000)))
    house.services.refresh_files.refresh(table.identifier)
    house.services.plan_tables.judge(table.identifier)
    house.pass_time(2 * day.total_seconds())
    record = compacted_now(house, table)
    assert record.types == (CompactionType.FULL,)
    taken_back(table)
    looked(house, table)
    assert [work.type for work in house.services.plan_tables.explain(table.identifier).tasks] == [CompactionType.FULL]


def test_expired_snapshots_are_no_rollback(house: House) -> None:
    table = house.fragmented("t", 12)
    record = compacted_now(house, table)
    table.ids(100)
    with table.table.refresh().transaction():
        pass
    table.table.maintenance.expire_snapshots().by_ids([record.snapshot_before, record.snapshot_after]).commit()  # type: ignore[list-item]
    looked(house, table)
    assert stored(house, record).rolled_back_at is None


@pytest.mark.parametrize("allowed", ["true", "false", "catalog", None])
def test_only_replace_snapshots_of_tables_that_allow_it_say_that_they_may_be_taken_back(house: House, allowed: str | None) -> None:
    if allowed == "catalog":
        entry = house.services.stores.catalogs.entry("lake")
        house.services.stores.catalogs.replace(type(entry)("lake", {**entry.properties, f"table.{ALLOWED}": "true"}))
    own = {"compaction__catalog_may_roll_back": str(allowed)} if allowed in ("true", "false") else {}
    table = house.fragmented("t", 12, **own)
    compacted_now(house, table)
    summary = table.table.refresh().current_snapshot().summary  # type: ignore[union-attr]
    assert summary is not None
    assert summary.operation is Operation.REPLACE
    told = (summary.additional_properties.get(POLARIS), summary.additional_properties.get(LAKEKEEPER))
    assert told == (("rollback", "true") if allowed in ("true", "catalog") else (None, None))


def test_a_rewrite_of_manifests_may_be_taken_back_where_it_is_allowed(house: House) -> None:
    table = house.fragmented("t", 3, compaction__catalog_may_roll_back="true", commit__manifest__min_count_to_merge="2")
    for number in range(40):
        table.ids(100 + number)
    looked(house, table)
    done = house.services.commit_upkeep.carry_out(table.identifier, UpkeepWork.MANIFESTS)
    assert done[0].record is not None, done
    summary = table.table.refresh().current_snapshot().summary  # type: ignore[union-attr]
    assert summary is not None
    assert summary.additional_properties[POLARIS] == "rollback"


def test_no_store_of_a_keyed_table_may_be_taken_back(tmp_path: Path) -> None:
    keyed = Expiring(tmp_path)
    for store in (keyed.base, keyed.change):
        with store.refresh().transaction() as transaction:
            transaction.set_properties({ALLOWED: "true"})
    keyed.insert(row(1), row(2))
    assert keyed.compact()
    for store in (keyed.base, keyed.change):
        for snapshot in store.refresh().metadata.snapshots:
            assert POLARIS not in (snapshot.summary.additional_properties if snapshot.summary is not None else {})
