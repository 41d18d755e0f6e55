"""What the state database remembers of catalogs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from compaction_pipeline.core.tables.table import CatalogEntry


class CatalogStore(Protocol):
    """The registered catalogs."""

    def add(self, entry: CatalogEntry) -> None:
        """Register a catalog. Raises ConfigError when the name is taken."""

    def replace(self, entry: CatalogEntry, before: CatalogEntry | None = None) -> None:
        """Give a registered catalog these properties. What is known of its tables stays.

        Raises NotFoundError when it is unknown, and ConfigError when it is no longer as it was `before`: somebody else has changed it.
        """

    def remove(self, name: str) -> None:
        """Forget a catalog and all state of its tables. Raises NotFoundError when it is unknown."""

    def entry(self, name: str) -> CatalogEntry:
        """Return a catalog. Raises NotFoundError when it is unknown; the message lists the known ones. Raises ConfigError when the key of
        its secrets is missing.
        """

    def check_known(self, name: str) -> None:
        """Raise NotFoundError when no catalog has this name. The key of its secrets is not needed."""

    def entries(self) -> Sequence[CatalogEntry]:
        """Return all registered catalogs, also those whose secrets cannot be decrypted."""
