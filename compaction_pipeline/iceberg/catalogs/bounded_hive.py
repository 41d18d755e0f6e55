"""Makes PyIceberg open our Hive catalog. The packages that it needs are imported when the first one is opened."""

from __future__ import annotations

import importlib

from pyiceberg.catalog import AVAILABLE_CATALOGS, Catalog, CatalogType
from pyiceberg.exceptions import NotInstalledError

from compaction_pipeline.iceberg.catalogs.rest_catalog import RequestLimits


def use_bounded_hive_catalogs(limits: RequestLimits) -> None:
    """Make PyIceberg open our Hive catalog, for `type=hive` and where the form of 'uri' tells the type."""

    def opened(name: str, properties: dict[str, str]) -> Catalog:
        try:
            module = importlib.import_module("compaction_pipeline.iceberg.catalogs.hive_catalog")
        except ModuleNotFoundError as error:
            # The same error as PyIceberg's own: it names the extra.
            raise NotInstalledError("Apache Hive support not installed: pip install 'pyiceberg[hive]'") from error
        catalog: Catalog = module.BoundedHiveCatalog(name, limits, **properties)
        return catalog

    AVAILABLE_CATALOGS[CatalogType.HIVE] = opened
