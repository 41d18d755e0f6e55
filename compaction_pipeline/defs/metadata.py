"""What a person sees on the events: figures with stable, unit-suffixed names (they are plotted) and tables of ≤ 20 rows.

Pure: values of the core and of `read_status` in, Dagster metadata out. Sizes are plotted in MB (10⁶ bytes).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

import dagster as dg

from compaction_pipeline.core.commit.record import CompactionRecord
from compaction_pipeline.core.insight.overview import SHOWN, NodeOverview
from compaction_pipeline.core.queue.task import CompactionTask, TaskWork
from compaction_pipeline.core.tables.data_file import FileContent
from compaction_pipeline.core.tables.figures import NodeMetrics
from compaction_pipeline.services.insight.read_status import Status

Metadata = Mapping[str, dg.MetadataValue]
Cell = str | int | float | bool | None

_BYTES_PER_MB = 1_000_000


def megabytes(size_bytes: int) -> float:
    """Bytes as MB with three decimals: fine enough for a fragment of 1 kB, plain enough for a plot."""
    return round(size_bytes / _BYTES_PER_MB, 3)


def clipped(text: str, most: int = 240) -> str:
    """A reason short enough for a cell beside others."""
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def unbroken(text: str) -> str:
    """A reason that wraps between its clauses only: the UI squeezes a cell of words to one word a line, and its row to a page."""
    return "; ".join(clause.replace(" ", "\N{NO-BREAK SPACE}") for clause in text.split("; "))


def table_of(rows: Sequence[Mapping[str, Cell]], columns: Sequence[tuple[str, str, str]]) -> dg.MetadataValue:
    """A table of at most 20 rows. `columns` are (name, type, description); a row may lack a value."""
    return dg.MetadataValue.table(
        records=[dg.TableRecord({name: row.get(name) for name, _, _ in columns}) for row in rows[:SHOWN]],
        schema=dg.TableSchema(columns=[dg.TableColumn(name, type, description=text) for name, type, text in columns]),
    )


# ---- nodes -----------------------------------------------------------------------------------------------------------


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
    """An observation of one node: who it is in words, how it is and why, and its figures."""
    return {
        "table": dg.MetadataValue.text(str(node.table)),
        "node": dg.MetadataValue.text(str(node.node)),
        "health": dg.MetadataValue.text(node.health.value),
        "reason": dg.MetadataValue.text(node.reason),
        **node_figures(node.metrics),
    }


WORST_NODES = (
    ("table", "string", "catalog.namespace.table"),
    ("node", "string", "partition values"),
    ("health", "string", "FAILING, DUE, WAITING, REFUSED or HEALTHY"),
    ("small_files", "int", "small data files and small delete files"),
    ("files", "int", "files that a reader of the node opens"),
    ("reason", "string", "why; whole in the node's own observation"),
    ("delete_files", "int", "position and equality delete files"),
    ("fragmentation", "float", "small files / files"),
    ("data_mb", "float", "size of the data files in MB"),
    ("partition_key", "string", "launch this partition of compacted_files"),
)


def worst_nodes(nodes: Sequence[NodeOverview]) -> dg.MetadataValue:
    """The table of the worst nodes, in the order given."""
    return table_of(
        [
            {
                "table": str(node.table),
                "node": str(node.node),
                "health": node.health.value,
                "small_files": node.metrics.small_files,
                "files": node.metrics.files,
                "reason": unbroken(clipped(node.reason)),
                "delete_files": node.metrics.delete_files,
                "fragmentation": round(node.metrics.fragmentation, 3),
                "data_mb": megabytes(node.metrics.data_bytes),
                "partition_key": node.key,
            }
            for node in nodes
        ],
        WORST_NODES,
    )


# ---- the page to look at first ---------------------------------------------------------------------------------------


def status_metadata(status: Status) -> dict[str, dg.MetadataValue]:
    """`table_health`: worst nodes, why nothing happens, what runs, and the queue."""
    worst = [node for node in status.worst if node.metrics.files]
    return {
        "worst_nodes": worst_nodes(worst),
        "plan_reasons": table_of(
            [
                {
                    "table": str(table.table),
                    "health": table.health.value,
                    "reason": unbroken(table.reason),
                    "warning": table.warning,
                    "nodes": table.nodes,
                    "files": table.metrics.files,
                    "small_files": table.metrics.small_files,
                    "delete_files": table.metrics.delete_files,
                }
                for table in sorted(status.tables, key=lambda table: (-table.metrics.small_files, table.table))
            ],
            (
                ("table", "string", "catalog.namespace.table"),
                ("health", "string", "that of the table when it is held back as a whole, else of its worst node"),
                ("reason", "string", "what the last plan said, or what holds the table back"),
                ("warning", "string", "what a person should know"),
                ("nodes", "int", "partitions that hold files"),
                ("files", "int", "data and delete files"),
                ("small_files", "int", "small data files and small delete files"),
                ("delete_files", "int", "position and equality delete files"),
            ),
        ),
        "executing_tasks": executing_tasks(status.executing, status.at),
        "tables_count": dg.MetadataValue.int(len(status.tables)),
        "nodes_count": dg.MetadataValue.int(status.nodes),
        "due_nodes_count": dg.MetadataValue.int(status.due),
        "files_count": dg.MetadataValue.int(sum(table.metrics.files for table in status.tables)),
        "small_files_count": dg.MetadataValue.int(sum(table.metrics.small_files for table in status.tables)),
        "delete_files_count": dg.MetadataValue.int(sum(table.metrics.delete_files for table in status.tables)),
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
                "files": len(task.work.inputs),
                "input_mb": megabytes(task.work.input_bytes),
                "attempt": f"{task.attempt} of {task.max_attempts}",
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
            ("input_mb", "float", "size of these in MB"),
            ("attempt", "string", "which try of how many"),
            ("running_seconds", "float", "since this attempt began"),
            ("owner", "string", "who holds it"),
        ),
    )


# ---- what was done ---------------------------------------------------------------------------------------------------


def record_metadata(record: CompactionRecord) -> dict[str, dg.MetadataValue]:
    """A materialization of `compaction_records`: one commit, all its figures."""
    figures = record.figures
    metadata: dict[str, dg.MetadataValue] = {
        "record": dg.MetadataValue.text(record.record_id),
        "table": dg.MetadataValue.text(str(record.table)),
        "types": dg.MetadataValue.text(", ".join(sorted({type.value for type in record.types})) or "none"),
        "snapshot_before": dg.MetadataValue.text(str(record.snapshot_before)),
        "snapshot_after": dg.MetadataValue.text(str(record.snapshot_after)),
        "tasks_count": dg.MetadataValue.int(len(record.task_ids)),
        "committed_tasks_count": dg.MetadataValue.int(len(record.committed_task_ids)),
        "failed_count": dg.MetadataValue.int(len(record.failed)),
        "conflicts_count": dg.MetadataValue.int(len(record.conflicts)),
        "files_before_count": dg.MetadataValue.int(figures.files_before),
        "files_after_count": dg.MetadataValue.int(figures.files_after),
        "delete_files_before_count": dg.MetadataValue.int(figures.delete_files_before),
        "delete_files_after_count": dg.MetadataValue.int(figures.delete_files_after),
        "delete_files_dropped_count": dg.MetadataValue.int(figures.delete_files_dropped),
        "delete_files_added_count": dg.MetadataValue.int(figures.delete_files_added),
        "table_before_mb": dg.MetadataValue.float(megabytes(figures.bytes_before)),
        "table_after_mb": dg.MetadataValue.float(megabytes(figures.bytes_after)),
        "input_files_count": dg.MetadataValue.int(figures.input_files),
        "output_files_count": dg.MetadataValue.int(figures.output_files),
        "predicted_files_count": dg.MetadataValue.int(record.predicted_files),
        "input_mb": dg.MetadataValue.float(megabytes(figures.input_bytes)),
        "output_mb": dg.MetadataValue.float(megabytes(figures.output_bytes)),
        "predicted_mb": dg.MetadataValue.float(megabytes(record.predicted_bytes)),
        "rows_count": dg.MetadataValue.int(record.rows),
        "deleted_rows_count": dg.MetadataValue.int(record.rows_deleted),
        "queue_seconds": dg.MetadataValue.float(record.queue_ms / 1000),
        "merge_seconds": dg.MetadataValue.float(record.merge_ms / 1000),
        "commit_seconds": dg.MetadataValue.float(record.commit_ms / 1000),
        "commit_attempts_count": dg.MetadataValue.int(record.attempts),
    }
    if record.reason:
        metadata["reason"] = dg.MetadataValue.text(record.reason)
    if record.conflicts:
        metadata["conflicts"] = table_of(
            [{"task": task, "reason": reason} for task, reason in sorted(record.conflicts.items())],
            (("task", "string", "task id"), ("reason", "string", "why it was not committed; its node is planned again")),
        )
    if record.failed:
        metadata["failed"] = table_of(
            [{"task": task, "reason": reason} for task, reason in sorted(record.failed.items())],
            (("task", "string", "task id"), ("reason", "string", "why it was not merged")),
        )
    if record.run_id:
        metadata["run"] = dg.MetadataValue.dagster_run(record.run_id)
    return metadata


def merged_metadata(tasks: Iterable[CompactionTask], record: CompactionRecord) -> dict[str, dg.MetadataValue]:
    """A materialization of one node of `compacted_files`: what the committed tasks of this node did."""
    tasks = tuple(tasks)
    results = [task.result for task in tasks if task.result is not None]
    outputs = [output for result in results for output in result.outputs]
    return {
        "table": dg.MetadataValue.text(str(record.table)),
        "node": dg.MetadataValue.text(str(tasks[0].work.node) if tasks else "unknown: its tasks have expired"),
        "types": dg.MetadataValue.text(", ".join(sorted({task.work.type.value for task in tasks})) or "none"),
        "record": dg.MetadataValue.text(record.record_id),
        "snapshot": dg.MetadataValue.text(str(record.snapshot_after)),
        "tasks_count": dg.MetadataValue.int(len(tasks)),
        "merged_files_count": dg.MetadataValue.int(sum(len(task.work.inputs) for task in tasks)),
        "written_files_count": dg.MetadataValue.int(sum(output.content is FileContent.DATA for output in outputs)),
        "written_delete_files_count": dg.MetadataValue.int(sum(output.content is not FileContent.DATA for output in outputs)),
        "merged_mb": dg.MetadataValue.float(megabytes(sum(task.work.input_bytes for task in tasks))),
        "written_mb": dg.MetadataValue.float(megabytes(sum(output.file_size_bytes for output in outputs))),
        "rows_count": dg.MetadataValue.int(sum(result.rows_written for result in results)),
        "deleted_rows_count": dg.MetadataValue.int(
            sum(result.rows_deleted_by_position + result.rows_deleted_by_equality for result in results)
        ),
        "merge_seconds": dg.MetadataValue.float(sum(result.duration_ms for result in results) / 1000),
    }


def nothing_merged(node: str, table: str, reason: str) -> dict[str, dg.MetadataValue]:
    """A materialization of a node that had nothing to gain: 0 files and why."""
    return {
        "table": dg.MetadataValue.text(table),
        "node": dg.MetadataValue.text(node),
        "reason": dg.MetadataValue.text(reason),
        "tasks_count": dg.MetadataValue.int(0),
        "merged_files_count": dg.MetadataValue.int(0),
        "written_files_count": dg.MetadataValue.int(0),
    }


def planned_tasks(tasks: Sequence[TaskWork]) -> dg.MetadataValue:
    """The tasks of a plan that was only explained."""
    return table_of(
        [
            {
                "node": str(work.node),
                "type": work.type.value,
                "action": work.action.value,
                "files": len(work.inputs),
                "delete_files": len(work.deletes),
                "input_mb": megabytes(work.input_bytes),
                "predicted_files": work.predicted_files,
                "predicted_mb": megabytes(work.predicted_bytes),
            }
            for work in tasks
        ],
        (
            ("node", "string", "partition values"),
            ("type", "string", "MINOR, MAJOR or FULL"),
            ("action", "string", "MERGE, CONVERT or DROP_DELETES"),
            ("files", "int", "data files that it would read"),
            ("delete_files", "int", "delete files that apply to them"),
            ("input_mb", "float", "size of the data files in MB"),
            ("predicted_files", "int", "files that it would write"),
            ("predicted_mb", "float", "their size in MB"),
        ),
    )
