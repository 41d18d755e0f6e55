"""What Dagster shows of the health of nodes and tables.

Pure: values of the core and of `read_status` go in, and metadata of Dagster comes out. The names of figures carry their units and
never change, because Dagster plots figures by their names.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import dagster as dg

from compaction_pipeline.core.insight.overview import NodeOverview, worst_first
from compaction_pipeline.core.queue.attempts import attempt_text
from compaction_pipeline.core.queue.task import CompactionTask
from compaction_pipeline.core.tables.figures import NodeMetrics
from compaction_pipeline.defs.metadata import clipped, megabytes, table_of, unbroken
from compaction_pipeline.defs.svg import clipped_middle
from compaction_pipeline.services.insight.read_status import Status


def node_figures(metrics: NodeMetrics) -> dict[str, dg.MetadataValue]:
    """The figures of one node, plotted on `delta_files`."""
    return {
        "files_count": dg.MetadataValue.int(metrics.files),
        "small_files_count": dg.MetadataValue.int(metrics.small_files),
        "data_files_count": dg.MetadataValue.int(metrics.data_files),
        "position_delete_files_count": dg.MetadataValue.int(metrics.position_delete_files),
        "equality_delete_files_count": dg.MetadataValue.int(metrics.equality_delete_files),
        "data_mb": dg.MetadataValue.float(megabytes(metrics.data_bytes)),
        "delete_mb": dg.MetadataValue.float(megabytes(metrics.delete_bytes)),
        "rows_count": dg.MetadataValue.int(metrics.rows),
        "fragmentation_ratio": dg.MetadataValue.float(round(metrics.fragmentation, 4)),
    }


def node_metadata(node: NodeOverview) -> dict[str, dg.MetadataValue]:
    """A materialization of one node: its name in words, its health with the reason, and its figures."""
    return {
        "table": dg.MetadataValue.text(str(node.table)),
        "node": dg.MetadataValue.text(str(node.node)),
        "health": dg.MetadataValue.text(node.health.value),
        "reason": dg.MetadataValue.text(node.reason),
        **node_figures(node.metrics),
    }


_NAME_CHARACTERS = 18
_REASON_CHARACTERS = 23
"""In a window of 1,400 pixels Dagster cuts a table off behind about 370 pixels: a name and a reason of so many characters a line."""

WORST_NODES = (
    ("where", "string", "table and partition values, shortened; the last columns have the whole names"),
    ("reason", "string", "why; the partition of the node in delta_files has the whole text"),
    ("health", "string", "FAILING, DUE, WAITING, REFUSED or HEALTHY"),
    ("small_files", "int", "small data files and small delete files"),
    ("files", "int", "files that a reader of the node opens"),
    ("delete_files", "int", "position and equality delete files"),
    ("fragmentation", "float", "small files / files"),
    ("data_mb", "float", "size of the data files in MB"),
    ("table", "string", "catalog.namespace.table"),
    ("node", "string", "partition values"),
    ("partition_key", "string", "launch this partition of compacted_files"),
)


def worst_nodes(nodes: Sequence[NodeOverview]) -> dg.MetadataValue:
    """The table of the worst nodes, in the order given."""
    return table_of(
        [
            {
                "where": _short_names(str(node.table), str(node.node)),
                "table": str(node.table),
                "node": str(node.node),
                "health": node.health.value,
                "small_files": node.metrics.small_files,
                "files": node.metrics.files,
                "reason": unbroken(clipped(node.reason), _REASON_CHARACTERS),
                "delete_files": node.metrics.delete_files,
                "fragmentation": round(node.metrics.fragmentation, 3),
                "data_mb": megabytes(node.metrics.data_bytes),
                "partition_key": node.key,
            }
            for node in nodes
        ],
        WORST_NODES,
    )


def _short_names(*names: str) -> str:
    """Each name on one or two lines of its own in a narrow cell, with an ellipsis in the middle of a longer one."""

    def lines(name: str) -> str:
        short = clipped_middle(name, 2 * _NAME_CHARACTERS).replace(" ", "\N{NO-BREAK SPACE}")
        return "\N{ZERO WIDTH SPACE}".join(short[start : start + _NAME_CHARACTERS] for start in range(0, len(short), _NAME_CHARACTERS))

    return " ".join(map(lines, names))


def status_metadata(status: Status) -> dict[str, dg.MetadataValue]:
    """The tables of `table_health`: the worst nodes, the reason of each table, and the tasks that run."""
    worst = [node for node in status.worst if node.metrics.files]
    return {
        "worst_nodes": worst_nodes(worst),
        "plan_reasons": table_of(
            [
                {
                    "where": _short_names(str(table.table)),
                    "table": str(table.table),
                    "health": table.health.value,
                    "reason": unbroken(table.reason, _REASON_CHARACTERS),
                    "warning": table.warning,
                    "nodes": table.nodes,
                    "files": table.metrics.files,
                    "small_files": table.metrics.small_files,
                    "delete_files": table.metrics.delete_files,
                }
                for table in worst_first(status.tables)
            ],
            (
                ("where", "string", "the table, shortened; the last column has the whole name"),
                ("reason", "string", "what the last plan found, or what holds the table back"),
                ("health", "string", "health of the whole table when something holds it back, else of its worst node"),
                ("warning", "string", "something to know that stops nothing"),
                ("nodes", "int", "partitions that hold files"),
                ("files", "int", "data and delete files"),
                ("small_files", "int", "small data files and small delete files"),
                ("delete_files", "int", "position and equality delete files"),
                ("table", "string", "catalog.namespace.table"),
            ),
        ),
        "executing_tasks": executing_tasks(status.executing, status.at),
    }


def queue_figures(status: Status) -> dict[str, dg.MetadataValue]:
    """The figures that Dagster plots of `table_health`. Those of files are plotted on `table_figures`."""
    return {
        "due_nodes_count": dg.MetadataValue.int(status.due),
        "pending_tasks_count": dg.MetadataValue.int(status.queue.pending),
        "executing_tasks_count": dg.MetadataValue.int(status.queue.executing),
        "prepared_tasks_count": dg.MetadataValue.int(status.queue.prepared),
        "failed_tasks_count": dg.MetadataValue.int(status.queue.failed),
        "unsettled_records_count": dg.MetadataValue.int(len(status.unsettled)),
    }


def executing_tasks(tasks: Sequence[CompactionTask], now: datetime) -> dg.MetadataValue:
    """The tasks that an attempt holds now."""
    return table_of(
        [
            {
                "task": task.task_id,
                "table": str(task.table),
                "node": str(task.work.node),
                "type": task.work.type.value,
                "files": task.work.files_read,
                "input_mb": megabytes(task.work.input_bytes),
                "attempt": attempt_text(task),
                "running_seconds": round((now - task.started_at).total_seconds(), 1) if task.started_at else None,
                "owner": task.owner,
            }
            for task in tasks
        ],
        (
            ("task", "string", "task id"),
            ("table", "string", "catalog.namespace.table"),
            ("node", "string", "partition values"),
            ("type", "string", "MINOR, MAJOR or FULL"),
            ("files", "int", "data files that it reads"),
            ("input_mb", "float", "size of these files in MB"),
            ("attempt", "string", "number of this attempt, and how many there may be"),
            ("running_seconds", "float", "seconds since this attempt began"),
            ("owner", "string", "run or process that holds the task"),
        ),
    )
