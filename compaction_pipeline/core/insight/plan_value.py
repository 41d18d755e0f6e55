"""Plans as programs read them: in the answers of commands and of the HTTP service."""

from __future__ import annotations

from compaction_pipeline.core.planning.plan import CompactionPlan
from compaction_pipeline.core.tables.table import TableIdentifier


def plan_value(table: TableIdentifier, made: CompactionPlan) -> dict[str, object]:
    """Return the JSON value of a plan: its tasks, a verdict for each node, and what there is after it."""
    planned = {task.node for task in made.tasks}
    return {
        "table": str(table),
        "code": made.reason.code.value,
        "reason": made.reason.text,
        "tasks": [
            {
                "node": str(task.node),
                "type": task.type.value,
                "action": task.action.value,
                "input_files": task.files_read,
                "input_bytes": task.input_bytes,
                "delete_files": len(task.deletes),
                "predicted_files": task.predicted_files,
                "predicted_bytes": prediction.size_bytes,
                "predicted_gb_hours": prediction.gb_hours,
                "group": task.group or None,
            }
            for task, prediction in made.predicted_tasks
        ],
        "nodes": [
            {
                "node": str(verdict.node),
                "type": verdict.type.value if verdict.type is not None else None,
                "planned": verdict.node in planned,
                "code": verdict.reason.code.value,
                "reason": verdict.reason.text,
                "data_files": verdict.metrics.data_files,
                "small_files": verdict.metrics.small_files,
                "delete_files": verdict.metrics.delete_files,
            }
            for verdict in made.verdicts
        ],
        "predicted_files": made.predicted_files,
        "predicted_delete_files": made.predicted_delete_files,
        "predicted_bytes": made.predicted_bytes,
    }
