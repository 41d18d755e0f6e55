"""Computes the figures of every node at one snapshot, and estimates how many rows of each data file are deleted.

A delete file counts in the node of its own spec and partition, so that the figures of all nodes add up to the table. The rows that it
deletes are estimated for the data files that it reaches.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from math import ceil

from compaction_pipeline.core.tables.data_file import FileContent, LiveFile
from compaction_pipeline.core.tables.deletes.reach import DeleteReach
from compaction_pipeline.core.tables.figures import NodeMetrics
from compaction_pipeline.core.tables.live_files import NodeFiles, TableFiles, files_by_node
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.properties import TableProperties


def measure(files: TableFiles, properties: TableProperties) -> dict[TableNode, NodeMetrics]:
    """Return the NodeMetrics of every node."""
    nodes = files_by_node(files.files)
    reach = DeleteReach(nodes, files.unpartitioned_spec_ids)
    table_rows = sum(file.record_count for group in nodes.values() for file in group.data)
    return {node: node_metrics(group, reach, properties, len(nodes) > 1, table_rows) for node, group in nodes.items()}


def same_content(before: NodeMetrics, after: NodeMetrics) -> bool:
    """Return whether two figures of a node are equal apart from the counts of small files, which depend on the table's properties too."""
    small = dict.fromkeys(("small_data_files", "small_data_bytes", "small_delete_files", "small_delete_bytes"), 0)
    return replace(before, **small) == replace(after, **small)


def node_metrics(group: NodeFiles, reach: DeleteReach, properties: TableProperties, spread: bool, table_rows: int) -> NodeMetrics:
    """Return the figures of one node.

    `spread` is True when other nodes have data files too: the rows of a global delete are then shared among them. `table_rows` is the
    number of rows in the table's data files.
    """
    limit = properties.fragment_size_bytes
    small_data = [file.file_size_bytes for file in group.data if file.file_size_bytes <= limit]
    small_deletes = [file.file_size_bytes for file in group.deletes if file.file_size_bytes <= limit]
    equalities = sum(1 for file in group.deletes if file.content is FileContent.EQUALITY_DELETES)
    deleted = _deleted_by_kind(group.node, group.data, reach, spread, table_rows)
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
        deleted_rows_estimate=int(sum(_totals(deleted, group.data).values())),
        equality_delete_rows=_whole(sum(equality for equality, _ in deleted.values())),
        deleted_positions=_whole(sum(positions for _, positions in deleted.values())),
    )


def _whole(rows: float) -> int:
    """Round a number of rows up: any deleted row counts. The sums of shares are a little more or less than the number that was shared."""
    return ceil(round(rows, 6))


def deleted_rows(
    node: TableNode, data: Sequence[LiveFile], reach: DeleteReach, spread: bool, table_rows: int, count_same_sequence: bool = True
) -> dict[str, float]:
    """Return the estimated number of deleted rows, by path, of these data files of a node. Files that no delete reaches are left out.

    The record count of a delete file is shared among the data files that it reaches, in proportion to their rows. When a global
    delete may reach several nodes (`spread`), a data file's share is its part of `table_rows`: so the estimate of one node does not
    change when another node is merged. With `count_same_sequence` False, a partition-scoped position delete does not count for a data
    file that has the same sequence number as the delete. A merge's output may have that number, although no such delete can name the
    output.
    """
    return _totals(_deleted_by_kind(node, data, reach, spread, table_rows, count_same_sequence), data)


def _totals(deleted: Mapping[str, tuple[float, float]], data: Sequence[LiveFile]) -> dict[str, float]:
    """Return the deleted rows of each file, of both kinds of deletes together: at most all its rows."""
    if not deleted:
        return {}
    return {file.path: min(sum(deleted[file.path]), float(file.record_count)) for file in data if file.path in deleted}


def _deleted_by_kind(
    node: TableNode, data: Sequence[LiveFile], reach: DeleteReach, spread: bool, table_rows: int, count_same_sequence: bool = True
) -> dict[str, tuple[float, float]]:
    """Return the rows of equality deletes, and the positions, that `deleted_rows` counts for each data file that a delete reaches.

    A file has at most as many deleted positions as rows. Its rows of equality deletes may be more than its rows, because such a delete
    names values and need not find a row.
    """
    own, table = reach.equality_scopes(node)
    rates: list[tuple[Sequence[int], Sequence[float]]] = []
    if own.deletes:
        rates.append(_rates(own.deletes, data))
    if table.deletes:
        rates.append(_table_rates(table.deletes, table_rows) if spread else _rates(table.deletes, data))
    # Deletion vectors of several data files may lie in one file.
    rows_reached: dict[tuple[str, str | None], int] = {}
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
                key = (delete.path, delete.referenced_data_file)
                rows_reached[key] = rows_reached.get(key, 0) + file.record_count
    if not rates and not positions:
        return {}
    deleted: dict[str, tuple[float, float]] = {}
    for file in data:
        rows, equality = float(file.record_count), 0.0
        taken = sum(
            delete.record_count * rows / max(rows_reached[delete.path, delete.referenced_data_file], 1)
            for delete in positions.get(file.path, ())
        )
        for sequences, rate in rates:
            equality += rows * rate[bisect_right(sequences, file.data_sequence_number)]
        if equality > 0 or taken > 0:
            deleted[file.path] = (equality, min(taken, rows))
    return deleted


def _rates(deletes: Sequence[LiveFile], data: Iterable[LiveFile]) -> tuple[Sequence[int], Sequence[float]]:
    """Return the sequence numbers of the deletes, and a list of shares. `deletes` are sorted by sequence number.

    Share i is the part of a file's rows that is deleted when delete i and all deletes after it reach the file. One more share, 0, is for a
    file that no delete reaches.
    """
    by_sequence = sorted((file.data_sequence_number, file.record_count) for file in data)
    rows = [0, *accumulate(count for _, count in by_sequence)]
    sequences = [sequence for sequence, _ in by_sequence]
    shares = [delete.record_count / max(rows[bisect_right(sequences, delete.data_sequence_number - 1)], 1) for delete in deletes]
    return _summed(deletes, shares)


def _table_rates(deletes: Sequence[LiveFile], table_rows: int) -> tuple[Sequence[int], Sequence[float]]:
    """Return the same as `_rates` for global deletes, each of which is shared among all rows of the table."""
    return _summed(deletes, [delete.record_count / max(table_rows, 1) for delete in deletes])


def _summed(deletes: Sequence[LiveFile], shares: Sequence[float]) -> tuple[Sequence[int], Sequence[float]]:
    """Return the sequence numbers of the deletes, and for each position the sum of the shares from there on. The last sum is 0."""
    from_here_on = [*accumulate(reversed(shares))][::-1]
    return [delete.data_sequence_number for delete in deletes], [*from_here_on, 0.0]
