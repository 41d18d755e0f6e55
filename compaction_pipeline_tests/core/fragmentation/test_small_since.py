"""Since when a node has had enough small files, and since when its work has been due."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from compaction_pipeline.core.fragmentation.small_since import changed_at, small_since
from compaction_pipeline.core.fragmentation.triggers import enough_small_files
from compaction_pipeline.core.fragmentation.verdict import NodeState, NodeVerdict, PlanReason, PlanReasonCode, since_first_due
from compaction_pipeline.core.tables.figures import NodeMetrics
from compaction_pipeline.core.tables.index import TableIndex, Unread, WholeRead
from compaction_pipeline.core.tables.properties import TableProperties
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline_tests.defs.values import NOW, ORDERS, ago, head, node_state, snapshot

RULES = TableProperties(minor_file_count=5, minor_total_size_bytes=1000)
MANY, FEW = NodeMetrics(small_data_files=5), NodeMetrics(small_data_files=4)


def known(read_at: datetime | None, snapshot_id: int = 1) -> TableIndex:
    return TableIndex(ORDERS, Unread(), WholeRead(snapshot_id, read_at) if read_at is not None else None)


@pytest.mark.parametrize(
    ("read_at", "committed_at", "changed"),
    [
        (None, ago(days=1), ago(days=1)),
        (ago(hours=2), ago(hours=1), ago(hours=1)),
        (ago(hours=1), ago(hours=2), ago(hours=1)),
        (None, ago(hours=-1), NOW),
    ],
    ids=["first look", "later look", "committed before a look that did not see it", "a clock that is ahead"],
)
def test_the_newest_commit_says_when_a_table_changed(read_at: datetime | None, committed_at: datetime, changed: datetime) -> None:
    assert changed_at(known(read_at), head(snapshot(2, committed_at)), NOW) == changed


def test_properties_that_change_without_a_commit_change_now() -> None:
    assert changed_at(known(ago(hours=2)), head(snapshot(1, ago(hours=3))), NOW) == NOW
    assert changed_at(known(ago(hours=2)), head(), NOW) == NOW


def test_a_node_keeps_the_time_until_it_has_too_few_small_files() -> None:
    node = node_state(1)
    assert small_since(None, MANY, RULES, ago(hours=3)) == ago(hours=3)
    assert small_since(node, MANY, RULES, ago(hours=2)) == ago(hours=2)
    assert small_since(replace(node, small_since=ago(hours=3)), MANY, RULES, ago(hours=1)) == ago(hours=3)
    assert small_since(replace(node, small_since=ago(hours=3)), FEW, RULES, ago(hours=1)) is None


@pytest.mark.parametrize(
    ("metrics", "text"),
    [
        (FEW, None),
        (MANY, "5 small data files, and 5 make a MINOR due"),
        (NodeMetrics(small_delete_files=6), "6 small delete files, and 5 make a MINOR due"),
        (NodeMetrics(small_data_files=2, small_data_bytes=1000), "1.0 kB in 2 small data files, and 1.0 kB make a MINOR due"),
        (NodeMetrics(small_data_files=3, small_delete_files=3), None),
    ],
)
def test_small_data_files_and_small_delete_files_count_each_alone(metrics: NodeMetrics, text: str | None) -> None:
    assert enough_small_files(metrics, RULES) == text


def verdict(code: PlanReasonCode, kind: CompactionType | None = None, since: datetime | None = None) -> NodeVerdict:
    return NodeVerdict(node_state(1).node, kind, PlanReason(code, "why"), MANY, since)


def before(since: datetime | None, last_done: datetime | None = None) -> NodeState:
    return replace(node_state(1, last_done=last_done), verdict=verdict(PlanReasonCode.PLANNED, CompactionType.MAJOR, since))


@pytest.mark.parametrize("code", [PlanReasonCode.PLANNED, PlanReasonCode.OVER_BUDGET, PlanReasonCode.MIN_PLAN_INTERVAL])
def test_work_is_due_since_the_first_plan_that_found_it(code: PlanReasonCode) -> None:
    due = verdict(code, CompactionType.MINOR)
    assert since_first_due(due, node_state(1), NOW).since == NOW
    assert since_first_due(due, before(ago(hours=1)), NOW).since == ago(hours=1)


@pytest.mark.parametrize("code", [PlanReasonCode.FILES_IN_USE, PlanReasonCode.FAILING])
def test_work_that_runs_or_fails_stays_due(code: PlanReasonCode) -> None:
    assert since_first_due(verdict(code), before(ago(hours=1)), NOW).since == ago(hours=1)


def test_work_that_was_done_meanwhile_is_not_that_work() -> None:
    due = verdict(PlanReasonCode.PLANNED, CompactionType.MAJOR)
    assert since_first_due(due, before(ago(hours=2), last_done=NOW - timedelta(hours=1)), NOW).since == NOW


@pytest.mark.parametrize("code", [PlanReasonCode.NOT_FRAGMENTED, PlanReasonCode.NO_GAIN, PlanReasonCode.LIVE_TWICE])
def test_a_node_that_needs_no_work_is_not_due(code: PlanReasonCode) -> None:
    assert since_first_due(verdict(code, CompactionType.MAJOR), before(ago(hours=1)), NOW).since is None
