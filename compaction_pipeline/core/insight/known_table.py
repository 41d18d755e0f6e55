"""All that the state database knows of a table, as one reader gets it."""

from __future__ import annotations

from dataclasses import dataclass

from compaction_pipeline.core.commit.table_commits import TableCommits
from compaction_pipeline.core.planning.table_planning import TablePlanning
from compaction_pipeline.core.tables.index import Complete, Empty, Refused, TableIndex
from compaction_pipeline.core.tables.switch import TableSwitch
from compaction_pipeline.core.tables.table import TableIdentifier, TableLayout


@dataclass(frozen=True, slots=True)
class KnownTable:
    """Four values that four services write, read together at one moment."""

    index: TableIndex
    planning: TablePlanning = TablePlanning()
    commits: TableCommits = TableCommits()
    switch: TableSwitch = TableSwitch()

    @property
    def table(self) -> TableIdentifier:
        return self.index.table

    @property
    def whole(self) -> Complete | Empty | None:
        """The index, or None when a plan may not trust it.

        It is trusted when it is one whole snapshot, when the read knew of our newest commit, and when no plan has found a file in it that
        is younger than its snapshot.
        """
        state = self.index.state
        if not isinstance(state, (Complete, Empty)):
            return None
        outdated = state.last_record_id != self.commits.last_record_id or state.read_id == self.planning.distrusted_read_id
        return None if outdated else state

    @property
    def metadata_location(self) -> str | None:
        """Where the metadata lies that was read to its end; None for a table that must be read."""
        state = self.index.state
        if isinstance(state, Refused):
            return state.metadata_location
        return self.whole.metadata_location if self.whole is not None else None

    @property
    def layout(self) -> TableLayout | None:
        """The layout of the newest metadata that was loaded; None while none was."""
        return self.index.layout

    @property
    def refusal(self) -> str | None:
        """Why the table is never compacted; None for one that may be."""
        return self.index.refusal

    @property
    def problem(self) -> str | None:
        """Why the last look at the table or its last plan failed, or which property is wrong. None when nothing must be mended."""
        return self.index.problem or self.planning.problem

    @property
    def paused(self) -> bool:
        return self.switch.paused
