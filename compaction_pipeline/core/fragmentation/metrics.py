"""The figures of every node at one snapshot, and how many rows of each data file are thought deleted.

A delete file counts in the node of its own spec and partition, so that the nodes add up to the table; the rows that it
deletes are estimated on the data files that it reaches.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import accumulate

from compaction_pipeline.core.tables.data_file import FileContent, LiveFile
from compaction_pipeline.core.tables.deletes.reach import DeleteReach
from compaction_pipeline.core.tables.figures import NodeMetrics
from compaction_pipeline.core.tables.live_files import NodeFiles, TableFiles, files_by_node
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.properties import TableProperties


def measure(files: TableFiles, properties: TableProperties) -> dict[TableNode, NodeMetrics]:
    """NodeMetrics of every node."""
    nodes = files_by_node(files.files)
    reach = DeleteReach(nodes, files.unpartitioned_spec_ids)
    table_rows = sum(file.record_count for group in nodes.values() for file in group.data)
    return {node: node_metrics(group, reach, properties, len(nodes) > 1, table_rows) for node, group in nodes.items()}


def same_content(before: NodeMetrics, after: NodeMetrics) -> bool:
    """Whether two figures of a node differ at most in what counts as small, which is a matter of the table's properties."""
    small = dict.fromkeys(("small_data_files", "small_data_bytes", "small_delete_files", "small_delete_bytes"), 0)
    return replace(before, **small) == replace(after, **small)


def node_metrics(group: NodeFiles, reach: DeleteReach, properties: TableProperties, spread: bool, table_rows: int) -> NodeMetrics:
    """Figures of one node. `spread`: the table has other nodes, so that a global delete's rows are shared with them."""
    limit = properties.fragment_size_bytes
    small_data = [file.file_size_bytes for file in group.data if file.file_size_bytes <= limit]
    small_deletes = [file.file_size_bytes for file in group.deletes if file.file_size_bytes <= limit]
    equalities = sum(1 for file in group.deletes if file.content is FileContent.EQUALITY_DELETES)
    return NodeMetrics(
        data_files=len(group.data),
        small_data_files=len(small_data),
        small_data_bytes=sum(small_data),
        data_bytes=sum(file.file_size_bytes for file in group.data),
        position_delete_files=len(group.deletes) - equalities,
        equality_delete_files=equalities,
        small_delete_files=len(small_deletes),
        small_delete_bytes=sum(small_deletes),
        delete_bytes=sum(file.file_size_bytes for file in group.deletes),
        rows=sum(file.record_count for file in group.data),
        deleted_rows_estimate=int(sum(deleted_rows(group.node, group.data, reach, spread, table_rows).values())),
    )


def deleted_rows(
    node: TableNode, data: Sequence[LiveFile], reach: DeleteReach, spread: bool, table_rows: int, count_same_sequence: bool = True
) -> dict[str, float]:
    """Rows thought deleted of each of these data files of a node, by path; files that no delete reaches are left out.

    A delete file's record count is shared among the data files that it reaches by their rows. Where a global delete may
    reach several nodes, each gets the share of its rows in the table's: the estimate of one node then does not move when
    another is merged. Without `count_same_sequence` a position delete of many files does not count for a data file of its
    own sequence number, which a merge's output carries although no such delete can name it.
    """
    own, table = reach.equality_scopes(node)
    rates: list[tuple[Sequence[int], Sequence[float]]] = []
    if own.deletes:
        rates.append(_rates(own.deletes, data))
    if table.deletes:
        rates.append(_table_rates(table.deletes, table_rows) if spread else _rates(table.deletes, data))
    rows_reached: dict[str, int] = {}
    positions: dict[str, Sequence[LiveFile]] = {}
    for file in data:
        counted = [
            delete
            for delete in reach.positions(file)
            if count_same_sequence or delete.referenced_data_file is not None or delete.data_sequence_number > file.data_sequence_number
        ]
        if counted:
            positions[file.path] = counted
            for delete in counted:
                rows_reached[delete.path] = rows_reached.get(delete.path, 0) + file.record_count
    if not rates and not positions:
        return {}
    deleted: dict[str, float] = {}
    for file in data:
        rows = sum(delete.record_count * file.record_count / max(rows_reached[delete.path], 1) for delete in positions.get(file.path, ()))
        for sequences, rate in rates:
            rows += file.record_count * rate[bisect_right(sequences, file.data_sequence_number)]
        if rows > 0:
            deleted[file.path] = min(rows, float(file.record_count))
    return deleted


def _rates(deletes: Sequence[LiveFile], data: Iterable[LiveFile]) -> tuple[Sequence[int], Sequence[float]]:
    """Sequences of the deletes, and per position the deleted share of a row that this and all later deletes reach."""
    by_sequence = sorted((file.data_sequence_number, file.record_count) for file in data)
    rows = [0, *accumulate(count for _, count in by_sequence)]
    sequences = [sequence for sequence, _ in by_sequence]
    shares = [delete.record_count / max(rows[bisect_right(sequences, delete.data_sequence_number - 1)], 1) for delete in deletes]
    return _summed(deletes, shares)


def _table_rates(deletes: Sequence[LiveFile], table_rows: int) -> tuple[Sequence[int], Sequence[float]]:
    return _summed(deletes, [delete.record_count / max(table_rows, 1) for delete in deletes])


def _summed(deletes: Sequence[LiveFile], shares: Sequence[float]) -> tuple[Sequence[int], Sequence[float]]:
    from_here_on = [*accumulate(reversed(shares))][::-1]
    return [delete.data_sequence_number for delete in deletes], [*from_here_on, 0.0]
