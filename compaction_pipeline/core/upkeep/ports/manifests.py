"""What use cases of upkeep need of tables. `iceberg/upkeep/` fulfils it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from compaction_pipeline.core.ids import RecordId
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.upkeep.manifests import ManifestPlan
from compaction_pipeline.core.upkeep.manifests_outcome import ManifestsOutcome


class ManifestRewriter(Protocol):
    """Rewrites the small manifests of one table. `catalog` are the properties of the table's catalog."""

    def look(self, table: TableIdentifier, catalog: Mapping[str, str]) -> ManifestPlan:
        """Return what a rewrite would do now. Nothing is written. Raises as `rewrite`, as far as nothing is committed."""

    def rewrite(self, table: TableIdentifier, record_id: RecordId, catalog: Mapping[str, str]) -> ManifestsOutcome:
        """Rewrite the manifests that are due, in one snapshot. The caller holds the table's commit lease.

        Raises NotFoundError when the table is gone, TableRefused when it is not supported, ConfigError when a property of it breaks its
        rule, and StorageUnavailable or one of its subclasses when certainly nothing was committed.
        """

    def settle(self, table: TableIdentifier, record_id: RecordId) -> ManifestsOutcome:
        """Find out from the table how an earlier rewrite with this id ended. Nothing is written.

        The state is UNKNOWN only while the rewrite may still land.
        """
