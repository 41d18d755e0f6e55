"""Finds out from a table's metadata whether, and how, an earlier commit of ours landed.

It looks for the record id in the summaries of the snapshots, and then for the outputs in the manifests. It only reads.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from pyiceberg.avro.file import AvroFile
from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.typedef import Record

from compaction_pipeline.core.commit.figures import counted
from compaction_pipeline.core.commit.ports import CommitOutcome, CommitState
from compaction_pipeline.core.commit.record import RECORD_ID_PROPERTY, CommitFigures
from compaction_pipeline.core.ids import RecordId
from compaction_pipeline.core.work.merged import MergedWork
from compaction_pipeline.core.work.work import Work
from compaction_pipeline.iceberg.commit.attempts import head_id, snapshots_with
from compaction_pipeline.iceberg.commit.outputs import outputs_of
from compaction_pipeline.iceberg.commit.strategy import D, Landed, Strategy
from compaction_pipeline.iceberg.failures import translated
from compaction_pipeline.iceberg.head_reader import HeadReader, listed_paths
from compaction_pipeline.iceberg.listing import files_under
from compaction_pipeline.iceberg.manifests.entries import read_entries
from compaction_pipeline.iceberg.rewrite_files import Transaction, name_in
from compaction_pipeline.iceberg.scan import manifests_of


def settled(strategy: Strategy[D], record_id: RecordId, tasks: Sequence[MergedWork[Work]]) -> CommitOutcome:
    """How an earlier commit of this record ended. UNKNOWN while one of its attempts may still land."""
    loaded = strategy.written_store()
    landed = landed_by_record(loaded, record_id, tasks, strategy)
    if landed is not None:
        return landed
    with translated(f"the history of table {'.'.join(loaded.name())}"):
        found = listed_paths(loaded.io, loaded.metadata, [output.path for task in tasks for output in outputs_of(task)])
        committed = strategy.together({task.task_id for task in tasks if any(output.path in found for output in outputs_of(task))})
        if committed:
            conflicts = {task.task_id: "its record was committed without it" for task in tasks if task.task_id not in committed}
            reason = "the table lists outputs of the tasks, and the snapshot that added them was expired"
            return CommitOutcome(CommitState.COMMITTED, committed, conflicts, reason=reason)
        parents = parents_of_attempts(loaded, {record_id}).get(record_id, set())
    head = head_id(loaded.metadata)
    if head in parents:
        reason = (
            f"an attempt was built on snapshot {head}, which is still the head, so it may land; "
            f"the next tick or `compact` commits record {record_id} again, and this ends the doubt"
        )
        return CommitOutcome(CommitState.UNKNOWN, snapshot_before=head, reason=reason)
    return CommitOutcome(
        CommitState.NOTHING,
        reason="no snapshot carries the record or lists one of its outputs; no attempt of it was built on the present head, "
        "so none can land unless the table is rolled back",
    )


def landed_by_record(loaded: Table, record_id: RecordId, tasks: Sequence[MergedWork[Work]], strategy: Strategy[D]) -> CommitOutcome | None:
    """How an earlier commit of this record ended, if a snapshot carries its id. None if no snapshot does."""
    ours = sorted(
        snapshots_with(loaded.metadata, RECORD_ID_PROPERTY, record_id), key=lambda one: (one.timestamp_ms, one.sequence_number or 0)
    )
    if not ours:
        return None
    ids = {one.snapshot_id for one in ours}
    first = next((one for one in ours if one.parent_snapshot_id not in ids), ours[0])
    last = next((one for one in ours if one.snapshot_id not in {other.parent_snapshot_id for other in ours}), ours[-1])
    added: set[str] = set()
    removed: set[str] = set()
    with translated("the manifests of an earlier commit"):
        for snapshot in ours:
            for manifest in manifests_of(snapshot, loaded.io):
                if manifest.added_snapshot_id != snapshot.snapshot_id:
                    continue
                for entry in read_entries(loaded.io, manifest, live_only=False):
                    if entry.snapshot_id not in ids:
                        continue
                    (removed if entry.status == ManifestEntryStatus.DELETED else added).add(entry.data_file.file_path)
        figures = _figures_of_history(loaded, first, last, added, removed)
        found = strategy.went_in(Landed(loaded, last, added, removed))
    committed = strategy.together(found)
    conflicts = {task.task_id: "its record was committed without it" for task in tasks if task.task_id not in committed}
    return CommitOutcome(CommitState.COMMITTED, committed, conflicts, first.parent_snapshot_id, last.snapshot_id, figures)


def _figures_of_history(loaded: Table, first: Snapshot, last: Snapshot, added: set[str], removed: set[str]) -> CommitFigures:
    """The figures of a commit that was found in the table. Empty if the snapshot before it has been expired."""
    reader = HeadReader(loaded.io)
    parent = loaded.metadata.snapshot_by_id(first.parent_snapshot_id) if first.parent_snapshot_id is not None else None
    if parent is None:
        return CommitFigures()
    before = reader.live_files(loaded.metadata, parent)
    after = reader.live_files(loaded.metadata, last)
    inputs = [file for file in before if file.is_data and file.path in removed]
    outputs = [file for file in after if file.is_data and file.path in added]
    dropped = sum(1 for file in before if not file.is_data and file.path in removed)
    came = sum(1 for file in after if not file.is_data and file.path in added)
    return counted(before, after, inputs, outputs, (dropped, came))


def has_landed(fresh: Table, transaction: Transaction) -> bool:
    """Whether the attempt is in the table. Either its snapshots are there or, if they were expired at once, later snapshots list its
    manifests."""
    ours = {staged.snapshot.snapshot_id for staged in transaction.staged}
    before = {snapshot.snapshot_id for snapshot in transaction.table.metadata.snapshots}
    newer = [snapshot for snapshot in fresh.metadata.snapshots if snapshot.snapshot_id not in before]
    if any(snapshot.snapshot_id in ours for snapshot in newer):
        return True
    written = set(transaction.written)
    with translated("the newest manifest lists"):
        return any(manifest.manifest_path in written for snapshot in newer for manifest in manifests_of(snapshot, fresh.io))


def parents_of_attempts(loaded: Table, record_ids: Collection[RecordId]) -> Mapping[str, set[int | None]]:
    """By record, the snapshots on which its attempts were built. This is read from the manifest lists that the attempts left behind. Lists
    that a snapshot names are left out: their attempts have landed."""
    named = {snapshot.manifest_list.rsplit("/", 1)[-1] for snapshot in loaded.metadata.snapshots if snapshot.manifest_list}
    parents: dict[str, set[int | None]] = {}
    for path in metadata_files(loaded, record_ids):
        name = path.rsplit("/", 1)[-1]
        record_id = name_in(name)
        if not name.startswith("snap-") or name in named or record_id is None:
            continue
        try:
            with AvroFile[Record](loaded.io.new_input(path)) as reader:
                text = reader.header.meta.get("parent-snapshot-id", "null")
        except (EOFError, ValueError):
            # The process was killed while it wrote this list, so the attempt never reached its swap.
            continue
        parents.setdefault(record_id, set()).add(int(text) if text.lstrip("-").isdigit() else None)
    return parents


def metadata_files(loaded: Table, record_ids: Collection[RecordId]) -> Sequence[str]:
    """The paths of all manifests and manifest lists that commits of these records wrote, live ones included."""
    metadata = loaded.metadata
    location = metadata.properties.get("write.metadata.path", f"{metadata.location.rstrip('/')}/metadata")
    return [path for path in files_under(loaded.io, location, recursive=False) if name_in(path.rsplit("/", 1)[-1]) in record_ids]
