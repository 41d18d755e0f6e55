"""Judges the keys of upsert tables: at most one row of each key is live."""

from __future__ import annotations

from collections.abc import Sequence

from compaction_pipeline.core.insight.checks.facts import KeysOfTable
from compaction_pipeline.core.insight.checks.judgement import Failure, Judgement
from compaction_pipeline.core.tables.keyed.key_reading import CHEAP_FILES, CHEAP_ROWS, KeyReading
from compaction_pipeline.core.words import count_text

_MOST_NAMES = 5


def unique_keys(tables: Sequence[KeysOfTable]) -> Judgement:
    """Fail each node in which a key has several live rows, and each table whose keys cannot be read.

    A table of which no node was small enough to be read is not judged.
    """
    failures, judged, rows, details, unjudged = [], 0, 0, [], []
    for found in tables:
        if isinstance(found.reading, str):
            judged += 1
            failures.append(Failure(found.table, None, f"its keys could not be read: {found.reading}"))
            continue
        judged += len(found.reading.nodes)
        rows += found.reading.rows
        details.append(f"{found.table}: {_looked_at(found.reading)}")
        if not found.reading.nodes and found.reading.of_nodes:
            unjudged.append(Failure(found.table, None, f"no node was small enough to be read; {_looked_at(found.reading)}"))
        for each in found.reading.repeated:
            reason = f"key {each.key} has {each.rows} live rows on merge-on-read, but an upsert table has one; {_looked_at(found.reading)}"
            failures.append(Failure(found.table, each.node, reason))
    nothing = "no upsert table to judge" if not tables else "; ".join(details)
    figures = (("judged_row_count", rows),)
    return Judgement("nodes", judged, tuple(failures), "of upsert tables", nothing, "; ".join(details), figures, tuple(unjudged))


def on_demand() -> Judgement:
    """The judgement of nothing, for somebody who judges after every commit while the tables are too large for that."""
    why = f"the upsert tables together have more than {CHEAP_ROWS:,} rows or {CHEAP_FILES} files"
    what_to_do = "launch `compaction_checks_job`, or run `compaction-pipeline check`"
    return Judgement("nodes", 0, nothing=f"on demand: nothing was judged now, because {why}; {what_to_do}")


def _looked_at(reading: KeyReading) -> str:
    """Say which nodes were read, and how many rows."""
    names = ", ".join(str(node) for node in reading.nodes[:_MOST_NAMES])
    more = len(reading.nodes) - _MOST_NAMES
    named = f" ({names}{f' and {more} more' if more > 0 else ''})" if names else ""
    alone = f"; {reading.on_base} of them on base alone, because all their changes are merged" if reading.on_base else ""
    return f"{count_text(reading.rows, 'live row')} read in {len(reading.nodes)} of {count_text(reading.of_nodes, 'node')}{named}{alone}"
