"""What Dagster shows of commits, of merged nodes and of plans.

Pure: values of the core go in, and metadata of Dagster comes out. The names of figures carry their units and never change, because
Dagster plots figures by their names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import dagster as dg

from compaction_pipeline.core.commit.record import CompactionRecord
from compaction_pipeline.core.insight.node_change import FileGroup, before_and_after
from compaction_pipeline.core.planning.plan import CompactionPlan
from compaction_pipeline.core.tables.data_file import FileContent
from compaction_pipeline.core.work.merged import MergedWork
from compaction_pipeline.core.work.work import Work
from compaction_pipeline.defs.markdown import wrapped
from compaction_pipeline.defs.metadata import megabytes, reasons_of, table_of
from compaction_pipeline.defs.names import Names
from compaction_pipeline.defs.page_links import record_links
from compaction_pipeline.defs.pictures import before_after


def record_metadata(names: Names, record: CompactionRecord) -> dict[str, dg.MetadataValue]:
    """All figures of one commit, for a materialization of `compaction_records`."""
    figures = record.figures
    before = FileGroup(figures.files_before, figures.delete_files_before, figures.bytes_before)
    after = FileGroup(figures.files_after, figures.delete_files_after, figures.bytes_after)
    metadata: dict[str, dg.MetadataValue] = {
        "before_after": dg.MetadataValue.md(before_after(before, after)),
        "counted": dg.MetadataValue.md(_counted_of_record(record)),
        **record_links(names, record),
        "record": dg.MetadataValue.text(record.record_id),
        "table": dg.MetadataValue.text(str(record.table)),
        "types": dg.MetadataValue.text(", ".join(sorted({type.value for type in record.types})) or "none"),
        **({"waited": dg.MetadataValue.text(record.waited)} if record.waited else {}),
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
        **{name: dg.MetadataValue.float(value) for name, value in _gb_hours(record).items() if value is not None},
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
        metadata["conflicts"] = reasons_of(
            dict(sorted(record.conflicts.items())), ("task", "task id"), "why it was not committed; its node is planned again"
        )
    if record.failed:
        metadata["failed"] = reasons_of(dict(sorted(record.failed.items())), ("task", "task id"), "why it was not merged")
    if record.run_id:
        metadata["run"] = dg.MetadataValue.dagster_run(record.run_id)
    return metadata


def _gb_hours(record: CompactionRecord) -> Mapping[str, float | None]:
    return {"gb_hours": record.gb_hours, "predicted_gb_hours": record.predicted_gb_hours}


def _counted_of_record(record: CompactionRecord) -> str:
    """What the numbers of a record count, so that a reader can add them up."""
    figures = record.figures
    parts = (
        f"This commit: {figures.of_commit}.",
        f"The table: {figures.of_table}.",
        "The table is counted just before and just after the commit, with what writers had added by then. The difference is this commit.",
    )
    return "\n\n".join(map(wrapped, (*parts, _KINDS_OF_RECORD)))


_KINDS_OF_RECORD = (
    "Figures named delete_files count delete files, and predicted_files counts all files that the plan expected the tasks to write. The "
    "other counts of files are of data files. In a keyed table insert files count as data files and change files with deletes as delete "
    "files. The sizes of the table are of both kinds. What was predicted stands beside what was found: predicted_mb and output_mb, "
    "predicted_gb_hours and gb_hours. GB-hours are those of the attempts that merged, where the memory of their slots is known."
)

_COUNTED_OF_NODE = "\n\n".join(
    map(
        wrapped,
        (
            "Only the merged files: those that their readers opened before, and those that they open now. Files that writers added after "
            "the plan are not counted, and delta_files counts them. A delete file that other data files need stays in the table; the "
            "record counts those that were dropped.",
            "The bars count data files and delete files. merged_files_count, merged_mb and written_files_count are without delete files; "
            "written_mb is with them. In a keyed table the first two also count change files, inserts and deletes.",
        ),
    )
)


def merged_metadata(tasks: Iterable[MergedWork[Work]], record: CompactionRecord) -> dict[str, dg.MetadataValue]:
    """What the committed tasks of one node did, for a materialization of `compacted_files`."""
    tasks = tuple(tasks)
    results = [task.result for task in tasks if task.result is not None]
    outputs = [output for result in results for output in result.outputs]
    return {
        "before_after": dg.MetadataValue.md(before_after(*before_and_after(tasks))),
        "counted": dg.MetadataValue.md(_COUNTED_OF_NODE),
        "table": dg.MetadataValue.text(str(record.table)),
        "node": dg.MetadataValue.text(str(tasks[0].work.node) if tasks else "unknown: its tasks have expired"),
        "types": dg.MetadataValue.text(", ".join(sorted({task.work.type.value for task in tasks})) or "none"),
        "record": dg.MetadataValue.text(record.record_id),
        "snapshot": dg.MetadataValue.text(str(record.snapshot_after)),
        "tasks_count": dg.MetadataValue.int(len(tasks)),
        "merged_files_count": dg.MetadataValue.int(sum(task.work.files_read for task in tasks)),
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
    """A materialization of a node for which there was nothing to do: 0 files and the reason."""
    return {
        "table": dg.MetadataValue.text(table),
        "node": dg.MetadataValue.text(node),
        "reason": dg.MetadataValue.text(reason),
        "tasks_count": dg.MetadataValue.int(0),
        "merged_files_count": dg.MetadataValue.int(0),
        "written_files_count": dg.MetadataValue.int(0),
    }


def planned_tasks(plan: CompactionPlan) -> dg.MetadataValue:
    """The tasks of a plan that a dry run shows."""
    return table_of(
        plan.predicted_tasks,
        (
            ("node", "string", "partition values", lambda task: str(task[0].node)),
            ("type", "string", "MINOR, MAJOR or FULL", lambda task: task[0].type.value),
            (
                "action",
                "string",
                "MERGE, CONVERT or DROP_DELETES; of a keyed table TO_BASE or REWRITE_CHANGES",
                lambda task: task[0].action.value,
            ),
            ("files", "int", "data files that it would read", lambda task: len(task[0].inputs)),
            ("delete_files", "int", "delete files that apply to them", lambda task: len(task[0].deletes)),
            ("input_mb", "float", "size of the data files in MB", lambda task: megabytes(task[0].input_bytes)),
            (
                "predicted_files",
                "int",
                "files that it would write; the log says how many delete files are left in all",
                lambda task: task[0].predicted_files,
            ),
            ("predicted_mb", "float", "their size in MB", lambda task: megabytes(task[1].size_bytes or 0)),
            ("predicted_gb_hours", "float", "GB-hours that it would take; empty when unknown", lambda task: task[1].gb_hours),
        ),
    )
