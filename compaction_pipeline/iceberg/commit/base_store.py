"""Commits to the base store of a keyed table: merges of changes, with which the optimized sequences of their partitions move."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation

from compaction_pipeline.core.commit.base_decision import BaseDecision, KeyedHead, decide_to_base, task_groups, with_their_groups
from compaction_pipeline.core.commit.candidates import Candidates
from compaction_pipeline.core.commit.figures import commit_figures
from compaction_pipeline.core.commit.head import HeadFiles
from compaction_pipeline.core.commit.record import CommitFigures
from compaction_pipeline.core.commit.validation import PathsIn
from compaction_pipeline.core.errors import CompactionError, TableRefused
from compaction_pipeline.core.ids import RecordId, TaskId
from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.core.tables.keyed.partition_paths import key_of
from compaction_pipeline.core.tables.node import Partition
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.work.merged import MergedWork, by_kind
from compaction_pipeline.core.work.work import ToBase, Work
from compaction_pipeline.iceberg.catalogs.open_catalogs import Catalogs
from compaction_pipeline.iceberg.commit.attempts import head_id
from compaction_pipeline.iceberg.commit.landing import parents_of_attempts
from compaction_pipeline.iceberg.commit.outputs import outputs_of
from compaction_pipeline.iceberg.commit.strategy import Chosen, Landed, Opened, Strategy
from compaction_pipeline.iceberg.deletions import forbid_deletion
from compaction_pipeline.iceberg.failures import translated
from compaction_pipeline.iceberg.keyed.sequences import ancestors, fields_of_spec, numbers_at, read_sequences, refuse_lost
from compaction_pipeline.iceberg.keyed.statistics import STATISTICS_FLAGS, attach_statistics
from compaction_pipeline.iceberg.keyed.stores import KeyedStores, files_of, load_known_stores
from compaction_pipeline.iceberg.manifests.live_files import read_live_files
from compaction_pipeline.iceberg.rewrite_files import AddedFile, SnapshotChange, Transaction
from compaction_pipeline.iceberg.scan import manifests_of


@dataclass(frozen=True)
class BaseStoreCommit(Strategy[BaseDecision]):
    """A commit of TO_BASE tasks, which make up whole partitions. `table` is the base store."""

    catalogs: Catalogs
    table: TableIdentifier
    record_id: RecordId
    tasks: Sequence[MergedWork[Work]]

    def open(self) -> Opened[BaseDecision]:
        stores = load_known_stores(self.catalogs, self.table)
        if stores.base.metadata.format_version != 2:
            raise TableRefused(
                f"the base store {self.table} has format version {stores.base.metadata.format_version}, but keyed tables have 2"
            )
        return _OpenedStores(str(self.table), stores, self.record_id)

    def written_store(self) -> Table:
        return self.catalogs.load(self.table)

    def reloaded(self) -> Table:
        try:
            return load_known_stores(self.catalogs, self.table).base
        except CompactionError as error:
            # The base store alone tells whether the commit has landed. What the other store forbids is unknown, so nothing is deleted.
            base = self.written_store()
            forbid_deletion(base, f"its change store cannot be read: {error}")
            return base

    def together(self, found: Collection[TaskId]) -> tuple[TaskId, ...]:
        return with_their_groups(self.tasks, found)

    def went_in(self, landed: Landed) -> Collection[TaskId]:
        return {*super().went_in(landed), *_only_moved(self.tasks, landed)}


@dataclass(frozen=True)
class _OpenedStores(Opened[BaseDecision]):
    name: str
    stores: KeyedStores
    record_id: RecordId

    @property
    def store(self) -> Table:
        return self.stores.base

    def decide(self, candidates: Candidates, head: HeadFiles, paths_in: PathsIn) -> BaseDecision:
        keyed = _keyed_head(self.name, self.store, self.stores.change, candidates.tasks, head.data.by_path.values())
        return decide_to_base(candidates, head, keyed, paths_in)

    def stage(self, transaction: Transaction, chosen: Chosen[BaseDecision], properties: Mapping[str, str]) -> None:
        tasks = chosen.decision.survivors
        inputs = chosen.live([file for task in tasks for file in task.work.rewritten])
        outputs = chosen.outputs_of(tasks)
        added = [AddedFile(one.file, one.live.data_sequence_number if one.live.is_data else None) for one in outputs]
        removed = [*inputs, *chosen.decision.dropped]
        # Rows change, so the operation is not `replace`. Without any file the snapshot only moves the optimized sequence.
        transaction.stage(SnapshotChange(Operation.OVERWRITE, added, removed, {**properties, **STATISTICS_FLAGS}))
        attach_statistics(self.name, self.store, transaction, self.record_id, _moved_sequences(tasks))

    def figures(self, chosen: Chosen[BaseDecision]) -> CommitFigures:
        tasks = chosen.decision.survivors
        written = [output.live for output in chosen.outputs_of(tasks)]
        return commit_figures(chosen.files, tasks, written, chosen.decision.dropped)

    def shut_out(self, begun: Callable[[str], Transaction]) -> Transaction | None:
        """Make sure that no earlier attempt of this record lands on the base store's head.

        The conflicts of a keyed table may lie in the change store alone. Nobody else need ever move the base store's head then, and the
        record would stay unknown for ever. So an empty snapshot moves it, unless no attempt was built on the head.
        """
        with translated(f"the files of table {self.name}"):
            parents = parents_of_attempts(self.store, {self.record_id}).get(self.record_id, set())
        if head_id(self.store.metadata) not in parents:
            return None
        # Its files have a name of their own: with the record's, this very attempt would count as one that may land.
        name = f"shut-out-{uuid.uuid4().hex}"
        transaction = begun(name)
        with translated(f"table {self.name}: writing manifests"), transaction.dropped_on_failure():
            transaction.stage(SnapshotChange(Operation.OVERWRITE, properties=STATISTICS_FLAGS))
            attach_statistics(self.name, self.store, transaction, name, {})
        return transaction


def _only_moved(tasks: Sequence[MergedWork[Work]], landed: Landed) -> set[TaskId]:
    """The tasks of groups that change no file: their changes hold no row that lives. The snapshot's optimized sequence tells of them."""
    silent = [group for group in task_groups(tasks) if not any(outputs_of(task) or task.work.rewritten for task in group)]
    if not silent:
        return set()
    store = landed.store
    sequences = numbers_at(".".join(store.name()), store.metadata, landed.last, store.io)
    return {
        task.task_id
        for group in silent
        for task in group
        if sequences.of_spec(task.work.node.spec_id).of(task.work.node.partition) == task.work.changes.up_to
    }


