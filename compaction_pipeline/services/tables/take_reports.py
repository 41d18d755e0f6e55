"""Takes reports of commits from writers, so that their tables are looked at sooner than their turn."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from compaction_pipeline.core.errors import NotFoundError
from compaction_pipeline.core.insight.known_table import KnownTable
from compaction_pipeline.core.insight.ports import TableReader
from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.core.tables.commit_report import CommitReport, why_known
from compaction_pipeline.core.tables.ports import CatalogStore, IndexStore, ReportStore, TableScan
from compaction_pipeline.core.tables.table import TableIdentifier

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TakenReport:
    """Whether a report will be followed by a look at its table, and why, in a sentence."""

    accepted: bool
    why: str


class TakeReports:
    """One verb: take."""

    def __init__(
        self, catalogs: CatalogStore, reader: TableReader, index: IndexStore, reports: ReportStore, scan: TableScan, clock: Clock
    ) -> None:
        self._catalogs = catalogs
        self._reader = reader
        self._index = index
        self._reports = reports
        self._scan = scan
        self._clock = clock

    def take(self, report: CommitReport) -> TakenReport:
        """Store a report, unless its snapshot is known already. A table that is new in its catalog becomes known.

        Raises NotFoundError when the catalog is not registered or does not list the table, and StorageUnavailable.
        """
        self._catalogs.entry(report.table.catalog)
        known = self._known(report.table)
        why = why_known(report, known.index) if known is not None else None
        if why is not None:
            return TakenReport(False, why)
        reported = self._reports.add(report, self._clock())
        if reported.reports > 1:
            return TakenReport(True, f"one look at the table answers this report and {reported.reports - 1} more")
        return TakenReport(True, "the table is looked at within seconds")

    def _known(self, table: TableIdentifier) -> KnownTable | None:
        """Return what is known of a table; None when it becomes known now."""
        try:
            return self._reader.state(table)
        except NotFoundError:
            # The catalog's own list has the one right name of the table. Some catalogs load a table under other names, too.
            if table not in self._scan.list_tables(table.catalog):
                raise NotFoundError(
                    f"table {table} is not known, and catalog {table.catalog!r} does not list it; report a commit after it has landed, and "
                    "name the table as the catalog does"
                ) from None
            self._index.add(table)
            log.info("table=%s found by a report of a commit", table)
            return None
