"""What use cases of upkeep need of tables. `iceberg/upkeep/` fulfils it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from compaction_pipeline.core.commit.ports import CommitState
from compaction_pipeline.core.ids import RecordId
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.upkeep.manifests import ManifestPlan


@dataclass(frozen=True, slots=True)
class ManifestFigures:
    """What a rewrite of manifests did: how many were made, kept as they were and replaced, and how many live entries were moved.

    `opened_before` and `opened_after` are how many manifests a reader of one partition opens, on average.
    """

    created: int = 0
    kept: int = 0
    replaced: int = 0
    entries: int = 0
    opened_before: float = 0.0
    opened_after: float = 0.0


@dataclass(frozen=True, slots=True)
class ManifestsOutcome:
    """How a rewrite of manifests ended. The state NOTHING means that there was nothing to do, or that certainly nothing was committed.

    `unanswered` is True when an attempt got no answer: its request may still arrive, so what it has written must stay.
    """

    state: CommitState
    reason: str
    figures: ManifestFigures = ManifestFigures()
    snapshot_before: int | None = None
    snapshot_after: int | None = None
    attempts: int = 0
    unanswered: bool = False


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
