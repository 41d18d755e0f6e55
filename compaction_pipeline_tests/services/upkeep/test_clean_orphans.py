"""Orphan files go after two looks a day apart, a killed run goes on with a third one, and every refusal is asked again."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from compaction_pipeline.core.errors import StorageUnavailable
from compaction_pipeline.core.leases.names import upkeep_lease
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.upkeep.record import UpkeepStatus
from compaction_pipeline.services.upkeep import clean_orphans
from compaction_pipeline_tests.iceberg.lake import LakeTable
from compaction_pipeline_tests.services.house import House
from compaction_pipeline_tests.services.upkeep.cleaning import (
    Killed,
    append,
    delete,
    deleted,
    in_the_next_run,
    local,
    looked_at,
    roomy,
    stray,
    table,
)
from compaction_pipeline_tests.services.upkeep.expiring import DAY, HOUR, denied, expire, set_pointer, set_properties

__all__ = ["table"]


def test_what_two_looks_a_day_apart_found_is_deleted_and_recorded(house: House, table: LakeTable) -> None:
    paths = [stray(table, 1), stray(table, 2)]
    rows = table.rows()
    looked_at(house, table)
    late = stray(table, 3)
    cleaned = delete(house, table)
    assert sorted(deleted(cleaned)) == paths
    assert [local(path).exists() for path in (*paths, late)] == [False, False, True]
    assert table.rows() == rows
    [deletion] = house.services.clean_orphans.deletions(table.identifier, 10)
    assert (sorted(file.path for file in deletion.deleted), deletion.summary) == (paths, "2 orphan files deleted (10 B)")


def test_one_look_or_two_within_a_day_delete_nothing(house: House, table: LakeTable) -> None:
    path = stray(table)
    house.pass_time(4 * DAY)
    assert deleted(delete(house, table)) == []
    house.pass_time(DAY - 60)
    assert deleted(delete(house, table)) == []
    house.pass_time(60)
    assert deleted(delete(house, table)) == [path]


def test_looks_older_than_a_week_confirm_nothing(house: House, table: LakeTable) -> None:
    path = stray(table)
    looked_at(house, table)
    house.pass_time(7 * DAY)
    assert deleted(delete(house, table)) == []
    assert local(path).exists()


def test_looks_of_a_clock_that_ran_ahead_confirm_nothing(house: House, table: LakeTable) -> None:
    path = stray(table)
    house.pass_time(4 * DAY)
    house.services.clean_orphans.look(table.identifier)
    house.pass_time(2 * DAY)
    house.services.clean_orphans.look(table.identifier)
    house.pass_time(HOUR - 2 * DAY)
    assert deleted(delete(house, table)) == []
    house.pass_time(DAY)
    assert deleted(delete(house, table)) == [path]


@pytest.mark.parametrize("when", ["before the second look", "before the third look"])
def test_a_file_that_was_written_anew_stays(house: House, table: LakeTable, when: str) -> None:
    path = stray(table)
    looked_at(house, table)
    if when == "before the third look":
        house.services.clean_orphans.look(table.identifier)
    local(path).write_bytes(b"54321")
    os.utime(local(path), (0, 0))
    assert deleted(delete(house, table)) == []
    assert local(path).exists()


def test_the_run_that_takes_the_second_look_deletes_by_it_and_a_later_run_looks_afresh(house: House, table: LakeTable) -> None:
    paths, listings = [stray(table, 1), stray(table, 2)], list[str]()
    looked_at(house, table)
    house.services._files_looker._on_step = listings.append
    assert sorted(deleted(delete(house, table))) == paths
    assert listings == ["files-listed", "orphans-deleted"]
    late = stray(table, 3)
    looked_at(house, table)
    house.services.clean_orphans.look(table.identifier)
    listings.clear()
    assert deleted(delete(house, table)) == [late]
    assert listings == ["files-listed", "orphans-deleted"]


def test_a_table_that_was_set_back_before_the_second_look_keeps_everything(house: House, table: LakeTable) -> None:
    path, older = stray(table), table.lake.catalogs.load(table.identifier).metadata_location
    append(table, 9001)
    looked_at(house, table)
    set_pointer(table, older)
    assert "its metadata is older than what was seen" in " ".join(delete(house, table).refusals)
    assert local(path).exists()


def test_a_run_that_is_killed_after_any_batch_goes_on_and_each_path_is_recorded(
    house: House, table: LakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clean_orphans, "_BATCH", 2)
    paths = [stray(table, number) for number in range(5)]
    looked_at(house, table)

    def die() -> None:
        raise Killed

    for batch in (1, 2):
        in_the_next_run(house, "orphans-deleted", die)
        with pytest.raises(Killed):
            delete(house, table)
        assert sum(local(path).exists() for path in paths) == 5 - 2 * batch
        [*_, unknown] = sorted(house.services.clean_orphans.deletions(table.identifier, 9), key=lambda one: one.created_at)
        assert unknown.ended_at is None
        house.pass_time(120)
    assert len(deleted(delete(house, table))) == 1
    stored = house.services.clean_orphans.deletions(table.identifier, 9)
    assert sorted(file.path for deletion in stored for file in deletion.files) == paths
    assert not any(local(path).exists() for path in paths)


def test_nothing_is_deleted_that_is_not_stored_first(house: House, table: LakeTable) -> None:
    path = stray(table)
    looked_at(house, table)

    def fails(deletion: object) -> None:
        raise StorageUnavailable("the state database does not answer")

    house.services._stores.orphans.instead(save_deletion=fails)  # type: ignore[attr-defined]
    assert "does not answer" in str(delete(house, table).problem)
    assert local(path).exists()


def test_the_end_of_the_time_and_a_lost_lease_stop_between_two_batches(
    house: House, table: LakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clean_orphans, "_BATCH", 1)
    for number in range(3):
        stray(table, number)
    looked_at(house, table)
    answers = iter([False, True])
    cleaned = house.services.clean_orphans.clean(table.identifier, lambda: next(answers))
    assert (len(deleted(cleaned)), "time for this run is over" in str(cleaned.problem)) == (1, True)

    def lose() -> None:
        house.pass_time(600)
        assert house.services._stores.leases.acquire(upkeep_lease(table.identifier), "another", house.now, timedelta(minutes=1))

    in_the_next_run(house, "orphans-deleted", lose)
    cleaned = house.services.clean_orphans.clean(table.identifier)
    assert (len(deleted(cleaned)), "another process" in str(cleaned.problem)) == (1, True)


def test_two_processes_do_not_clean_one_table(house: House, table: LakeTable) -> None:
    stray(table)
    looked_at(house, table)
    said: list[str] = []

    def at_once() -> None:
        for verb in (delete, lambda house, table: house.services.clean_orphans.look(table.identifier)):
            with pytest.raises(StorageUnavailable, match="try again later") as caught:
                verb(house, table)
            said.append(str(caught.value))

    in_the_next_run(house, "files-listed", at_once)
    assert len(deleted(delete(house, table))) == 1
    assert len(said) == 2


def test_a_daily_round_looks_once_a_day_and_costs_nothing_until_the_next(house: House, table: LakeTable) -> None:
    path = stray(table)
    house.pass_time(4 * DAY)
    first = house.services.clean_orphans.clean(table.identifier)
    assert first.found is not None
    house.pass_time(10 * HOUR)
    house.services._snapshot_stores.look = house.services._files_looker.look = lambda *given: pytest.fail("it looked")  # type: ignore[method-assign]
    assert house.services.clean_orphans.clean(table.identifier).found is None
    del house.services._snapshot_stores.look, house.services._files_looker.look
    house.pass_time(14 * HOUR)
    assert deleted(house.services.clean_orphans.clean(table.identifier)) == [path]


def test_files_that_cannot_be_deleted_are_named_and_tried_again(house: House, table: LakeTable) -> None:
    path = stray(table)
    looked_at(house, table)
    catalogs: Any = house.services.catalogs
    load = catalogs.load

    def load_without_rights(identifier: TableIdentifier) -> Any:
        loaded = load(identifier)
        loaded.io.delete = denied
        return loaded

    catalogs.load = load_without_rights
    cleaned = delete(house, table)
    assert (deleted(cleaned), cleaned.deletions[0].failed) == ([], {path: f"[AccessDenied] {path}"})
    assert local(path).exists()
    catalogs.load = load
    assert deleted(delete(house, table)) == [path]
    assert not local(path).exists()


# ---- every refusal is asked again ------------------------------------------------------------------------------------


def test_gc_that_was_disabled_since_the_looks_refuses(house: House, table: LakeTable) -> None:
    path = stray(table)
    looked_at(house, table)
    house.services.clean_orphans.look(table.identifier)
    set_properties(table, gc__enabled="false")
    cleaned = delete(house, table)
    assert "gc.enabled" in cleaned.refusals[0]
    assert local(path).exists()


def test_a_table_that_is_paused_between_two_batches_keeps_the_rest(house: House, table: LakeTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clean_orphans, "_BATCH", 1)
    stray(table, 1)
    stray(table, 2)
    looked_at(house, table)
    in_the_next_run(house, "orphans-deleted", lambda: house.services._stores.switches.pause(table.identifier, True))
    cleaned = delete(house, table)
    assert (len(deleted(cleaned)), "paused" in str(cleaned.problem)) == (1, True)


def test_a_commit_that_may_still_land_refuses_and_its_files_stay(house: House) -> None:
    """The process was killed before the swap: merged files, manifests and an open record are left."""
    table = roomy(house, "t", files=12)
    rows, before = table.live_ids(), {str(one) for one in local(table.table.location()).rglob("*")}

    dies = [True]

    def die(step: str) -> None:
        if step == "before-swap" and dies:
            dies.clear()
            raise Killed

    house.services.on_step = die
    with pytest.raises(Killed):
        house.services.compact_tables.compact(table.identifier)
    halfway = {str(one) for one in local(table.table.location()).rglob("*") if one.is_file()} - before
    assert len(halfway) >= 3
    looked_at(house, table, 10)
    assert "may still land" in delete(house, table).refusals[0]
    assert house.services.clean_orphans.look(table.identifier).orphans.files == ()
    # The next commit finds out that it did not land. Its files are kept as long as its record and its tasks.
    house.services.compact_tables.compact(table.identifier)
    looked_at(house, table, 10)
    assert deleted(delete(house, table)) == []
    assert table.live_ids() == rows


def test_more_than_a_fifth_of_the_bytes_goes_only_when_a_person_accepts_it(house: House, table: LakeTable) -> None:
    path = stray(table, content=b"x" * 10**7)
    looked_at(house, table)
    cleaned = delete(house, table)
    assert "more than 20%" in cleaned.refusals[0]
    assert local(path).exists()
    assert deleted(delete(house, table, accept_share=1.0)) == [path]


def test_a_rename_and_a_new_table_of_the_name_between_the_looks_confirm_nothing(house: House, table: LakeTable) -> None:
    path = stray(table)
    looked_at(house, table)
    table.lake.catalog.rename_table(("db", "t"), ("db", "renamed"))
    house.services.explore_catalogs.explore()
    other = roomy(house, "t", write__metadata__path=f"{table.table.location()}-of-other")
    assert deleted(delete(house, other)) == []
    assert local(path).exists()


def test_a_table_that_is_renamed_or_dropped_between_two_batches_keeps_the_rest(
    house: House, table: LakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clean_orphans, "_BATCH", 1)
    stray(table, 1)
    stray(table, 2)
    looked_at(house, table)
    in_the_next_run(house, "orphans-deleted", lambda: table.lake.catalog.rename_table(("db", "t"), ("db", "renamed")))
    cleaned = delete(house, table)
    assert (len(deleted(cleaned)), cleaned.problem is None) == (1, False)


def test_a_file_that_is_committed_between_two_batches_stays(house: House, table: LakeTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that stood still for days goes on: its files are old and were confirmed."""
    monkeypatch.setattr(clean_orphans, "_BATCH", 1)
    append(table, 1)
    table.table.refresh()
    written = next(path for path in (file.path for file in table.files()) if path.rsplit("/", 1)[-1].startswith("00000-0-"))
    content = local(written).read_bytes()
    paths = [stray(table, number, content=content) for number in (1, 2)]
    looked_at(house, table)
    late: list[str] = []

    def commit_the_rest() -> None:
        late.extend(path for path in paths if local(path).exists())
        table.table.refresh()
        table.table.add_files(late, check_duplicate_files=False)

    in_the_next_run(house, "orphans-deleted", commit_the_rest)
    delete(house, table, accept_share=1.0)
    assert len(late) == 1
    assert local(late[0]).exists()


