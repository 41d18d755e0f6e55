"""Tests of what a stranger reads on our pages in Dagster's UI: pictures, figures, links and the log of a run."""

from __future__ import annotations

import json
import re
from datetime import datetime, timezone
from typing import Literal
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from compaction_pipeline.bootstrap import open_services
from compaction_pipeline.core.capacity.scaling.action import Action, ActionKind, Direction, Outcome
from compaction_pipeline.core.capacity.scaling.record import Scale, ScalingRecord
from compaction_pipeline.core.capacity.scaling.target import Target
from compaction_pipeline.core.capacity.team import Limits, Team
from compaction_pipeline.core.queue.group import ResourceGroup
from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier
from compaction_pipeline.settings import Settings
from compaction_pipeline_tests.browser.deployment import Deployment
from compaction_pipeline_tests.browser.ui import Screenshot, choose, materialized
from compaction_pipeline_tests.defs.lake import Lake, key
from compaction_pipeline_tests.opened import OpenedServices
from compaction_pipeline_tests.rest_catalog import rest_server

pytestmark = pytest.mark.browser

_DELTA_FILES = """{ assetNodes(assetKeys: [{path: ["delta_files"]}]) {
  assetPartitionStatuses { ... on DefaultPartitionStatuses { materializedPartitions unmaterializedPartitions } } } }"""
_LAUNCHED = """{ runsOrError(filter: {pipelineName: "__ASSET_JOB"}, limit: 20) {
  ... on Runs { results { runId status tags { key value } stepStats { stepKey status } } } } }"""

_FIGURES = """{ assetNodes(assetKeys: [{path: ["table_figures"]}]) { assetMaterializations(limit: 5) { metadataEntries { label } } } }"""

_WAITING = """{ assetNodes(assetKeys: [{path: ["waiting_jobs"]}]) { assetMaterializations(limit: 1) { timestamp } } }"""

_CAPACITY = """{ assetNodes(assetKeys: [{path: ["compaction_capacity"]}]) { assetMaterializations(limit: 1) { timestamp } } }"""

_RESET = """mutation { setSensorCursor(sensorSelector: {sensorName: "fragmentation_sensor", repositoryName: "__repository__",
  repositoryLocationName: "compaction_pipeline"}) { __typename } }"""

_LOG = """query($run: ID!) { logsForRun(runId: $run, limit: 1000) {
  ... on EventConnection { events { ... on MessageEvent { message } } } } }"""


@pytest.fixture(autouse=True)
def _usual_window(page: Page) -> None:
    page.set_viewport_size({"width": 1400, "height": 1500})


@pytest.fixture(scope="module", autouse=True)
def _sensors_did_their_work(dagster: Deployment) -> None:
    dagster.wait("the sensors' run", lambda: {key(1), key(2), key(3)} <= materialized(dagster))


def shows(page: Page, name: str) -> None:
    """Assert that the browser drew the picture of this name, and that no box around it cuts it off.

    One script scrolls and measures, because Dagster replaces the pictures of a page whenever it asks its server again.
    """
    left_over = page.wait_for_function(
        """name => {
            const image = Array.from(document.images).find(one => one.alt === name)
            if (!image || !image.complete || image.naturalWidth <= 100) return null
            image.scrollIntoView()
            let end = window.innerWidth
            for (let box = image.parentElement; box; box = box.parentElement)
                if (getComputedStyle(box).overflowX !== 'visible') end = Math.min(end, box.getBoundingClientRect().right)
            return [end - image.getBoundingClientRect().right]
        }""",
        arg=name,
    ).json_value()[0]
    assert left_over >= 0, f"{name!r} is cut off by {-left_over} pixels"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_table_health_opens_with_pictures_that_are_not_cut_off(
    page: Page, screenshot: Screenshot, scheme: Literal["light", "dark"]
) -> None:
    page.emulate_media(color_scheme=scheme)
    page.goto("/assets/table_health")
    shows(page, "files over time")
    shows(page, "the worst tables")
    expect(page.get_by_text("our commits merged away").first).to_be_visible()
    expect(page.get_by_text("FAILING: ").first).to_be_visible()
    screenshot(f"table_health_{scheme}")
    page.get_by_role("row", name=re.compile("^pictures")).get_by_text("[Show Markdown]").click()
    expect(page.locator("img[alt='the worst tables']").nth(1)).to_be_visible()
    screenshot(f"pictures_{scheme}")


def test_every_node_is_materialized_with_its_figures(dagster: Deployment, page: Page, screenshot: Screenshot) -> None:
    def everything_told() -> bool:
        (node,) = dagster.query(_DELTA_FILES)["assetNodes"]
        statuses = node["assetPartitionStatuses"]
        return key(9) in statuses["materializedPartitions"] and not statuses["unmaterializedPartitions"]

    dagster.wait("an event of each partition of delta_files", everything_told)
    page.goto(f"/assets/delta_files?view=partitions&partition={quote(key(9), safe='')}")
    expect(page.get_by_text("Missing (0)")).to_be_visible()
    expect(page.get_by_text("small_files_count").first).to_be_visible()
    screenshot("delta_files")


