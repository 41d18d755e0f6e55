"""The check `watermarks_move` on a table that somebody asks about: which writer stands, since when, and what ends that."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from compaction_pipeline.core.insight.checks.every_check import CHECKS
from compaction_pipeline.core.insight.checks.judgement import Judgement
from compaction_pipeline.core.stores import Stores
from compaction_pipeline.core.tables.table import CatalogEntry
from compaction_pipeline.services.dependencies.read_readiness import ReadReadiness
from compaction_pipeline.services.insight.judge_compaction import JudgeCompaction, JudgedWork
from compaction_pipeline_tests.services.dependencies.written_table import TABLE, WrittenTable
from compaction_pipeline_tests.state import sqlite_stores

CHECK = next(check for check in CHECKS if check.name == "watermarks_move")
TWO_WRITERS = {"compaction.watermark-writers": "eu:w.eu,us:w.us"}
ABOUT_A_DAY = timedelta(hours=23, minutes=59)


class Asked:
    """A table that somebody asks about, and what the check says of it."""

    def __init__(self, folder: Path) -> None:
        self.stores: Stores = sqlite_stores(folder)
        self.stores.catalogs.add(CatalogEntry(TABLE.catalog, {}))
        self.table = WrittenTable(datetime(2026, 1, 2, 1, tzinfo=timezone.utc))
        self.readiness = ReadReadiness(self.stores.catalogs, self.table, self.stores.dependencies, self.table.clock)
        nobody: Any = None
        stores = self.stores
        work = JudgedWork(stores.queues, stores.groups, stores.teams, stores.costs)
        self._judge = JudgeCompaction(stores.catalogs, stores.tables, stores.tasks, work, nobody, nobody, self.table.clock)

    def ask(self) -> None:
        self.readiness.partition(TABLE, "ts_day=2026-01-01")

    def since(self) -> datetime | None:
        return self.readiness.partition(TABLE, "ts_day=2026-01-01").watermark_since

    def judged(self) -> Judgement:
        (result,) = self._judge.judge([CHECK])
        return result.judgement

    def after(self, **time: float) -> Judgement:
        """What the check says after this time, when somebody asks then."""
        self.table.pass_time(**time)
        self.ask()
        return self.judged()


@pytest.fixture
def asked(tmp_path: Path) -> Asked:
    return Asked(tmp_path)


def test_a_watermark_that_stands_for_a_day_fails_also_while_snapshots_come(asked: Asked) -> None:
    asked.table.mark("2026-01-01T23:00:00+00:00")
    asked.ask()
    for minutes in (60, 22 * 60, 59):
        assert asked.after(minutes=minutes).passed
        # The writer commits, and says the same. A compaction copies it.
        asked.table.mark("2026-01-01T23:00:00+00:00")
        asked.table.commit({"watermark": "1767308400000"}, operation="replace")
    red = asked.after(minutes=1)
    assert red.text == (
        "1 of 1 tables fail; lake.shop.events: its writers have not moved the watermark 2026-01-01T23:00Z since 2026-01-02 01:00:00 UTC "
        "(1 d): see that they run, and that new events reach them; "
        "when it is meant to stand for longer, set 'compaction.watermark-stands-at-most'"
    )
    asked.table.mark("2026-01-01T23:00:01+00:00")
    assert asked.after(seconds=1).text == "the only table that somebody waits for passes"


def test_a_writer_that_stands_is_named_although_others_move(asked: Asked) -> None:
    asked.table.properties.update(TWO_WRITERS)
    asked.table.commit({"w.eu": "1767225600000", "w.us": "1767225600000"})
    asked.ask()
    for hour in range(1, 24):
        asked.table.commit({"w.us": str(1767225600000 + hour)})
        assert asked.after(hours=1).passed
    red = asked.after(hours=1)
    assert "the writer 'eu' has not moved the watermark 2026-01-01T00:00Z since 2026-01-02 01:00:00 UTC (1 d)" in red.text
    assert "remove it from 'compaction.watermark-writers'" in red.text
    asked.table.properties["compaction.watermark-writers"] = "us:w.us"
    assert asked.after(seconds=1).passed


def test_a_writer_that_never_said_a_watermark_stands_since_somebody_asks(asked: Asked) -> None:
    asked.table.properties.update(TWO_WRITERS)
    asked.table.commit({"w.us": "1767225600000"})
    asked.table.pass_time(hours=10)
    asked.ask()
    asked.table.commit({"w.us": "1767225600001"})
    assert asked.after(minutes=ABOUT_A_DAY.total_seconds() / 60).passed
    asked.table.commit({"w.us": "1767225600002"})
    assert "the writer 'eu' has said no watermark since 2026-01-02 11:00:00 UTC (1 d)" in asked.after(minutes=1).text


def test_a_table_without_any_watermark_says_how_to_write_one(asked: Asked) -> None:
    asked.table.commit()
    asked.ask()
    assert asked.judged().passed
    red = asked.after(hours=24)
    assert "its writers have said no watermark since" in red.text
    assert "docs/readiness.md" in red.text
    assert "set another 'compaction.ready-when'" in red.text


def test_what_stood_before_anybody_asked_counts_from_its_snapshot(asked: Asked) -> None:
    asked.table.mark("2026-01-01T23:00:00+00:00")
    assert "since 2026-01-02 01:00:00 UTC (3 d)" in asked.after(days=3).text


def test_what_is_known_outlives_the_snapshots_that_said_it(asked: Asked) -> None:
    first = asked.table.mark("2026-01-01T23:00:00+00:00")
    asked.ask()
    asked.table.pass_time(hours=20)
    asked.table.commit()
    asked.ask()
    asked.table.expire(first)
    assert "since 2026-01-02 01:00:00 UTC" in asked.after(hours=4).text


def test_a_watermark_that_is_set_back_moved_then(asked: Asked) -> None:
    old = asked.table.mark("2026-01-01T20:00:00+00:00")
    asked.table.pass_time(days=2)
    asked.table.mark("2026-01-01T23:00:00+00:00")
    asked.ask()
    asked.table.head = old
    assert asked.after(seconds=1).passed
    assert asked.after(minutes=ABOUT_A_DAY.total_seconds() / 60).passed
    assert not asked.after(minutes=1).passed


def test_only_tables_are_judged_that_somebody_asks_about_by_their_watermark(asked: Asked) -> None:
    asked.table.mark("2026-01-01T23:00:00+00:00")
    asked.table.pass_time(days=3)
    asked.readiness.watermark(TABLE)
    assert asked.judged().text == "nobody waits for the watermark of a table"
    asked.ask()
    assert not asked.judged().passed
    asked.table.pass_time(hours=2)
    assert asked.judged().judged == 0
    asked.table.properties["compaction.ready-when"] = "exists"
    asked.ask()
    assert asked.judged().judged == 0


def test_a_table_fails_once_for_the_writer_that_stands_for_the_longest(asked: Asked) -> None:
    asked.table.properties.update(TWO_WRITERS)
    asked.table.commit({"w.eu": "1767225600000"})
    asked.table.pass_time(hours=1)
    asked.table.commit({"w.us": "1767225600000"})
    red = asked.after(days=2)
    assert (red.judged, len(red.failures)) == (1, 1)
    assert "the writer 'eu'" in red.text


def test_a_steady_question_is_stored_once_an_hour(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    asked.table.mark("2026-01-01T23:00:00+00:00")
    noted: list[object] = []
    memory = asked.stores.dependencies
    store = memory.note_standings

    def note(uuid: str, found: Any) -> None:
        noted.append(found)
        store(uuid, found)

    monkeypatch.setattr(memory, "note_standings", note)
    for _ in range(121):
        asked.after(minutes=1)
    assert len(noted) == 3


def test_a_table_says_for_how_long_its_watermark_may_stand(asked: Asked) -> None:
    asked.table.properties["compaction.watermark-stands-at-most"] = "8d"
    asked.table.mark("2026-01-01T23:00:00+00:00")
    asked.ask()
    assert asked.after(days=7, hours=23, minutes=59).passed
    red = asked.after(minutes=1)
    assert "(8 d)" in red.text
    assert red.text.endswith("when it is meant to stand for longer, set 'compaction.watermark-stands-at-most'")
    asked.table.properties["compaction.watermark-stands-at-most"] = "9d"
    assert asked.after(seconds=1).passed
    asked.table.properties["compaction.watermark-stands-at-most"] = "soon"
    assert not asked.after(seconds=1).passed, "a bad value is none"
    asked.table.namespace["compaction.watermark-stands-at-most"] = "10d"
    del asked.table.properties["compaction.watermark-stands-at-most"]
    assert asked.after(seconds=1).passed


@pytest.mark.parametrize("others", [{}, TWO_WRITERS])
def test_a_sink_of_ours_that_stands_is_named(asked: Asked, others: dict[str, str]) -> None:
    properties = asked.table.properties
    properties.update({**others, "compaction.sink.a.watermark": "1767225600000", "compaction.sink.b.watermark": "1767225600000"})
    asked.table.commit({"w.eu": "1767225600000", "w.us": "1767225600000", "watermark": "1767225600000"})
    asked.ask()
    for hour in range(1, 25):
        said = str(1767225600000 + hour)
        properties["compaction.sink.b.watermark"] = said
        asked.table.commit({"w.eu": said, "w.us": said, "watermark": "1767225600000"})
        red = asked.after(hours=1)
        assert red.passed == (hour < 24)
    assert "our sink a has not moved the watermark 2026-01-01T00:00Z since 2026-01-02 01:00:00 UTC (1 d)" in red.text
    assert "remove it by `reset_sink`" in red.text
    del properties["compaction.sink.a.watermark"]
    asked.table.commit({"w.eu": "1767225600099", "w.us": "1767225600099", "watermark": "1767225600099"})
    assert asked.after(seconds=1).passed


def test_an_answer_tells_since_when_the_writer_that_holds_it_up_says_so(asked: Asked) -> None:
    asked.table.properties.update(TWO_WRITERS)
    began = asked.table.now
    asked.table.commit({"w.eu": "1767225600000"})
    asked.table.pass_time(hours=1)
    asked.ask()
    assert asked.since() == began + timedelta(hours=1), "a writer that says nothing holds up all"
    asked.table.commit({"w.us": "1767225600001"})
    asked.table.pass_time(hours=1)
    assert asked.since() == began
    asked.table.commit({"w.eu": "1767225600009"})
    asked.table.pass_time(hours=1)
    assert asked.since() == began + timedelta(hours=1)
    asked.table.properties["compaction.ready-when"] = "reported"
    assert asked.since() is None


def test_a_watermark_that_goes_on_moving_is_stored_once_an_hour(asked: Asked) -> None:
    def stored() -> datetime | None:
        (one,) = asked.stores.dependencies.standings("uuid-1")
        return one.at

    asked.table.mark("2026-01-01T10:00:00+00:00")
    asked.ask()
    first = stored()
    for _ in range(59):
        moved_at = asked.table.now
        asked.table.mark(f"{moved_at:%Y-%m-%dT%H:%M:%S}+00:00")
        asked.table.pass_time(minutes=1)
        assert asked.since() == moved_at
    assert stored() == first
    asked.table.pass_time(minutes=1)
    assert asked.since() == moved_at
    assert stored() == moved_at


def test_a_mark_of_a_sink_that_moves_is_stored_each_time(asked: Asked) -> None:
    asked.table.commit({"watermark": "1767225600000"})
    for number in range(3):
        asked.table.properties["compaction.sink.a.watermark"] = str(1767225500000 + number)
        asked.table.pass_time(minutes=1)
        moved_at = asked.table.now
        assert asked.since() == moved_at
        asked.table.pass_time(minutes=1)
        assert asked.since() == moved_at


def test_a_watermark_that_moves_after_an_hour_or_is_set_back_is_stored_at_once(asked: Asked) -> None:
    old = asked.table.mark("2026-01-01T10:00:00+00:00")
    asked.ask()
    for _ in range(25):
        asked.after(hours=1)
    assert not asked.judged().passed
    asked.table.mark("2026-01-01T11:00:00+00:00")
    assert asked.after(seconds=1).passed
    asked.table.head = old
    asked.ask()
    (one,) = asked.stores.dependencies.standings("uuid-1")
    assert (one.at, one.since) == (datetime(2026, 1, 1, 10, tzinfo=timezone.utc), asked.table.now)
