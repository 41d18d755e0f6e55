"""The Dagster job that expires snapshots: what it does, and what its log says."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import dagster as dg
import pytest

from compaction_pipeline.bootstrap import Services
from compaction_pipeline.definitions import defs
from compaction_pipeline_tests.defs.executed import failure, run
from compaction_pipeline_tests.defs.lake import Lake
from compaction_pipeline_tests.defs.ticks import Tick, reason


def asks_for_expiry(lake: Lake, services: Services, age_ms: str) -> None:
    with lake.orders.transaction() as transaction:
        transaction.set_properties(
            {"table-expire.enabled": "true", "history.expire.max-snapshot-age-ms": age_ms, "compaction.expire.grace": "0s"}
        )
    lake.append_small_files(1, 1)
    lake.append_small_files(1, 1)
    services.one_table.refresh(Lake.identifier)


def test_the_job_expires_tables_that_ask_for_it_and_says_what_it_did(
    lake: Lake, services: Services, instance: dg.DagsterInstance, capfd: pytest.CaptureFixture[str]
) -> None:
    asks_for_expiry(lake, services, "0")
    before = len(lake.orders.metadata.snapshots)
    assert run(instance, "upkeep_job").success
    assert len(lake.orders.metadata.snapshots) == 1
    log = capfd.readouterr().err
    assert f"{before - 1} snapshots removed, 1 kept; their files wait" in log
    assert "1 work done or not needed" in log


def test_the_job_leaves_tables_alone_that_do_not_ask(
    lake: Lake, services: Services, instance: dg.DagsterInstance, capfd: pytest.CaptureFixture[str]
) -> None:
    services.one_table.refresh(Lake.identifier)
    before = lake.orders.metadata_location
    assert run(instance, "upkeep_job").success
    assert lake.orders.metadata_location == before
    assert "0 works done or not needed" in capfd.readouterr().err


def test_a_table_that_cannot_be_expired_fails_the_run_with_its_reason(
    lake: Lake, services: Services, instance: dg.DagsterInstance, capfd: pytest.CaptureFixture[str]
) -> None:
    asks_for_expiry(lake, services, "soon")
    result = run(instance, "upkeep_job")
    assert not result.success
    assert "upkeep of 1 table failed" in str(failure(result))
    assert "history.expire.max-snapshot-age-ms" in capfd.readouterr().err


def test_the_sensor_asks_for_a_run_only_while_something_is_due(
    lake: Lake, services: Services, instance: dg.DagsterInstance, tick: Tick
) -> None:
    services.one_table.refresh(Lake.identifier)
    assert "no table that asks for upkeep has changed" in reason(tick("upkeep_sensor"))
    asks_for_expiry(lake, services, "0")
    assert len(tick("upkeep_sensor").run_requests or ()) == 1
    assert run(instance, "upkeep_job").success
    services.one_table.refresh(Lake.identifier)
    # The table has changed, and its files wait for an hour.
    assert run(instance, "upkeep_job").success
    assert "no table that asks for upkeep has changed" in reason(tick("upkeep_sensor"))


def test_the_sensor_asks_for_no_second_run(lake: Lake, services: Services, instance: dg.DagsterInstance, tick: Tick) -> None:
    asks_for_expiry(lake, services, "0")
    instance.create_run_for_job(defs.resolve_job_def("upkeep_job"), status=dg.DagsterRunStatus.STARTED)
    assert "1 table due, e.g. lake.shop.orders; run " in reason(tick("upkeep_sensor"))


def test_a_look_for_orphan_files_plots_the_stored_megabytes_of_its_table(
    lake: Lake, services: Services, instance: dg.DagsterInstance
) -> None:
    with lake.orders.transaction() as transaction:
        transaction.set_properties({"clean-orphan-file.enabled": "true"})
    lake.append_small_files(1, 1)
    services.one_table.refresh(Lake.identifier)
    assert run(instance, "upkeep_job").success
    location = Path(urlsplit(lake.orders.refresh().location()).path)
    stored = sum(path.stat().st_size for path in location.rglob("*") if path.is_file())
    found = instance.fetch_observations(dg.AssetKey("table_figures"), limit=1).records
    assert [record.asset_observation.metadata[f"{Lake.identifier} stored_mb"].value for record in found] == [round(stored / 1e6, 3)]
