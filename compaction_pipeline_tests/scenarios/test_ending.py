"""SIGTERM ends `dagster dev` with our code location, and our commands, whatever hangs. All processes end, and none needs SIGKILL."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from compaction_pipeline.bootstrap import open_services
from compaction_pipeline.core.tables.table import CatalogEntry
from compaction_pipeline.demo.processes import Child, Processes
from compaction_pipeline.iceberg.catalogs import SqlCatalog
from compaction_pipeline.settings import Settings
from compaction_pipeline_tests.browser.deployment import Deployment
from compaction_pipeline_tests.defs.lake import Lake
from compaction_pipeline_tests.object_store import Fault, object_store
from compaction_pipeline_tests.rest_catalog import Call, RestServer, rest_server

pytestmark = pytest.mark.scenario

COMMIT = "POST /v1/namespaces/shop/tables/orders"
# On an idle machine the end takes at most 20 s. Dagster itself sends SIGKILL after 60 s.
_PATIENCE_SECONDS = 55


class RestDeployment(Deployment):
    """A deployment with the table `orders` in a REST catalog of this process. The table is due at once, and committed at once."""

    def __init__(self, folder: Path, server: RestServer, lake: Lake) -> None:
        super().__init__(folder)
        self.lake = lake
        self.server = server

    def fill(self) -> None:
        self.lake.create_orders()
        self.lake.append_small_files(1, 4)
        services = open_services(Settings(home=self.home))
        services.explore_catalogs.register(CatalogEntry("lake", {"type": "rest", "uri": self.server.uri}))
        services.close()

    def environment(self) -> Mapping[str, str]:
        # The limits are so high that no timeout of a request ends the process.
        return {**super().environment(), "COMPACTION_READ_SECONDS": "600", "COMPACTION_COMMIT_SECONDS": "600"}


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[RestDeployment]:
    lake = Lake(tmp_path / "lake")
    with rest_server(SqlCatalog("lake", **lake.properties)) as server:
        made = RestDeployment(tmp_path, server, lake)
        made.fill()
        yield made


def hang(call: Call) -> None:
    call.hang()


def end(child: Child, what: str) -> None:
    """Send SIGTERM to `child` alone, and wait until it and all processes that it started have ended."""
    assert child.exit_code is None, child.last_words(40)
    child.look()
    begin = time.monotonic()
    os.kill(child.pid, signal.SIGTERM)
    itself: float | None = None
    while ((members := child.look()) or child.exit_code is None) and time.monotonic() - begin < _PATIENCE_SECONDS:
        if itself is None and child.exit_code is not None:
            itself = time.monotonic() - begin
        time.sleep(0.1)
    took = time.monotonic() - begin
    sys.stderr.write(f"{what}: {child.name} ended after {itself or took:.1f} s, all of it after {took:.1f} s\n")
    assert not members, child.last_words(60)
    assert child.exit_code is not None, child.last_words(60)


def test_dagster_dev_ends_while_a_run_waits_for_its_commit_and_a_tick_for_its_catalog(deployment: RestDeployment) -> None:
    rows, server = deployment.lake.rows(), deployment.server
    server.commits = [hang] * 100
    with Processes() as processes:
        child = deployment.start(processes)
        deployment.wait("a commit", lambda: server.count(COMMIT))
        server.everything = hang
        known = len(server.requests)
        deployment.wait("a tick's request", lambda: len(server.requests) > known)
        end(child, "a run waits for its commit, and a tick for its catalog")
    assert deployment.lake.rows() == rows


# ---- commands --------------------------------------------------------------------------------------------------------


class StoredLake(Lake):
    """A lake whose tables have their files on an object store."""

    def __init__(self, folder: Path, storage: Mapping[str, str]) -> None:
        super().__init__(folder)
        self.properties = {**self.properties, "warehouse": "s3://lakehouse/warehouse", **storage}
        # The test's store takes only objects that are sent as one body, as the writer of ObjectFileIO does.
        self._catalog = SqlCatalog("lake", **self.properties, **{"py-io-impl": "compaction_pipeline.file_io.object_io.ObjectFileIO"})


def registered(folder: Path, entry: CatalogEntry) -> Path:
    services = open_services(Settings(home=folder / "home"))
    services.explore_catalogs.register(entry)
    services.close()
    return folder / "home"


def compact(processes: Processes, home: Path, engine: str, first: str = "") -> Child:
    """Start `compaction-pipeline compact` with such limits that no timeout of a request ends it. `first` is Python that runs before it."""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("COMPACTION_")},
        "COMPACTION_HOME": str(home),
        "COMPACTION_MERGE_ENGINE": engine,
        "COMPACTION_READ_SECONDS": "600",
    }
    program = f"{first}from compaction_pipeline.cli.main import run; run()"
    command = [sys.executable, "-c", program, "compact", "lake.shop.orders"]
    return processes.start("compact", command, environment, home, home / "compact.log")


def test_a_command_ends_while_it_waits_for_its_catalog(deployment: RestDeployment) -> None:
    deployment.server.everything = hang
    known = len(deployment.server.requests)
    with Processes() as processes:
        child = compact(processes, deployment.home, "in-process")
        deployment.wait("a request", lambda: len(deployment.server.requests) > known)
        end(child, "a command waits for its catalog")
    assert child.exit_code == 130


@pytest.mark.parametrize("engine", ["in-process", "spark"])
def test_a_command_ends_while_a_merge_waits_for_its_storage(tmp_path: Path, engine: str) -> None:
    asked, let_go = threading.Event(), threading.Event()

    def wait_for_reads(method: str, key: str) -> Fault | None:
        if method != "GET" or not key.endswith(".parquet"):
            return None
        asked.set()
        let_go.wait(600)
        return Fault("close")

    with object_store() as store, Processes() as processes:
        lake = StoredLake(tmp_path / "lake", store.properties)
        lake.create_orders()
        lake.append_small_files(1, 4)
        home = registered(tmp_path, CatalogEntry("lake", lake.properties))
        store.fault = wait_for_reads
        try:
            child = compact(processes, home, engine)
            assert asked.wait(600), child.last_words()
            end(child, "a merge waits for its storage")
        finally:
            let_go.set()
    assert child.exit_code == 130


@pytest.mark.spark
def test_a_command_ends_while_spark_starts(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    lake.create_orders()
    lake.append_small_files(1, 4)
    home = registered(tmp_path, CatalogEntry("lake", lake.properties))
    with Processes() as processes:
        large = "from compaction_pipeline.core.work import small_tasks; small_tasks.SMALL_BYTES = 0; "
        child = compact(processes, home, "spark", large)
        while len(child.look()) < 2:
            assert child.exit_code is None, child.last_words()
            time.sleep(0.02)
        end(child, "Spark starts")
    assert child.exit_code == 130
