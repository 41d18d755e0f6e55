"""Everything that the state database knows of a table, in one value for readers."""

from __future__ import annotations

from dataclasses import dataclass, field

from compaction_pipeline.core.commit.table_commits import TableCommits
from compaction_pipeline.core.planning.table_planning import TablePlanning
from compaction_pipeline.core.tables.index import Complete, Empty, Refused, TableIndex
from compaction_pipeline.core.tables.policies import TablePolicies
from compaction_pipeline.core.tables.switch import TableSwitch
from compaction_pipeline.core.tables.table import TableIdentifier, TableLayout


@dataclass(frozen=True, slots=True)
class KnownTable:
    """The five values of a table, each written by one service, as one read found them.

    `index_version` changes with every change of the index. A writer passes the version that it has read. The store refuses the change when
    the index has another version by now. `policies` are those of the catalog; None when it has none.
    """

    index: TableIndex
    planning: TablePlanning = TablePlanning()
    commits: TableCommits = TableCommits()
    switch: TableSwitch = TableSwitch()
    index_version: str = field(default="", compare=False)
    policies: TablePolicies | None = None

    @property
    def table(self) -> TableIdentifier:
        return self.index.table

    @property
    def whole(self) -> Complete | Empty | None:
        """The index, or None when a plan may not trust it.

        A plan may trust the index when it is one whole snapshot, when the read knew of every commit of this program, and when no plan has
        found a file in it that is younger than the snapshot.
        """
        state = self.index.state
        if not isinstance(state, (Complete, Empty)):
            return None
        outdated = state.landed != self.commits.landed or state.read_id == self.planning.distrusted_read_id
        return None if outdated else state

    @property
    def metadata_location(self) -> str | None:
        """The path of the metadata that was completely read; None for a table that must be read."""
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
        """Why the last look at the table or its last plan failed, or which property is wrong. None when nothing must be corrected."""
        return self.index.problem or self.planning.problem

    @property
    def paused(self) -> bool:
        return self.switch.paused
