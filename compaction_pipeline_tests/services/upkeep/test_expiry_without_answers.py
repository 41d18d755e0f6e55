"""Answers of a REST catalog that get lost or belong to another request: no file that somebody needs goes, and none is forgotten."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import urlsplit

from compaction_pipeline.core.upkeep.record import UpkeepStatus
from compaction_pipeline_tests.iceberg.lake import LakeTable
from compaction_pipeline_tests.iceberg.reached import files_on_disk, reached
from compaction_pipeline_tests.rest_catalog import Call, RestServer, done_but
from compaction_pipeline_tests.services.house import House
from compaction_pipeline_tests.services.upkeep.expiring import (
    DAY,
    HOUR,
    behind_rest,
    compacted,
    expire,
    expired,
    files_of,
    gone_on,
    set_properties,
    snapshots,
    tagging_first,
)

# ---- a tag that was dropped beside its snapshot ----------------------------------------------------------------------


def test_the_files_of_a_dropped_tag_stay_for_ever_whatever_else_cleans_up(house: House, server: RestServer) -> None:
    table = compacted(house, table_expire__enabled="true")
    table.ids(100)
    ours = snapshots(table)[1]
    behind_rest(house, server)
    house.pass_time(6 * DAY)
    # The files of a landed commit carry the ids of its record and its tasks, and so could pass for leftovers.
    server.commits = [tagging_first(table, ours.snapshot_id)]
    assert expired(house, table).status is UpkeepStatus.KEPT
    files = files_on_disk(table.table)
    for _ in range(3):
        # Longer than records are kept that have ended.
        house.pass_time(31 * DAY)
        house.services.upkeep_tables.run()
        house.services.maintain_tables.maintain()
        expire(house, table)
    assert files_on_disk(table.table) == files
    (record,) = house.services.expire_snapshots.records(table.identifier, 9)
    assert record.status is UpkeepStatus.KEPT


def sharing_with_a_dropped_tag(house: House, server: RestServer) -> tuple[LakeTable, Path, set[str]]:
    """A table whose second record shares files with a snapshot that went with a tag. The list of that snapshot, and all its files."""
    table = house.fragmented("t", 12, history__expire__min_snapshots_to_keep="2")
    table.ids(100)
    assert house.services.compact_tables.compact(table.identifier).committed
    tagged = snapshots(table)[0]
    promised = {urlsplit(path).path for path in (tagged.manifest_list, *files_of(table, tagged))}
    behind_rest(house, server)
    house.pass_time(6 * DAY)
    server.commits = [tagging_first(table, tagged.snapshot_id)]
    assert expired(house, table).status is UpkeepStatus.KEPT
    table.ids(200)
    house.pass_time(6 * DAY)
    assert expired(house, table).status is UpkeepStatus.REMOVED
    house.pass_time(2 * HOUR)
    return table, Path(urlsplit(tagged.manifest_list).path), promised


def test_a_later_expiry_leaves_the_files_that_it_shares_with_a_dropped_tag(house: House, server: RestServer) -> None:
    table, _, promised = sharing_with_a_dropped_tag(house, server)
    kept, done = expire(house, table).earlier
    assert (kept.status, done.status) == (UpkeepStatus.KEPT, UpkeepStatus.DONE)
    assert done.deleted.content_files == 1, "the file of id 100"
    assert promised <= files_on_disk(table.table)


def test_a_later_expiry_waits_while_nobody_can_read_which_files_a_dropped_tag_has(house: House, server: RestServer) -> None:
    table, manifest_list, promised = sharing_with_a_dropped_tag(house, server)
    whole = manifest_list.read_bytes()
    manifest_list.write_bytes(whole[:-20])
    _, waiting = expire(house, table).earlier
    assert waiting.status is UpkeepStatus.REMOVED
    assert manifest_list.name in (waiting.reason or "")
    manifest_list.write_bytes(whole)
    _, done = expire(house, table).earlier
    assert done.status is UpkeepStatus.DONE
    assert promised <= files_on_disk(table.table)


def test_an_answer_to_a_request_that_a_proxy_sent_twice_does_not_hide_a_dropped_tag(house: House, server: RestServer) -> None:
    table = compacted(house)
    tagged = snapshots(table)[0].snapshot_id
    behind_rest(house, server)
    house.pass_time(6 * DAY)

    def send_twice(call: Call) -> None:
        table.table.refresh()
        table.table.manage_snapshots().create_tag(tagged, "release").commit()
        call.carry_out()
        set_properties(table, a="b")
        # The second request changes nothing, and a server answers it with the metadata as it is then.
        now = house.lake.catalog.load_table(("db", "t"))
        call.answer(200, {"metadata-location": now.metadata_location, "metadata": json.loads(now.metadata.model_dump_json())})

    server.commits = [send_twice]
    record = expired(house, table)
    assert record.base_known is False
    files = files_on_disk(table.table)
    house.pass_time(2 * HOUR)
    record = gone_on(house, table)
    assert record.status is UpkeepStatus.KEPT
    assert "ref 'release' was made on a snapshot while it was removed" in (record.reason or "")
    assert files_on_disk(table.table) == files


# ---- nothing is forgotten --------------------------------------------------------------------------------------------


def test_many_commits_after_a_lost_answer_do_not_make_the_files_stay_for_ever(house: House, server: RestServer) -> None:
    table = compacted(house, write__metadata__previous_versions_max="3")
    behind_rest(house, server)
    house.pass_time(6 * DAY)
    server.commits = [done_but(500)]
    assert expired(house, table).status is UpkeepStatus.UNKNOWN
    assert gone_on(house, table).status is UpkeepStatus.REMOVED
    # The metadata on which the snapshots were removed leaves the log.
    for number in range(5):
        set_properties(table, number=str(number))
    house.pass_time(2 * HOUR)
    assert gone_on(house, table).status is UpkeepStatus.DONE
    assert files_on_disk(table.table) == reached(table.table)


def test_a_dropped_tag_whose_name_was_given_again_does_not_make_the_files_stay(house: House, server: RestServer) -> None:
    table = compacted(house)
    table.table.refresh()
    table.table.manage_snapshots().create_tag(snapshots(table)[0].snapshot_id, "nightly", max_ref_age_ms=1000).commit()
    behind_rest(house, server)
    house.pass_time(6 * DAY)
    server.commits = [done_but(500)]
    record = expired(house, table)
    assert (record.status, list(record.dropped_refs)) == (UpkeepStatus.UNKNOWN, ["nightly"])
    head = snapshots(table)[-1].snapshot_id
    table.table.refresh()
    table.table.manage_snapshots().create_tag(head, "nightly").commit()
    assert gone_on(house, table).status is UpkeepStatus.REMOVED
    house.pass_time(2 * HOUR)
    assert gone_on(house, table).status is UpkeepStatus.DONE
    assert files_on_disk(table.table) == reached(table.table)


def test_a_record_that_only_drops_a_tag_ends_when_its_answer_got_lost(house: House, server: RestServer) -> None:
    table = compacted(house, history__expire__min_snapshots_to_keep="9")
    table.table.refresh()
    table.table.manage_snapshots().create_tag(snapshots(table)[-1].snapshot_id, "nightly", max_ref_age_ms=1000).commit()
    behind_rest(house, server)
    house.pass_time(6 * DAY)
    server.commits = [done_but(500)]
    record = expired(house, table)
    assert (record.status, record.removed, list(record.dropped_refs)) == (UpkeepStatus.UNKNOWN, (), ["nightly"])
    gone_on(house, table)
    assert house.services.stores.upkeep.records(table.identifier, under_way=True) == ()
