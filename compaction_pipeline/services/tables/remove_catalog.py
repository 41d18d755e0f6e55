"""Forgets a catalog and everything that is known of its tables."""

from __future__ import annotations

from compaction_pipeline.core.tables.ports import CatalogStore


class RemoveCatalog:
    """One verb: remove. The tables themselves stay as they are."""

    def __init__(self, catalogs: CatalogStore) -> None:
        self._catalogs = catalogs

    def remove(self, name: str) -> None:
        """Forget the catalog, its tables, their tasks and their records. Raises NotFoundError when it is not registered."""
        self._catalogs.remove(name)
