"""The swap that takes snapshots out of metadata: what the metadata says afterwards, and what happens when it was changed meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table

from compaction_pipeline.core.tables.table import CatalogEntry
from compaction_pipeline.iceberg.catalogs.open_catalogs import Catalogs
from compaction_pipeline.iceberg.catalogs.rest_catalog import RequestLimits
from compaction_pipeline.iceberg.upkeep.remove_snapshots import Removal, remove
from compaction_pipeline_tests.iceberg.lake import Lake, LakeTable
from compaction_pipeline_tests.rest_catalog import Call, RestServer, rest_server


@pytest.fixture
def table(lake: Lake) -> LakeTable:
    made = lake.table()
    for number in range(5):
        made.ids(number)
    return made


@pytest.fixture
def server(lake: Lake) -> Iterator[RestServer]:
    with rest_server(lake.catalog) as running:
        yield running


def ids(table: Table) -> list[int]:
    return [one.snapshot_id for one in table.metadata.snapshots]


def through_rest(server: RestServer, table: LakeTable) -> Table:
    catalogs = Catalogs(lambda name: CatalogEntry(name, {"type": "rest", "uri": server.uri}), RequestLimits(60, 60, 60))
    return catalogs.load(table.identifier)


def test_the_oldest_snapshots_go_and_the_rest_stays_as_it_was_written(table: LakeTable) -> None:
    loaded = table.lake.catalogs.load(table.identifier)
    before = loaded.metadata
    removed = remove(loaded, Removal(ids(loaded)[:2], ()))
    after = table.lake.catalogs.load(table.identifier).metadata
    assert (removed.before, removed.after) == (before, after)
    assert after.snapshots == before.snapshots[2:]
    assert after.snapshots[0].parent_snapshot_id == before.snapshots[1].snapshot_id
    assert after.refs == before.refs
    assert [entry.snapshot_id for entry in after.snapshot_log] == [one.snapshot_id for one in after.snapshots]
    assert (after.last_sequence_number, after.current_snapshot_id) == (before.last_sequence_number, before.current_snapshot_id)


def test_the_snapshot_log_has_no_gap_because_a_reader_would_see_an_older_snapshot_in_it(table: LakeTable) -> None:
    loaded = table.lake.catalogs.load(table.identifier)
    numbers = ids(loaded)
    loaded.manage_snapshots().create_tag(numbers[0], "old").commit()
    loaded = table.lake.catalogs.load(table.identifier)
    after = remove(loaded, Removal(numbers[1:3], ())).after
    assert [one.snapshot_id for one in after.snapshots] == [numbers[0], *numbers[3:]]
    assert [entry.snapshot_id for entry in after.snapshot_log] == numbers[3:]
    assert after.refs["old"].snapshot_id == numbers[0]


def test_a_ref_goes_with_its_snapshot(table: LakeTable) -> None:
    loaded = table.lake.catalogs.load(table.identifier)
    numbers = ids(loaded)
    loaded.manage_snapshots().create_tag(numbers[0], "old").create_branch(numbers[1], "side").commit()
    after = remove(table.lake.catalogs.load(table.identifier), Removal(numbers[:2], ("old", "side"))).after
    assert set(after.refs) == {"main"}
    assert [one.snapshot_id for one in after.snapshots] == numbers[2:]


def test_a_snapshot_that_a_ref_is_on_is_never_removed(table: LakeTable) -> None:
    loaded = table.lake.catalogs.load(table.identifier)
    with pytest.raises(ValueError, match=r"refs \['main'\] are on snapshots"):
        remove(loaded, Removal(ids(loaded), ()))


def test_a_tag_that_is_made_between_look_and_swap_stands(table: LakeTable) -> None:
    loaded = table.lake.catalogs.load(table.identifier)
    numbers = ids(loaded)
    table.table.refresh()
    table.table.manage_snapshots().create_tag(numbers[0], "release").commit()
    with pytest.raises(CommitFailedException, match="not that which was looked at"):
        remove(loaded, Removal(numbers[:2], ()))
    now = table.lake.catalogs.load(table.identifier)
    assert ids(now) == numbers
    assert now.metadata.refs["release"].snapshot_id == numbers[0]


def test_a_commit_between_look_and_swap_stands(table: LakeTable) -> None:
    loaded = table.lake.catalogs.load(table.identifier)
    numbers = ids(loaded)
    table.ids(9)
    with pytest.raises(CommitFailedException):
        remove(loaded, Removal(numbers[:2], ()))
    assert ids(table.lake.catalogs.load(table.identifier))[:5] == numbers


def test_a_rest_catalog_removes_the_same(table: LakeTable, server: RestServer) -> None:
    table.table.refresh()
    numbers = ids(table.table)
    table.table.manage_snapshots().create_tag(numbers[0], "old").commit()
    loaded = through_rest(server, table)
    removed = remove(loaded, Removal(numbers[:2], ("old",)))
    assert removed.before == loaded.metadata
    assert [one.snapshot_id for one in removed.after.snapshots] == numbers[2:]
    assert set(removed.after.refs) == {"main"}


def test_a_rest_catalog_refuses_when_a_known_ref_has_moved(table: LakeTable, server: RestServer) -> None:
    loaded = through_rest(server, table)
    numbers = ids(loaded)
    table.ids(9)
    with pytest.raises(CommitFailedException):
        remove(loaded, Removal(numbers[:2], ()))
    assert ids(table.lake.catalogs.load(table.identifier))[:5] == numbers


def test_a_rest_catalog_tells_the_tag_that_nobody_knew(table: LakeTable, server: RestServer) -> None:
    loaded = through_rest(server, table)
    numbers = ids(loaded)

    def tag_first(call: Call) -> None:
        table.table.refresh()
        table.table.manage_snapshots().create_tag(numbers[0], "release").commit()
        call.answer(200, call.carry_out())

    server.commits = [tag_first]
    removed = remove(loaded, Removal(numbers[:2], ()))
    assert "release" not in removed.after.refs
    assert removed.before is not None
    assert removed.before.refs["release"].snapshot_id == numbers[0]


def test_a_removal_that_landed_is_no_failure_when_the_metadata_before_it_is_gone(table: LakeTable, server: RestServer) -> None:
    loaded = through_rest(server, table)

    def tag_first_and_lose_it(call: Call) -> None:
        table.table.refresh()
        table.table.manage_snapshots().create_tag(ids(loaded)[0], "release").commit()
        tagged = table.lake.catalogs.load(table.identifier).metadata_location
        answer = call.carry_out()
        Path(tagged.removeprefix("file://")).unlink()
        call.answer(200, answer)

    server.commits = [tag_first_and_lose_it]
    removed = remove(loaded, Removal(ids(loaded)[:2], ()))
    assert removed.before is None
    assert len(removed.after.snapshots) == 3


def test_a_rest_catalog_without_a_metadata_log_tells_nothing(table: LakeTable, server: RestServer) -> None:
    loaded = through_rest(server, table)

    def without_log(call: Call) -> None:
        answer = call.carry_out()
        call.answer(200, {**answer, "metadata": {**answer["metadata"], "metadata-log": []}})

    server.commits = [without_log]
    assert remove(loaded, Removal(ids(loaded)[:2], ())).before is None
