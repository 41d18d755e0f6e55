"""Rewrites the small manifests of one table under its commit lease, or says in a sentence why it does not."""

from __future__ import annotations

import logging
from collections.abc import Callable

from compaction_pipeline.core.commit.ports import RecordStore
from compaction_pipeline.core.commit.record import RecordStatus
from compaction_pipeline.core.errors import ConfigError, TableRefused
from compaction_pipeline.core.ids import RecordId
from compaction_pipeline.core.insight.ports import TableReader
from compaction_pipeline.core.leases.holders import held_in_words
from compaction_pipeline.core.leases.ports import HeldLeases
from compaction_pipeline.core.tables.ports.catalogs import CatalogStore
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.upkeep.manifests import ManifestPlan
from compaction_pipeline.core.upkeep.ports.manifests import ManifestRewriter, ManifestsOutcome

_LOG = logging.getLogger(__name__)


class RewriteManifests:
    """Two verbs: rewrite, and look without writing. An answer that is a text is a refusal."""

    def __init__(
        self,
        catalogs: CatalogStore,
        reader: TableReader,
        records: RecordStore,
        leases: HeldLeases,
        rewriter: ManifestRewriter,
        new_id: Callable[[], str],
    ) -> None:
        self._catalogs = catalogs
        self._reader = reader
        self._records = records
        self._leases = leases
        self._rewriter = rewriter
        self._new_id = new_id

    def look(self, table: TableIdentifier) -> ManifestPlan | str:
        """Return what a rewrite would do now, or why it would be refused. Raises NotFoundError and StorageUnavailable."""
        try:
            return self._rewriter.look(table, self._catalogs.entry(table.catalog).properties)
        except (TableRefused, ConfigError) as error:
            return str(error)

    def rewrite(self, table: TableIdentifier) -> ManifestsOutcome | str:
        """Rewrite the manifests that are due, or return why that is refused.

        Raises NotFoundError when the table or its catalog is unknown, and StorageUnavailable when certainly nothing was committed.
        """
        refusal = self._refusal(table)
        if refusal is not None:
            return refusal
        # It is the lease of every commit: each writes manifests on the head, and one of two would only lose its race.
        name = f"commit:{table}"
        with self._leases.hold(name) as renew:
            if renew is None:
                return held_in_words(self._leases.holder(name), f"committing {table}")
            refusal = self._open_commit(table)
            if refusal is not None:
                return refusal
            try:
                outcome = self._rewriter.rewrite(table, RecordId(self._new_id()), self._catalogs.entry(table.catalog).properties)
            except (TableRefused, ConfigError) as error:
                return str(error)
        _LOG.info("table=%s manifests %s: %s", table, outcome.state.value, outcome.reason)
        return outcome

    def _refusal(self, table: TableIdentifier) -> str | None:
        """Why nothing is written to this table. Whoever paused or only observes it wants no commit of this program."""
        known = self._reader.state(table)
        if known.refusal is not None:
            return f"the manifests of {table} are not rewritten: {known.refusal}"
        if known.paused:
            return f"the manifests of {table} are not rewritten: a person paused it; `compaction-pipeline resume {table}` ends this"
        if self._catalogs.entry(table.catalog).observe:
            return f"the manifests of {table} are not rewritten: catalog {table.catalog} is only observed"
        return None

    def _open_commit(self, table: TableIdentifier) -> str | None:
        """Why another commit of this program must end first. Settling it comes before any other commit, because its request may arrive."""
        for record in self._records.records(table, unsettled=True):
            said = "has an unknown outcome" if record.status is RecordStatus.UNKNOWN else "has not ended"
            return (
                f"the manifests of {table} are not rewritten: commit {record.record_id} of this program {said}; the next tick or `compact` "
                "finds out how it ended"
            )
        return None
