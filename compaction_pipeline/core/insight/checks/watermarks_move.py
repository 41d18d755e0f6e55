"""Judges watermarks that somebody waits for: each writer moves its own."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from compaction_pipeline.core.dependencies.ready_time import instant_text
from compaction_pipeline.core.dependencies.standing import NOTED_AGAIN, Standing
from compaction_pipeline.core.dependencies.watermark import SINK
from compaction_pipeline.core.insight.checks.judgement import Failure, Judgement
from compaction_pipeline.core.tables.ready_properties import READY_WHEN_KEY, STANDS_KEY
from compaction_pipeline.core.tables.watermark_keys import WATERMARK_WRITERS_KEY
from compaction_pipeline.core.words import duration_text, moment_text

ASKED_LATELY = 2 * NOTED_AGAIN
"""Somebody waits for the watermark of a table when the last question about it is younger. Where nobody asks, nobody sees it move."""


def watermarks_move(found: Iterable[Standing], now: datetime) -> Judgement:
    """Fail each table with a writer whose watermark has stood for as long as it may. Of those that have a name, the one that stands for the
    longest is told.

    `found` are the watermarks of tables whose readiness somebody asked for; only those of the last two hours are judged.
    """
    asked = [one for one in found if now - one.asked_at < ASKED_LATELY]
    standing = [one for one in sorted(asked, key=lambda one: (not one.writer, one.since)) if now - one.since >= one.most]
    oldest = {one.table: one for one in reversed(standing)}
    failures = [Failure(one.table, None, _reason(one, now)) for one in standing if oldest[one.table] is one]
    nothing = "nobody waits for the watermark of a table"
    return Judgement("tables", len({one.table for one in asked}), tuple(failures), "that somebody waits for", nothing)


def _reason(one: Standing, now: datetime) -> str:
    since, age = moment_text(one.since, now), duration_text(now - one.since)
    said = f"said no watermark since {since} ({age})"
    if one.at is not None:
        said = f"not moved the watermark {instant_text(one.at.replace(microsecond=0))} since {since} ({age})"
    slower = f"; when it is meant to stand for longer, set '{STANDS_KEY}'"
    if one.writer.startswith(SINK):
        ended = "when it has ended for good, remove it by `reset_sink` (docs/keyed.md)"
        return f"our {one.writer} has {said}: see that it runs; {ended}{slower}"
    if one.writer:
        what = "that new events reach it" if one.at is not None else "that it writes its key"
        return (
            f"the writer {one.writer!r} has {said}: see that it runs and {what}; when it has ended for good, remove it from "
            f"'{WATERMARK_WRITERS_KEY}'{slower}"
        )
    if one.at is not None:
        return f"its writers have {said}: see that they run, and that new events reach them{slower}"
    return f"its writers have {said}: let them write one (docs/readiness.md shows how), or set another '{READY_WHEN_KEY}'"
