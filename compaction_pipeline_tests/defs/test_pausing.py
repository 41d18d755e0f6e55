"""`pause_job` and `resume_job` do what the commands of these names do."""

from __future__ import annotations

from typing import Any

import dagster as dg

from compaction_pipeline.definitions import defs
from compaction_pipeline_tests.defs.lake import Lake
from compaction_pipeline_tests.opened import OpenedServices


def run(instance: dg.DagsterInstance, job: str, *tables: str) -> dg.ExecuteInProcessResult:
    config: dict[str, Any] = {"ops": {job.removesuffix("_job"): {"config": {"tables": list(tables)}}}} if tables else {}
    return defs.resolve_job_def(job).execute_in_process(instance=instance, run_config=config, raise_on_error=False)


def paused(services: OpenedServices) -> list[str]:
    return [str(state.table) for state in services.stores.tables.states() if state.paused]


def test_a_named_table_is_paused_and_resumed(lake: Lake, services: OpenedServices, instance: dg.DagsterInstance) -> None:
    lake.create("shop.returns")
    services.explore_catalogs.explore()
    assert run(instance, "pause_job", "lake.shop.orders").success
    assert paused(services) == ["lake.shop.orders"]
    assert run(instance, "resume_job", "lake.shop.orders").success
    assert paused(services) == []


def test_without_names_it_is_every_table(lake: Lake, services: OpenedServices, instance: dg.DagsterInstance) -> None:
    lake.create("shop.returns")
    services.explore_catalogs.explore()
    assert run(instance, "pause_job").success
    assert paused(services) == ["lake.shop.orders", "lake.shop.returns"]
    assert run(instance, "resume_job").success
    assert paused(services) == []


def test_a_name_that_fits_no_table_fails_the_run_after_the_others_were_paused(
    lake: Lake, services: OpenedServices, instance: dg.DagsterInstance
) -> None:
    result = run(instance, "pause_job", "orders", "lake.shop.nowhere", "lake.shop.orders")
    assert not result.success
    assert paused(services) == ["lake.shop.orders"]
    failure = next(event for event in result.all_events if event.is_step_failure).step_failure_data.user_failure_data
    assert failure is not None
    rows = failure.metadata["failed"].value.records  # type: ignore[union-attr]
    assert [row.data["what"] for row in rows] == ["orders", "lake.shop.nowhere"]
    assert "must be catalog.namespace.table" in str(rows[0].data["reason"])
    assert "the rest is paused" in str(failure.description)
