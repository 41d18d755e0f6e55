"""What tests of the UI do on its pages."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from playwright.sync_api import Page

from compaction_pipeline_tests.browser.deployment import Deployment

Screenshot = Callable[[str], None]


_MATERIALIZED = """query($keys: [AssetKeyInput!]!) { assetNodes(assetKeys: $keys) {
  assetPartitionStatuses { ... on DefaultPartitionStatuses { materializedPartitions failedPartitions } } } }"""


def materialized(dagster: Deployment) -> set[str]:
    (node,) = dagster.query(_MATERIALIZED, keys=[{"path": ["compacted_files"]}])["assetNodes"]
    return set(node["assetPartitionStatuses"]["materializedPartitions"])


def choose(page: Page, keys: Sequence[str]) -> None:
    """Open the dialog of `compacted_files` and choose these partitions."""
    page.goto("/assets/compacted_files?view=partitions")
    page.get_by_role("button", name="Materialize").first.click()
    page.get_by_text("Select a partition or create one").click()
    for wanted in keys:
        page.get_by_placeholder("Filter partitions").fill(wanted)
        page.get_by_text(wanted, exact=True).locator("visible=true").last.click()
    page.keyboard.press("Escape")
