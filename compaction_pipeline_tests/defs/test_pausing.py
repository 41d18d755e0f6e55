"""`pause_job` and `resume_job` do what the commands of these names do."""

from __future__ import annotations

from typing import Any

import dagster as dg
import pytest

from compaction_pipeline.definitions import defs
from compaction_pipeline_tests.defs.executed import failure
from compaction_pipeline_tests.defs.lake import Lake
from compaction_pipeline_tests.opened import OpenedServices


def run(instance: dg.DagsterInstance, job: str, *tables: str, **more: Any) -> dg.ExecuteInProcessResult:
    config = {**({"tables": list(tables)} if tables else {}), **more}
    run_config: dict[str, Any] = {"ops": {job.removesuffix("_job"): {"config": config}}} if config else {}
    return defs.resolve_job_def(job).execute_in_process(instance=instance, run_config=run_config, raise_on_error=False)


def paused(services: OpenedServices) -> list[str]:
    return [str(state.table) for state in services.stores.tables.states() if state.paused]


def test_a_named_table_is_paused_and_resumed(lake: Lake, services: OpenedServices, instance: dg.DagsterInstance) -> None:
    lake.create("shop.returns")
    services.explore_catalogs.explore()
    assert run(instance, "pause_job", "lake.shop.orders").success
    assert paused(services) == ["lake.shop.orders"]
    assert run(instance, "resume_job", "lake.shop.orders").success
    assert paused(services) == []


def test_all_tables_are_paused_and_resumed_when_somebody_says_so(
    lake: Lake, services: OpenedServices, instance: dg.DagsterInstance
) -> None:
    lake.create("shop.returns")
    services.explore_catalogs.explore()
    assert run(instance, "pause_job", all_tables=True).success
    assert paused(services) == ["lake.shop.orders", "lake.shop.returns"]
    assert run(instance, "resume_job", all_tables=True).success
    assert paused(services) == []


@pytest.mark.parametrize("job", ["pause_job", "resume_job"])
def test_a_launch_that_does_not_say_which_tables_changes_nothing(
    lake: Lake, services: OpenedServices, instance: dg.DagsterInstance, job: str
) -> None:
    services.explore_catalogs.explore()
    if job == "resume_job":
        services.explore_catalogs.pause(Lake.identifier)
    before = paused(services)
    assert "the configuration names no table" in failure(run(instance, job))
    assert "and also says `all_tables: true`" in failure(run(instance, job, "lake.shop.orders", all_tables=True))
    assert paused(services) == before


def test_a_name_that_fits_no_table_fails_the_run_after_the_others_were_paused(
    lake: Lake, services: OpenedServices, instance: dg.DagsterInstance
) -> None:
    result = run(instance, "pause_job", "orders", "lake.shop.nowhere", "lake.shop.orders")
    assert not result.success
    assert paused(services) == ["lake.shop.orders"]
    failed = next(event for event in result.all_events if event.is_step_failure).step_failure_data.user_failure_data
    assert failed is not None
    rows = failed.metadata["failed"].value.records  # type: ignore[union-attr]
    assert [row.data["what"] for row in rows] == ["orders", "lake.shop.nowhere"]
    assert "`compaction-pipeline table list` lists all that are" in rows[1].data["reason"]
    assert "must be catalog.namespace.table" in str(rows[0].data["reason"])
    assert "the rest is paused" in str(failed.description)
    assert "nothing is paused" in failure(run(instance, "pause_job", "lake.shop.nowhere"))
