"""Services whose stores and other inner parts tests and benchmarks may use. Doors may not."""

from __future__ import annotations

from compaction_pipeline.bootstrap import Services
from compaction_pipeline.core.commit.ports import Committer
from compaction_pipeline.core.stores import Stores
from compaction_pipeline.core.tables.ports.scan import TableScan
from compaction_pipeline.iceberg.catalogs.open_catalogs import Catalogs
from compaction_pipeline.merging.small_first import SmallFirstEngine
from compaction_pipeline.settings import Settings, load_settings


class OpenedServices(Services):
    """The services, with the stores, the scan, the committer and the catalogs that they use."""

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
    """Services with these settings, or with those of the environment."""
    return OpenedServices(settings or load_settings())


def merge_on_spark(services: Services) -> None:
    """Let Spark merge small tasks too, as it does for a process in which it runs already."""
    services.engine_override = SmallFirstEngine(services._spark_engine, lambda: True)
