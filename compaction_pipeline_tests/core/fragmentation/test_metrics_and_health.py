"""Figures of nodes, estimates of deleted rows, and the health of a node."""

from __future__ import annotations

import pytest

from compaction_pipeline.core.fragmentation.health import HealthStatus, node_health
from compaction_pipeline.core.fragmentation.metrics import measure
from compaction_pipeline.core.fragmentation.verdict import NodeVerdict, PlanReason, PlanReasonCode
from compaction_pipeline.core.tables.figures import NodeMetrics
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline_tests.builders import UNPARTITIONED_SPEC, data, equality, global_equality, node, position, properties, table_files


def test_a_delete_file_counts_in_the_node_of_its_own_spec_and_partition() -> None:
    files = table_files(data("a", 10), data("b", 500), position("p", of="a"), equality("e", kb=200), global_equality("g"))
    found = measure(files, properties())
    assert found[node()] == NodeMetrics(
        data_files=2,
        small_data_files=1,
        small_data_bytes=10_000,
        data_bytes=510_000,
        position_delete_files=1,
        equality_delete_files=1,
        small_delete_files=1,
        small_delete_bytes=1000,
        delete_bytes=201_000,
        rows=200,
        deleted_rows_estimate=3,
        equality_delete_rows=2,
        deleted_positions=1,
    )
    assert found[TableNode(UNPARTITIONED_SPEC)].equality_delete_files == 1


def test_a_global_deletes_rows_are_shared_by_the_nodes_rows() -> None:
    files = table_files(data("a", day=1, rows=300), data("b", day=2, rows=100), global_equality("g", rows=40))
    found = measure(files, properties())
    assert [found[node(1)].deleted_rows_estimate, found[node(2)].deleted_rows_estimate] == [30, 10]


def test_the_estimate_of_deleted_rows_is_at_most_all_rows() -> None:
    files = table_files(data("a", rows=10), equality("e", rows=500), position("p", of="a", rows=9))
    assert measure(files, properties())[node()].deleted_rows_estimate == 10


def verdict(code: PlanReasonCode, kind: CompactionType | None = None) -> NodeVerdict:
    return NodeVerdict(node(), kind, PlanReason(code, "because"), NodeMetrics())


@pytest.mark.parametrize(
    ("given", "status"),
    [
        (verdict(PlanReasonCode.NOT_FRAGMENTED), HealthStatus.HEALTHY),
        (verdict(PlanReasonCode.NO_GAIN, CompactionType.FULL), HealthStatus.HEALTHY),
        (verdict(PlanReasonCode.PLANNED, CompactionType.MINOR), HealthStatus.DUE),
        (verdict(PlanReasonCode.OVER_BUDGET, CompactionType.MINOR), HealthStatus.WAITING),
        (verdict(PlanReasonCode.FILES_IN_USE, CompactionType.MINOR), HealthStatus.WAITING),
        (verdict(PlanReasonCode.FILES_IN_USE), HealthStatus.DUE),
        (verdict(PlanReasonCode.REFUSED), HealthStatus.REFUSED),
        (verdict(PlanReasonCode.INVALID_PROPERTY), HealthStatus.FAILING),
        (None, HealthStatus.WAITING),
    ],
)
def test_each_verdict_has_its_health(given: NodeVerdict | None, status: HealthStatus) -> None:
    assert node_health(given).status is status


def test_a_refusal_outranks_a_failure_and_a_failure_the_verdict() -> None:
    due = verdict(PlanReasonCode.PLANNED, CompactionType.MINOR)
    assert node_health(due, refusal="format v3", failing="disk full").reason == "format v3"
    assert node_health(due, failing="disk full").status is HealthStatus.FAILING
