"""Finds out whether another tool rewrites a table too."""

from __future__ import annotations

from compaction_pipeline.core.tables.table import TableHead


def foreign_rewrite(head: TableHead, known_snapshot_id: int | None, our_mark: str) -> str | None:
    """Return a warning when another tool has rewritten files of the table since `known_snapshot_id`; None when none has.

    `our_mark` is a key in the summary of every snapshot that this program commits.
    """
    if known_snapshot_id is None:
        return None
    for snapshot in head.ancestors:
        if snapshot.snapshot_id == known_snapshot_id:
            return None
        if snapshot.operation == "replace" and our_mark not in snapshot.summary:
            tool = snapshot.summary.get("engine-name") or "another tool"
            return (
                f"snapshot {snapshot.snapshot_id} is a rewrite by {tool}: two compactors on one table undo each other's work; "
                "stop the other one, or pause this table"
            )
    return None
