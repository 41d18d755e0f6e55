"""A team that has reached a limit gets nothing planned, by a tick or by a person, and its tables say why, with figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from compaction_pipeline.core.capacity.calibration import Fit, PastRun
from compaction_pipeline.core.capacity.costs import CostStore
from compaction_pipeline.core.capacity.team import Limits, Team
from compaction_pipeline.core.errors import StorageUnavailable
from compaction_pipeline.core.fragmentation.verdict import PlanReason, PlanReasonCode
from compaction_pipeline.core.insight.known_table import KnownTable
from compaction_pipeline.core.planning.plan import PlanRequest
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.core.work.work import Work
from compaction_pipeline.services.planning.decide_plan import DecidePlan, Decision
from compaction_pipeline.services.planning.draw_lines import DrawLines
from compaction_pipeline.services.planning.fits import Fits
from compaction_pipeline.services.planning.payers import Payer, Payers
from compaction_pipeline.services.planning.plan_tables import PlanTables
from compaction_pipeline.services.planning.table_parts import TableParts
from compaction_pipeline_tests.services.house import House
from compaction_pipeline_tests.services.planning.test_queue_room import TICK, partitioned, plan


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


def table_of(house: House, name: str, team: str) -> TableIdentifier:
    table = house.fragmented(name)
    house.services.manage_teams.map(str(table.identifier), team, "root")
    house.services.one_table.refresh(table.identifier)
    return table.identifier


def limit(house: House, name: str, slots: int | None) -> None:
    house.services.manage_teams.set(Team(name, (), Limits(slots)), "root")


def reason_of(house: House, table: TableIdentifier) -> PlanReason:
    reason = house.services.stores.tables.state(table).planning.reason
    assert reason is not None
    return reason


def test_nothing_of_a_team_at_its_limit_is_planned_and_others_are_not_affected(house: House) -> None:
    limit(house, "ant", 0)
    mine, other = table_of(house, "a", "ant"), house.fragmented("b").identifier
    house.services.one_table.refresh(other)
    house.services.keep_queue.keep()
    assert plan(house, mine, other) == [("a", PlanReasonCode.OVER_TEAM_BUDGET), ("b", PlanReasonCode.PLANNED)]
    said = reason_of(house, mine)
    assert said.code is PlanReasonCode.OVER_TEAM_BUDGET
    assert "team ant uses 0 of 0 slots, since 2" in said.text
    (node,) = house.services.stores.tables.nodes(mine)
    assert node.verdict is not None
    assert (node.verdict.reason.code, node.verdict.is_due) == (PlanReasonCode.OVER_TEAM_BUDGET, True)
    launched = house.services.compact_tables.compact(mine)
    assert (launched.records, launched.plan.reason.code) == ((), PlanReasonCode.OVER_TEAM_BUDGET)
    assert "nothing new of its team begins: team ant uses 0 of 0 slots" in (house.services.read_tables.table(mine).overview.warning or "")
    # A mere look at a plan is not bounded: it shows what would be done.
    assert house.services.plan_tables.explain(mine).tasks
    limit(house, "ant", 1)
    assert plan(house, mine) == [("a", PlanReasonCode.PLANNED)]
    assert house.services.compact_tables.compact(mine).records


def test_tasks_that_wait_already_stay_and_are_let_go_with_the_limit(house: House) -> None:
    """A keeper gives waiting tasks to the team that the table has now. A run that only waited for them ends."""
    mine = house.fragmented("a").identifier
    house.services.one_table.refresh(mine)
    assert plan(house, mine) == [("a", PlanReasonCode.PLANNED)]
    limit(house, "ant", 0)
    (waiting,) = house.services.stores.tasks.tasks(mine, [TaskStatus.PENDING])
    assert house.services.serve_tasks.waits("default")
    house.services.manage_teams.map(mine.catalog, "ant", "root")
    house.services.keep_queue.keep()
    assert not house.services.serve_tasks.waits("default")
    assert house.services.serve_tasks.poll("me", "default") is None
    assert house.services.await_tasks.under_way()() is False
    house.pass_time(60)
    assert [code for _, code in plan(house, mine)] == [PlanReasonCode.OVER_TEAM_BUDGET]
    assert reason_of(house, mine).code is PlanReasonCode.OVER_TEAM_BUDGET
    assert house.services.stores.tasks.tasks(mine, [TaskStatus.PENDING]) == (waiting,)
    standing = house.services.manage_teams.standing("ant")
    assert standing.held_since is not None
    limit(house, "ant", None)
    house.services.keep_queue.keep()
    assert house.services.manage_teams.standing("ant").held_since is None
    assert house.services.serve_tasks.poll("me", "default") is not None


def test_a_run_gives_up_its_own_tasks_when_their_team_reaches_a_limit_meanwhile(house: House) -> None:
    limit(house, "ant", 1)
    mine = table_of(house, "a", "ant")
    tasks = house.services.plan_tables.plan(mine, unlimited=True).tasks
    ids = [task.task_id for task in tasks]
    assert not house.services.await_tasks.worked_off(ids)()
    limit(house, "ant", 0)
    assert house.services.await_tasks.worked_off(ids)()
    given_up = house.services.await_tasks.give_up_paused(ids)
    assert list(given_up) == ids
    assert "team ant uses 0 of 0 slots" in given_up[ids[0]]


def test_a_table_that_names_a_team_which_does_not_exist_is_charged_to_unassigned(house: House) -> None:
    table = house.fragmented("a")
    with table.table.transaction() as transaction:
        transaction.set_properties({"compaction.team": "ghost"})
    house.services.one_table.refresh(table.identifier)
    assert plan(house, table.identifier) == [("a", PlanReasonCode.PLANNED)]
    warning = house.services.read_tables.table(table.identifier).overview.warning
    assert warning is not None
    assert "'compaction.team' is 'ghost', and there is no such team, so the table is charged to 'unassigned'" in warning
    limit(house, "unassigned", 0)
    assert house.services.serve_tasks.poll("me", "default") is None
    limit(house, "ghost", None)
    assert house.services.read_tables.table(table.identifier).overview.warning is None
    house.services.keep_queue.keep()
    assert house.services.serve_tasks.poll("me", "default") is not None


@pytest.fixture
def an_hour_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each task is predicted to cost a GB-hour."""
    monkeypatch.setattr(Fits, "of", lambda fits, table, kind: Fit(3600.0, 0.0, 1.0, None, 20))


