"""Decides which commits of ours a catalog may take back, and sees from a table's history which ones were taken back.

Polaris takes back `replace` snapshots in the way of another writer, so that this writer need not write its files again. It does so only
while 'polaris.config.rollback.compaction.on-conflicts.enabled' is set, and only with snapshots whose summary allows it. Source:
`CatalogHandlerUtils.commit` of Polaris.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from compaction_pipeline.core.commit.record import CompactionRecord, RecordStatus
from compaction_pipeline.core.tables.kinds import is_store
from compaction_pipeline.core.tables.properties import in_force
from compaction_pipeline.core.tables.property_rules import MAY_ROLL_BACK_KEY
from compaction_pipeline.core.tables.table import SnapshotSummary

_ALLOWS: Mapping[str, str] = {
    "polaris.internal.conflict-resolution.by-operation-type.replace": "rollback",
    "lakekeeper.rollbackable": "true",
}


def rollback_summary(table: Mapping[str, str], catalog: Mapping[str, str]) -> Mapping[str, str]:
    """Return what the summary of a `replace` snapshot says when the catalog may take it back; nothing when it may not.

    No store of a keyed table allows it: a catalog takes back snapshots alone, and what says how far changes are merged is no part of them.
    """
    allowed = in_force(table, catalog).get(MAY_ROLL_BACK_KEY, "").strip().lower() == "true"
    return _ALLOWS if allowed and not is_store(table) else {}


def rolled_back(
    records: Iterable[CompactionRecord], head_id: int | None, ancestors: Sequence[SnapshotSummary]
) -> Sequence[CompactionRecord]:
    """Return those of these records whose snapshots main does not have any more, oldest first.

    `head_id` is the snapshot that main is at, and `ancestors` are it and those before it as their parents tell, as far as they are known.
    When main has the snapshot on which a commit was made, and not the snapshot that the commit made, then somebody took it back. The same
    holds for each later commit whose snapshot main does not have. Where no snapshot of an earlier commit is known, the history is too short
    to tell: that is so when snapshots have expired.
    """
    known = {one.snapshot_id for one in ancestors} | ({head_id} if head_id is not None else set())
    found, reaches_back = [], False
    for record in sorted(records, key=lambda one: (one.created_at, one.record_id)):
        before, after = record.snapshot_before, record.snapshot_after
        if record.status is not RecordStatus.COMMITTED or after is None or before is None or before == after:
            continue
        reaches_back = reaches_back or before in known or after in known
        if reaches_back and after not in known and record.rolled_back_at is None:
            found.append(record)
    return found
