from __future__ import annotations

from datetime import timedelta

import pytest

from compaction_pipeline.core.tables.commit_report import (
    MOST_PARTITIONS,
    TOGETHER,
    CommitReport,
    ReportedTable,
    due,
    most_urgent_first,
    why_known,
    with_report,
)
from compaction_pipeline.core.tables.index import Complete, Failed, TableIndex, Unread
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline_tests.builders import LOADED, NOW

TABLE = TableIdentifier("lake", ("db",), "t")
READ = TableIndex(TABLE, Complete(LOADED, snapshot_id=70, sequence_number=7, metadata_location="m", read_id="r", read_at=NOW))


@pytest.mark.parametrize(("snapshot_id", "sequence_number"), [(70, 0), (70, 7), (70, 9), (60, 6), (61, 7)])
def test_a_snapshot_that_was_read_and_its_ancestors_are_known(snapshot_id: int, sequence_number: int) -> None:
    assert why_known(CommitReport(TABLE, snapshot_id, sequence_number), READ)


@pytest.mark.parametrize(("snapshot_id", "sequence_number"), [(80, 8), (60, 0)])
def test_a_newer_snapshot_is_not_known_nor_one_without_a_number(snapshot_id: int, sequence_number: int) -> None:
    assert why_known(CommitReport(TABLE, snapshot_id, sequence_number), READ) is None


def test_a_table_that_is_not_whole_knows_no_snapshot() -> None:
    for state in (Unread(), Failed("away", LOADED)):
        assert why_known(CommitReport(TABLE, 70, 7), READ.turned(state)) is None


def test_reports_are_added_up() -> None:
    one = with_report(None, CommitReport(TABLE, 1, 1, {"a": 2}), NOW)
    two = with_report(one, CommitReport(TABLE, 2, 2, {"a": 1, "b": 5}), NOW + timedelta(minutes=1))
    assert two == ReportedTable(TABLE, 2, 2, NOW, 2, {"a": 3, "b": 5})
    assert two.urgency == 5


def test_a_repeated_report_counts_once_and_an_older_one_changes_no_newest_snapshot() -> None:
    one = with_report(None, CommitReport(TABLE, 2, 2, {"a": 2}), NOW)
    assert with_report(one, CommitReport(TABLE, 2, 2, {"a": 2}), NOW) == one
    late = with_report(one, CommitReport(TABLE, 1, 1, {"a": 1}), NOW)
    assert (late.snapshot_id, late.sequence_number, late.added) == (2, 2, {"a": 3})


def test_the_partitions_with_the_most_files_are_remembered() -> None:
    many = {f"p={number:05}": number for number in range(MOST_PARTITIONS + 5)}
    kept = with_report(None, CommitReport(TABLE, 1, 1, many), NOW).added
    assert len(kept) == MOST_PARTITIONS
    assert min(kept.values()) == 5


def test_a_table_is_looked_at_a_second_after_its_first_report_and_the_most_urgent_first() -> None:
    few, many = (ReportedTable(TableIdentifier("lake", ("db",), name), 1, 1, NOW, 1, {"": count}) for name, count in (("a", 1), ("b", 9)))
    young = ReportedTable(TABLE, 1, 1, NOW + timedelta(milliseconds=1), 5, {"": 99})
    assert due([few, many, young], NOW + TOGETHER) == [many, few]
    assert most_urgent_first([few, many, young]) == [young, many, few]
