"""MINOR merges a node's fragments, which are its small data files, and applies their deletes.

Conversions and MAJOR take care of larger data files.
"""

from __future__ import annotations

from compaction_pipeline.core.planning.plain.node_view import MergeBin, NodeView


def minor_bins(view: NodeView) -> list[MergeBin]:
    """Return the bins of all fragments of the node. A fragment that is alone in its bin is merged only when this frees it from a delete."""
    merged = frozenset(file.path for file in view.fragments)
    return view.bins(view.fragments, lambda file: view.loses_deletes(file, merged))