def _moved_sequences(merged: Sequence[MergedWork[ToBase]]) -> dict[Partition, int]:
    """The optimized sequences that a commit of these tasks gives to their partitions."""
    return {group[0].work.node.partition: group[0].work.changes.up_to for group in task_groups(merged)}


def _keyed_head(name: str, base: Table, change: Table, tasks: Sequence[MergedWork[Work]], base_files: Iterable[LiveFile]) -> KeyedHead:
    """What `decide_to_base` must know of the stores. `base_files` are the live data files of the base store.

    Raises TableRefused when the optimized sequences are lost.
    """
    metadata = base.metadata
    # Somebody may have expired the snapshot with the sequences since the plan. Then they look as if nothing had ever been merged.
    refuse_lost(metadata, base_files)
    fields = fields_of_spec(metadata)
    merges = by_kind(tasks).to_base
    nodes = {task.work.node for task in merges if task.work.node.spec_id == metadata.default_spec_id}
    changes = files_of(change, change.metadata.snapshot_by_name(MAIN_BRANCH))
    may_share = any(None in key_of(node.partition, fields) for node in nodes)
    return KeyedHead(
        sequences=read_sequences(name, metadata, base.io),
        spec_id=metadata.default_spec_id,
        change_snapshots=_columns_of_history(change.metadata),
        change_partitions=frozenset(file.partition for file in changes) if may_share else frozenset(),
        late_files=_files_after(change, min((task.work.changes.up_to for task in merges), default=0)),
        paths_of=lambda snapshot_id: _paths(base, snapshot_id),
    )


def _columns_of_history(metadata: TableMetadata) -> dict[int, frozenset[int]]:
    """The head of the change store and its ancestors, each with the field ids that its rows may have and that the store still has."""
    schemas = {schema.schema_id: frozenset(schema.field_ids) for schema in metadata.schemas}
    now = schemas[metadata.current_schema_id]
    of_snapshots = {one.snapshot_id: now if one.schema_id is None else schemas.get(one.schema_id, now) for one in ancestors(metadata)}
    return {number: columns & now for number, columns in of_snapshots.items()}


def _files_after(change: Table, sequence: int) -> Mapping[Partition, Sequence[LiveFile]]:
    """The live files of the change store with a data sequence number above this one, by partition."""
    files: dict[Partition, list[LiveFile]] = defaultdict(list)
    snapshot = change.metadata.snapshot_by_name(MAIN_BRANCH)
    for manifest in manifests_of(snapshot, change.io) if snapshot is not None else ():
        # No entry of a manifest is newer than the manifest.
        if (manifest.sequence_number or 0) > sequence:
            for file in read_live_files(change.io, change.metadata, manifest):
                if file.data_sequence_number > sequence:
                    files[file.partition].append(file)
    return files


def _paths(table: Table, snapshot_id: int) -> frozenset[str] | None:
    snapshot = table.metadata.snapshot_by_id(snapshot_id)
    return frozenset(file.path for file in files_of(table, snapshot) if file.is_data) if snapshot is not None else None
