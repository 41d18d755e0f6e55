"""Rewrites the small manifests of one table under its commit lease, or says in a sentence why it does not."""

from __future__ import annotations

import logging
from collections.abc import Callable

from compaction_pipeline.core.errors import ConfigError, StorageUnavailable, TableRefused
from compaction_pipeline.core.ids import RecordId
from compaction_pipeline.core.leases.holders import held_in_words
from compaction_pipeline.core.leases.names import commit_lease
from compaction_pipeline.core.leases.ports import HeldLeases
from compaction_pipeline.core.tables.ports.catalogs import CatalogStore
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.upkeep.manifests import ManifestPlan
from compaction_pipeline.core.upkeep.manifests_outcome import ManifestsOutcome
from compaction_pipeline.core.upkeep.ports.manifests import ManifestRewriter
from compaction_pipeline.services.upkeep.why_not_change import WhyNotChange

_LOG = logging.getLogger(__name__)


class RewriteManifests:
    """Two verbs: rewrite, and look without writing. An answer that is a text is a refusal."""

    def __init__(
        self,
        catalogs: CatalogStore,
        why_not: WhyNotChange,
        leases: HeldLeases,
        rewriter: ManifestRewriter,
        new_id: Callable[[], str],
    ) -> None:
        self._catalogs = catalogs
        self._why_not = why_not
        self._leases = leases
        self._rewriter = rewriter
        self._new_id = new_id

    def look(self, table: TableIdentifier) -> ManifestPlan | str:
        """Return what a rewrite would do now, or why it would be refused. Raises NotFoundError and StorageUnavailable."""
        refusal = self._refusal(table)
        if refusal is not None:
            return refusal
        try:
            return self._rewriter.look(table, self._catalogs.entry(table.catalog).properties)
        except (TableRefused, ConfigError) as error:
            return str(error)

    def rewrite(self, table: TableIdentifier) -> ManifestsOutcome | str:
        """Rewrite the manifests that are due, or return why that is refused.

        Raises NotFoundError when the table or its catalog is unknown, and StorageUnavailable while another process commits the table, or
        when certainly nothing was committed.
        """
        # It is the lease of every commit: each writes manifests on the head, and one of two would only lose its race.
        lease = commit_lease(table)
        with self._leases.hold(lease) as renew:
            if renew is None:
                raise StorageUnavailable(f"{held_in_words(self._leases.holder(lease), f'committing {table}')}; try again later")
            refusal = self._refusal(table)
            if refusal is not None:
                return refusal
            try:
                outcome = self._rewriter.rewrite(table, RecordId(self._new_id()), self._catalogs.entry(table.catalog).properties)
            except (TableRefused, ConfigError) as error:
                return str(error)
        _LOG.info("table=%s manifests %s: %s", table, outcome.state.value, outcome.reason)
        return outcome

    def _refusal(self, table: TableIdentifier) -> str | None:
        refusal = self._why_not.of_table(table)
        return None if refusal is None else f"the manifests of {table} are not rewritten: {refusal}"
