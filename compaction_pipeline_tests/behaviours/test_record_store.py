from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from compaction_pipeline.core.commit.record import CommitFigures, CompactionRecord, RecordStatus
from compaction_pipeline.core.errors import NotFoundError
from compaction_pipeline.core.stores import Stores
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline_tests.builders import NOW, TABLE

OTHER = TableIdentifier("lake", ("shop",), "other")


def record(record_id: str, status: RecordStatus = RecordStatus.COMMITTED, minutes: int = 0, **changes: object) -> CompactionRecord:
    base = CompactionRecord(record_id, TABLE, status, NOW + timedelta(minutes=minutes), ("t1",))
    return replace(base, **changes)  # type: ignore[arg-type]


def test_a_record_comes_back_as_it_was_saved(stores: Stores) -> None:
    full = record(
        "r1",
        types=(CompactionType.MINOR, CompactionType.FULL),
        node_keys=("k",),
        conflicts={"t2": "gone"},
        snapshot_before=1,
        snapshot_after=2**62,
        figures=CommitFigures(1, 2, 3),
        ended_at=NOW,
        reason="why",
        run_id="run",
    )
    for value in (record("r1", RecordStatus.OPEN), full):
        stores.records.save(value)
        assert stores.records.record("r1") == value
    assert stores.records.records() == (full,)


def test_an_unknown_record_is_not_found(stores: Stores) -> None:
    with pytest.raises(NotFoundError, match="r9"):
        stores.records.record("r9")


def test_records_are_listed_newest_first_and_filtered(stores: Stores) -> None:
    saved = [record("r1"), record("r2", RecordStatus.OPEN, 1), record("r3", RecordStatus.UNKNOWN, 2, table=OTHER)]
    for value in saved:
        stores.records.save(value)
    assert [value.record_id for value in stores.records.records()] == ["r3", "r2", "r1"]
    assert [value.record_id for value in stores.records.records(TABLE, limit=1)] == ["r2"]
    assert [value.record_id for value in stores.records.records(unsettled=True)] == ["r3", "r2"]


def test_an_ended_record_is_mirrored_once_oldest_first(stores: Stores) -> None:
    for value in (record("r1", minutes=5), record("r2", RecordStatus.FAILED), record("r3", RecordStatus.OPEN), record("r4", minutes=9)):
        stores.records.save(value)
    assert [value.record_id for value in stores.records.unmirrored(2)] == ["r2", "r1"]
    stores.records.mark_mirrored(["r2", "r1"])
    stores.records.save(record("r1", minutes=5, run_id="later"))
    assert [value.record_id for value in stores.records.unmirrored(9)] == ["r4"]


def test_an_unsettled_record_never_expires(stores: Stores) -> None:
    for value in (record("r1"), record("r2", RecordStatus.UNKNOWN), record("r3", RecordStatus.OPEN), record("r4", minutes=9)):
        stores.records.save(value)
    assert stores.records.expire(NOW + timedelta(minutes=9)) == 1
    assert sorted(value.record_id for value in stores.records.records()) == ["r2", "r3", "r4"]


def test_a_record_expires_by_its_end_and_not_while_it_is_kept(stores: Stores) -> None:
    for value in (record("r1", ended_at=NOW), record("r2", ended_at=NOW), record("r3", ended_at=NOW + timedelta(minutes=9)), record("r4")):
        stores.records.save(value)
    assert stores.records.expire(NOW + timedelta(minutes=9), ["r1", "r3"]) == 2
    assert sorted(value.record_id for value in stores.records.records()) == ["r1", "r3"]


def test_the_files_that_landed_commits_merged_away_are_added_up_for_each_table(stores: Stores) -> None:
    figures = CommitFigures(files_before=30, files_after=3, delete_files_before=4, delete_files_after=1)
    stores.records.save(record("r1", RecordStatus.OPEN))
    for value in (record("r1", figures=figures), record("r2", figures=figures), record("r3", RecordStatus.FAILED, figures=figures)):
        stores.records.save(value)
    stores.records.save(record("r4", figures=CommitFigures(files_before=2, files_after=1), table=OTHER))
    assert stores.records.merged_away() == {TABLE: 60, OTHER: 1}
    stores.records.expire(NOW + timedelta(days=1), ["r1"])
    assert stores.records.merged_away() == {TABLE: 30}
