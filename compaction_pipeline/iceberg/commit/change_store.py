"""Commits to the change store of a keyed table: merges of change files with each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation

from compaction_pipeline.core.commit.candidates import Candidates
from compaction_pipeline.core.commit.figures import commit_figures
from compaction_pipeline.core.commit.head import HeadFiles
from compaction_pipeline.core.commit.record import CommitFigures
from compaction_pipeline.core.commit.rewrite_decision import RewriteDecision, decide_rewrites
from compaction_pipeline.core.commit.validation import PathsIn
from compaction_pipeline.core.tables.data_file import LiveFile, OutputFile
from compaction_pipeline.core.tables.keyed.file_names import is_delete_file
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.work.merged import MergedWork
from compaction_pipeline.core.work.work import Work
from compaction_pipeline.iceberg.catalogs.open_catalogs import Catalogs
from compaction_pipeline.iceberg.commit.strategy import Chosen, Opened, Strategy
from compaction_pipeline.iceberg.keyed.stores import KeyedStores, files_of, load_known_stores
from compaction_pipeline.iceberg.rewrite_files import AddedFile, SnapshotChange, Transaction


@dataclass(frozen=True)
class ChangeStoreCommit(Strategy[RewriteDecision]):
    """A commit of REWRITE_CHANGES tasks. `table` is the base store, by whose name the keyed table is known."""

    catalogs: Catalogs
    table: TableIdentifier
    tasks: Sequence[MergedWork[Work]]

    def open(self) -> Opened[RewriteDecision]:
        return _OpenedStores(load_known_stores(self.catalogs, self.table))

    def written_store(self) -> Table:
        return load_known_stores(self.catalogs, self.table).change


@dataclass(frozen=True)
class _OpenedStores(Opened[RewriteDecision]):
    stores: KeyedStores

    @property
    def store(self) -> Table:
        return self.stores.change

    @property
    def table_uuid(self) -> str:
        return str(self.stores.base.metadata.table_uuid)

    @property
    def watermarks_by(self) -> Mapping[str, str]:
        return self.stores.base.metadata.properties

    def sequence_number(self, task: MergedWork[Work], output: OutputFile) -> int:
        # Readers skip a change file by this number, so it must not be lower than the transaction of any of its rows.
        return max(file.data_sequence_number for file in task.work.inputs)

    def decide(self, candidates: Candidates, head: HeadFiles, paths_in: PathsIn) -> RewriteDecision:
        return decide_rewrites(candidates, head)

    def stage(self, transaction: Transaction, chosen: Chosen[RewriteDecision], properties: Mapping[str, str]) -> None:
        tasks = chosen.decision.survivors
        inputs = chosen.live([file for task in tasks for file in task.work.inputs])
        merged = [AddedFile(output.file, output.live.data_sequence_number) for output in chosen.outputs_of(tasks)]
        # The log of changes loses rows that later changes outdo, so a reader of changes must not take the snapshot for a `replace`.
        transaction.stage(SnapshotChange(Operation.OVERWRITE, merged, inputs, properties))

    def figures(self, chosen: Chosen[RewriteDecision]) -> CommitFigures:
        tasks = chosen.decision.survivors
        merged = [output.live for output in chosen.outputs_of(tasks)]
        before = self._files_of_readers(chosen.files)
        # In a change store deletes are data files to Iceberg. Only the names tell.
        deletes = {file.path for file in (*before, *merged) if is_delete_file(file.path)}
        return commit_figures(before, tasks, merged, deletes=deletes)

    def _files_of_readers(self, changes: Sequence[LiveFile]) -> list[LiveFile]:
        """The files that readers of the table open: those of the base store, and the change files that are not in it yet."""
        sequences = self.stores.sequences(to_write=False)
        base = files_of(self.stores.base, self.stores.base.metadata.snapshot_by_name(MAIN_BRANCH))
        return [*base, *(file for file in changes if file.data_sequence_number > (sequences.of_spec(file.spec_id).of(file.partition) or 0))]
