"""How long due work has waited, and how long it may."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from compaction_pipeline.core.fragmentation.verdict import NodeState, PlanReasonCode
from compaction_pipeline.core.insight.checks.due_work import due_work_on_time, waiting_limit, waiting_since
from compaction_pipeline.core.tables.properties import TableProperties
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline_tests.core.insight.checks.judged import judged_node, verdict
from compaction_pipeline_tests.defs.values import NOW, ago, node_state

NONE = timedelta(0)


def small(number: int = 1, since: datetime | None = None, last_done: datetime | None = None) -> NodeState:
    return replace(node_state(number, last_done=last_done, small_data_files=40), small_since=since)


def large(code: PlanReasonCode, kind: CompactionType | None, since: datetime | None, last_done: datetime | None = None) -> NodeState:
    """A node without small files, for which a plan found work that is due since then."""
    node = node_state(1, last_done=last_done, data_files=3)
    return replace(node, verdict=verdict(node, code, kind, since))


@pytest.mark.parametrize(
    ("minor", "plan", "commit", "limit"),
    [
        (timedelta(hours=1), timedelta(minutes=1), timedelta(minutes=5), timedelta(hours=1)),
        (NONE, timedelta(minutes=10), timedelta(minutes=20), timedelta(hours=1)),
        (NONE, NONE, NONE, timedelta(minutes=10)),
    ],
)
def test_the_limit_follows_from_the_intervals_of_the_table(minor: timedelta, plan: timedelta, commit: timedelta, limit: timedelta) -> None:
    assert waiting_limit(TableProperties(minor_interval=minor, min_plan_interval=plan, commit_interval=commit)) == limit


def test_a_node_is_late_after_its_limit_and_the_oldest_comes_first() -> None:
    def judged(*ages: float) -> list[object]:
        nodes = [judged_node(small(number, ago(minutes=age))) for number, age in enumerate(ages, 1)]
        return [str(failure.node) for failure in due_work_on_time(nodes, NOW).failures]

    assert judged(59, 60) == []
    assert judged(61, 59, 90) == ["day=2026-01-03", "day=2026-01-01"]


def test_the_text_tells_how_old_the_oldest_due_node_is() -> None:
    nodes = [small(1, ago(minutes=3)), small(2, ago(minutes=4)), node_state(3)]
    healthy = due_work_on_time([judged_node(node) for node in nodes], NOW)
    assert healthy.text == "all 2 nodes with due work pass; the oldest has waited for 4 min"
    assert healthy.figures == (("oldest_due_seconds", 240.0),)
    late = due_work_on_time([judged_node(small(1, ago(hours=3)), problem="the catalog does not answer")], NOW)
    assert late.text.endswith(
        "due work has waited for 3 h, and 1 h are allowed; 40 small data files, and 12 make a MINOR due; the catalog does not answer"
    )


def test_without_due_work_nothing_is_judged() -> None:
    judged = due_work_on_time([judged_node(node_state(1, small_data_files=3))], NOW)
    assert (judged.judged, judged.text, judged.figures) == (0, "no node has due work", (("oldest_due_seconds", 0.0),))


def test_work_that_a_plan_found_counts_too() -> None:
    assert waiting_since(judged_node(large(PlanReasonCode.OVER_BUDGET, CompactionType.MAJOR, ago(hours=2)))) == ago(hours=2)
    assert waiting_since(judged_node(large(PlanReasonCode.FAILING, None, ago(hours=2)))) == ago(hours=2)


@pytest.mark.parametrize("code", [PlanReasonCode.NO_GAIN, PlanReasonCode.LIVE_TWICE, PlanReasonCode.NOT_FRAGMENTED])
def test_what_a_plan_would_not_do_is_not_due(code: PlanReasonCode) -> None:
    node = small(1, ago(days=1))
    assert waiting_since(judged_node(replace(node, verdict=verdict(node, code)))) is None


def test_the_earliest_reason_counts() -> None:
    node = small(1, ago(hours=2))
    found = verdict(node, PlanReasonCode.PLANNED, CompactionType.MAJOR, ago(hours=3))
    assert waiting_since(judged_node(replace(node, verdict=found))) == ago(hours=3)


def test_waiting_begins_anew_when_work_is_done_on_the_node() -> None:
    assert waiting_since(judged_node(small(1, ago(days=9), last_done=ago(minutes=2)))) == ago(minutes=2)
    done_since = large(PlanReasonCode.PLANNED, CompactionType.MAJOR, ago(hours=2), last_done=ago(hours=1))
    assert waiting_since(judged_node(done_since)) is None


def test_a_node_of_an_older_state_database_waits_since_the_first_look_after_the_upgrade() -> None:
    old = replace(small(1), first_seen=ago(days=90))
    assert waiting_since(judged_node(old)) is None
    found = verdict(old, PlanReasonCode.OVER_BUDGET, CompactionType.MINOR, ago(minutes=5))
    assert waiting_since(judged_node(replace(old, verdict=found))) == ago(minutes=5)


def test_a_commit_that_is_dated_in_the_future_waits_no_time() -> None:
    assert due_work_on_time([judged_node(small(1, ago(minutes=-3)))], NOW).text.endswith("the oldest has waited for 0 s")