def codes(house: House, table: TableIdentifier) -> list[str]:
    nodes = house.services.stores.tables.nodes(table)
    return sorted(node.verdict.reason.code.value for node in nodes if node.verdict is not None)


@pytest.mark.usefixtures("an_hour_each")
def test_a_tick_plans_what_the_hours_of_the_team_reach_and_the_rest_when_there_are_more(house: House) -> None:
    """The tasks that wait already take their part. A mere look, and a person, are not bound by the line."""
    table = partitioned(house, 3).identifier
    house.services.one_table.refresh(table)
    house.services.manage_teams.set(Team("unassigned", (), Limits(gb_hours=1.5)), "root")
    assert plan(house, table) == [("p", PlanReasonCode.PLANNED)]
    assert codes(house, table) == ["BELOW_BUDGET_CUT", "BELOW_BUDGET_CUT", "PLANNED"]
    house.pass_time(70)
    plan(house, table)
    assert len(house.services.stores.tasks.tasks(table, [TaskStatus.PENDING])) == 1
    house.services.manage_teams.set(Team("unassigned", (), Limits(gb_hours=2.5)), "root")
    house.pass_time(70)
    plan(house, table)
    assert len(house.services.stores.tasks.tasks(table, [TaskStatus.PENDING])) == 2
    assert len(house.services.plan_tables.plan(table, unlimited=True).tasks) == 1


