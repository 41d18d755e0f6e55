"""Lists the registered catalogs."""

from __future__ import annotations

from collections.abc import Sequence

from compaction_pipeline.core.tables.ports import CatalogStore
from compaction_pipeline.core.tables.table import CatalogEntry


class ListCatalogs:
    """One verb: list. Asks the state database only, so it answers while a catalog is down."""

    def __init__(self, catalogs: CatalogStore) -> None:
        self._catalogs = catalogs

    def entries(self) -> Sequence[CatalogEntry]:
        """Every registered catalog, sorted by name."""
        return self._catalogs.entries()
