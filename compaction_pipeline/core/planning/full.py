"""FULL: rewrite all data files of a node to the target size and in the table's order; the only type that moves rows to another spec."""

from __future__ import annotations

from datetime import datetime

from compaction_pipeline.core.fragmentation.verdict import NodeHistory
from compaction_pipeline.core.planning.node_view import MergeBin, NodeView
from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.core.tables.properties import TableProperties
from compaction_pipeline.core.tables.sort_order import lacks_order
from compaction_pipeline.core.words import duration_text


def full_bins(view: NodeView, moves_spec: bool) -> list[MergeBin]:
    """All available data files, but for bins that are right already.

    A bin is rewritten when it saves a file, splits an oversized one, loses a delete, moves to another spec, or gets into the
    table's order.
    """
    merged = frozenset(file.path for file in view.available)

    def alone(file: LiveFile) -> bool:
        return moves_spec or lacks_order(file, view.sort_order_id) or view.loses_deletes(file, merged)

    return view.bins(view.available, alone, splits=True)


def keeps_old_spec(history: NodeHistory, properties: TableProperties, now: datetime) -> str | None:
    """Why rows of an old spec must stay there; None when they may move.

    A writer that started before the evolution keeps deleting in the old spec, and such a delete would miss moved rows.
    """
    last = history.last_old_spec_delete_at
    if last is None or now - last >= properties.respec_quiet_interval:
        return None
    return (
        f"keeps its old partition spec: a delete file of an old spec was committed, or the spec changed, {duration_text(now - last)} ago; "
        f"rows move after {duration_text(properties.respec_quiet_interval)} of quiet ('compaction.respec.quiet-interval')"
    )
