"""Takes reports of commits from writers, so that their tables are looked at sooner than their turn."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from compaction_pipeline.core.errors import NotFoundError, TableRefused
from compaction_pipeline.core.insight.known_table import KnownTable
from compaction_pipeline.core.insight.ports import TableReader
from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.core.tables.commit_report import CommitReport, why_known
from compaction_pipeline.core.tables.kinds import base_names, base_store, is_change_store
from compaction_pipeline.core.tables.ports.catalogs import CatalogStore
from compaction_pipeline.core.tables.ports.index import IndexStore
from compaction_pipeline.core.tables.ports.reports import ReportStore
from compaction_pipeline.core.tables.ports.scan import TableScan
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.services.table_filters import why_left_out

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TakenReport:
    """Whether a report will be followed by a look at its table, and why, in a sentence. `table` is the table that the commit belongs to: a
    keyed table, when the report names its change store."""

    accepted: bool
    why: str
    table: TableIdentifier


class TakeReports:
    """One verb: take."""

    def __init__(
        self,
        catalogs: CatalogStore,
        reader: TableReader,
        index: IndexStore,
        reports: ReportStore,
        scan: TableScan,
        clock: Clock,
        note_reported: Callable[[TableIdentifier, datetime], None],
    ) -> None:
        """`note_reported` is `DependencyStore.note_reported`, for those who await that the table's data is ready."""
        self._catalogs = catalogs
        self._reader = reader
        self._index = index
        self._reports = reports
        self._scan = scan
        self._clock = clock
        self._note_reported = note_reported

    def take(self, report: CommitReport) -> TakenReport:
        """Store a report, unless its snapshot is known already. A table that is new in its catalog becomes known.

        Raises NotFoundError when the catalog is not registered or does not list the table, and StorageUnavailable.
        """
        self._catalogs.entry(report.table.catalog)
        known = self._known(report.table)
        keyed = self._keyed_table(report.table, known)
        if keyed is not None:
            known = keyed
        table = known.table if known is not None else report.table
        # Also a commit that the planner knows may be news to who awaits its data.
        self._note_reported(table, self._clock())
        why = why_known(report, known.index) if known is not None else None
        if why is not None:
            return TakenReport(False, why, table)
        named = "the table" if table == report.table else f"the keyed table {table}, of which {report.table} is the change store,"
        reported = self._reports.add(replace(report, table=table), self._clock())
        for base in self._unread_bases(table):
            self._reports.add(replace(report, table=base), self._clock())
        if reported.reports > 1:
            return TakenReport(True, f"one look at {named.rstrip(',')} answers this report and {reported.reports - 1} more", table)
        return TakenReport(True, f"{named} is looked at within seconds", table)

    def _keyed_table(self, store: TableIdentifier, known: KnownTable | None) -> KnownTable | None:
        """Return the keyed table whose base store names this table as its change store; None when no known one does.

        Nobody compacts a change store by itself, so a look at it alone would be of no use. The name of the base store is tried first. A
        store that has another name is found by the property of its base store alone.
        """
        is_store = known is not None and known.layout is not None and is_change_store(known.layout.properties)
        names = base_names(store.name)
        if not is_store and not names:
            return None
        for name in names:
            try:
                base = self._reader.state(replace(store, name=name))
            except NotFoundError:
                continue
            if _names(base, store):
                return base
        if not is_store:
            return None
        return next((base for base in self._reader.states(store.catalog) if _names(base, store)), None)

    def _unread_bases(self, store: TableIdentifier) -> Sequence[TableIdentifier]:
        """Return the known tables that were never read, and are base stores of this one if it is a change store and they are keyed."""
        found = []
        for name in base_names(store.name):
            try:
                base = self._reader.state(replace(store, name=name))
            except NotFoundError:
                continue
            if base.layout is None:
                found.append(base.table)
        return found

    def _known(self, table: TableIdentifier) -> KnownTable | None:
        """Return what is known of a table; None when it becomes known now."""
        try:
            return self._reader.state(table)
        except NotFoundError:
            # The catalog's own list has the one right name of the table. Some catalogs load a table under other names, too.
            listed = self._scan.list_tables(table.catalog)
            if table not in listed:
                raise NotFoundError(
                    f"table {table} is not known, and catalog {table.catalog!r} does not list it; report a commit after it has landed, and "
                    "name the table as the catalog does"
                ) from None
            left_out = why_left_out(table, self._catalogs.entry(table.catalog).properties)
            if left_out is not None:
                raise NotFoundError(f"table {table} is not looked after: {left_out}") from None
            # When it is a change store, its base store is the one to look at.
            bases = [base for name in base_names(table.name) if (base := replace(table, name=name)) in listed]
            for found in (table, *bases):
                self._index.add(found)
                log.info("table=%s found by a report of a commit of %s", found, table)
            return None


def _names(base: KnownTable, store: TableIdentifier) -> bool:
    """Whether a known table is the base store of a keyed table with this change store."""
    if base.layout is None:
        return False
    try:
        named = base_store(base.table.name, base.layout.properties)
    except TableRefused:
        return False
    return ".".join(named.change_store) == ".".join((*store.namespace, store.name))
