"""Reads the history of an Iceberg table from its metadata, for the rules of `core/upkeep`."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot as IcebergSnapshot

from compaction_pipeline.core.tables.property_rules import NEVER
from compaction_pipeline.core.upkeep.history import MAIN, History, Ref, Snapshot

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_LAST_MS = int((datetime(9000, 1, 1, tzinfo=timezone.utc) - _EPOCH) / timedelta(milliseconds=1))


def history_of(metadata: TableMetadata) -> History:
    """The snapshots and the refs that this metadata has. Metadata of format v1 may have a current snapshot without a branch main."""
    refs = {name: _ref(name, ref) for name, ref in metadata.refs.items()}
    if MAIN not in refs and metadata.current_snapshot_id is not None:
        refs[MAIN] = Ref(MAIN, metadata.current_snapshot_id, is_branch=True)
    return History({one.snapshot_id: _snapshot(one) for one in metadata.snapshots}, refs)


def _snapshot(one: IcebergSnapshot) -> Snapshot:
    summary = {} if one.summary is None else {**one.summary.additional_properties, "operation": one.summary.operation.value}
    return Snapshot(one.snapshot_id, one.parent_snapshot_id, moment_of(one.timestamp_ms), summary, one.sequence_number or 0)


def moment_of(milliseconds: int) -> datetime:
    """The time of a snapshot. Python has no later years: a snapshot of such a time is kept for its age, whichever of these years it has."""
    return _EPOCH + timedelta(milliseconds=max(0, min(milliseconds, _LAST_MS)))


def _ref(name: str, ref: SnapshotRef) -> Ref:
    return Ref(
        name,
        ref.snapshot_id,
        ref.snapshot_ref_type is SnapshotRefType.BRANCH,
        ref.min_snapshots_to_keep,
        age_of(ref.max_snapshot_age_ms),
        age_of(ref.max_ref_age_ms),
    )


def age_of(milliseconds: int | None) -> timedelta | None:
    """An age that a ref names; None for a ref that names none."""
    if milliseconds is None:
        return None
    return timedelta(milliseconds=milliseconds) if milliseconds <= NEVER / timedelta(milliseconds=1) else NEVER
