"""Tests of what a person sees and does in Dagster's UI, on a deployment whose sensors really run."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from compaction_pipeline_tests.browser.deployment import Deployment
from compaction_pipeline_tests.browser.ui import Screenshot, choose, materialized
from compaction_pipeline_tests.defs.lake import key

pytestmark = pytest.mark.browser


_BACKFILLS = "{ partitionBackfillsOrError(limit: 1) { ... on PartitionBackfills { results { id status partitionNames } } } }"
_RUNS = """query($job: String!) { runsOrError(filter: {pipelineName: $job}, limit: 50) {
  ... on Runs { results { runId status tags { key value } } } } }"""


@pytest.fixture(scope="module", autouse=True)
def _sensors_did_their_work(dagster: Deployment) -> None:
    """Wait until the sensors have found, merged and committed the days 1–3 of `orders`. Add the partitions of `returns`."""
    wanted = {key(1), key(2), key(3)}
    dagster.wait("the sensors' run", lambda: wanted <= materialized(dagster))
    for day in range(1, 13):
        dagster.add_partition(key(day, "returns"))


def test_sensors_start_a_machine_run_that_compacts_due_nodes(dagster: Deployment, page: Page, screenshot: Screenshot) -> None:
    runs = dagster.query(_RUNS, job="compact_job")["runsOrError"]["results"]
    assert {"key": "dagster/priority", "value": "-1"} in runs[-1]["tags"]
    page.goto("/automation")
    expect(page.get_by_text("fragmentation_sensor")).to_be_visible()
    screenshot("automation")


def test_the_table_of_worst_nodes_has_rows_with_reasons(dagster: Deployment, page: Page, screenshot: Screenshot) -> None:
    page.set_viewport_size({"width": 2100, "height": 1150})  # the table is wide
    page.goto("/assets/table_health")
    expect(page.get_by_text("worst_nodes", exact=True)).to_be_visible()
    expect(page.get_by_role("cell", name="FAILING").first).to_be_visible()
    expect(page.get_by_role("cell", name="lake.shop.returns").first).to_be_visible()
    assert page.locator("table table tr").count() > 5
    screenshot("table_health")


def test_a_failing_check_shows_its_reason(dagster: Deployment, page: Page, screenshot: Screenshot) -> None:
    page.goto("/assets/compacted_files?view=checks")
    page.get_by_text("small_files_left", exact=True).first.click()
    expect(
        page.get_by_text("1 of 16 nodes fail; lake.shop.orders day=2026-01-09: 4 small data files, and 3 make a MINOR due").first
    ).to_be_visible()
    screenshot("check_small_files_left")


def test_launching_one_partition_ends_green(dagster: Deployment, page: Page, screenshot: Screenshot) -> None:
    wanted = key(5, "returns")
    before = dagster.lake.files("shop.returns")
    rows = dagster.lake.rows("shop.returns")
    choose(page, [wanted])
    screenshot("launch_one")
    page.get_by_role("button", name="Launch").last.click()
    dagster.wait(f"{wanted} green", lambda: wanted in materialized(dagster))
    assert dagster.lake.files("shop.returns") == before - 7
    assert dagster.lake.rows("shop.returns") == rows
    page.goto(f"/assets/compacted_files?view=partitions&partition={wanted}")
    expect(page.get_by_text("merged_files_count").first).to_be_visible()
    screenshot("partition_green")


def test_a_backfill_of_three_scattered_partitions_completes(dagster: Deployment, page: Page, screenshot: Screenshot) -> None:
    wanted = [key(day, "returns") for day in (2, 7, 11)]
    choose(page, wanted)
    page.get_by_role("button", name="Launch backfill").click()
    dagster.wait("three green nodes", lambda: set(wanted) <= materialized(dagster))
    dagster.wait("the backfill's end", lambda: _newest_backfill(dagster)["status"] == "COMPLETED_SUCCESS")
    assert set(_newest_backfill(dagster)["partitionNames"]) == set(wanted)
    page.goto(f"/runs/b/{_newest_backfill(dagster)['id']}")
    expect(page.get_by_text("compacted_files").first).to_be_visible()
    screenshot("backfill")


def test_figures_of_a_node_are_plotted(dagster: Deployment, page: Page, screenshot: Screenshot) -> None:
    page.goto("/assets/compaction_records")
    page.get_by_role("button", name="Plots").click()
    expect(page.locator("canvas").first).to_be_visible()
    assert page.locator("canvas").count() > 3
    screenshot("plots")


def _newest_backfill(dagster: Deployment) -> dict[str, object]:
    (newest,) = dagster.query(_BACKFILLS)["partitionBackfillsOrError"]["results"]
    return dict(newest)
