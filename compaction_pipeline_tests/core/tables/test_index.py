"""The states of an index, and what is still known of a table after its state has changed."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from compaction_pipeline.core.tables.index import (
    Empty,
    Failed,
    IndexState,
    Reading,
    Refused,
    TableIndex,
    Unread,
    WholeRead,
    last_old_spec_delete,
    measures_differ,
)
from compaction_pipeline.core.tables.table import ManifestRef, SnapshotSummary, TableHead, TableLayout
from compaction_pipeline_tests.builders import COMPLETE, LAYOUT, LOADED, NOW, TABLE, UNPARTITIONED_SPEC, data

READ = TableIndex(TABLE, COMPLETE)
EMPTY = Empty(LOADED, "m1", "read 1", NOW)
OLD_SPEC = replace(LAYOUT, default_spec_id=1)


def head(layout: TableLayout = LAYOUT) -> TableHead:
    at = NOW - timedelta(hours=2)
    snapshot = SnapshotSummary(7, None, 3, int(at.timestamp() * 1000), "overwrite", {})
    return TableHead(TABLE, "uuid", "m2", 7, 3, (snapshot,), layout, None)


def manifest(content: str = "DELETES", spec_id: int = 0, snapshot_id: int = 7) -> ManifestRef:
    return ManifestRef("m", content, spec_id, snapshot_id, 3)


@pytest.mark.parametrize(
    "state", [Unread(), Reading(LOADED), Failed("away", LOADED), Refused("v3", LOADED)], ids=lambda s: type(s).__name__
)
def test_the_last_whole_read_is_known_until_the_next_one(state: IndexState) -> None:
    index = READ.turned(state)
    assert index.last_read == WholeRead(7, NOW)
    assert index.turned(Failed("away")).last_read == WholeRead(7, NOW)
    assert index.turned(EMPTY) == TableIndex(TABLE, EMPTY)
    assert index.turned(EMPTY).last_read == WholeRead(None, NOW)


def test_a_failed_read_keeps_a_refusal_and_the_loaded_metadata() -> None:
    refused = READ.turned(Refused("v3", LOADED, "m1"))
    assert refused.failed("away") == refused
    failed = READ.failed("away")
    assert (failed.problem, failed.layout, failed.refusal) == ("away", LAYOUT, None)
    assert TableIndex(TABLE).failed("away").layout is None


def test_only_a_read_of_the_same_files_is_the_same_read() -> None:
    moved = replace(COMPLETE, metadata_location="m2", loaded=replace(LOADED, layout=OLD_SPEC))
    assert COMPLETE.is_same_read(moved)
    assert not COMPLETE.is_same_read(replace(COMPLETE, read_id="read 2"))
    assert not COMPLETE.is_same_read(EMPTY)
    assert not COMPLETE.is_same_read(None)


def test_the_planner_gets_files_with_their_snapshot() -> None:
    files = COMPLETE.files_of(TABLE, [data("a")])
    assert (files.table_uuid, files.snapshot_id, files.sequence_number) == ("uuid", 7, 3)
    assert [file.path for file in files.files] == ["a"]


def test_other_properties_or_global_deletes_make_all_nodes_measured_again() -> None:
    assert not measures_differ(None, LAYOUT)
    assert not measures_differ(LAYOUT, replace(LAYOUT, schema_id=0))
    assert measures_differ(LAYOUT, replace(LAYOUT, properties={}))
    assert measures_differ(LAYOUT, replace(LAYOUT, unpartitioned_spec_ids=frozenset({UNPARTITIONED_SPEC})))


def test_a_delete_of_an_old_spec_counts_from_its_commit_or_from_now() -> None:
    def last(*added: ManifestRef, index: TableIndex = READ) -> datetime | None:
        return last_old_spec_delete(index, head(), added, NOW)

    assert last() is None
    assert last(manifest(spec_id=0)) is None
    assert last(manifest("DATA", spec_id=5)) is None
    assert last(manifest(spec_id=5)) == NOW - timedelta(hours=2)
    assert last(manifest(spec_id=5, snapshot_id=99)) == NOW
    earlier = datetime(2020, 1, 1, tzinfo=timezone.utc)
    assert last(index=replace(READ, last_old_spec_delete_at=earlier)) == earlier


def test_a_new_spec_and_a_first_read_of_an_old_one_count_as_a_delete_now() -> None:
    evolved = replace(READ, state=replace(COMPLETE, loaded=replace(LOADED, layout=OLD_SPEC)))
    assert last_old_spec_delete(evolved, head(), (), NOW) == NOW
    unread = TableIndex(TABLE)
    assert last_old_spec_delete(unread, head(), [manifest("DATA", spec_id=5)], NOW) == NOW
    assert last_old_spec_delete(unread, head(replace(LAYOUT, format_version=1)), [manifest("DATA", spec_id=5)], NOW) is None
