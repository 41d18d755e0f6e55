"""What is damaged stays, and does not keep the rest of a table, or other tables, from their expiry."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

from compaction_pipeline.core.upkeep.record import UpkeepStatus
from compaction_pipeline_tests.iceberg.lake import LakeTable
from compaction_pipeline_tests.iceberg.reached import avro_records, files_on_disk, reached
from compaction_pipeline_tests.services.house import House
from compaction_pipeline_tests.services.upkeep.expiring import DAY, HOUR, expire, expired, files_of, gone_on, snapshots


def damage(path: str) -> Path:
    """Cut a file off near its end, as a copy that was broken off is."""
    file = Path(urlsplit(path).path)
    file.write_bytes(file.read_bytes()[:-20])
    return file


def three_snapshots(house: House) -> LakeTable:
    """A table that keeps its two newest snapshots, and has one more."""
    table = house.fragmented("t", 3, history__expire__min_snapshots_to_keep="2")
    table.ids(100)
    table.ids(101)
    house.pass_time(6 * DAY)
    return table


def test_a_damaged_list_of_a_removed_snapshot_stays_and_its_record_ends(house: House) -> None:
    table = three_snapshots(house)
    first = snapshots(table)[0]
    assert len(expired(house, table).removed) == 1
    cut = damage(first.manifest_list)
    house.pass_time(2 * HOUR)
    record = gone_on(house, table)
    assert (record.status, record.deleted.files) == (UpkeepStatus.DONE, 0)
    assert cut.exists(), "it may be the only trace of its files"
    table.ids(102)
    house.pass_time(6 * DAY)
    assert len(expired(house, table).removed) == 1
    house.pass_time(2 * HOUR)
    assert gone_on(house, table).status is UpkeepStatus.DONE
    assert files_on_disk(table.table) == reached(table.table) | {str(cut)}


def test_a_damaged_manifest_of_a_removed_snapshot_stays_with_its_files_and_the_list_that_leads_to_it(house: House) -> None:
    table = house.fragmented("t", 3)
    first = snapshots(table)[0]
    (manifest,) = [one["manifest_path"] for one in avro_records(table.table, first.manifest_list)]
    files = {urlsplit(path).path for path in (first.manifest_list, manifest, *files_of(table, first))}
    table.table.refresh()
    table.table.delete("id >= 0")
    house.pass_time(6 * DAY)
    assert len(expired(house, table).removed) == 1
    damage(manifest)
    house.pass_time(2 * HOUR)
    record = gone_on(house, table)
    assert (record.status, record.deleted.files) == (UpkeepStatus.DONE, 0)
    assert files_on_disk(table.table) == reached(table.table) | files


def test_a_missing_list_of_a_kept_snapshot_keeps_files_only_until_that_snapshot_goes(house: House) -> None:
    table = three_snapshots(house)
    assert len(expired(house, table).removed) == 1
    os.remove(urlsplit(snapshots(table)[0].manifest_list).path)
    table.ids(102)
    house.pass_time(2 * HOUR)
    waiting = expire(house, table)
    assert waiting.earlier[0].status is UpkeepStatus.REMOVED, "the missing list may name any file"
    assert waiting.earlier[0].reason
    removed = waiting.stores[0].record
    assert removed is not None
    assert len(removed.removed) == 1, "the snapshot that lost its list"
    house.pass_time(2 * HOUR)
    assert [record.status for record in expire(house, table).earlier] == [UpkeepStatus.DONE, UpkeepStatus.DONE]
    assert files_on_disk(table.table) == reached(table.table)


def test_a_look_with_a_clock_that_is_years_ahead_does_not_stop_expiry(house: House) -> None:
    table = house.fragmented("t", 3)
    house.pass_time(timedelta(days=3650).total_seconds())
    expire(house, table)
    house.pass_time(-timedelta(days=3650).total_seconds())
    table.ids(200)
    table.ids(201)
    house.pass_time(6 * DAY)
    expire(house, table)
    assert len(snapshots(table)) == 1
