"""How a run reports launched nodes for which nothing was planned."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any, cast

import dagster as dg
import pytest

from compaction_pipeline.core.fragmentation.verdict import NodeVerdict, PlanReason, PlanReasonCode
from compaction_pipeline.core.insight.compaction import Compaction
from compaction_pipeline.core.planning.plan import CompactionPlan
from compaction_pipeline.core.tables.figures import NodeMetrics
from compaction_pipeline.defs.report import RunReport
from compaction_pipeline_tests.builders import TABLE, node
from compaction_pipeline_tests.plain_names import NAMES

HELD = "process 7 on elsewhere is merging 1 task of lake.shop.orders"


def said_of(codes: dict[int, PlanReasonCode]) -> tuple[dict[str, str], str]:
    """The reasons of the nodes that became green, by key, and the error of the run. Another process merges files of the table."""
    logged: list[dg.AssetMaterialization] = []
    context = SimpleNamespace(log=logging.getLogger("run"), log_event=logged.append, instance=None, run=SimpleNamespace(run_id="r"))
    services = SimpleNamespace(merges_on=None, settings=SimpleNamespace(merge_engine="in-process"))
    report = RunReport(NAMES, cast(Any, context), cast(Any, services))
    verdicts = tuple(
        NodeVerdict(node(number), None, PlanReason(code, f"because {code.value}"), NodeMetrics()) for number, code in codes.items()
    )
    plan = CompactionPlan((), PlanReason(PlanReasonCode.FILES_IN_USE, "in use"), verdicts=verdicts)
    report.compacted(Compaction(TABLE, plan, held=HELD), {f"key {number}": node(number) for number in codes})
    try:
        report.fail_if_anything_failed()
        error = ""
    except dg.Failure as failure:
        error = str(failure.description)
    return {str(event.partition): str(event.metadata["reason"].value) for event in logged}, error


def test_a_node_that_another_process_merges_is_green_and_says_who() -> None:
    assert said_of({1: PlanReasonCode.FILES_IN_USE}) == ({"key 1": HELD}, "")


@pytest.mark.parametrize("code", [PlanReasonCode.LIVE_TWICE, PlanReasonCode.FAILING, PlanReasonCode.OVER_BUDGET])
def test_a_node_with_a_reason_of_its_own_is_not_green_because_another_one_is_held(code: PlanReasonCode) -> None:
    green, error = said_of({1: PlanReasonCode.FILES_IN_USE, 2: code})
    assert green == {"key 1": HELD}
    assert f"because {code.value}" in error
