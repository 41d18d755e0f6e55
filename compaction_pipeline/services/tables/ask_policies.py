"""Asks catalogs for the policies of tables, once in ten minutes for each table, and keeps the last answer."""

from __future__ import annotations

import logging

from compaction_pipeline.core.errors import CompactionError, NotFoundError
from compaction_pipeline.core.insight.ports import TableReader
from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.core.tables.policies import TablePolicies
from compaction_pipeline.core.tables.ports.policies import PolicyReader, PolicyStore
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.words import printable

log = logging.getLogger(__name__)

_LONGEST_PROBLEM = 300


class AskPolicies:
    """One verb: ask."""

    def __init__(self, policies: PolicyReader, tables: TableReader, store: PolicyStore, clock: Clock) -> None:
        self._policies = policies
        self._tables = tables
        self._store = store
        self._clock = clock

    def ask(self, table: TableIdentifier, table_uuid: str) -> TablePolicies | None:
        """Return what the catalog says about the table with this uuid; None when the catalog has no policies.

        An answer of the last ten minutes is not asked for again, and neither is one that failed: a catalog that is ill must not be asked by
        every tick. When the catalog does not answer, the policies that it told before stay, with the reason.
        """
        try:
            known = self._tables.state(table).policies
        except NotFoundError:
            known = None
        if known is not None and known.table_uuid != table_uuid:
            # Another table has the name now.
            known = None
        now = self._clock()
        if known is not None and not known.are_old(now):
            return known
        asks = known.asks + 1 if known is not None else 1
        try:
            told = self._policies.policies(table)
        except CompactionError as error:
            log.warning("table=%s the policies of its catalog are not known: %s", table, error)
            before = (known.answered_at, known.policies) if known is not None else (None, ())
            found: TablePolicies | None = TablePolicies(table_uuid, now, asks, *before, problem=printable(str(error), _LONGEST_PROBLEM))
        else:
            found = None if told is None else TablePolicies(table_uuid, now, asks, now, tuple(told))
        if found is not None or known is not None:
            self._store.save(table, found)
        return found
