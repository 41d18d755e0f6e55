"""Commits to a plain table: one `replace` snapshot for merges, and an `overwrite` snapshot for conversions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation

from compaction_pipeline.core.commit.candidates import Candidates
from compaction_pipeline.core.commit.decision import CommitDecision, decide
from compaction_pipeline.core.commit.figures import commit_figures
from compaction_pipeline.core.commit.head import HeadFiles
from compaction_pipeline.core.commit.record import CommitFigures
from compaction_pipeline.core.commit.rollbacks import rollback_summary
from compaction_pipeline.core.commit.validation import PathsIn
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.work.merged import MergedWork
from compaction_pipeline.core.work.work import Work
from compaction_pipeline.iceberg.catalogs.open_catalogs import Catalogs
from compaction_pipeline.iceberg.commit.strategy import Chosen, Opened, Strategy
from compaction_pipeline.iceberg.plain_tables import refusal_of_part
from compaction_pipeline.iceberg.rewrite_files import AddedFile, SnapshotChange, Transaction


@dataclass(frozen=True)
class PlainCommit(Strategy[CommitDecision]):
    """A commit of MERGE, CONVERT and DROP_DELETES tasks."""

    catalogs: Catalogs
    table: TableIdentifier
    tasks: Sequence[MergedWork[Work]]

    def open(self) -> Opened[CommitDecision]:
        return _OpenedTable(self.catalogs, self.table, self.catalogs.load(self.table))

    def written_store(self) -> Table:
        return self.catalogs.load(self.table)


@dataclass(frozen=True)
class _OpenedTable(Opened[CommitDecision]):
    catalogs: Catalogs
    table: TableIdentifier
    loaded: Table

    @property
    def store(self) -> Table:
        return self.loaded

    def refusal(self) -> str | None:
        return refusal_of_part(self.catalogs, self.table, self.loaded) or super().refusal()

    def decide(self, candidates: Candidates, head: HeadFiles, paths_in: PathsIn) -> CommitDecision:
        decision = decide(candidates.fitting, head, candidates.outputs_of, paths_in)
        return replace(decision, conflicts={**candidates.unfit, **decision.conflicts})

    def stage(self, transaction: Transaction, chosen: Chosen[CommitDecision], properties: Mapping[str, str]) -> None:
        decision = chosen.decision
        if decision.replaces:
            inputs = chosen.live([file for task in decision.merges for file in task.work.inputs])
            merged = [AddedFile(output.file, output.live.data_sequence_number) for output in chosen.outputs_of(decision.merges)]
            summary = {**properties, **rollback_summary(self.loaded.metadata.properties, self.loaded.catalog.properties)}
            transaction.stage(SnapshotChange(Operation.REPLACE, merged, [*inputs, *decision.dropped_by_replace], summary))
        if decision.conversions:
            added = [AddedFile(output.file) for output in chosen.outputs_of(decision.conversions)]
            transaction.stage(SnapshotChange(Operation.OVERWRITE, added, decision.dropped_by_overwrite, properties))

    def figures(self, chosen: Chosen[CommitDecision]) -> CommitFigures:
        decision = chosen.decision
        written = [output.live for output in chosen.outputs_of([*decision.merges, *decision.conversions])]
        return commit_figures(chosen.files, decision.merges, written, [*decision.dropped_by_replace, *decision.dropped_by_overwrite])
