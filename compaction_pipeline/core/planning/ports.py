"""What use cases write about the plans of a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from compaction_pipeline.core.fragmentation.verdict import NodeVerdict
from compaction_pipeline.core.planning.table_planning import TablePlanning
from compaction_pipeline.core.tables.table import TableIdentifier


class PlanningStore(Protocol):
    """Writes what plans decided. `TableReader` (core/insight/ports.py) reads it."""

    def save(self, table: TableIdentifier, planning: TablePlanning) -> None:
        """Replace the whole value. Raises NotFoundError when the table is unknown."""

    def save_verdicts(self, table: TableIdentifier, verdicts: Sequence[NodeVerdict]) -> None:
        """Replace the verdicts of these nodes, and their reasons for failing. A node that is not stored is ignored."""
