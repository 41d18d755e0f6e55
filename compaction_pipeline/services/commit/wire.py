"""Builds the use cases that commit, each on first use."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from compaction_pipeline.services.wiring import Wiring

if TYPE_CHECKING:
    from compaction_pipeline.services.commit.commit_due import CommitDue
    from compaction_pipeline.services.commit.commit_tables import CommitTables
    from compaction_pipeline.services.commit.known_commits import KnownCommits
    from compaction_pipeline.services.commit.note_rollbacks import NoteRollbacks


class CommitServices(Wiring):
    """The use cases that commit."""

    @cached_property
    def _known_commits(self) -> KnownCommits:
        from compaction_pipeline.services.commit.known_commits import KnownCommits

        stores = self._stores
        return KnownCommits(
            stores.catalogs.entry, stores.tables, stores.commits, stores.records, stores.tasks, self.clock, stores.costs.gb_hours
        )

    @cached_property
    def note_rollbacks(self) -> NoteRollbacks:
        from compaction_pipeline.services.commit.note_rollbacks import NoteRollbacks

        return NoteRollbacks(self._stores.records, self._stores.tasks, self._stores.commits, self.clock)

    @cached_property
    def commit_tables(self) -> CommitTables:
        from compaction_pipeline.services.commit.carry_out_record import CarryOutRecord
        from compaction_pipeline.services.commit.commit_tables import CommitTables
        from compaction_pipeline.services.commit.open_record import OpenRecord
        from compaction_pipeline.services.commit.settle_records import SettleRecords

        tasks, records, known, committer = self._stores.tasks, self._stores.records, self._known_commits, self._committer
        open_record = OpenRecord(tasks, records, self._stores.node_keys.keys, known, self.clock, self._new_id, self._note_step)
        carry_out = CarryOutRecord(tasks, records, committer, known, self.clock, self._note_step, self.late)
        settle_records = SettleRecords(tasks, records, committer, known, carry_out, self._undisturbed)
        return CommitTables(tasks, self._leases, known, open_record, carry_out, settle_records, self._undisturbed)

    def _note_step(self, step: str) -> None:
        self.on_step(step)

    @cached_property
    def commit_due(self) -> CommitDue:
        from compaction_pipeline.services.commit.commit_due import CommitDue

        return CommitDue(self._stores.tasks, self._stores.tables, self._known_commits, self.commit_tables, self.clock)
