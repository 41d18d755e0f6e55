"""Forgets tables that are gone from their catalogs."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from compaction_pipeline.core.commit.ports import RecordStore
from compaction_pipeline.core.errors import CompactionError, NotFoundError
from compaction_pipeline.core.insight.ports import TableReader
from compaction_pipeline.core.queue.ports.tasks import TaskStore
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.tables.listing import vanish_at_once
from compaction_pipeline.core.tables.ports.catalogs import CatalogStore
from compaction_pipeline.core.tables.ports.index import IndexStore
from compaction_pipeline.core.tables.ports.scan import TableScan
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.words import count_text

_LOG = logging.getLogger(__name__)


class ForgetDropped:
    """One verb: forget."""

    def __init__(
        self, catalogs: CatalogStore, reader: TableReader, index: IndexStore, tasks: TaskStore, records: RecordStore, scan: TableScan
    ) -> None:
        self._catalogs = catalogs
        self._reader = reader
        self._index = index
        self._tasks = tasks
        self._records = records
        self._scan = scan

    def forget(self) -> tuple[tuple[TableIdentifier, ...], Mapping[TableIdentifier, str]]:
        """Forget the tables that are gone from their catalogs. Return these tables, and the ones that were skipped, each with the reason.

        A table is skipped when its catalog gives no answer. It is also skipped while an attempt of it runs or a record of it is not
        settled, because their end must still be stored. When so many vanish at once that the catalog may err, all of them are
        skipped: the listings of the next rounds decide.
        """
        forgotten: list[TableIdentifier] = []
        unanswered: dict[TableIdentifier, str] = {}
        # Of tables that a listing has missed, later listings decide: their catalog may err.
        missed = self._reader.missed()
        unanswered.update(dict.fromkeys(missed, "its catalog does not list it now, and the next listings decide"))
        known = [table for table in self._known_tables() if table not in missed]
        for entry in self._catalogs.entries():
            candidates = [table for table in known if table.catalog == entry.name]
            try:
                # The listing comes first, because a catalog that is gone says "not found" about each of its tables too.
                listed = set(self._scan.list_tables(entry.name)) if candidates else set()
                unlisted = [table for table in candidates if table not in listed and self._is_gone(table)]
            except CompactionError as error:
                unanswered.update(dict.fromkeys(candidates, str(error)))
                continue
            if not vanish_at_once(len(unlisted), len(candidates)):
                many = f"{count_text(len(unlisted), 'table')} of {len(candidates)} vanished at once, so the next listings decide"
                unanswered.update(dict.fromkeys(unlisted, many))
                continue
            for table in unlisted:
                if self._tasks.tasks(table, statuses=(TaskStatus.EXECUTING,), limit=1) or self._records.records(table, unsettled=True):
                    unanswered[table] = "dropped, but a task or a commit of it has not ended yet"
                    continue
                self._index.forget(table)
                forgotten.append(table)
                _LOG.info("table=%s was dropped; its state is forgotten, its records stay", table)
        return tuple(forgotten), unanswered

    def _is_gone(self, table: TableIdentifier) -> bool:
        try:
            self._scan.head(table)
        except NotFoundError:
            return True
        return False

    def _known_tables(self) -> list[TableIdentifier]:
        # When a table is forgotten while it is measured, its nodes may stay.
        known = {state.table for state in self._reader.states()}
        known.update(node.table for node in self._reader.nodes())
        return sorted(known)
