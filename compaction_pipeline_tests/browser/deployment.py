"""A whole Dagster deployment for tests: webserver, daemon and every sensor, with real tables, and with merges without Spark."""

from __future__ import annotations

import json
import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Any

import compaction_pipeline.demo
from compaction_pipeline.bootstrap import open_services
from compaction_pipeline.core.tables.property_rules import ASSET_KEY
from compaction_pipeline.core.tables.ready_properties import READY_TIME_KEY
from compaction_pipeline.core.tables.table import CatalogEntry
from compaction_pipeline.demo.processes import Child, Processes
from compaction_pipeline.settings import Settings
from compaction_pipeline_tests.defs.lake import Lake
from compaction_pipeline_tests.ports import free_port

_REPOSITORY = Path(__file__).parents[2]
_PATIENCE_SECONDS = 600
_MOST_PORTS = 5


class _Server(Enum):
    """Whose webserver answers on a port."""

    OURS = "OURS"
    OF_ANOTHER = "OF_ANOTHER"


class Deployment:
    """A deployment with two tables, and with a second code location of somebody else.

    The sensors compact `orders`, except its broken day 9. `returns` is due only at 50 files.
    """

    def __init__(self, folder: Path) -> None:
        self.url = ""
        self.folder = folder
        self.home = folder / "home"
        self.lake = Lake(folder / "lake")

    def fill(self) -> None:
        """Write the tables and register their catalog."""
        self.lake.create_orders(**{"self-optimizing.execute.num-retries": "0", ASSET_KEY: "analytics/orders"})
        for day in (1, 2, 3, 9):
            self.lake.append_small_files(day, 4, rows=200)
        self.lake.corrupt_a_file(9)
        self.lake.create("shop.returns", **{"self-optimizing.minor.trigger.file-count": "50", READY_TIME_KEY: "day,yyyy-MM-dd,UTC"})
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

    def start(self, processes: Processes, free_port: Callable[[], int] = free_port) -> Child:
        """Start `dagster dev` and wait until it serves our code location. `url` is its address then.

        Another process may take a free port before Dagster does. Then the server on the port is not ours, and the next port is tried.
        """
        self.configure()
        for _ in range(_MOST_PORTS):
            port = free_port()
            self.url = f"http://127.0.0.1:{port}"
            child = processes.start("dagster dev", self._command(port), self.environment(), self.folder, self._log)
            if self.wait("the webserver", lambda child=child: self._whose(child)) is _Server.OURS:
                self.wait("the code locations", lambda: processes.check() or self._are_loaded())
                return child
            processes.stop()
        raise AssertionError(f"other processes took {_MOST_PORTS} ports that were free; see {self._log}")

    def _are_loaded(self) -> bool:
        """Whether both code locations are served. While one is loading, it has no result yet."""
        entries = self.query(_LOCATIONS)["workspaceOrError"]["locationEntries"]
        return len(entries) == 2 and all(entry["locationOrLoadError"] is not None for entry in entries)

    @property
    def _log(self) -> Path:
        return self.folder / "dagster.log"

    def _whose(self, child: Child) -> _Server | None:
        """Whose server answers at `url`; None while none does. Dagster tells the folder of its instance, which no other one has."""
        child.look()
        if child.exit_code is not None:
            if "already in use" not in self._log.read_text(errors="replace"):
                raise AssertionError(f"dagster dev ended by itself with exit code {child.exit_code}:\n{child.last_words(30)}")
            return _Server.OF_ANOTHER
        try:
            info = str(self.query("{ instance { info } }")["instance"]["info"])
        except (urllib.error.HTTPError, ValueError, KeyError, TypeError):
            # Something answers that is no webserver of Dagster.
            return _Server.OF_ANOTHER
        return _Server.OURS if str(self.folder) in info else _Server.OF_ANOTHER

    def configure(self) -> None:
        """Write the configuration of the instance, and a workspace with the code location of somebody else."""
        home = self.folder / "dagster"
        home.mkdir(exist_ok=True)
        shipped = Path(compaction_pipeline.demo.__file__).with_name("dagster.yaml").read_text()
        (home / "dagster.yaml").write_text(shipped)
        theirs = self.folder / "theirs.yaml"
        # YAML reads JSON too.
        file = {"relative_path": str(Path(__file__).with_name("their_assets.py")), "location_name": "theirs"}
        theirs.write_text(json.dumps({"load_from": [{"python_file": file}]}))

    def _command(self, port: int) -> Sequence[str]:
        workspaces = ["-w", str(_REPOSITORY / "workspace.yaml"), "-w", str(self.folder / "theirs.yaml")]
        return [sys.executable, "-m", "dagster", "dev", *workspaces, "-h", "127.0.0.1", "-p", str(port)]

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
        lines = self._log.read_text(errors="replace").splitlines()[-30:]
        raise AssertionError(f"{what} did not come within {_PATIENCE_SECONDS} s; Dagster said:\n" + "\n".join(lines))


_LOCATIONS = """{ workspaceOrError { ... on Workspace { locationEntries { name locationOrLoadError { __typename } } } } }"""
_ADD = """mutation($key: String!) { addDynamicPartition(partitionKey: $key, partitionsDefName: "table_nodes", repositorySelector: {
  repositoryName: "__repository__", repositoryLocationName: "compaction_pipeline"}) { __typename } }"""


@contextmanager
def deployment(folder: Path) -> Iterator[Deployment]:
    """A deployment that runs and has tables. After the block, everything that it started has ended."""
    made = Deployment(folder)
    made.fill()
    with Processes() as processes:
        made.start(processes)
        yield made
