"""Finds what the work on a table is predicted to cost: the fit to its own last attempts of a type, or else to those of more attempts."""

from __future__ import annotations

from compaction_pipeline.core.capacity.calibration import Fit, fit
from compaction_pipeline.core.capacity.costs import CostStore
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.work.kinds import CompactionType


class Fits:
    """The fit of each table and type, or else that of the type over all tables, or else that of all attempts. Each is made once."""

    def __init__(self, costs: CostStore) -> None:
        self._costs = costs
        self._found: dict[tuple[TableIdentifier | None, CompactionType | None], Fit | None] = {}

    def of(self, table: TableIdentifier, kind: CompactionType) -> Fit | None:
        """Return a fit that knows GB-hours; None when no attempt has merged a task in memory of a known size."""
        for key in ((table, kind), (None, kind), (None, None)):
            if key not in self._found:
                self._found[key] = fit(self._costs.past(*key))
            found = self._found[key]
            if found is not None and found.gb is not None:
                return found
        return None
