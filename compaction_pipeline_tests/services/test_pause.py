"""A pause stops waiting tasks, whoever planned them. What runs when it begins is finished and committed."""

from __future__ import annotations

from datetime import timedelta

import pytest

from compaction_pipeline.core.fragmentation.verdict import PlanReasonCode
from compaction_pipeline.core.planning.plan import PlanRequest
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.work.ends import EndReason
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline_tests.services.heard import Between
from compaction_pipeline_tests.services.house import House
from compaction_pipeline_tests.services.serving import serving

SEVERAL = {"self-optimizing.max-task-size-bytes": "1", "self-optimizing.target-size": "12000"}
FORCED = PlanRequest(types=(CompactionType.MINOR,), force=True)


def statuses(house: House, table: TableIdentifier) -> list[TaskStatus]:
    return sorted((task.status for task in house.services.stores.tasks.tasks(table)), key=lambda status: status.value)


def drain(house: House) -> None:
    house.services.compact_tables.carry_out({}, serving(until=lambda: False, linger=timedelta(0)))


def test_what_was_planned_before_a_pause_waits_until_resume(house: House) -> None:
    table = house.fragmented("t").identifier
    services = house.services
    assert services.one_table.plan_nodes(table, PlanRequest()).tasks
    services.explore_catalogs.pause(table)
    assert (services.read_tasks.queue_counts().pending, services.read_tasks.queue_counts().paused) == (0, 1)
    drain(house)
    assert statuses(house, table) == [TaskStatus.PENDING]
    services.explore_catalogs.resume(table)
    drain(house)
    assert TaskStatus.PENDING not in statuses(house, table)


def test_helpers_leave_the_tasks_of_a_paused_table_alone(house: House) -> None:
    mine, other = house.fragmented("mine"), house.fragmented("other")
    services = house.services
    services.one_table.plan_nodes(other.identifier, PlanRequest())
    services.explore_catalogs.pause(other.identifier)
    services.work_on_queue._task_slots = 2
    assert services.compact_tables.compact(mine.identifier, FORCED, help_others=True).committed
    assert statuses(house, other.identifier) == [TaskStatus.PENDING]


@pytest.mark.parametrize("help_others", [False, True])
def test_a_pause_in_the_middle_of_a_compaction_ends_it_and_keeps_what_is_merged(house: House, help_others: bool) -> None:
    table = house.fragmented(files=24, **SEVERAL)
    services = house.services
    services.engine_override = Between(lambda: services.explore_catalogs.pause(table.identifier))
    done = services.compact_tables.compact(table.identifier, FORCED, help_others=help_others)
    assert len(done.committed) == 1
    assert len(done.failed) == len(done.tasks) - 1 > 0
    assert all("a person paused lake.db.t before this task began" in reason for reason in done.failed.values())
    assert {services.stores.tasks.task(task_id).end_reason for task_id in done.failed} == {EndReason.GIVEN_UP}
    assert sorted(table.live_ids()) == list(range(24))
    # The table is still paused, so a person's next command does nothing.
    again = services.compact_tables.compact(table.identifier, FORCED, help_others=help_others)
    assert (again.tasks, again.plan.reason.code) == ((), PlanReasonCode.PAUSED)


def test_a_run_that_was_asked_for_a_table_says_that_it_was_paused_meanwhile(house: House) -> None:
    table = house.fragmented(files=24, **SEVERAL).identifier
    services = house.services
    services.engine_override = Between(lambda: services.explore_catalogs.pause(table))
    failed = services.compact_tables.carry_out({table: FORCED}, serving(until=lambda: False, linger=timedelta(0))).failed
    assert failed
    assert all("a person paused" in reason for reason in failed.values())
    assert services.read_tasks.queue_counts().paused == 0


def test_what_is_merged_is_committed_although_the_table_is_paused(house: House) -> None:
    table = house.fragmented(**{"self-optimizing.commit.interval": "1000"}).identifier
    services = house.services
    services.one_table.plan_nodes(table, PlanRequest())
    services.engine_override = Between(lambda: services.explore_catalogs.pause(table))
    drain(house)
    house.pass_time(3600)
    records = list(services.commit_due.commit())
    assert TaskStatus.COMMITTED in statuses(house, table)
    assert TaskStatus.PREPARED not in statuses(house, table), records
