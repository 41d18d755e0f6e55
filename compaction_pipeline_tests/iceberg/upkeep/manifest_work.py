"""The work MANIFESTS on one table, as tests ask for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from compaction_pipeline.core.ids import RecordId
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.upkeep.commit_record import UpkeepOutcome, UpkeepPlan, UpkeepTarget
from compaction_pipeline.core.upkeep.works import UpkeepWork
from compaction_pipeline.iceberg.catalogs.open_catalogs import Catalogs
from compaction_pipeline.iceberg.upkeep.commits import IcebergUpkeepCommitter
from compaction_pipeline_tests.builders import NOW


class ManifestWork:
    """Looks, rewrites and settles."""

    def __init__(self, catalogs: Catalogs, on_step: Callable[[str], None] = lambda step: None) -> None:
        self._committer = IcebergUpkeepCommitter(catalogs, lambda: NOW, on_step=on_step, sleep=lambda seconds: None)
        self._catalogs = catalogs

    def look(self, table: TableIdentifier) -> UpkeepPlan:
        return self._committer.look(self._target(table), {})

    def rewrite(self, table: TableIdentifier, record: str = "rewrite-1") -> UpkeepOutcome:
        return self._committer.commit(self._target(table), RecordId(record), {})

    def settle(self, table: TableIdentifier, record: str = "rewrite-1") -> UpkeepOutcome:
        return self._committer.settle(self._target(table), RecordId(record))

    def _target(self, table: TableIdentifier) -> UpkeepTarget:
        loaded: Any = self._catalogs.load(table)
        return UpkeepTarget(table, table, str(loaded.metadata.table_uuid), UpkeepWork.MANIFESTS)


def counts(said: UpkeepPlan | UpkeepOutcome) -> tuple[float, float, float]:
    """How many manifests were made, kept as they were, and replaced."""
    figures = said.figures
    kept = figures["manifests_before"] - figures["manifests_rewritten"]
    return figures["manifests_after"] - kept, kept, figures["manifests_rewritten"]
