"""Tasks that wait for optimizers, and merges of them."""

from __future__ import annotations

from typing import Any

from compaction_pipeline.core.ids import TaskId
from compaction_pipeline.core.planning.plan import PlanRequest
from compaction_pipeline.merging.engine import InProcessMergeEngine
from compaction_pipeline_tests.api.liars import as_report
from compaction_pipeline_tests.api.served import Served
from compaction_pipeline_tests.through_json import through_json


def planned(served: Served, files: int = 12, name: str = "t") -> list[TaskId]:
    """The tasks of a new table of small files."""
    table = served.house.fragmented(name, files)
    services = served.house.services
    services.refresh_files.refresh(table.identifier)
    return [task.task_id for task in services.plan_tables.plan(table.identifier, PlanRequest()).tasks]


def merged(assignment: Any) -> Any:
    """The report of an attempt that merges the task for real."""
    from pydantic import TypeAdapter

    from compaction_pipeline.core.queue.assignment import Assignment

    taken = TypeAdapter(Assignment).validate_python(through_json(dict, assignment))
    [result] = InProcessMergeEngine().merge([taken.merge_input], taken.file_io)
    assert result.error is None
    return as_report(result)
