"""Keeps the history of how many files all tables hold, beside how many they would hold without our commits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from compaction_pipeline.core.commit.ports import RecordStore
from compaction_pipeline.core.insight.files_over_time import FilesPoint, continued, thinned
from compaction_pipeline.core.insight.overview import TableOverview
from compaction_pipeline.core.insight.ports import HistoryStore
from compaction_pipeline.core.leases.ports import Clock


class WatchFiles:
    """One verb: watch. A sensor notes the figures, and the pages with pictures read the history."""

    def __init__(self, history: HistoryStore, records: RecordStore, clock: Clock) -> None:
        self._history = history
        self._records = records
        self._clock = clock

    def note(self, tables: Iterable[TableOverview]) -> tuple[FilesPoint, ...]:
        """Store the present figures of these tables when they differ from the last ones, and return the history, oldest first."""
        stored = self._history.points()
        points = thinned(self._continued(stored, tables), self._clock())
        if points != tuple(stored):
            self._history.replace(points)
        return points

    def history(self, tables: Iterable[TableOverview]) -> tuple[FilesPoint, ...]:
        """The history up to now, oldest first. Nothing is stored."""
        return self._continued(self._history.points(), tables)

    def _continued(self, stored: Sequence[FilesPoint], tables: Iterable[TableOverview]) -> tuple[FilesPoint, ...]:
        merged_away = self._records.merged_away()
        found = [table for table in tables if table.is_read]
        if not found:
            # Before the first table is read, a point would say that there are no files.
            return tuple(stored)
        files, away = sum(table.metrics.files for table in found), sum(merged_away.get(table.table, 0) for table in found)
        return continued(stored, FilesPoint(self._clock(), files, away))
