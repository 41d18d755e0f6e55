"""Which nodes may become due only because time passes."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from compaction_pipeline.core.fragmentation.clock import may_be_due
from compaction_pipeline.core.fragmentation.verdict import NodeState, NodeVerdict, PlanReason, PlanReasonCode
from compaction_pipeline.core.tables.figures import NodeMetrics
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.properties import TableProperties
from compaction_pipeline.core.tables.table import TableIdentifier

NODE = TableNode(0)


def judged(code: PlanReasonCode, **metrics: int) -> NodeState:
    figures = NodeMetrics(**metrics)
    return NodeState(
        TableIdentifier("lake", ("shop",), "orders"), NODE, "key", figures, NodeVerdict(NODE, None, PlanReason(code, "why"), figures)
    )


def test_a_settled_node_without_two_small_files_is_left_alone() -> None:
    assert not may_be_due([judged(PlanReasonCode.NOT_FRAGMENTED, data_files=9, small_data_files=1)], TableProperties())


def test_two_small_files_may_be_due_when_the_interval_ends() -> None:
    assert may_be_due([judged(PlanReasonCode.NOT_FRAGMENTED, data_files=9, small_data_files=2)], TableProperties())
    assert may_be_due([judged(PlanReasonCode.NOT_FRAGMENTED, position_delete_files=2, small_delete_files=2)], TableProperties())
    both = judged(PlanReasonCode.NOT_FRAGMENTED, data_files=1, small_data_files=1, position_delete_files=1, small_delete_files=1)
    assert may_be_due([both], TableProperties())
    one = judged(PlanReasonCode.NOT_FRAGMENTED, data_files=1, small_data_files=1)
    assert may_be_due([one], TableProperties(), global_deletes=True)
    assert not may_be_due([one], TableProperties())


def test_a_node_whose_files_have_changed_is_planned_again() -> None:
    node = judged(PlanReasonCode.NOT_FRAGMENTED, data_files=9)
    assert may_be_due([replace(node, metrics=replace(node.metrics, data_files=8))], TableProperties())


def test_a_node_that_was_held_back_or_not_judged_is_planned_again() -> None:
    assert may_be_due([judged(PlanReasonCode.MIN_PLAN_INTERVAL, data_files=1)], TableProperties())
    assert may_be_due([replace(judged(PlanReasonCode.NO_GAIN, data_files=1), verdict=None)], TableProperties())


def test_a_full_interval_makes_any_node_with_files_a_candidate() -> None:
    properties = TableProperties(full_interval=timedelta(days=1))
    assert may_be_due([judged(PlanReasonCode.NOT_FRAGMENTED, data_files=1)], properties)
    assert not may_be_due([judged(PlanReasonCode.NOT_FRAGMENTED)], properties)