def test_a_compacted_node_shows_before_and_after_and_leads_to_its_record(page: Page, screenshot: Screenshot) -> None:
    page.goto(f"/assets/compacted_files?view=partitions&partition={quote(key(1), safe='')}")
    shows(page, "files before and after")
    screenshot("compacted_node")
    page.locator("a[href*='/assets/compaction_records?view=partitions']").first.click()
    expect(page.get_by_text("files_before_count").first).to_be_visible()
    shows(page, "files before and after")
    screenshot("record")


def test_the_page_of_waiting_jobs_says_what_an_instance_waits_for(dagster: Deployment, page: Page, screenshot: Screenshot) -> None:
    today = datetime.now(timezone.utc).date().isoformat()
    load = {"name": "sales.load", "period": "day", "since": today, "needs": [{"job": "sales.raw"}]}
    raw = {"name": "sales.raw", "period": "day", "virtual": True, "since": today}
    services = open_services(Settings(home=dagster.home))
    try:
        services.center.save_project({"project": "sales", "receiver": "airflow", "jobs": [raw, load]})
        services.lead_center.run()
    finally:
        services.lead_center.resign()
        services.close()
    dagster.wait("a point of the plots", lambda: dagster.query(_WAITING)["assetNodes"][0]["assetMaterializations"])
    page.goto("/assets/waiting_jobs")
    expect(page.get_by_text(f"sales.load/{today}/scheduled/1").first).to_be_visible()
    expect(page.get_by_text("job=sales.raw").first).to_be_visible()
    expect(page.get_by_text("waiting_instances_count").first).to_be_visible()
    screenshot("waiting_jobs")


def test_the_page_of_capacity_shows_costs_budgets_and_what_was_scaled(dagster: Deployment, page: Page, screenshot: Screenshot) -> None:
    services = OpenedServices(Settings(home=dagster.home))
    try:
        services.manage_teams.set(Team("shop", ("ann@example.org",), Limits(slots=4, gb_hours=10.0)), "a person")
        assert services.manage_teams.map("lake.shop.orders", "shop", "a person")
        policy = {"dynamic-allocation.enabled": "true", "dynamic-allocation.max-parallelism": "8"}
        services.stores.groups.add(ResourceGroup("heavy", container="workers", properties=policy))
        before, after = Target(1, 1), Target(4, 1)
        action = Action(ActionKind.OPTIMIZERS, Direction.OUT, before, after, "31 tasks wait, the oldest for 3 min")
        now = datetime.now(timezone.utc)
        asked = ScalingRecord("r1", "heavy", now, "p", action, "s")
        assert services.stores.scaling.change(Scale("heavy", 1, after, before, "a person"), asked)
        ended = asked.closed(Outcome.FAILED, "2 of 3 optimizers never registered", now, before)
        assert services.stores.scaling.change(Scale("heavy", 2, before, before, "a person"), ended)
    finally:
        services.close()
    dagster.wait("the action on the page", lambda: dagster.query(_CAPACITY)["assetNodes"][0]["assetMaterializations"])
    page.goto("/assets/compaction_capacity")
    for told in ("it may begin more", "31 tasks wait", "2 of 3 optimizers never registered", "costs_of_teams_today", "gb_hours_today"):
        expect(page.get_by_text(told).first).to_be_visible()
    screenshot("compaction_capacity")


def test_figures_of_all_tables_and_of_the_worst_ones_are_plotted(page: Page, screenshot: Screenshot) -> None:
    page.goto("/assets/table_figures")
    expect(page.get_by_text("all tables without_us_files_count").first).to_be_visible()
    page.get_by_role("button", name="Plots").click()
    expect(page.locator("canvas").first).to_be_visible()
    expect(page.get_by_text("lake.shop.returns small_files_count").first).to_be_visible()
    screenshot("table_figures")


