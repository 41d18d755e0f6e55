"""MINOR: merge a node's fragments, their deletes applied. Larger data files are left to conversions and to MAJOR."""

from __future__ import annotations

from compaction_pipeline.core.planning.node_view import MergeBin, NodeView


def minor_bins(view: NodeView) -> list[MergeBin]:
    """All small data files of the node in tasks; one that is alone goes only when deletes reach it."""
    merged = frozenset(file.path for file in view.fragments)
    return view.bins(view.fragments, lambda file: view.loses_deletes(file, merged))
