"""Makes the tasks that a plan puts into the queue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from compaction_pipeline.core.ids import TaskId
from compaction_pipeline.core.planning.admission import Admitted
from compaction_pipeline.core.planning.plan import CompactionPlan
from compaction_pipeline.core.queue.attempts import max_attempts
from compaction_pipeline.core.queue.task import CompactionTask
from compaction_pipeline.core.tables.table import TableIdentifier


def tasks_of_plan(
    plan: CompactionPlan,
    plan_id: str,
    table: TableIdentifier,
    made_from: Admitted,
    snapshot_properties: Mapping[str, str],
    now: datetime,
    ahead: int = 0,
) -> tuple[CompactionTask, ...]:
    """Return one task for each piece of work. Their ids are numbered in the plan's order. `ahead` is added to the table's priority."""
    read, properties = made_from.read, made_from.properties
    return tuple(
        CompactionTask(
            task_id=TaskId(f"{plan_id}-{number:05d}"),
            plan_id=plan_id,
            table=table,
            table_uuid=read.loaded.table_uuid,
            snapshot_id=read.snapshot_id,
            sequence_number=read.sequence_number,
            schema_id=work.written_layout(read.loaded.layout).schema_id,
            queue=properties.group,
            priority=properties.priority + ahead,
            max_attempts=max_attempts(properties),
            memory_bytes=properties.task_memory_bytes,
            created_at=now,
            waiting_since=now,
            # The planner's names of groups are unique only within one plan.
            work=replace(work, group=f"{plan_id}/{work.group}") if work.group else work,
            snapshot_properties=snapshot_properties,
            prediction=prediction,
        )
        for number, (work, prediction) in enumerate(plan.predicted_tasks)
    )
