"""What the ticks of a table plan, read and report over time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record

from compaction_pipeline.core.fragmentation.verdict import PlanReason, PlanReasonCode
from compaction_pipeline.core.planning.table_planning import TablePlanning
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.work.ends import EndReason
from compaction_pipeline.demo.row_delta import row_delta
from compaction_pipeline_tests.iceberg.lake import LakeTable
from compaction_pipeline_tests.services.broken_merges import Broken
from compaction_pipeline_tests.services.house import House
from compaction_pipeline_tests.services.serving import serving


def test_ticks_read_no_files_while_nothing_may_be_planned(house: House) -> None:
    table = house.fragmented()
    services = house.services
    services.one_table.refresh(table.identifier)
    assert services.plan_tables.plan(table.identifier).tasks
    row_delta(table.table, table.one_row_files({"id": one, "name": "more"} for one in range(100, 120)))
    services.one_table.refresh(table.identifier)
    # A node whose files changed is judged at once, also during the pause between two plans.
    assert services.plan_tables.plan(table.identifier).plan.reason.code is PlanReasonCode.MIN_PLAN_INTERVAL
    with services.stores.files.for_a_while(files=lambda *_: pytest.fail("files were read for nothing")):
        assert services.plan_tables.plan(table.identifier).plan.reason.code is PlanReasonCode.MIN_PLAN_INTERVAL
    house.pass_time(61)
    replanned = services.plan_tables.plan(table.identifier)
    assert len(replanned.tasks) == len(replanned.plan.replaces) == 1
    assert len(replanned.tasks[0].work.inputs) == 32


def test_ticks_keep_a_waiting_task_while_an_upserted_table_gets_few_new_files(house: House) -> None:
    table = house.fragmented()
    for one in range(12):
        table.delete_ids(one + 100)
    plans, tasks = house.services.plan_tables, house.services.stores.tasks
    house.services.one_table.refresh(table.identifier)
    [waiting] = plans.plan(table.identifier).tasks
    for one in range(3):
        table.ids(200 + one)
        table.delete_ids(200 + one)
        house.services.one_table.refresh(table.identifier)
        house.pass_time(61)
        assert plans.plan(table.identifier).plan.reason.code is PlanReasonCode.FILES_IN_USE
    assert [each.status for each in tasks.tasks(table.identifier)] == [TaskStatus.PENDING]
    # A person gets all files at once.
    launched = plans.plan(table.identifier, unlimited=True)
    assert launched.plan.replaces == (waiting.task_id,)
    house.services.compact_tables.carry_out({}, serving(until=lambda: False, linger=timedelta(0)))
    house.services.one_table.commit_now(table.identifier, None)
    assert table.live_ids() == list(range(12))


def test_a_tick_reports_waiting_tasks_though_only_nodes_were_planned_before(house: House) -> None:
    table = house.fragmented()
    plans = house.services.plan_tables
    house.services.one_table.refresh(table.identifier)
    [node] = [state.node for state in house.services.stores.tables.nodes(table.identifier)]
    changed = {table.identifier: frozenset({node})}
    [(_, planned)] = house.services.sweep_tables.plan_due(changed, timedelta(seconds=20), nodes=changed)
    assert planned.tasks
    reason = plans.plan(table.identifier).plan.reason
    assert (reason.code, reason.text.split(";")[0]) == (PlanReasonCode.FILES_IN_USE, "1 node held back")
    row_delta(table.table, table.one_row_files({"id": one, "name": "more"} for one in range(100, 120)))
    house.services.one_table.refresh(table.identifier)
    house.services.sweep_tables.plan_due(changed, timedelta(seconds=20), nodes=changed)
    assert plans.plan(table.identifier).plan.reason.code is PlanReasonCode.MIN_PLAN_INTERVAL
    state = house.services.stores.tables.state(table.identifier)
    assert state.planning.reason is not None
    assert "; the next plan may come from " in state.planning.reason.text


# ---- nodes that become due later, by time or by an event: ticks must plan them again

SEGMENTS = {"self-optimizing.target-size": "4096"}
"""With these properties a file of some rows is no fragment, and a MAJOR is due when three quarters of its rows are deleted."""


def _ticks(house: House) -> PlanReasonCode | None:
    """Plan the tables that have not changed, as a tick does. Returns None when the tick does not plan the table."""
    plans = house.services.plan_tables
    codes = [plans.plan(table).plan.reason.code for table in house.services.tables_in_line.worth_planning()]
    return codes[0] if codes else None


def _read_and_plan(house: House, table: LakeTable) -> None:
    house.services.explore_catalogs.explore()
    house.services.one_table.refresh(table.identifier)
    house.services.plan_tables.plan(table.identifier)


def _worn_segment(house: House, **thresholds: str) -> LakeTable:
    properties = {f"self-optimizing.major.trigger.{name.replace('_', '-')}": value for name, value in thresholds.items()}
    table = house.lake.table("t", properties=SEGMENTS | properties)
    file = table.ids(*range(20))
    table.delete_positions(*[(file.path, number) for number in range(15)])
    return table


def test_the_minor_interval_counts_small_files_of_both_kinds(house: House) -> None:
    table = house.lake.table("t")
    table.ids(0, 1)
    table.delete_ids(0)
    _read_and_plan(house, table)
    house.pass_time(2 * 3600)
    assert _ticks(house) is PlanReasonCode.PLANNED


def test_the_minor_interval_counts_from_first_sight_though_files_keep_coming(house: House) -> None:
    table = house.lake.table("t")
    table.ids(0)
    _read_and_plan(house, table)
    for one in (1, 2):
        house.pass_time(40 * 60)
        table.ids(one)
        house.services.one_table.refresh(table.identifier)
    assert _ticks(house) is PlanReasonCode.PLANNED


def test_the_minor_interval_counts_deletes_of_other_nodes(house: House) -> None:
    table = house.lake.table("t")
    with table.table.update_spec() as update:
        update.add_field("id", IdentityTransform(), "p")
    table.table.refresh()
    table.insert({"id": 1, "name": "a"}, {"id": 1, "name": "b"}, partition=Record(1), spec_id=1)
    table.delete_ids(1, spec_id=0)
    _read_and_plan(house, table)
    house.pass_time(2 * 3600)
    assert _ticks(house) is PlanReasonCode.PLANNED


def test_a_node_that_changed_and_was_not_planned_at_once_is_planned_later(house: House) -> None:
    table = house.lake.table("t", properties=SEGMENTS)
    file = table.ids(*range(20))
    _read_and_plan(house, table)
    table.delete_positions(*[(file.path, number) for number in range(15)])
    # Between the commit and the tick, a person refreshes the table. The change is read then, but not planned.
    house.services.one_table.explain(table.identifier)
    assert _ticks(house) is PlanReasonCode.PLANNED


def test_new_thresholds_of_a_quiet_table_take_effect(house: House) -> None:
    table = _worn_segment(house, duplicate_ratio="0.9")
    _read_and_plan(house, table)
    assert _ticks(house) is None
    with table.table.transaction() as transaction:
        transaction.set_properties({"self-optimizing.major.trigger.duplicate-ratio": "0.1"})
    house.services.one_table.refresh(table.identifier)
    assert _ticks(house) is PlanReasonCode.PLANNED


@pytest.mark.parametrize("status", [TaskStatus.FAILED, TaskStatus.CANCELED])
def test_a_task_that_ended_without_a_commit_is_planned_again(house: House, status: TaskStatus) -> None:
    house.services.engine_override = Broken()
    table = _worn_segment(house)
    _read_and_plan(house, table)
    [task] = house.services.stores.tasks.tasks(table.identifier)
    house.pass_time(70)
    assert _ticks(house) is PlanReasonCode.FILES_IN_USE
    if status is TaskStatus.CANCELED:
        house.services.stores.tasks.cancel([task.task_id], EndReason.GIVEN_UP, "interrupted", house.now)
    else:
        house.services.compact_tables.carry_out({}, serving(until=lambda: False, linger=timedelta(0)))
    assert house.services.stores.tasks.task(task.task_id).status is status
    house.pass_time(2 * 3600)
    assert _ticks(house) is PlanReasonCode.PLANNED


def test_an_unexpected_error_of_one_table_stops_no_other(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    bad, good = house.fragmented("a"), house.fragmented("b")
    services = house.services
    with monkeypatch.context() as patch:
        patch.setattr(services.refresh_files, "refresh", _failing_for(bad, services.refresh_files.refresh))
        swept = services.sweep_tables.sweep(None, timedelta(seconds=20))
        assert [refresh.problem is None for refresh in swept.refreshed] == [False, True]
        assert swept.cursor is None
    services.sweep_tables.sweep(None, timedelta(seconds=20))
    services.stores.files.instead(files=_failing_for(bad, services.stores.files.real.files))
    [(table, planned)] = services.sweep_tables.plan_due([bad.identifier, good.identifier], timedelta(seconds=20))
    assert table == good.identifier
    assert planned.tasks
    assert "OverflowError: a number too large" in (services.stores.tables.state(bad.identifier).problem or "")


def _failing_for(bad: LakeTable, real: Callable[..., Any]) -> Callable[..., Any]:
    def failing(table: TableIdentifier, *arguments: Any) -> Any:
        if table == bad.identifier:
            raise OverflowError("a number too large")
        return real(table, *arguments)

    return failing


def test_what_a_merge_was_denied_is_shown_until_a_plan_may_write_again(house: House) -> None:
    table = house.fragmented()
    services = house.services
    services.one_table.refresh(table.identifier)
    assert services.plan_tables.note_denied(table.identifier, "the store does not let us write")
    shown = services.read_tables.table(table.identifier).overview
    assert "the store does not let us write" in shown.reason
    services.plan_tables.judge(table.identifier)
    assert services.stores.tables.state(table.identifier).planning.reason == PlanReason(
        PlanReasonCode.NO_ACCESS, "the store does not let us write"
    )
    assert services.plan_tables.plan(table.identifier).tasks
    assert "the store does not let us write" not in services.read_tables.table(table.identifier).overview.reason


def test_nothing_is_noted_or_judged_while_another_process_plans_the_table(house: House) -> None:
    table = house.fragmented()
    services = house.services
    services.one_table.refresh(table.identifier)
    assert services.stores.leases.acquire(f"plan:{table.identifier}", "another", house.now, timedelta(minutes=1))
    services.plan_tables.note_problem(table.identifier, "not planned")
    assert not services.plan_tables.note_denied(table.identifier, "the store does not let us write")
    services.plan_tables.judge(table.identifier)
    known = services.stores.tables.state(table.identifier)
    assert known.planning == TablePlanning()
    assert [node.verdict for node in services.stores.tables.nodes(table.identifier)] == [None]
