"""What the state database remembers of commits that writers reported."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from compaction_pipeline.core.tables.commit_report import CommitReport, ReportedTable


class ReportStore(Protocol):
    """The reports of commits that no look at their tables has answered yet, one row for each table."""

    def add(self, report: CommitReport, now: datetime) -> ReportedTable:
        """Add a report to those of its table (`with_report`). Return all of them. Several processes may do this at once."""

    def reported(self) -> Sequence[ReportedTable]:
        """Return the tables with reports, sorted by identifier."""

    def answer(self, reported: ReportedTable) -> bool:
        """Remove the reports of a table. When another report has come since these were read, nothing is removed: return False."""
