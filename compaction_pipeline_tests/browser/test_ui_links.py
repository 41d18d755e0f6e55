"""A link of `table_health` starts the work on scattered nodes. The tests of `test_ui` run before, because they need the same nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from compaction_pipeline_tests.browser.deployment import Deployment
from compaction_pipeline_tests.defs.lake import key

pytestmark = pytest.mark.browser

_PAGE = """{ assetNodes(assetKeys: [{path: ["table_health"]}]) { assetMaterializations(limit: 1) {
  metadataEntries { label ... on MarkdownMetadataEntry { mdStr } } } } }"""
_RUNS = (
    """{ runsOrError(filter: {pipelineName: "compact_job"}, limit: 100) { ... on Runs { results { runId status tags { key value } } } } }"""
)
_COMPACTED = """{ assetNodes(assetKeys: [{path: ["compacted_files"]}]) {
  assetPartitionStatuses { ... on DefaultPartitionStatuses { materializedPartitions } } } }"""


def links(dagster: Deployment) -> str:
    """The links on the newest page of `table_health`, as Markdown."""
    materializations = dagster.query(_PAGE)["assetNodes"][0]["assetMaterializations"]
    entries = materializations[0]["metadataEntries"] if materializations else []
    return " ".join(str(entry["mdStr"]) for entry in entries if entry["label"] in ("compact_worst", "compact_one_node", "compact_more"))


def runs_of_people(dagster: Deployment) -> list[dict[str, Any]]:
    runs = dagster.query(_RUNS)["runsOrError"]["results"]
    return [run for run in runs if {"key": "dagster/priority", "value": "-1"} not in run["tags"]]


def compacted(dagster: Deployment) -> set[str]:
    (node,) = dagster.query(_COMPACTED)["assetNodes"]
    return set(node["assetPartitionStatuses"]["materializedPartitions"])


def test_the_link_of_one_node_fills_in_that_node_alone(dagster: Deployment, page: Page, screenshot: Callable[[str], None]) -> None:
    dagster.wait("the link of a node", lambda: "a forced MAJOR" in links(dagster))
    page.goto("/assets/table_health")
    entry = page.get_by_role("row", name="compact_one_node")
    expect(entry).to_be_visible()
    link = entry.get_by_role("link").first
    day = (link.text_content() or "").rpartition("day=")[2]
    page.set_viewport_size({"width": 1400, "height": 1000})
    entry.scroll_into_view_if_needed()
    screenshot("links_of_nodes")
    link.click()
    expect(page.get_by_role("button", name="Launch Run")).to_be_visible()
    expect(page.get_by_text("node_keys:").first).to_be_visible()
    expect(page.get_by_text(f"/day={day}")).to_have_count(1)


def test_a_link_launches_the_worst_nodes_in_one_run(dagster: Deployment, page: Page, screenshot: Callable[[str], None]) -> None:
    # The newest day has the most small files, and is below its threshold: only a person compacts it.
    dagster.wait("the link of the worst nodes", lambda: "shop.returns%2Fday%3D2026-01-12" in links(dagster))
    rows = dagster.lake.rows("shop.returns")
    before = len(runs_of_people(dagster))
    page.goto("/assets/table_health")
    expect(page.get_by_role("row", name="compact_worst")).to_be_visible()
    screenshot("links")
    # When there are many nodes, the link for all of them is behind a button, and the link on the page says "of the worst nodes".
    all_nodes = page.get_by_role("link", name="Compact the")
    if not all_nodes.count():
        page.get_by_role("row", name="compact_more").get_by_text("Show Markdown").click()
    all_nodes.click()
    launch = page.get_by_role("button", name="Launch Run")
    expect(launch).to_be_visible()
    expect(page.get_by_text("node_keys:").first).to_be_visible()
    expect(page.get_by_text("shop.returns/day=2026-01-12").first).to_be_visible()
    screenshot("launchpad")
    launch.click()
    wanted = {key(day, "returns") for day in range(1, 13)}
    dagster.wait("every node of returns compacted", lambda: wanted <= compacted(dagster))
    (run, *_) = runs_of_people(dagster)
    assert len(runs_of_people(dagster)) == before + 1
    dagster.wait("the end of the run", lambda: runs_of_people(dagster)[0]["status"] in ("SUCCESS", "FAILURE"))
    assert (dagster.lake.files("shop.returns"), dagster.lake.rows("shop.returns")) == (12, rows)
    page.goto(f"/runs/{run['runId']}")
    expect(page.get_by_text("lake.shop.returns").first).to_be_visible()
    screenshot("run_of_the_link")