def test_the_health_score_of_a_table_is_shown_with_its_parts_and_sentences_and_plotted(
    dagster: Deployment, page: Page, screenshot: Screenshot
) -> None:
    # 6 kB are enough for a file, and nobody compacts this table.
    dagster.lake.create("shop.scattered", **{"self-optimizing.target-size": "8000", "self-optimizing.enabled": "false"})
    dagster.lake.append_small_files(1, 12, table="shop.scattered")

    text = dagster.wait(
        "the score of the new table", lambda: (found := _told(page, "scores_now")) and "lake.shop.scattered" in found and found
    )
    said = re.search(
        r"lake\.shop\.scattered (\d+) of 100 \(small files (\d+)/40, equality deletes 40/40, position deletes 20/20\): (.*)", text
    )
    assert said, text
    assert int(said[1]) == int(said[2]) + 60 < 100
    assert said[3].startswith("12 data files of ")
    assert f"cost {40 - int(said[2])} of 40 points; nothing to do: 'self-optimizing.enabled' is false" in said[3]
    assert re.search(r"a MINOR would leave about \d+ points, a MAJOR \d+, a FULL \d+", said[3]), text
    page.get_by_text("scores_now", exact=True).scroll_into_view_if_needed()
    screenshot("health_scores")
    # The score of `returns` is in the first point of `table_figures`, and in the next one too.
    dagster.wait("two points of the scores", lambda: _points_of_scores(dagster) >= 2 or _tell_one_more(dagster))
    page.goto("/assets/table_figures")
    expect(page.get_by_role("cell", name="of 100: ").first).to_be_visible()
    page.get_by_role("button", name="Plots").click()
    label = page.get_by_text("lake.shop.returns health_score_points", exact=True).first
    label.scroll_into_view_if_needed()
    plot = page.locator("div").filter(has=label).filter(has=page.locator("canvas")).last
    expect(plot.locator("canvas").first).to_be_visible()
    expect(page.get_by_text("lake.shop.scattered health_score_points").first).to_be_visible()
    screenshot("health_scores_over_time")


def test_a_policy_of_the_catalog_that_forbids_is_the_reason_on_the_page_of_the_tables(
    dagster: Deployment, page: Page, screenshot: Screenshot
) -> None:
    theirs = Lake(dagster.folder / "polaris")
    theirs.create_orders(**{"self-optimizing.enabled": "true"})
    theirs.append_small_files(1, 12)
    content = json.dumps({"version": "2025-02-03", "enable": False})
    policy = {"policy-type": "system.data-compaction", "name": "no-compaction", "namespace": ["shop"], "content": content, "version": 0}
    with rest_server(theirs.catalog) as server:
        server.policies = lambda call: call.answer(200, {"applicable-policies": [{**policy, "inheritable": True, "inherited": True}]})
        services = open_services(Settings(home=dagster.home))
        services.explore_catalogs.register(CatalogEntry("polaris", {"type": "rest", "uri": server.uri}))
        try:
            dagster.wait("the reason of the table", lambda: _FORBIDDEN in _told(page, "tables_now"))
            page.get_by_text("tables_now", exact=True).first.scroll_into_view_if_needed()
            screenshot("policy_of_the_catalog")
            assert server.count("POST") == 0
            assert services.read_tables.table(TableIdentifier("polaris", ("shop",), "orders")).tasks == ()
        finally:
            services.explore_catalogs.remove("polaris")
            services.close()


_FORBIDDEN = (
    "policy of the catalog: 'shop.no-compaction' (system.data-compaction) has 'enable' = false; change it in the catalog, or detach it"
)


def _told(page: Page, name: str) -> str:
    """What the page of the tables says under this name."""
    page.goto("/assets/table_health")
    row = page.get_by_role("row").filter(has=page.get_by_text(name, exact=True)).last
    return " ".join(row.inner_text().split())


def _points_of_scores(dagster: Deployment) -> int:
    """How many points of `table_figures` have the score of `returns`."""
    (node,) = dagster.query(_FIGURES)["assetNodes"]
    labels = [[entry["label"] for entry in point["metadataEntries"]] for point in node["assetMaterializations"]]
    return sum("lake.shop.returns health_score_points" in each for each in labels)


def _tell_one_more(dagster: Deployment) -> None:
    """Reset the sensor's cursor, as a person does on its page: without it the next point would come five minutes after the last one.

    A tick that runs meanwhile stores its own cursor, so this may be needed again.
    """
    assert dagster.query(_RESET)["setSensorCursor"]["__typename"] == "Sensor"


def test_the_page_of_a_launch_says_what_happens_and_skips_nothing(dagster: Deployment, page: Page, screenshot: Screenshot) -> None:
    wanted = key(6, "returns")
    dagster.add_partition(wanted)
    choose(page, [wanted])
    page.get_by_role("button", name="Launch").last.click()
    dagster.wait(f"{wanted} green", lambda: wanted in materialized(dagster))

    def ended() -> list[dict[str, object]]:
        runs = dagster.query(_LAUNCHED)["runsOrError"]["results"]
        tag = {"key": "dagster/partition", "value": wanted}
        return [run for run in runs if tag in run["tags"] and run["status"] == "SUCCESS"]

    (run,) = dagster.wait("the end of the launch", ended)
    assert {step["status"] for step in run["stepStats"]} == {"SUCCESS"}
    said = [event.get("message", "") for event in dagster.query(_LOG, run=run["runId"])["logsForRun"]["events"]]
    assert any("lake.shop.returns: reading its newest snapshot, then planning" in line for line in said)
    assert any("1 of 1 task" in line for line in said)
    page.goto(f"/runs/{run['runId']}")
    expect(page.get_by_text("compacted_files").first).to_be_visible()
    screenshot("run")