@pytest.mark.usefixtures("an_hour_each")
def test_a_table_that_is_cut_whole_is_not_read_at_each_tick(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    table = partitioned(house, 3).identifier
    house.services.one_table.refresh(table)
    house.services.manage_teams.set(Team("unassigned", (), Limits(gb_hours=3.0)), "root")
    payer = Payer("unassigned", None, 3.0, 0.5)
    monkeypatch.setattr(Payers, "of", lambda payers, known, of_catalog, book=None: payer)
    assert plan(house, table) == [("p", PlanReasonCode.BELOW_BUDGET_CUT)]
    assert codes(house, table) == ["BELOW_BUDGET_CUT"] * 3
    looks: list[str] = []
    files = TableParts.parts
    monkeypatch.setattr(TableParts, "parts", lambda parts, *of, **more: looks.append("") or files(parts, *of, **more))
    house.now = house.now.replace(minute=10)
    plan(house, table)
    before = len(looks)
    for _ in range(3):
        house.pass_time(600)
        assert plan(house, table) == [("p", PlanReasonCode.BELOW_BUDGET_CUT)]
    assert len(looks) == before
    house.pass_time(3600)
    plan(house, table)
    # A look at what is due on all tables of the team, and the plan.
    assert len(looks) == before + 2
    payer = replace(payer, gb_hours=4.0, left=1.5)
    assert plan(house, table) == [("p", PlanReasonCode.PLANNED)]


@pytest.fixture
def small_files_cost_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each task of the table `a` is predicted to cost three GB-hours, and those of other tables one."""
    monkeypatch.setattr(Fits, "of", lambda fits, table, kind: Fit(10800.0 if table.name == "a" else 3600.0, 0.0, 1.0, None, 20))


@pytest.mark.usefixtures("small_files_cost_more")
def test_the_hours_of_a_team_go_to_what_gains_most_on_any_of_its_tables(house: House) -> None:
    """The first table in line would take all hours. Other teams, and tables that have no limit, are planned as ever."""
    house.services.manage_teams.set(Team("ant", (), Limits(gb_hours=3.0)), "root")
    tables = [table_of(house, name, "ant") for name in ("a", "b", "c")]
    other = house.fragmented("d").identifier
    house.services.one_table.refresh(other)
    cut, planned = PlanReasonCode.BELOW_BUDGET_CUT, PlanReasonCode.PLANNED
    assert plan(house, *tables, other) == [("a", cut), ("b", planned), ("c", planned), ("d", planned)]
    said = reason_of(house, tables[0]).text
    assert "team ant has 3 GB-hours left today (UTC) beside its waiting and running tasks; the 3 of this node do not fit into them" in said
    # Tasks that wait take their part of what is left, whichever table they belong to.
    assert house.services.stores.costs.promised("ant") == pytest.approx(2.0)
    late = table_of(house, "late", "ant")
    assert plan(house, late) == [("late", planned)]
    later = table_of(house, "later", "ant")
    assert plan(house, later) == [("later", cut)]


@pytest.mark.usefixtures("an_hour_each")
def test_tables_that_a_tick_has_no_time_to_look_at_are_planned_by_the_next_one(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a look nobody knows what their work is worth, so they may not take the hours of others."""
    house.services.manage_teams.set(Team("ant", (), Limits(gb_hours=9.0)), "root")
    tables = [table_of(house, name, "ant") for name in ("a", "b", "c")]
    looked_at: list[str] = []
    wanted = PlanTables.wanted

    def noted(plans: PlanTables, known: KnownTable, request: PlanRequest) -> Sequence[Work]:
        looked_at.append(known.table.name)
        return wanted(plans, known, request)

    monkeypatch.setattr(PlanTables, "wanted", noted)
    for turn, name in enumerate("abc"):
        planned = house.services.sweep_tables.plan_due(tables[turn:], timedelta(0))
        assert [table.name for table, _ in planned] == [name]
    assert looked_at == ["a", "b", "c"]


@pytest.mark.usefixtures("an_hour_each")
@pytest.mark.parametrize("error", [StorageUnavailable("its files are away"), ValueError("nobody foresaw this")])
def test_a_table_that_cannot_be_looked_at_shows_why_and_the_others_are_planned(
    house: House, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    house.services.manage_teams.set(Team("ant", (), Limits(gb_hours=9.0)), "root")
    tables = [table_of(house, name, "ant") for name in ("a", "b")]
    decide = DecidePlan.decide

    def broken(decides: DecidePlan, known: KnownTable, *of: Any, **more: Any) -> Decision:
        if known.table.name == "a":
            raise error
        return decide(decides, known, *of, **more)

    monkeypatch.setattr(DecidePlan, "decide", broken)
    assert plan(house, *tables) == [("b", PlanReasonCode.PLANNED)]
    assert str(error) in (house.services.stores.tables.state(tables[0]).planning.problem or "")


@pytest.mark.usefixtures("an_hour_each")
def test_what_no_look_has_compared_is_not_planned(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """The team may have got room between the look and the plan, or the look may have failed."""
    house.services.manage_teams.set(Team("ant", (), Limits(gb_hours=9.0)), "root")
    table = table_of(house, "a", "ant")
    with monkeypatch.context() as patched:
        patched.setattr(DrawLines, "draw", lambda lines, requests, deadline: dict.fromkeys(requests))
        assert plan(house, table) == [("a", PlanReasonCode.BELOW_BUDGET_CUT)]
        assert "until a tick has compared it" in reason_of(house, table).text
    assert plan(house, table) == [("a", PlanReasonCode.PLANNED)]


@pytest.mark.usefixtures("an_hour_each")
def test_a_team_that_has_used_up_its_hours_is_the_reason_of_its_nodes_too(house: House) -> None:
    house.services.manage_teams.set(Team("ant", (), Limits(gb_hours=0.0)), "root")
    table = table_of(house, "a", "ant")
    assert plan(house, table) == [("a", PlanReasonCode.OVER_TEAM_BUDGET)]
    assert codes(house, table) == ["OVER_TEAM_BUDGET"]


@pytest.mark.usefixtures("an_hour_each")
def test_a_table_that_nobody_may_write_takes_only_hours_that_are_left_over(house: House) -> None:
    house.services.manage_teams.set(Team("ant", (), Limits(gb_hours=1.0)), "root")
    denied, other = (table_of(house, name, "ant") for name in ("a", "b"))
    assert house.services.plan_tables.note_denied(denied, "its bucket says no")
    assert plan(house, denied, other) == [("a", PlanReasonCode.BELOW_BUDGET_CUT), ("b", PlanReasonCode.PLANNED)]
    house.services.manage_teams.set(Team("ant", (), Limits(gb_hours=2.0)), "root")
    house.services.plan_tables.note_denied(denied, "its bucket says no")
    assert plan(house, denied) == [("a", PlanReasonCode.PLANNED)]


@pytest.mark.usefixtures("an_hour_each")
def test_looks_that_take_long_come_to_every_table_in_turn(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    house.services.manage_teams.set(Team("ant", (), Limits(gb_hours=99.0)), "root")
    tables = [table_of(house, name, "ant") for name in ("a", "b", "c", "d")]
    looked_at: list[str] = []

    def slow(plans: PlanTables, known: KnownTable, request: PlanRequest) -> Sequence[Work]:
        looked_at.append(known.table.name)
        house.pass_time(7)
        return ()

    monkeypatch.setattr(PlanTables, "wanted", slow)
    for _ in range(2):
        house.services.sweep_tables.plan_due(tables, timedelta(seconds=20))
    assert looked_at == ["a", "b", "c", "d"]


@pytest.mark.usefixtures("an_hour_each")
def test_a_plan_of_some_nodes_does_not_put_off_the_look_at_the_whole_table(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    table = partitioned(house, 3).identifier
    house.services.one_table.refresh(table)
    house.services.manage_teams.set(Team("unassigned", (), Limits(gb_hours=3.0)), "root")
    payer = Payer("unassigned", None, 3.0, 0.5)
    monkeypatch.setattr(Payers, "of", lambda payers, known, of_catalog, book=None: payer)
    house.now = house.now.replace(minute=10)
    assert plan(house, table) == [("p", PlanReasonCode.BELOW_BUDGET_CUT)]
    house.pass_time(3600)
    some = frozenset(node.node for node in house.services.stores.tables.nodes(table)[:1])
    house.services.sweep_tables.plan_due([table], TICK, nodes={table: some})
    assert codes(house, table) == ["BELOW_BUDGET_CUT"] * 3
    payer = replace(payer, left=3.0)
    house.pass_time(70)
    assert plan(house, table) == [("p", PlanReasonCode.PLANNED)]
    assert len(house.services.stores.tasks.tasks(table, [TaskStatus.PENDING])) == 3


def test_what_the_first_attempt_tells_is_known_a_minute_later(house: House) -> None:
    """What is known is used for ten minutes. What nobody could predict is asked again after one."""
    asked: list[CompactionType | None] = []
    past: list[PastRun] = []

    class Costs:
        def past(self, table: TableIdentifier | None, kind: CompactionType | None) -> Sequence[PastRun]:
            asked.append(kind)
            return past

    table = house.fragmented("a").identifier
    payers = Payers(house.services.stores.teams, cast("CostStore", Costs()))
    assert payers.fits(table, house.now) == {}
    past.append(PastRun(10, 1.0, 0.1))
    assert payers.fits(table, house.now + timedelta(seconds=59)) == {}
    now = house.now + timedelta(seconds=60)
    assert payers.fits(table, now).keys() == set(CompactionType)
    asked.clear()
    payers.fits(table, now + timedelta(minutes=9))
    assert asked == []
    payers.fits(table, now + timedelta(minutes=10))
    assert asked
