"""Fixtures of a small real deployment: SQLite state, an Iceberg table of several days with small files, merges in this process."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import dagster as dg
import pytest

from compaction_pipeline.bootstrap import open_services
from compaction_pipeline.core.tables.table import CatalogEntry
from compaction_pipeline.definitions import defs
from compaction_pipeline.settings import Settings, load_settings
from compaction_pipeline_tests.defs.lake import Lake
from compaction_pipeline_tests.defs.ticks import Tick
from compaction_pipeline_tests.opened import OpenedServices

_ROWS_WRITTEN = 45


@pytest.fixture(scope="session")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The folder of the lake, and a copy of its first state. Metadata contains absolute paths, so the copy is put back into that folder."""
    base = tmp_path_factory.mktemp("deployment")
    stands, copy = base / "stands", base / "copy"
    made = Lake(stands / "lake")
    made.create_orders()
    for day, files in ((1, 4), (2, 4), (3, 1)):
        made.append_small_files(day, files)
    services = open_services(Settings(home=stands / "home"))
    services.explore_catalogs.register(CatalogEntry("lake", made.properties))
    services.close()
    shutil.copytree(stands, copy)
    return stands, copy


@pytest.fixture
def lake(pristine: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> Lake:
    """A registered catalog with `shop.orders`. Days 1–3 have 4, 4 and 1 small files, a MINOR is due at 3, and commits do not wait."""
    stands, copy = pristine
    shutil.rmtree(stands)
    shutil.copytree(copy, stands)
    monkeypatch.setenv("COMPACTION_HOME", str(stands / "home"))
    monkeypatch.setenv("COMPACTION_MERGE_ENGINE", "in-process")
    monkeypatch.setenv("COMPACTION_LINGER_SECONDS", "0")
    # A task that failed is tried again in the same run, so that a test sees its end.
    monkeypatch.setenv("COMPACTION_RETRY_INTERVAL_SECONDS", "0")
    return Lake(stands / "lake", first_id=_ROWS_WRITTEN)


@pytest.fixture
def services(lake: Lake) -> Iterator[OpenedServices]:
    """Services on the lake's state, as another process opens them."""
    opened = OpenedServices(load_settings())
    yield opened
    opened.close()


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        yield made


@pytest.fixture
def tick(instance: dg.DagsterInstance) -> Tick:
    """A function that evaluates a sensor by name as the daemon does, and stores its partitions and events.

    It takes other resources by their keys.
    """

    def evaluate(name: str, cursor: str | None = None, of: dg.Definitions = defs, **others: object) -> dg.SensorResult:
        repository, given = of.get_repository_def(), {**(of.resources or {}), **others}
        resources = {key: given[key] for key in repository.get_sensor_def(name).required_resource_keys}
        with dg.build_sensor_context(instance=instance, repository_def=repository, cursor=cursor, resources=resources) as context:
            result = cast(dg.SensorResult, repository.get_sensor_def(name)(context))
        for event in result.asset_events:
            instance.report_runless_asset_event(event)
        for request in result.dynamic_partitions_requests or ():
            if isinstance(request, dg.AddDynamicPartitionsRequest):
                instance.add_dynamic_partitions(request.partitions_def_name, list(request.partition_keys))
            else:
                for gone in request.partition_keys:
                    instance.delete_dynamic_partition(request.partitions_def_name, gone)
        return result

    return evaluate
