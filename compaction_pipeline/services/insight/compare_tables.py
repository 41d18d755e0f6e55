"""Compares tables with the records of their newest commits, and keeps what it found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from compaction_pipeline.core.commit.ports import RecordStore
from compaction_pipeline.core.commit.record import CompactionRecord, RecordStatus
from compaction_pipeline.core.errors import CompactionError
from compaction_pipeline.core.insight.checks.commits import disagreement
from compaction_pipeline.core.insight.checks.facts import Committed, TableFacts
from compaction_pipeline.core.insight.comparison import Comparison
from compaction_pipeline.core.insight.ports import HistoryStore
from compaction_pipeline.core.tables.ports.scan import TableScan
from compaction_pipeline.core.tables.table import TableIdentifier


class CompareTables:
    """One question: which tables have a commit, and what contradicts its record."""

    def __init__(self, records: RecordStore, history: HistoryStore, scan: TableScan) -> None:
        self._records = records
        self._history = history
        self._scan = scan

    def committed(self, tables: Iterable[TableFacts], only_changed: bool) -> Iterator[Committed]:
        """Yield the newest commit of each of these tables. `JudgeCompaction.judge` says what `only_changed` leaves out."""
        compared = self._history.comparisons()
        for found in tables:
            record = self._newest_committed(found.table)
            if record is None:
                continue
            last = compared.get(found.table)
            if (
                only_changed
                and last is not None
                and (last.record_id, last.metadata_location) == (record.record_id, found.known.metadata_location)
            ):
                yield Committed(record, last.contradiction)
                continue
            try:
                head = self._scan.head(found.table)
            except CompactionError as error:
                yield Committed(record, f"the table could not be read: {error}")
            else:
                contradiction = disagreement(record, head)
                comparison = Comparison(record.record_id, head.metadata_location, contradiction)
                if comparison != last:
                    self._history.keep_comparison(found.table, comparison)
                yield Committed(record, contradiction)

    def _newest_committed(self, table: TableIdentifier) -> CompactionRecord | None:
        # Nearly always the newest one was committed, and this is asked of a thousand tables.
        for limit in (1, 20):
            for record in self._records.records(table, limit=limit):
                if record.status is RecordStatus.COMMITTED and record.snapshot_after is not None:
                    return record
        return None