def test_a_listing_that_breaks_deletes_nothing(house: House, table: LakeTable, monkeypatch: pytest.MonkeyPatch) -> None:
    path = stray(table)
    looked_at(house, table)

    def breaks() -> None:
        raise StorageUnavailable("page 2 did not come")

    in_the_next_run(house, "files-listed", breaks)
    with pytest.raises(StorageUnavailable, match="page 2"):
        delete(house, table)
    assert local(path).exists()
    assert deleted(delete(house, table)) == [path]


# ---- what people and jobs ask for ------------------------------------------------------------------------------------


def test_amoros_minimum_age_is_obeyed_and_never_less_than_a_day(house: House, table: LakeTable) -> None:
    path = stray(table)
    set_properties(table, clean_orphan_file__min_existing_time_minutes="20000")
    looked_at(house, table, 10)
    assert deleted(delete(house, table)) == []
    set_properties(table, clean_orphan_file__min_existing_time_minutes="1")
    looked_at(house, table, 0)
    assert deleted(delete(house, table)) == [path]


def test_leftovers_of_a_killed_merging_sink_go(house: House, table: LakeTable) -> None:
    path = stray(table, name="a1-sink-0123456789abcdef-deadbeef-00001.parquet")
    looked_at(house, table, 8)
    assert deleted(delete(house, table)) == [path]


def test_files_of_snapshots_that_expiry_removed_stay_until_the_expiry_has_ended(house: House) -> None:
    table = roomy(house, "t", write__metadata__previous_versions_max="1", compaction__expire__grace="90d")
    append(table, *range(5000, 5100))
    house.pass_time(6 * DAY)
    [store] = expire(house, table).stores
    assert store.record is not None
    lists = {one.manifest_list for one in store.record.removed}
    append(table, 10_000)
    append(table, 10_001)
    for path in local(table.table.location()).rglob("*.metadata.json"):
        if path.name not in table.lake.catalogs.load(table.identifier).metadata_location:
            path.unlink()
    looked_at(house, table)
    assert deleted(delete(house, table, accept_share=1.0)) == []
    # When the record says that the files are gone, one that is still there is an orphan as any other.
    house.services._stores.upkeep.save(replace(store.record, status=UpkeepStatus.DONE, ended_at=house.now))
    looked_at(house, table)
    assert set(deleted(delete(house, table, accept_share=1.0))) >= lists
    assert lists
