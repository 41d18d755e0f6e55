"""What Dagster shows of the health of nodes and tables.

Pure: values of the core and of `read_status` go in, and metadata of Dagster comes out. The names of figures carry their units and
never change, because Dagster plots figures by their names.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import dagster as dg

from compaction_pipeline.core.fragmentation.health_score import HealthScore
from compaction_pipeline.core.insight.overview import NodeOverview, worst_first
from compaction_pipeline.core.queue.attempts import attempt_text
from compaction_pipeline.core.queue.task import CompactionTask
from compaction_pipeline.core.tables.figures import NodeMetrics
from compaction_pipeline.defs.markdown import plain
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
        **score_metadata("health_score", node.score),
        **node_figures(node.metrics),
    }


def score_metadata(name: str, score: HealthScore) -> dict[str, dg.MetadataValue]:
    """A score as a figure that Dagster plots, and beside it a text with its sentences. A score that is not known has the text alone."""
    number = {f"{name}_points": dg.MetadataValue.int(score.total)} if score.total is not None else {}
    return {**number, name: dg.MetadataValue.text(score.text)}


_NAME_CHARACTERS = 18
_REASON_CHARACTERS = 23
"""In a window of 1,400 pixels Dagster cuts a table off behind about 370 pixels: a name and a reason of so many characters a line."""


def worst_nodes(nodes: Sequence[NodeOverview]) -> dg.MetadataValue:
    """The table of the worst nodes, in the order given."""
    return table_of(
        nodes,
        (
            (
                "where",
                "string",
                "table and partition values, shortened; the last columns have the whole names",
                lambda node: _short_names(node.table, node.node),
            ),
            (
                "reason",
                "string",
                "why; the partition of the node in delta_files has the whole text",
                lambda node: _narrow(clipped(node.reason)),
            ),
            ("health", "string", "FAILING, DUE, WAITING, REFUSED or HEALTHY", lambda node: node.health.value),
            ("score", "int", "health score from 0 to 100", lambda node: node.score.total),
            ("score_says", "string", "what costs the most points, and what to do", lambda node: clipped(node.score.text)),
            ("small_files", "int", "small data files and small delete files", lambda node: node.metrics.small_files),
            ("files", "int", "files that a reader of the node opens", lambda node: node.metrics.files),
            ("delete_files", "int", "position and equality delete files", lambda node: node.metrics.delete_files),
            ("fragmentation", "float", "small files / files", lambda node: round(node.metrics.fragmentation, 3)),
            ("data_mb", "float", "size of the data files in MB", lambda node: megabytes(node.metrics.data_bytes)),
            ("table", "string", "catalog.namespace.table", lambda node: str(node.table)),
            ("node", "string", "partition values", lambda node: str(node.node)),
            ("partition_key", "string", "launch this partition of compacted_files", lambda node: node.key),
        ),
    )


def _narrow(reason: str) -> str:
    return unbroken(reason, _REASON_CHARACTERS)


def _short_names(*names: object) -> str:
    """Each name on one or two lines of its own in a narrow cell, with an ellipsis in the middle of a longer one."""

    def lines(name: str) -> str:
        short = clipped_middle(name, 2 * _NAME_CHARACTERS).replace(" ", "\N{NO-BREAK SPACE}")
        return "\N{ZERO WIDTH SPACE}".join(short[start : start + _NAME_CHARACTERS] for start in range(0, len(short), _NAME_CHARACTERS))

    return " ".join(lines(str(name)) for name in names)


def status_metadata(status: Status) -> dict[str, dg.MetadataValue]:
    """The tables of `table_health`: the worst nodes, the reason of each table, and the tasks that run."""
    worst = [node for node in status.worst if node.metrics.files]
    return {
        "worst_nodes": worst_nodes(worst),
        "plan_reasons": table_of(
            worst_first(status.tables),
            (
                ("where", "string", "the table, shortened; the last column has the whole name", lambda table: _short_names(table.table)),
                ("reason", "string", "what the last plan found, or what holds the table back", lambda table: _narrow(table.reason)),
                (
                    "health",
                    "string",
                    "health of the whole table when something holds it back, else of its worst node",
                    lambda table: table.health.value,
                ),
                ("score", "int", "health score from 0 to 100", lambda table: table.score.total),
                ("score_says", "string", "what costs the most points, and what to do", lambda table: clipped(table.score.text)),
                ("read_costs", "string", "what each reader gets through before it opens a file", lambda table: table.read_costs),
                ("warning", "string", "something to know that stops nothing", lambda table: table.warning),
                ("nodes", "int", "partitions that hold files", lambda table: table.nodes),
                ("files", "int", "data and delete files", lambda table: table.metrics.files),
                ("small_files", "int", "small data files and small delete files", lambda table: table.metrics.small_files),
                ("delete_files", "int", "position and equality delete files", lambda table: table.metrics.delete_files),
                ("table", "string", "catalog.namespace.table", lambda table: str(table.table)),
            ),
        ),
        "executing_tasks": executing_tasks(status.executing, status.at),
        **_not_seen(status),
    }


def _not_seen(status: Status) -> dict[str, dg.MetadataValue]:
    """What the last listings of catalogs did not see. While there is something, nobody may take the page for all that there is."""
    sentences = [f"- {plain(one.sentence)}" for one in status.unseen]
    return {"not_seen": dg.MetadataValue.md("\n".join(sentences))} if sentences else {}


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
        tasks,
        (
            ("task", "string", "task id", lambda task: task.task_id),
            ("table", "string", "catalog.namespace.table", lambda task: str(task.table)),
            ("node", "string", "partition values", lambda task: str(task.work.node)),
            ("type", "string", "MINOR, MAJOR or FULL", lambda task: task.work.type.value),
            ("files", "int", "data files that it reads", lambda task: task.work.files_read),
            ("input_mb", "float", "size of these files in MB", lambda task: megabytes(task.work.input_bytes)),
            ("attempt", "string", "number of this attempt, and how many there may be", attempt_text),
            (
                "running_seconds",
                "float",
                "seconds since this attempt began",
                lambda task: round((now - task.started_at).total_seconds(), 1) if task.started_at else None,
            ),
            ("owner", "string", "run or process that holds the task", lambda task: task.owner),
        ),
    )
