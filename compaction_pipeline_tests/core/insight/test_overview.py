"""Which nodes and tables are shown first, and what they are called while their tasks are open."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from compaction_pipeline.core.commit.table_commits import TableCommits
from compaction_pipeline.core.fragmentation.health import HealthStatus
from compaction_pipeline.core.fragmentation.health_score import HealthScore, ScoreParts
from compaction_pipeline.core.fragmentation.verdict import NodeState, NodeVerdict, PlanReason, PlanReasonCode
from compaction_pipeline.core.insight.known_table import KnownTable
from compaction_pipeline.core.insight.overview import (
    NO_TASKS,
    NodeOverview,
    TableOverview,
    commit_is_overdue,
    node_overviews,
    table_overview,
    worst_first,
    worst_score_first,
)
from compaction_pipeline.core.planning.table_planning import TablePlanning
from compaction_pipeline.core.queue.open_work import OpenTasks
from compaction_pipeline.core.tables.figures import NodeMetrics
from compaction_pipeline.core.tables.index import Reading, TableIndex
from compaction_pipeline.core.tables.properties import TableProperties
from compaction_pipeline.core.tables.switch import TableSwitch
from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline_tests.builders import COMPLETE
from compaction_pipeline_tests.defs.values import MIB, NOW, ORDERS, node_state, overview

LAKE = CatalogEntry("lake", {})
BUSY = OpenTasks(waiting=2, merging=1, merged=4)
MERGED = OpenTasks(merged=317)
HELD = "12 of 12 data files are in running or waiting tasks"


def known(code: PlanReasonCode | None = None, *, paused: bool = False) -> KnownTable:
    """A table that is completely read, and whose last plan found this."""
    planning = TablePlanning(reason=PlanReason(code, "what the plan found") if code is not None else None)
    return KnownTable(TableIndex(ORDERS, COMPLETE), planning, switch=TableSwitch(paused))


def judged(code: PlanReasonCode, kind: CompactionType | None = None, text: str = HELD, number: int = 1) -> NodeState:
    node = node_state(number, data_files=12, small_data_files=12)
    return replace(node, verdict=NodeVerdict(node.node, kind, PlanReason(code, text), node.metrics))


def shown(state: KnownTable, tasks: OpenTasks, *nodes: NodeState, now: datetime = NOW) -> tuple[TableOverview, list[NodeOverview]]:
    """What a person is shown of the table and of these nodes."""
    overdue = commit_is_overdue(state, LAKE, tasks, now)
    found = node_overviews(nodes, state, LAKE, tasks)
    return table_overview(state, LAKE, found, tasks, overdue=overdue), found


def test_order_is_by_health_then_fragmentation_then_small_files() -> None:
    few = overview(1, data_files=2, small_data_files=2)
    many = overview(2, data_files=501, small_data_files=500)
    half = overview(3, data_files=900, small_data_files=450)
    waiting = overview(4, HealthStatus.WAITING, data_files=900, small_data_files=900)
    failing = overview(5, HealthStatus.FAILING, data_files=1, small_data_files=0)
    assert worst_first([waiting, half, few, failing, many]) == (failing, many, few, half, waiting)


def test_tables_have_the_same_order_as_nodes() -> None:
    nodes = [
        overview(1, data_files=900, small_data_files=450),
        overview(1, HealthStatus.FAILING, data_files=1, small_data_files=0),
        overview(1, data_files=501, small_data_files=500),
        overview(1, HealthStatus.HEALTHY, data_files=9_000, small_data_files=9_000),
    ]
    named = [replace(node, table=TableIdentifier("lake", ("shop",), f"t{i}")) for i, node in enumerate(nodes)]
    tables = [TableOverview(node.table, 1, node.metrics, node.health, "why") for node in named]
    assert [table.table for table in worst_first(tables)] == [node.table for node in worst_first(named)]


@pytest.mark.parametrize("code", [PlanReasonCode.PLANNED, PlanReasonCode.FILES_IN_USE, PlanReasonCode.NOT_FRAGMENTED, None])
def test_a_table_whose_tasks_are_all_merged_waits_for_the_commit(code: PlanReasonCode | None) -> None:
    table, nodes = shown(known(code), MERGED, judged(PlanReasonCode.FILES_IN_USE), judged(PlanReasonCode.PLANNED, CompactionType.MINOR))
    assert (table.health, table.reason) == (HealthStatus.WAITING, "317 merged tasks wait for the commit")
    assert [node.health for node in nodes] == [HealthStatus.WAITING, HealthStatus.WAITING]
    assert nodes[0].reason == "317 merged tasks wait for the commit of the table"
    assert nodes[1].reason == f"{HELD}; 317 merged tasks wait for the commit of the table"
    assert table.due == 0


def test_a_table_that_waits_for_its_commit_interval_says_until_when() -> None:
    committed = replace(known(PlanReasonCode.PLANNED), commits=TableCommits(last_committed_at=NOW))
    table, _ = shown(committed, MERGED, judged(PlanReasonCode.PLANNED, CompactionType.MINOR))
    assert table.reason == "317 merged tasks wait for the commit, which is due at 12:05:00 UTC at the latest"


def test_a_commit_whose_interval_has_ended_is_due_now_and_no_past_time_is_named() -> None:
    committed = replace(known(PlanReasonCode.PLANNED), commits=TableCommits(last_committed_at=NOW))
    node, interval = judged(PlanReasonCode.PLANNED, CompactionType.MINOR), TableProperties().commit_interval
    before, _ = shown(committed, MERGED, node, now=NOW + interval - timedelta(seconds=1))
    assert before.reason.endswith("which is due at 12:05:00 UTC at the latest")
    after, _ = shown(committed, MERGED, node, now=NOW + interval)
    assert after.reason == "317 merged tasks wait for the commit, which is due now"
    busy, _ = shown(committed, BUSY, node, now=NOW + interval)
    assert busy.reason.startswith("2 tasks wait, 1 task is being merged, 4 merged tasks wait for the commit, which is due now")


def test_a_table_that_waits_for_more_than_the_commit_says_both() -> None:
    table, _ = shown(known(PlanReasonCode.OVER_BUDGET), OpenTasks(merged=1), judged(PlanReasonCode.OVER_BUDGET, CompactionType.MINOR))
    assert (table.health, table.reason) == (HealthStatus.WAITING, "1 merged task waits for the commit; what the plan found")
    assert table.due == 1


def test_a_table_with_tasks_to_merge_is_due_and_counts_its_tasks() -> None:
    table, _ = shown(known(PlanReasonCode.FILES_IN_USE), BUSY, judged(PlanReasonCode.FILES_IN_USE))
    assert table.health is HealthStatus.DUE
    assert table.reason == "2 tasks wait, 1 task is being merged, 4 merged tasks wait for the commit"
    planned, _ = shown(known(PlanReasonCode.PLANNED), OpenTasks(waiting=1), judged(PlanReasonCode.PLANNED, CompactionType.MINOR))
    assert planned.reason == "1 task waits; what the plan found"


@pytest.mark.parametrize(("tasks", "health"), [(BUSY, HealthStatus.DUE), (MERGED, HealthStatus.WAITING)])
def test_nodes_whose_files_tasks_hold_have_one_health_whatever_else_is_due(tasks: OpenTasks, health: HealthStatus) -> None:
    nodes = [judged(PlanReasonCode.FILES_IN_USE), judged(PlanReasonCode.FILES_IN_USE, CompactionType.MINOR, number=2)]
    assert {node.health for node in shown(known(), tasks, *nodes)[1]} == {health}


def test_a_failing_node_and_a_pause_outrank_open_tasks() -> None:
    failing = replace(judged(PlanReasonCode.PLANNED, CompactionType.MINOR), failing="a file is damaged")
    assert shown(known(), MERGED, failing)[0].health is HealthStatus.FAILING
    table, (node,) = shown(known(paused=True), BUSY, judged(PlanReasonCode.FILES_IN_USE))
    assert (table.reason, node.health, node.reason) == ("paused", HealthStatus.WAITING, f"{HELD}; paused")


def test_a_node_that_was_committed_after_the_last_look_does_not_wait_for_another_commit() -> None:
    node = replace(judged(PlanReasonCode.PLANNED, CompactionType.MINOR), last_done={CompactionType.MINOR: NOW + timedelta(days=400)})
    reason = shown(known(), MERGED, node)[1][0].reason
    assert "; its files changed since, and the next tick judges it again" in reason


def test_a_table_whose_tasks_have_ended_no_longer_says_that_they_hold_files() -> None:
    healthy = judged(PlanReasonCode.NOT_FRAGMENTED, text="nothing is due")
    table, (node,) = shown(known(PlanReasonCode.FILES_IN_USE), OpenTasks(), healthy)
    assert (table.health, table.reason) == (HealthStatus.HEALTHY, node.reason)
    assert "nothing is due" in table.reason


def test_the_reason_of_a_plan_that_came_while_files_were_read_ends_with_the_reading() -> None:
    state = known(PlanReasonCode.BEING_READ)
    settled, due = judged(PlanReasonCode.NOT_FRAGMENTED, text="nothing to do"), judged(PlanReasonCode.PLANNED, CompactionType.MINOR, "due")
    assert shown(state, NO_TASKS, settled)[0].reason == "nothing to do"
    assert shown(state, NO_TASKS, settled)[0].health is HealthStatus.HEALTHY
    assert shown(state, NO_TASKS, settled, due)[0].health is HealthStatus.DUE


def test_a_table_whose_files_are_being_read_is_not_healthy() -> None:
    index = TableIndex(ORDERS, Reading(COMPLETE.loaded))
    for state in (KnownTable(index), replace(known(PlanReasonCode.BEING_READ), index=index)):
        table, _ = shown(state, NO_TASKS, judged(PlanReasonCode.NOT_FRAGMENTED, text="nothing to do"))
        assert (table.health, table.reason) == (
            HealthStatus.WAITING,
            "its files are being read; the next tick, or `table list --refresh`, goes on",
        )


def test_an_observed_table_tells_the_reasons_of_its_nodes() -> None:
    observed, state = replace(LAKE, observe=True), known(PlanReasonCode.OBSERVED)
    due, settled = (
        judged(PlanReasonCode.PLANNED, CompactionType.MINOR, "12 small files"),
        judged(PlanReasonCode.NOT_FRAGMENTED, text="fine"),
    )
    of_due, of_settled = node_overviews([due, settled], state, observed)
    table = table_overview(state, observed, [of_due])
    assert (table.health, table.reason) == (HealthStatus.WAITING, f"{due.node}: 12 small files; the catalog is only observed")
    table = table_overview(state, observed, [of_settled])
    assert (table.health, table.reason) == (HealthStatus.HEALTHY, "fine")


def test_a_node_of_a_paused_table_that_nobody_judged_says_so() -> None:
    [node] = node_overviews([node_state(1, data_files=12, small_data_files=12)], known(paused=True), replace(LAKE, observe=True))
    assert (node.health, node.reason) == (
        HealthStatus.WAITING,
        f"no plan has looked at it yet: `plan {ORDERS}` shows what would be done; paused",
    )


def test_a_node_and_its_table_have_the_score_of_the_properties_in_force() -> None:
    def score(catalog: CatalogEntry) -> tuple[int | None, ...]:
        node = node_state(1, data_files=12, small_data_files=12, data_bytes=144 * MIB)
        state = known(PlanReasonCode.NOT_FRAGMENTED)
        nodes = node_overviews([node], state, catalog)
        return nodes[0].score.total, table_overview(state, catalog, nodes).score.total

    # small = 40 - 40·(1 - 12/96) = 5; with a target of 16 MiB, 12 MiB are enough.
    assert score(LAKE) == (65, 65)
    assert score(replace(LAKE, properties={"table.self-optimizing.target-size": str(16 * MIB)})) == (100, 100)


def test_the_remedy_of_a_node_follows_the_health_that_is_shown() -> None:
    due = judged(PlanReasonCode.PLANNED, CompactionType.MINOR)
    due = replace(due, metrics=replace(due.metrics, data_bytes=144 * MIB))
    due = replace(due, verdict=NodeVerdict(due.node, CompactionType.MINOR, PlanReason(PlanReasonCode.PLANNED, HELD), due.metrics))
    assert node_overviews([due], known(), LAKE)[0].score.remedy == "a MINOR is due"
    assert node_overviews([due], known(paused=True), LAKE)[0].score.remedy == "a MINOR is due, and waits"


def test_a_table_that_nobody_read_has_no_score() -> None:
    unread = KnownTable(TableIndex(ORDERS))
    score = table_overview(unread, LAKE, []).score
    assert (score.total, score.reason) == (None, "the table's files were not read yet")
    assert table_overview(known(), LAKE, []).score.text == "100 of 100: the table has no files; nothing to do"


def test_tables_by_health_begin_with_the_lowest_score_and_end_with_those_without_one() -> None:
    def table(name: str, total: int | None) -> TableOverview:
        parts = ScoreParts.of(total - 60, 40, 20) if total is not None else None
        identifier = TableIdentifier("lake", ("shop",), name)
        return TableOverview(identifier, 1, NodeMetrics(), HealthStatus.HEALTHY, "why", score=HealthScore(parts, "why", "what to do"))

    found = worst_score_first([table("a", None), table("b", 90), table("d", 60), table("c", 90)])
    assert [each.table.name for each in found] == ["d", "b", "c", "a"]
