"""Which table reports to which asset, and when a report is due."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from compaction_pipeline.core.fragmentation.health import HealthStatus
from compaction_pipeline.core.insight.overview import TableOverview
from compaction_pipeline.core.insight.own_assets import REFRESH, AssetReport, LastReport, assign_assets, report_is_due
from compaction_pipeline.core.tables.figures import NodeMetrics
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline_tests.builders import NOW, TABLE

OTHER = TableIdentifier("lake", ("shop",), "returns")
REPORT = AssetReport(("analytics", "orders"), TableOverview(TABLE, 1, NodeMetrics(data_files=4), HealthStatus.DUE, "4 small files"), 3)
TOLD = LastReport(REPORT.told, NOW)


def test_the_first_report_is_due_and_the_same_is_never_told_again() -> None:
    assert report_is_due(REPORT, None, NOW)
    assert not report_is_due(REPORT, TOLD, NOW + timedelta(days=365))


@pytest.mark.parametrize(
    "change",
    [{"landed": 4}, {"table": replace(REPORT.table, health=HealthStatus.FAILING)}, {"table": replace(REPORT.table, is_held_back=True)}],
)
def test_a_commit_and_a_problem_are_told_at_once(change: dict[str, object]) -> None:
    assert report_is_due(replace(REPORT, **change), TOLD, NOW)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "change", [{"health": HealthStatus.HEALTHY}, {"reason": "5 small files"}, {"metrics": NodeMetrics(data_files=5)}, {"warning": "look"}]
)
def test_figures_are_told_at_most_every_ten_minutes(change: dict[str, object]) -> None:
    report = replace(REPORT, table=replace(REPORT.table, **change))  # type: ignore[arg-type]
    assert not report_is_due(report, TOLD, NOW + REFRESH - timedelta(seconds=1))
    assert report_is_due(report, TOLD, NOW + REFRESH)


def test_a_table_that_waits_is_well_and_one_that_needs_a_person_is_not() -> None:
    well = {status: replace(REPORT, table=replace(REPORT.table, health=status)).is_well for status in HealthStatus}
    assert {status for status, is_well in well.items() if not is_well} == {HealthStatus.FAILING, HealthStatus.REFUSED}
    assert not replace(REPORT, table=replace(REPORT.table, health=HealthStatus.WAITING, is_held_back=True)).is_well


def test_an_asset_stands_for_one_table_and_not_for_one_of_ours() -> None:
    third = replace(OTHER, name="third")
    named = [(TABLE, ("orders",)), (OTHER, ("orders",)), (third, ("table_health",))]
    assets = assign_assets(named, [("table_health",)], ["lake.x.y: bad"])
    assert assets.tables == {("orders",): TABLE}
    assert assets.problems == (
        "lake.x.y: bad",
        f"{OTHER} names the asset orders, which stands for {TABLE} already: name another one",
        f"{third} names the asset table_health, which is one of compaction_pipeline itself: name one of your own",
    )
