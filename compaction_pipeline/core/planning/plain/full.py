"""FULL rewrites every data file of a node whose rewrite gains something, to the target size and in the table's sort order.

It is the only type that moves rows to another partition spec.
"""

from __future__ import annotations

from datetime import datetime

from compaction_pipeline.core.fragmentation.verdict import NodeHistory
from compaction_pipeline.core.planning.plain.node_view import MergeBin, NodeView
from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.core.tables.properties import TableProperties
from compaction_pipeline.core.tables.sort_order import lacks_order
from compaction_pipeline.core.words import duration_text


def full_bins(view: NodeView, moves_spec: bool) -> list[MergeBin]:
    """Return the bins of all available data files, without the bins that need no rewrite.

    A bin is rewritten when this saves a file, splits an oversized file, frees a file from a delete, moves rows to another partition
    spec, or sorts a file by the table's order. Where the table wants all files to be rewritten, every bin is.
    """
    merged = frozenset(file.path for file in view.available)

    def alone(file: LiveFile) -> bool:
        return view.properties.full_rewrites_all or moves_spec or lacks_order(file, view.sort_order_id) or view.loses_deletes(file, merged)

    return view.bins(view.available, alone, splits=True)


def keeps_old_spec(history: NodeHistory, properties: TableProperties, now: datetime) -> str | None:
    """Return why rows of an old partition spec must stay there; None when they may move.

    A writer that started before the spec changed still adds deletes in the old spec. Such a delete would miss rows that had moved.
    """
    last = history.last_old_spec_delete_at
    if last is None or now - last >= properties.respec_quiet_interval:
        return None
    return (
        f"the rows stay in their old partition spec: {duration_text(now - last)} ago the spec changed, or a delete file of an old spec was "
        f"committed; rows move when neither has happened for {duration_text(properties.respec_quiet_interval)} "
        "('compaction.respec.quiet-interval')"
    )
