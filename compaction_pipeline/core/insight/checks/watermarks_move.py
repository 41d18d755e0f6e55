"""Judges watermarks that somebody waits for: each writer moves its own."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from compaction_pipeline.core.dependencies.ready_time import instant_text
from compaction_pipeline.core.dependencies.standing import NOTED_AGAIN, Standing
from compaction_pipeline.core.insight.checks.judgement import Failure, Judgement
from compaction_pipeline.core.tables.ready_properties import READY_WHEN_KEY
from compaction_pipeline.core.tables.watermark_keys import WATERMARK_WRITERS_KEY
from compaction_pipeline.core.words import duration_text, moment_text

MOST = timedelta(hours=24)
"""A watermark that has stood for so long fails."""
ASKED_LATELY = 2 * NOTED_AGAIN
"""Somebody waits for the watermark of a table when the last question about it is younger. Where nobody asks, nobody sees it move."""


def watermarks_move(found: Iterable[Standing], now: datetime) -> Judgement:
    """Fail each table with a writer whose watermark has not moved for 24 h. The one that stands for the longest is named.

    `found` are the watermarks of tables whose readiness somebody asked for; only those of the last two hours are judged.
    """
    asked = [one for one in found if now - one.asked_at < ASKED_LATELY]
    standing = [one for one in sorted(asked, key=lambda one: one.since) if now - one.since >= MOST]
    oldest = {one.table: one for one in reversed(standing)}
    failures = [Failure(one.table, None, _reason(one, now)) for one in standing if oldest[one.table] is one]
    nothing = "nobody waits for the watermark of a table"
    return Judgement("tables", len({one.table for one in asked}), tuple(failures), "that somebody waits for", nothing)


def _reason(one: Standing, now: datetime) -> str:
    since, age = moment_text(one.since, now), duration_text(now - one.since)
    whose = f"the writer {one.writer!r} has" if one.writer else "its writers have"
    if one.at is None:
        said = f"{whose} said no watermark since {since} ({age})"
        if one.writer:
            return f"{said}: see that it runs and writes its key; when it has ended for good, remove it from '{WATERMARK_WRITERS_KEY}'"
        return f"{said}: let them write one (docs/readiness.md shows how), or set another '{READY_WHEN_KEY}'"
    said = f"{whose} not moved the watermark {instant_text(one.at.replace(microsecond=0))} since {since} ({age})"
    gone = f"; when it has ended for good, remove it from '{WATERMARK_WRITERS_KEY}'" if one.writer else ""
    return f"{said}: see that {'it runs' if one.writer else 'they run'}, and that new events reach {'it' if one.writer else 'them'}{gone}"
