"""Where the policies of catalogs come from, and where they are kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from compaction_pipeline.core.tables.policies import Policy, TablePolicies
from compaction_pipeline.core.tables.table import TableIdentifier


class PolicyReader(Protocol):
    """Asks catalogs for the policies that count for a table."""

    def policies(self, table: TableIdentifier) -> Sequence[Policy] | None:
        """Return the policies of a table; None when its catalog names no endpoint for them, and then nothing is asked.

        Raises a CompactionError when the catalog does not tell them, or when the answer breaks the specification.
        """


class PolicyStore(Protocol):
    """Writes what catalogs said about tables. `TableReader` (core/insight/ports.py) reads it."""

    def save(self, table: TableIdentifier, policies: TablePolicies | None) -> None:
        """Replace what is known of a table's policies. A table that is not known does not change."""
