"""A whole Dagster deployment for tests: webserver, daemon and every sensor, with real tables, and with merges without Spark."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import compaction_pipeline.demo
from compaction_pipeline.bootstrap import open_services
from compaction_pipeline.core.tables.properties import ASSET_KEY
from compaction_pipeline.core.tables.table import CatalogEntry
from compaction_pipeline.demo.processes import Child, Processes
from compaction_pipeline.settings import Settings
from compaction_pipeline_tests.defs.lake import Lake

_REPOSITORY = Path(__file__).parents[2]
_PATIENCE_SECONDS = 600


class Deployment:
    """A deployment with two tables, and with a second code location of somebody else.

    The sensors compact `orders`, except its broken day 9. `returns` is due only at 50 files.
    """

    def __init__(self, folder: Path, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.folder = folder
        self.home = folder / "home"
        self.lake = Lake(folder / "lake")
        self._port = port

    def fill(self) -> None:
        """Write the tables and register their catalog."""
        self.lake.create_orders(**{"self-optimizing.execute.num-retries": "0", ASSET_KEY: "analytics/orders"})
        for day in (1, 2, 3, 9):
            self.lake.append_small_files(day, 4, rows=200)
        self.lake.corrupt_a_file(9)
        self.lake.create("shop.returns", **{"self-optimizing.minor.trigger.file-count": "50"})
        for day in range(1, 13):
            self.lake.append_small_files(day, 3 + day, rows=200, table="shop.returns")
        services = open_services(Settings(home=self.home))
        services.explore_catalogs.register(CatalogEntry("lake", self.lake.properties))
        services.close()

    def environment(self) -> Mapping[str, str]:
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith(("COMPACTION_", "DAGSTER_"))},
            "DAGSTER_HOME": str(self.folder / "dagster"),
            "COMPACTION_HOME": str(self.home),
            "COMPACTION_MERGE_ENGINE": "in-process",
            "COMPACTION_SENSOR_INTERVAL_SECONDS": "5",
            "COMPACTION_CATALOG_INTERVAL_SECONDS": "15",
            "COMPACTION_LINGER_SECONDS": "0",
        }

    def start(self, processes: Processes) -> Child:
        """Start `dagster dev` and wait until it serves our code location."""
        home = self.folder / "dagster"
        home.mkdir(exist_ok=True)
        shipped = Path(compaction_pipeline.demo.__file__).with_name("dagster.yaml").read_text()
        (home / "dagster.yaml").write_text(shipped)
        theirs = self.folder / "theirs.yaml"
        # YAML reads JSON too.
        file = {"relative_path": str(Path(__file__).with_name("their_assets.py")), "location_name": "theirs"}
        theirs.write_text(json.dumps({"load_from": [{"python_file": file}]}))
        command = [
            sys.executable,
            "-m",
            "dagster",
            "dev",
            "-w",
            str(_REPOSITORY / "workspace.yaml"),
            "-w",
            str(theirs),
            "-h",
            "127.0.0.1",
            "-p",
            str(self._port),
        ]
        child = processes.start("dagster dev", command, self.environment(), self.folder, self.folder / "dagster.log")
        self.wait("the code location", lambda: processes.check() or self.query(_LOCATIONS)["workspaceOrError"]["locationEntries"])
        return child

    def query(self, text: str, **variables: Any) -> Any:
        """Send a GraphQL query to the webserver, as a page does."""
        body = json.dumps({"query": text, "variables": variables}).encode()
        request = urllib.request.Request(f"{self.url}/graphql", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.load(answer)["data"]

    def add_partition(self, key: str) -> None:
        """Add the partition of a node, as a person does to launch the node before it is due."""
        answer = self.query(_ADD, key=key)["addDynamicPartition"]["__typename"]
        assert answer in ("AddDynamicPartitionSuccess", "DuplicateDynamicPartitionError"), answer

    def wait(self, what: str, holds: Any) -> Any:
        """Poll until `holds` returns something true. When it never does, the error shows the end of Dagster's output."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < deadline:
            try:
                found = holds()
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                found = None
            if found:
                return found
            time.sleep(0.5)
        lines = (self.folder / "dagster.log").read_text(errors="replace").splitlines()[-30:]
        raise AssertionError(f"{what} did not come within {_PATIENCE_SECONDS} s; Dagster said:\n" + "\n".join(lines))


_LOCATIONS = """{ workspaceOrError { ... on Workspace { locationEntries { name locationOrLoadError { __typename } } } } }"""
_ADD = """mutation($key: String!) { addDynamicPartition(partitionKey: $key, partitionsDefName: "table_nodes", repositorySelector: {
  repositoryName: "__repository__", repositoryLocationName: "compaction_pipeline"}) { __typename } }"""


@contextmanager
def deployment(folder: Path) -> Iterator[Deployment]:
    """A deployment that runs and has tables. After the block, everything that it started has ended."""
    made = Deployment(folder, free_port())
    made.fill()
    with Processes() as processes:
        made.start(processes)
        yield made


def free_port() -> int:
    """A port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
