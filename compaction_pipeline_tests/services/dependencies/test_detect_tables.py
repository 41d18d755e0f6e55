"""The tables that the dependency center waits for are looked at, and it is told what changed."""

from __future__ import annotations

import logging
from datetime import datetime, timezone
from pathlib import Path

import pytest

from compaction_pipeline.core.tables.table import CatalogEntry
from compaction_pipeline.services.dependencies.detect_tables import DetectTables
from compaction_pipeline.services.dependencies.read_readiness import ReadReadiness
from compaction_pipeline_tests.services.dependencies.center_house import CenterHouse
from compaction_pipeline_tests.services.dependencies.written_table import TABLE, WrittenTable
from compaction_pipeline_tests.state import sqlite_stores

NOON = datetime(2026, 1, 2, 12, tzinfo=timezone.utc)


class Watched(CenterHouse):
    """A center beside a table that is written to."""

    def __init__(self, folder: Path) -> None:
        super().__init__(sqlite_stores(folder), NOON)
        self.stores.catalogs.add(CatalogEntry(TABLE.catalog, {}))
        self.table = WrittenTable(NOON)
        self.readiness = ReadReadiness(self.stores.catalogs, self.table, self.stores.dependencies, self.table.clock)
        self.detector = DetectTables(self.store, self.readiness, self.table.clock)

    def look(self) -> int:
        count = self.detector.look()
        self.settle()
        return count

    def wait_for(self, **need: object) -> None:
        self.save({"name": "load", "period": "day", "since": "2026-01-01", "needs": [{"table": str(TABLE), **need}]})
        self.settle()


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


@pytest.mark.parametrize("need", [{}, {"watermark": True}, {"partition": "ts_day={%Y-%m-%d}"}], ids=str)
def test_a_watermark_that_reaches_the_end_of_the_day_releases_and_one_that_falls_takes_back(
    watched: Watched, need: dict[str, object]
) -> None:
    watched.wait_for(**need)
    watched.table.mark("2026-01-01T23:59:59.999+00:00")
    watched.look()
    assert watched.state("load", "2026-01-01") == "WAITING"
    watched.table.mark("2026-01-02T00:00:00+00:00")
    assert watched.look() == 1
    assert watched.look() == 0
    assert watched.state("load", "2026-01-01") == "READY"
    watched.table.mark("2026-01-01T23:00:00+00:00")
    assert watched.look() == 1
    assert watched.state("load", "2026-01-01") == "WAITING"


def test_a_reported_table_is_looked_at_before_its_turn_and_others_are_not(watched: Watched) -> None:
    watched.wait_for()
    watched.table.mark("2026-01-02T00:00:00+00:00")
    assert watched.detector.look_at_reported() == 0
    watched.stores.dependencies.note_reported(TABLE, NOON)
    assert watched.detector.look_at_reported() == 2
    assert watched.detector.look_at_reported() == 0
    watched.settle()
    assert watched.claimed() == ["load/2026-01-01/scheduled/1"]


def test_a_need_that_means_nothing_keeps_no_other_one_waiting_and_is_logged_once(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    needs = [{"table": str(TABLE), "partition": "gone={%Y}"}]
    load = {"name": "load", "period": "day", "since": "2026-01-01", "needs": [{"table": str(TABLE)}]}
    watched.save(load, {"name": "never", "period": "day", "since": "2026-01-01", "needs": needs})
    watched.settle()
    watched.table.mark("2026-01-02T00:00:00+00:00")
    with caplog.at_level(logging.WARNING):
        watched.look()
        watched.look()
    assert (watched.state("load", "2026-01-01"), watched.state("never", "2026-01-01")) == ("READY", "WAITING")
    assert [record.getMessage().count("'gone'") for record in caplog.records] == [1]


def test_needs_that_mean_nothing_cost_one_load_of_their_table_and_none_while_it_stands(watched: Watched) -> None:
    needs = [{"table": str(TABLE), "partition": "gone={%Y%m%d%H}"}]
    watched.save({"name": "never", "period": "hour", "since": "2026-01-01T00", "needs": needs})
    watched.settle()
    watched.table.mark("2026-01-02T00:00:00+00:00")
    loads = len(watched.table.loads)
    watched.look()
    assert len(watched.table.loads) == loads + 1
    watched.look()
    assert len(watched.table.loads) == loads + 1
    (one,) = watched.center.why("never", "2026-01-01T03").waits_for
    assert "names 'gone', but the table has no such partition field" in one.problem


def test_a_table_that_cannot_be_read_keeps_what_was_known_of_it(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    watched.wait_for()
    watched.table.mark("2026-01-02T00:00:00+00:00")
    watched.look()
    watched.stores.catalogs.remove(TABLE.catalog)
    assert watched.look() == 0
    assert watched.state("load", "2026-01-01") == "READY"


def test_why_says_that_a_table_cannot_be_read_whoever_looked_as_long_as_it_is_so(watched: Watched) -> None:
    watched.wait_for()
    watched.stores.catalogs.remove(TABLE.catalog)
    watched.look()
    (one,) = watched.another_center().why("load", "2026-01-01").waits_for
    assert one.problem.startswith("it cannot be looked up: ")
    assert f"{TABLE.catalog!r}" in one.problem
    watched.stores.catalogs.add(CatalogEntry(TABLE.catalog, {}))
    # Another server leads from now on.
    watched.detector = DetectTables(watched.store, watched.readiness, watched.table.clock)
    watched.look()
    assert watched.center.why("load", "2026-01-01").waits_for[0].problem == ""
    watched.stores.catalogs.remove(TABLE.catalog)
    watched.look()
    watched.save()
    watched.look()
    assert watched.store.problems() == {}, "nobody waits for it any more"


@pytest.mark.parametrize("patrol", [True, False])
def test_everything_is_released_by_reports_alone_and_by_the_patrol_alone(watched: Watched, patrol: bool) -> None:
    hours = {"name": "load", "period": "hour", "since": "2026-01-01T00", "needs": [{"table": str(TABLE), "watermark": True}]}
    watched.save(hours)
    watched.settle()
    released: list[str] = []
    # The first commit is reported in both worlds, so the patrol knows that this table's writers report.
    for hour in range(1, 13):
        watched.table.mark(f"2026-01-01T{hour:02}:00:00+00:00")
        if not patrol or hour == 1:
            watched.stores.dependencies.note_reported(TABLE, NOON)
            watched.detector.look_at_reported()
        else:
            watched.detector.look()
        watched.settle()
        released += watched.claimed()
    assert released == [f"load/2026-01-01T{hour:02}/scheduled/1" for hour in range(12)]
    # Another server shows it, too.
    assert watched.stores.center_figures.figures(NOON).missed == (11 if patrol else 0)
