"""Services that tests and benchmarks may look into. Doors get none of this."""

from __future__ import annotations

from compaction_pipeline.bootstrap import Services
from compaction_pipeline.core.commit.ports import Committer
from compaction_pipeline.core.tables.ports import TableScan
from compaction_pipeline.iceberg.catalogs.open_catalogs import Catalogs
from compaction_pipeline.settings import Settings, load_settings
from compaction_pipeline.storage.stores import Stores


class OpenedServices(Services):
    """The services, with the outside worlds that they work on."""

    @property
    def stores(self) -> Stores:
        return self._stores

    @property
    def scan(self) -> TableScan:
        return self._scan

    @property
    def committer(self) -> Committer:
        return self._committer

    @property
    def catalogs(self) -> Catalogs:
        return self._catalogs


def opened(settings: Settings | None = None) -> OpenedServices:
    """Services of these settings, or of those in the environment."""
    return OpenedServices(settings or load_settings())
