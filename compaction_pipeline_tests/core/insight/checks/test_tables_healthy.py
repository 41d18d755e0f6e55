"""The check of health scores: which tables it names, in which order, and with which sentences."""

from __future__ import annotations

from dataclasses import replace

from compaction_pipeline.core.fragmentation.verdict import NodeState, PlanReasonCode
from compaction_pipeline.core.insight.checks.tables_healthy import tables_healthy
from compaction_pipeline.core.tables.properties import TableProperties
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline_tests.core.insight.checks.judged import judged_node, verdict
from compaction_pipeline_tests.defs.values import MIB, ORDERS, node_state

USERS = TableIdentifier("lake", ("shop",), "users")


def fragmented(number: int = 1, table: TableIdentifier = ORDERS, **changes: int) -> NodeState:
    """P = 1, a = 12 MiB; small = 40 - 40·(1 - 12/96) = 5; e = 1,200/12,000 = 0.1, so equality = 0: 25 points."""
    figures = {
        "data_files": 12,
        "small_data_files": 12,
        "small_data_bytes": 144 * MIB,
        "data_bytes": 144 * MIB,
        "equality_delete_files": 1,
        "rows": 12_000,
        "deleted_rows_estimate": 1_200,
        "equality_delete_rows": 1_200,
    }
    return node_state(number, table, **{**figures, **changes})


def healthy(number: int, gib: int, table: TableIdentifier = ORDERS) -> NodeState:
    return node_state(number, table, data_files=8 * gib, data_bytes=gib * 1024 * MIB, rows=10**6)


def test_a_table_below_its_bound_fails_with_the_reason_and_the_remedy() -> None:
    node = fragmented()
    due = replace(node, verdict=verdict(node, PlanReasonCode.PLANNED, CompactionType.MINOR))
    judged = tables_healthy([judged_node(due)])
    assert judged.text == (
        "1 of 1 tables fail; lake.shop.orders: health score 25 of 100 (small files 5/40, equality deletes 0/40, position deletes 20/20): "
        "1,200 rows of equality deletes for 12,000 rows of data cost 40 of 40 points; a MINOR is due; "
        "a MINOR would leave about 99 points, a MAJOR 99, a FULL 99 (50 are wanted)"
    )


def test_the_bound_is_the_tables_own_property_and_0_switches_the_check_off() -> None:
    def fails(bound: int) -> bool:
        return not tables_healthy([judged_node(fragmented(), TableProperties(min_health_score=bound))]).passed

    assert [fails(bound) for bound in (0, 25, 26)] == [False, False, True]
    off = tables_healthy([judged_node(fragmented(), TableProperties(min_health_score=0))])
    assert off.text == "no table that is compacted has a health score"


def test_one_bad_node_of_a_large_healthy_table_is_no_failure() -> None:
    nodes = [judged_node(node) for node in (fragmented(1), healthy(2, 1))]
    judged = tables_healthy(nodes)
    assert (judged.judged, judged.text) == (1, "the only table with a health score passes")


def test_the_lowest_score_comes_first_and_a_good_table_hides_none() -> None:
    worse = fragmented(table=USERS, deleted_rows_estimate=12_000, deleted_positions=2_400)
    judged = tables_healthy([judged_node(node) for node in (fragmented(), worse, healthy(1, 1, replace(USERS, name="large")))])
    assert [failure.table for failure in judged.failures] == [USERS, ORDERS]
    assert judged.judged == 3


def test_a_table_measured_by_an_older_version_is_not_judged() -> None:
    judged = tables_healthy([judged_node(fragmented(equality_delete_rows=0))])
    assert (judged.judged, judged.passed, judged.text) == (0, True, "no table that is compacted has a health score")
