"""Reports of attempts that end while something else happens to their table."""

from __future__ import annotations

from pathlib import Path

import pytest

from compaction_pipeline.core.errors import StaleAttempt
from compaction_pipeline.core.fragmentation.verdict import PlanReason, PlanReasonCode
from compaction_pipeline.core.leases.timeouts import LEASE
from compaction_pipeline.core.planning.plan import PlanRequest
from compaction_pipeline.core.queue.assignment import Assignment
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.work.ends import EndReason
from compaction_pipeline.core.work.result import MergeResult
from compaction_pipeline.merging.engine import InProcessMergeEngine
from compaction_pipeline_tests.services.house import House


def taken(house: House, table: TableIdentifier) -> Assignment:
    """A task of this table, planned and handed out."""
    assert house.services.one_table.plan_nodes(table, PlanRequest()).tasks
    assignment = house.services.serve_tasks.poll("worker", None)
    assert isinstance(assignment, Assignment)
    return assignment


def test_the_files_of_an_attempt_are_deleted_when_its_table_was_forgotten_and_found_again(house: House) -> None:
    table = house.fragmented(files=12)
    services = house.services
    assignment = taken(house, table.identifier)
    (result,) = InProcessMergeEngine().merge([assignment.merge_input], assignment.file_io)
    written = [Path(output.path.removeprefix("file://")) for output in result.outputs]
    assert [path.exists() for path in written] == [True]
    services.stores.index.forget(table.identifier)
    services.explore_catalogs.explore()
    services.refresh_files.refresh(table.identifier)
    with pytest.raises(StaleAttempt):
        services.serve_tasks.complete(assignment.task, result)
    assert [path.exists() for path in written] == [False]
    assert table.live_ids() == list(range(12))


def test_a_denied_task_waits_until_its_table_is_not_being_planned_and_shows_the_reason(house: House) -> None:
    table = house.fragmented(files=12)
    services = house.services

    def denied(assignment: Assignment) -> TaskStatus:
        result = MergeResult(assignment.task.task_id, assignment.attempt_id, end_reason=EndReason.NO_ACCESS, error="no right to write")
        return services.serve_tasks.complete(assignment.task, result)

    first = taken(house, table.identifier)
    assert services.stores.leases.acquire(f"plan:{table.identifier}", "another", house.now, LEASE)
    assert denied(first) is TaskStatus.PENDING
    services.stores.leases.release(f"plan:{table.identifier}", "another")
    second = services.serve_tasks.poll("worker", None)
    assert isinstance(second, Assignment)
    assert second.task.task_id == first.task.task_id
    assert denied(second) is TaskStatus.CANCELED
    reason = services.stores.tables.state(table.identifier).planning.reason
    assert reason == PlanReason(PlanReasonCode.NO_ACCESS, "no right to write")
