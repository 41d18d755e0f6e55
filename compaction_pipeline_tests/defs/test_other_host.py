"""A run has the definitions that its code server has loaded, although it runs on a host with other files."""

from __future__ import annotations

import os
from pathlib import Path

import dagster as dg
import pytest

from compaction_pipeline.defs.own_checks import CHECK, remember
from compaction_pipeline_tests.defs.lake import Lake
from compaction_pipeline_tests.defs.other_host import code_server
from compaction_pipeline_tests.defs.ticks import Tick
from compaction_pipeline_tests.plain_names import NAMES

pytestmark = pytest.mark.scenario

ORDERS = dg.AssetKey(["analytics", "orders"])
_SOURCE = "from compaction_pipeline.definitions import defs\n"


def test_a_check_that_the_code_server_knows_is_evaluated_where_its_list_of_assets_is_missing(
    lake: Lake, tick: Tick, tmp_path: Path
) -> None:
    lake.load("shop.orders").transaction().set_properties({"compaction.dagster-asset-key": "analytics/orders"}).commit_transaction()
    tick("snapshot_sensor")
    home, elsewhere = Path(os.environ["COMPACTION_HOME"]), tmp_path / "empty"
    remember(NAMES, [tuple(ORDERS.path)], home)
    elsewhere.mkdir()
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(elsewhere),
        "COMPACTION_HOME": str(elsewhere),
        "COMPACTION_STATE_URL": f"sqlite:///{home / 'state.db'}",
    }
    with code_server(tmp_path / "dagster", _SOURCE, environment) as launch:
        check = {"assetKey": {"path": ORDERS.path}, "name": CHECK}
        ended = launch("__ASSET_JOB", assetSelection=[], assetCheckSelection=[check])
    assert ended.failure == ""
    events = [entry.dagster_event for entry in ended.events if entry.dagster_event is not None]
    (judged,) = [event.asset_check_evaluation_data for event in events if event.event_type_value == "ASSET_CHECK_EVALUATION"]
    assert (judged.asset_key, judged.passed) == (ORDERS, True)
    assert "lake.shop.orders is DUE" in str(judged.description)
    assert not (elsewhere / "own_assets.json").exists()
