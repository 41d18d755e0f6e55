"""Measures the CPU-seconds that the launch of one small partition costs, process by process.

    python benchmarks/launch.py --rounds 5

A code server of Dagster holds this program's definitions. A round launches `compacted_files` for one partition of small files, as the
webserver does, and waits for the end of the run. Every process below the code server is looked at many times a second meanwhile. Two
sides take turns: `default`, and `own session`, where the project gave a resource `pyspark` of its own with the same Spark, so that every
task is merged on Spark. The last line is `ratio <own session / default>`, of the CPU-seconds of all processes.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import dagster as dg
import psutil
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import PythonFileTarget
from dagster_graphql.test.utils import execute_dagster_graphql
from measure import load_average, positive
from opened_services import Lake, key

from compaction_pipeline.bootstrap import open_services
from compaction_pipeline.core.tables.table import CatalogEntry
from compaction_pipeline.settings import load_settings

_SIDES = {
    "default": "from compaction_pipeline.definitions import defs\n",
    "own session": """
from compaction_pipeline.defs.location import definitions
from compaction_pipeline.defs.resources import SparkOfSettings

class Mine:
    def __init__(self):
        self._given = SparkOfSettings()

    @property
    def spark_session(self):
        return self._given.spark_session

defs = definitions(pyspark=Mine())
""",
}
_KINDS = {
    "org.apache.spark": "JVM of Spark",
    "pyspark.daemon": "Python workers of Spark",
    "multiprocessing.resource_tracker": "resource tracker",
    "multiprocessing.spawn": "process of the run",
    "dagster": "code server",
}
"""How processes are called, by a part of their command line."""
_LAUNCH = """
mutation($selector: JobOrPipelineSelector!, $tags: [ExecutionTag!]!) {
  launchPipelineExecution(executionParams: {selector: $selector, executionMetadata: {tags: $tags}, runConfigData: {}}) {
    __typename
    ... on LaunchRunSuccess { run { runId } }
    ... on PythonError { message }
  }
}
"""
_INSTANCE = """
telemetry: {enabled: false}
run_coordinator: {module: dagster._core.run_coordinator, class: DefaultRunCoordinator}
"""
_WATCH_SECONDS = 0.05
_PATIENCE_SECONDS = 180


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=positive, default=5, help="counted rounds; one round before them is not counted")
    parser.add_argument("--files", type=positive, default=12)
    parser.add_argument("--rows-per-file", type=positive, default=1_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="launch-benchmark-") as folder:
        costs = _measured(Path(folder), arguments)
    totals = {}
    for side, rounds in costs.items():
        kinds = sorted({kind for each in rounds for kind in each})
        for kind in kinds:
            print(f"{side:12} {kind:24} {statistics.median(each.get(kind, 0.0) for each in rounds):6.2f} CPU-s")
        totals[side] = statistics.median(sum(each.values()) for each in rounds)
        print(f"{side:12} {'all processes':24} {totals[side]:6.2f} CPU-s; medians of {len(rounds)}, {load_average()}", flush=True)
    print(f"ratio {totals['own session'] / totals['default']:.2f}")


def _measured(folder: Path, arguments: argparse.Namespace) -> Mapping[str, list[Mapping[str, float]]]:
    """The CPU-seconds of each kind of process, by side and round."""
    os.environ |= {"COMPACTION_HOME": str(folder / "home"), "DAGSTER_HOME": str(folder / "dagster")}
    (folder / "dagster").mkdir()
    (folder / "dagster" / "dagster.yaml").write_text(_INSTANCE)
    lake = Lake(folder / "lake")
    lake.create_orders()
    services = open_services(load_settings())
    services.explore_catalogs.register(CatalogEntry("lake", lake.properties))
    services.close()
    costs: dict[str, list[Mapping[str, float]]] = {side: [] for side in _SIDES}
    day = 0
    with dg.DagsterInstance.get() as instance:
        for number in range(arguments.rounds + 1):
            for side, source in _SIDES.items():
                day += 1
                lake.append_small_files(day, arguments.files, arguments.rows_per_file)
                instance.add_dynamic_partitions("table_nodes", [key(day)])
                files = lake.files()
                with _server(folder, instance, side, source) as (launch, pid), _watched(pid) as cost:
                    seconds = launch(key(day))
                assert lake.files() == files - arguments.files + 1, "the partition is not merged"
                parts = ", ".join(f"{kind} {cpu:.1f}" for kind, cpu in sorted(cost.items()))
                print(f"round {number} {side:12} {sum(cost.values()):6.2f} CPU-s, {seconds:5.1f} s ({parts}); {load_average()}", flush=True)
                if number:
                    costs[side].append(cost)
    return costs


@contextmanager
def _server(folder: Path, instance: dg.DagsterInstance, side: str, source: str) -> Iterator[tuple[Callable[[str], float], int]]:
    """A code server with the definitions of a side: a function that launches a partition and waits, and the id of the server's process."""
    file = folder / f"{side.replace(' ', '_')}.py"
    file.write_text(source)
    target = PythonFileTarget(str(file), attribute=None, working_directory=None, location_name="here")
    with WorkspaceProcessContext(instance, target) as process:
        context = process.create_request_context()

        def launch(partition: str) -> float:
            began = time.monotonic()
            selector = {
                "repositoryLocationName": "here",
                "repositoryName": "__repository__",
                "jobName": "__ASSET_JOB",
                "assetSelection": [{"path": ["compacted_files"]}],
            }
            tags = [{"key": "dagster/partition", "value": partition}]
            answer = execute_dagster_graphql(context, _LAUNCH, {"selector": selector, "tags": tags})
            launched = answer.data["launchPipelineExecution"]
            assert launched["__typename"] == "LaunchRunSuccess", launched
            run_id = launched["run"]["runId"]
            while not (run := instance.get_run_by_id(run_id)).is_finished and time.monotonic() - began < _PATIENCE_SECONDS:
                time.sleep(_WATCH_SECONDS)
            assert run.is_success, run.status
            return time.monotonic() - began

        [server] = [each for each in psutil.Process().children() if each.status() != psutil.STATUS_ZOMBIE]
        yield launch, server.pid


@contextmanager
def _watched(pid: int) -> Iterator[dict[str, float]]:
    """The CPU-seconds that each kind of process below this one takes in the block, and after it until they have ended."""
    cost: dict[str, float] = {}
    seen: dict[psutil.Process, tuple[str, float]] = {}
    server = psutil.Process(pid)
    before = _cpu(server)

    def look() -> int:
        below = server.children(recursive=True)
        for each in [server, *below]:
            with suppress(psutil.Error):
                kind = seen[each][0] if each in seen else _kind(each)
                seen[each] = (kind, _cpu(each))
        return sum(kind == "process of the run" for each in below if (kind := seen.get(each, ("", 0))[0]))

    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(_WATCH_SECONDS):
            look()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    yield cost
    ended.set()
    watcher.join()
    while look():
        time.sleep(_WATCH_SECONDS)
    for process, (kind, cpu) in seen.items():
        cost[kind] = cost.get(kind, 0.0) + cpu - (before if process == server else 0.0)


def _kind(process: psutil.Process) -> str:
    command = " ".join(process.cmdline())
    return next((kind for part, kind in _KINDS.items() if part in command), command[:60] or "a process that began")


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


if __name__ == "__main__":
    main()
