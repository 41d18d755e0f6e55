"""The demo's event time runs while the writer writes, goes on where it stood, and says watermarks that no later event breaks."""

from __future__ import annotations

from contextlib import closing
from datetime import datetime, timedelta, timezone
from pathlib import Path

from compaction_pipeline.demo.event_time import LATENESS, SECONDS_OF_A_DAY, EventTime
from compaction_pipeline.demo.options import DemoOptions
from compaction_pipeline.demo.tables import EVENTS
from compaction_pipeline.demo.warehouse import bought_between, make_tables, open_table
from compaction_pipeline.demo.writers import Writer, newest_watermark

NOW = datetime(2026, 11, 1, tzinfo=timezone.utc)
FIRST_DAY = NOW - timedelta(days=40)


class Seconds:
    def __init__(self) -> None:
        self.at = 100.0

    def __call__(self) -> float:
        return self.at


def test_a_day_of_events_ends_at_least_every_two_minutes() -> None:
    seconds = Seconds()
    events = EventTime(FIRST_DAY, None, seconds)
    assert SECONDS_OF_A_DAY <= 120
    days = set()
    for _ in range(120):
        seconds.at += 1
        days.add((events.next(NOW, runs=True) - LATENESS).date())
    assert len(days) >= 2


def test_event_time_stands_still_while_a_backlog_is_written_and_while_the_writer_stands() -> None:
    seconds = Seconds()
    events = EventTime(FIRST_DAY, None, seconds)
    seconds.at += 1_000
    assert events.next(NOW, runs=False) == FIRST_DAY + LATENESS
    seconds.at += 1_000_000
    assert events.next(NOW, runs=True) < FIRST_DAY + LATENESS + timedelta(days=1), "a writer that was stopped does not leap over days"


def test_event_time_never_passes_the_clock_nor_falls() -> None:
    seconds = Seconds()
    ahead = NOW + timedelta(days=3)
    events = EventTime(FIRST_DAY, ahead, seconds)
    seconds.at += 5
    assert events.next(NOW, runs=True) == ahead + LATENESS
    behind = EventTime(FIRST_DAY, NOW - LATENESS - timedelta(hours=1), seconds)
    seconds.at += 10
    assert behind.next(NOW, runs=True) == NOW


def test_commits_say_watermarks_that_hold_and_another_writer_goes_on_from_there(tmp_path: Path) -> None:
    options = DemoOptions(tmp_path / "demo")
    options.make_folders(NOW + timedelta(hours=3))
    options.make_folders(NOW + timedelta(days=9))
    assert options.first_day == FIRST_DAY, "it is chosen once"
    make_tables(options)
    with closing(Writer(options, EVENTS, seed=3)) as writer:
        writer.commit_batch()
        writer.commit_batch(live=True)
    table = open_table(options, EVENTS)
    first = newest_watermark(table)
    assert first is not None
    assert first >= FIRST_DAY
    assert table.properties["compaction.ready-when"] == "watermark"
    before = bought_between(options, FIRST_DAY - timedelta(days=30), first)
    with closing(Writer(options, EVENTS, seed=4)) as again:
        for _ in range(3):
            again.commit_batch(live=True)
    second = newest_watermark(open_table(options, EVENTS))
    assert second is not None
    assert second >= first
    assert bought_between(options, FIRST_DAY - timedelta(days=30), first) == before, "nothing came behind the watermark"
    everything = bought_between(options, FIRST_DAY - timedelta(days=30), NOW)
    assert everything[0] == 5 * EVENTS.changes_per_commit
    assert everything[1] > 0
