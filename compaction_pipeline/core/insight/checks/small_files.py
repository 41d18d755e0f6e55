"""Judges whether small files are left."""

from __future__ import annotations

from collections.abc import Iterable

from compaction_pipeline.core.fragmentation.verdict import NodeState
from compaction_pipeline.core.insight.checks.judgement import Failure, Judgement
from compaction_pipeline.core.tables.properties import TableProperties


def small_files_left(nodes: Iterable[tuple[NodeState, TableProperties]]) -> Judgement:
    """Fail each node whose small data files, or small delete files, make a MINOR due. The node with the most comes first."""
    judged, failing = 0, []
    for node, properties in nodes:
        judged += 1
        small = max(node.metrics.small_data_files, node.metrics.small_delete_files)
        if small >= properties.minor_file_count:
            word = "data" if node.metrics.small_data_files >= node.metrics.small_delete_files else "delete"
            failing.append(
                (small, Failure(node.table, node.node, f"{small} small {word} files, {properties.minor_file_count} make a MINOR due"))
            )
    failing.sort(key=lambda item: -item[0])
    return Judgement("nodes", judged, tuple(failure for _, failure in failing))
