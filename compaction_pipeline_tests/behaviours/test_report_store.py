from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from compaction_pipeline.core.stores import Stores
from compaction_pipeline.core.tables.commit_report import CommitReport, ReportedTable
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline_tests.builders import NOW

TABLE, OTHER = TableIdentifier("lake", ("db",), "t"), TableIdentifier("lake", ("a.b",), "u")
LATER = NOW + timedelta(seconds=1)


def test_the_reports_of_a_table_are_one_row(stores: Stores) -> None:
    assert stores.reports.reported() == ()
    stores.reports.add(CommitReport(TABLE, 2**62, 7, {"day=1": 3}), NOW)
    both = stores.reports.add(CommitReport(TABLE, 2**61, 8, {"day=1": 1, "day=2": 2}), LATER)
    assert both == ReportedTable(TABLE, 2**61, 8, NOW, 2, {"day=1": 4, "day=2": 2})
    other = stores.reports.add(CommitReport(OTHER, 1), LATER)
    assert stores.reports.reported() == (other, both)


def test_answered_reports_are_removed(stores: Stores) -> None:
    reported = stores.reports.add(CommitReport(TABLE, 1, 1), NOW)
    other = stores.reports.add(CommitReport(OTHER, 1, 1), NOW)
    assert stores.reports.answer(reported)
    assert not stores.reports.answer(reported)
    assert stores.reports.reported() == (other,)


def test_a_report_that_comes_during_the_look_stays(stores: Stores) -> None:
    before = stores.reports.add(CommitReport(TABLE, 1, 1), NOW)
    more = stores.reports.add(CommitReport(TABLE, 2, 2), LATER)
    assert not stores.reports.answer(before)
    assert stores.reports.reported() == (more,)
    assert stores.reports.answer(more)


def test_a_forgotten_table_has_no_reports(stores: Stores) -> None:
    stores.index.add(TABLE)
    stores.reports.add(CommitReport(TABLE, 1, 1), NOW)
    stores.index.forget(TABLE)
    assert stores.reports.reported() == ()


def test_no_report_is_lost_when_many_come_at_once(stores: Stores) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: stores.reports.add(CommitReport(TABLE, number, number, {"": 1}), NOW), range(1, 25)))
    assert stores.reports.reported() == (ReportedTable(TABLE, 24, 24, NOW, 24, {"": 24}),)
