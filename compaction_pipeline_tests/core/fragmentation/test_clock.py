"""Which nodes may become due only because time passes."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from compaction_pipeline.core.fragmentation.clock import may_be_due_from
from compaction_pipeline.core.fragmentation.triggers import full_trigger, minor_trigger_of
from compaction_pipeline.core.fragmentation.verdict import NodeState, NodeVerdict, PlanReason, PlanReasonCode, history_of
from compaction_pipeline.core.tables.figures import NodeMetrics
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.properties import TableProperties
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.work.kinds import CompactionType

NODE = TableNode(0)
NOW = datetime(2026, 5, 1, tzinfo=timezone.utc)
HOUR = timedelta(hours=1)


def may_be_due(nodes: list[NodeState], properties: TableProperties, now: datetime = NOW, *, global_deletes: bool = False) -> bool:
    since = may_be_due_from(nodes, properties, global_deletes=global_deletes)
    return since is not None and since <= now


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


def test_two_small_files_are_left_alone_until_the_interval_ends() -> None:
    node = replace(judged(PlanReasonCode.NOT_FRAGMENTED, data_files=2, small_data_files=2), first_seen=NOW)
    properties = TableProperties(minor_interval=HOUR)
    assert not may_be_due([node], properties, NOW + HOUR - timedelta(seconds=1))
    assert may_be_due([node], properties, NOW + HOUR)
    merged = replace(node, last_done={CompactionType.MAJOR: NOW + HOUR})
    assert not may_be_due([merged], properties, NOW + HOUR)
    assert may_be_due([merged, node], properties, NOW + HOUR)


def test_enough_small_files_by_new_properties_of_the_catalog_are_planned_at_once() -> None:
    node = replace(judged(PlanReasonCode.NOT_FRAGMENTED, data_files=3, small_data_files=3), first_seen=NOW)
    assert not may_be_due([node], TableProperties())
    assert may_be_due([node], TableProperties(minor_file_count=3))


def test_an_interval_that_ends_after_all_years_never_ends() -> None:
    node = replace(judged(PlanReasonCode.NOT_FRAGMENTED, data_files=3, small_data_files=3), first_seen=NOW)
    assert may_be_due_from([node], TableProperties(minor_interval=timedelta.max)) is None


@given(
    small=st.integers(0, 4),
    files=st.integers(0, 3),
    done=st.dictionaries(st.sampled_from(CompactionType), st.integers(-9, 9).map(lambda hours: NOW + hours * HOUR)),
    full=st.none() | st.integers(1, 9).map(lambda hours: hours * HOUR),
    minor=st.integers(0, 9).map(lambda hours: hours * HOUR),
    at=st.integers(-20, 30).map(lambda hours: NOW + hours * HOUR),
)
def test_a_trigger_that_time_makes_due_is_never_overlooked(
    small: int, files: int, done: dict[CompactionType, datetime], full: timedelta | None, minor: timedelta, at: datetime
) -> None:
    properties = TableProperties(minor_interval=minor, full_interval=full, minor_file_count=5)
    node = judged(PlanReasonCode.NOT_FRAGMENTED, data_files=small + files, small_data_files=small, small_data_bytes=small)
    node = replace(node, first_seen=NOW, last_done=done)
    history = history_of([node], None, None)
    due = minor_trigger_of(NODE, (small, small), (0, 0), history, properties, at).due
    due_full = small + files > 0 and full_trigger(NODE, history, properties, at).due
    assert may_be_due([node], properties, at) == (due or due_full)
