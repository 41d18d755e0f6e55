"""Two code locations in one workspace: ours, and one of somebody else whose asset stands for a table of ours."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from compaction_pipeline_tests.browser.deployment import Deployment

pytestmark = pytest.mark.browser

_NODES = """query($key: AssetKeyInput!) { assetNodes(assetKeys: [$key]) {
  repository { location { name } }
  assetMaterializations(limit: 1) { runId }
  assetObservations(limit: 50) { metadataEntries { label ... on TextMetadataEntry { text } } }
  assetChecksOrError { ... on AssetChecks { checks { name executionForLatestMaterialization { status } } } } } }"""
_RELOAD = 'mutation { reloadRepositoryLocation(repositoryLocationName: "compaction_pipeline") { __typename } }'


def node(dagster: Deployment, *path: str) -> dict[str, Any]:
    (found,) = dagster.query(_NODES, key={"path": list(path)})["assetNodes"]
    return dict(found)


def last_compaction(dagster: Deployment) -> str | None:
    """What the newest observation of their asset says of our last commit."""
    newest = node(dagster, "analytics", "orders")["assetObservations"][:1]
    texts = {entry["label"]: entry.get("text") for each in newest for entry in each["metadataEntries"]}
    return texts.get("compaction/last_compaction_did")


def test_their_asset_shows_health_last_compaction_and_a_check(dagster: Deployment, page: Page, screenshot: Callable[[str], None]) -> None:
    did = dagster.wait("the last compaction on their asset", lambda: last_compaction(dagster))
    assert "→" in did
    assert node(dagster, "analytics", "orders")["repository"]["location"]["name"] == "theirs"
    page.goto("/assets/analytics/orders?view=events")
    expect(page.get_by_text("compaction/health").first).to_be_visible()
    expect(page.get_by_text("compaction/last_compaction_did").first).to_be_visible()
    screenshot("their_asset")

    # Dagster shows the check after the next load of our code location.
    assert dagster.query(_RELOAD)["reloadRepositoryLocation"]["__typename"] == "WorkspaceLocationEntry"
    checks = dagster.wait("the check on their asset", lambda: node(dagster, "analytics", "orders")["assetChecksOrError"]["checks"])
    assert [check["name"] for check in checks] == ["compaction_health"]
    page.goto("/assets/analytics/orders?view=checks")
    expect(page.get_by_text("compaction_health").first).to_be_visible()
    # Day 9 of the table holds a broken file.
    expect(page.get_by_text("lake.shop.orders is FAILING").first).to_be_visible()
    screenshot("their_check")


def test_their_automation_follows_our_commits(dagster: Deployment, page: Page) -> None:
    dagster.wait("a run of their asset", lambda: node(dagster, "copy_of_orders")["assetMaterializations"])


_PARTITIONS = """query($key: AssetKeyInput!) { assetNodes(assetKeys: [$key]) {
  assetPartitionStatuses { ... on TimePartitionStatuses { ranges { status startKey endKey } } } } }"""
_TICKS = """{ sensorOrError(sensorSelector: {repositoryName: "__repository__", repositoryLocationName: "theirs",
  sensorName: "readiness_sensor"}) { ... on Sensor { sensorState { ticks(limit: 5) { skipReason } } } } }"""


def days_of(dagster: Deployment, *path: str) -> list[tuple[str, str]]:
    """The ranges of days of an asset that are materialized."""
    (found,) = dagster.query(_PARTITIONS, key={"path": list(path)})["assetNodes"]
    ranges = found["assetPartitionStatuses"]["ranges"]
    return [(each["startKey"], each["endKey"]) for each in ranges if each["status"] == "MATERIALIZED"]


def test_their_asset_waits_for_days_of_a_table(dagster: Deployment, page: Page, screenshot: Callable[[str], None]) -> None:
    def said() -> str:
        ticks = dagster.query(_TICKS)["sensorOrError"]["sensorState"]["ticks"]
        return next((tick["skipReason"] for tick in ticks if tick["skipReason"]), "")

    dagster.wait("a tick that says what waits", lambda: "4 partitions waiting" in said())
    assert days_of(dagster, "returns_of_a_day") == []
    # A property says a watermark without a commit.
    with dagster.lake.load("shop.returns").transaction() as transaction:
        transaction.set_properties({"watermark.table": str(int(datetime(2026, 1, 3, tzinfo=timezone.utc).timestamp() * 1000))})
    two = [("2026-01-01", "2026-01-02")]
    dagster.wait("the days of the table", lambda: days_of(dagster, "ready", "lake", "shop", "returns") == two)
    dagster.wait("runs of their asset", lambda: days_of(dagster, "returns_of_a_day") == two)
    page.goto("/assets/ready/lake/shop/returns?view=partitions")
    expect(page.get_by_text("2026-01-02").first).to_be_visible()
    screenshot("ready_partitions")
    page.goto("/assets/ready/lake/shop/returns?view=checks")
    expect(page.get_by_text("still_ready").first).to_be_visible()
    expect(page.get_by_text("every partition that is materialized here is ready").first).to_be_visible()
    screenshot("still_ready")
