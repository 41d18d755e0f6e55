"""The history of all tables' files grows when figures change, and counts what the commits of known tables merged away."""

from __future__ import annotations

from datetime import datetime, timedelta

from compaction_pipeline.core.commit.record import CommitFigures
from compaction_pipeline.core.insight.files_over_time import FilesPoint
from compaction_pipeline.core.tables.index import Unread
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.services.insight.watch_files import WatchFiles
from compaction_pipeline_tests.defs.values import NOW, ORDERS, node_state, record
from compaction_pipeline_tests.services.insight.desk import Desk

FORGOTTEN = TableIdentifier("lake", ("shop",), "forgotten")


class Watch:
    """A watch whose clock a test moves."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.now = NOW
        self.watch = WatchFiles(desk.stores.history, desk.stores.records, self._clock)

    def _clock(self) -> datetime:
        return self.now

    def note(self, **later: float) -> tuple[FilesPoint, ...]:
        self.now += timedelta(**later)
        return self.watch.note(self.desk.tables.tables())


def test_a_point_is_added_only_when_the_figures_change(desk: Desk) -> None:
    watch = Watch(desk)
    desk.table(ORDERS, node_state(1, data_files=30, position_delete_files=4))
    assert watch.note() == (FilesPoint(NOW, 34, 0),)
    assert watch.note(hours=1) == (FilesPoint(NOW, 34, 0),)
    desk.table(ORDERS, node_state(1, data_files=3))
    desk.stores.records.save(record(figures=CommitFigures(files_before=30, files_after=3, delete_files_before=4)))
    assert watch.note(hours=1) == (FilesPoint(NOW, 34, 0), FilesPoint(NOW + timedelta(hours=2), 3, 31))
    assert desk.stores.history.points() == watch.watch.history(desk.tables.tables())


def test_reading_the_history_stores_nothing(desk: Desk) -> None:
    desk.table(ORDERS, node_state(1, data_files=30))
    assert Watch(desk).watch.history(desk.tables.tables()) == (FilesPoint(NOW, 30, 0),)
    assert desk.stores.history.points() == ()


def test_tables_that_nobody_read_make_no_point(desk: Desk) -> None:
    watch = Watch(desk)
    desk.table(ORDERS, state=Unread())
    assert watch.note() == ()


def test_commits_of_tables_that_are_forgotten_do_not_count(desk: Desk) -> None:
    desk.table(ORDERS, node_state(1, data_files=3))
    desk.stores.records.save(record(table=FORGOTTEN))
    assert Watch(desk).note() == (FilesPoint(NOW, 3, 0),)
