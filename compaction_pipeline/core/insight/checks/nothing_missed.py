"""Judges what detectors of the dependency center missed: the patrol finds nothing that somebody should have told."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from compaction_pipeline.core.dependencies.center.figures import MissedEvents
from compaction_pipeline.core.insight.checks.judgement import Failure, Judgement
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.words import count_text, moment_text


def nothing_missed(found: Iterable[MissedEvents], now: datetime) -> Judgement:
    """Fail each table of which a detector missed something in the last day, the one with the most first."""
    missed = sorted(found, key=lambda one: (-one.events, one.name))
    failures = tuple(Failure(TableIdentifier.parse(one.name), None, _reason(one, now)) for one in missed)
    figures = (("missed_events_count", float(sum(one.events for one in missed))),)
    return Judgement("tables", len(failures), failures, nothing="no event was missed in the last day", figures=figures)


def _reason(one: MissedEvents, now: datetime) -> str:
    return (
        f"the detector {one.detector!r} missed {count_text(one.events, 'event')} in the last day, lastly in the hour from "
        f"{moment_text(one.last_at, now)}, and the patrol found what had changed: see that each commit of its writers is reported, by "
        "'POST …/tables/TABLE/commits'"
    )
