"""Measures two ways to commit in `dagster dev`: beside the merges of `compact_job`, as it is, and in runs of `commit_job` alone.

    python benchmarks/commit_runs.py --tables 1 1000 --intervals 5 30 --seconds 150

A cell is a way, a number of tables and a `self-optimizing.commit.interval`. Sensors tick every 5 s. In each cell a writer commits two small
files every five seconds, to the tables in turn, and every such commit makes a table due. A person launches `compact_job` with the name of
a table, three times (`--launches`). `commit_runs_variant.py` holds the second way: at most one run of `commit_job` a commit interval.

A cell prints the share of two cores that `dagster dev` takes with all its runs, the seconds from a writer's commit to ours, those from a
person's launch to the start of its step, and the runs of both jobs an hour. The last line is `ratio <share with commit runs / share
without>` of the cell with the most tables and the longest interval.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
import urllib.request
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
from commit_runs_variant import EVERY
from dagster_dev import OURS, parsed, start_dagster
from idle import quiet_deployment
from measure import Cost, load_average, measured, positive
from opened_services import OpenedServices
from synthetic_table import SCHEMA, make_catalog

from compaction_pipeline.core.commit.record import RecordStatus
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.demo.options import DemoOptions
from compaction_pipeline.demo.processes import Processes
from compaction_pipeline.settings import Settings

WAYS = {"beside merges": OURS, "commit runs": "commit_runs_variant"}
_WRITE_EVERY = 5
_CORES = 2
_PATIENCE = 90
_LAUNCH = """
mutation($config: RunConfigData!, $selector: JobOrPipelineSelector!) {
  launchPipelineExecution(executionParams: {selector: $selector, runConfigData: $config, mode: "default"}) {
    __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message }
  }
}
"""


@dataclass
class Cell:
    """What one cell measured. Times are in seconds."""

    cost: Cost = field(default_factory=Cost)
    written: list[tuple[TableIdentifier, int, float]] = field(default_factory=list)
    """Table, sequence number and time of each commit of the writer."""
    launched: list[tuple[str, float]] = field(default_factory=list)
    """Id and time of each launch of the person."""
    commits: list[float] = field(default_factory=list)
    launches: list[float] = field(default_factory=list)
    runs: dict[str, float] = field(default_factory=dict)

    @property
    def share(self) -> float:
        """The per cent of two cores."""
        return 100 * self.cost.cpu_seconds / self.cost.seconds / _CORES


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=positive, nargs="+", default=[1, 1_000])
    parser.add_argument("--intervals", type=positive, nargs="+", default=[5, 30], help="seconds between two commits of a table")
    parser.add_argument("--sensor-seconds", type=positive, default=5)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--seconds", type=positive, default=150, help="how long each cell is measured")
    parser.add_argument("--launches", type=int, default=3, help="launches of a person in each cell; each ends a run of the machine")
    arguments = parsed(parser, port=3923)
    shares: dict[str, float] = {}
    for tables in sorted(arguments.tables):
        for interval in sorted(arguments.intervals):
            for way in arguments.ways:
                with tempfile.TemporaryDirectory(prefix="commit-runs-benchmark-") as folder:
                    options = DemoOptions(Path(folder), arguments.port, sensor_interval_seconds=arguments.sensor_seconds)
                    cell = _measure(options, way, tables, interval, arguments.seconds, arguments.launches)
                shares[way] = cell.share
                print(
                    f"{way:13} {tables:5} tables, {interval:2} s: {cell.share:.1f} % of {_CORES} cores; a writer's commit to ours "
                    f"{_middle_and_worst(cell.commits)} ({len(cell.commits)} of {len(cell.written)}); a person's launch to its step "
                    f"{_middle_and_worst(cell.launches)} ({len(cell.launches)} of {len(cell.launched)}); runs an hour: "
                    f"{', '.join(f'{job} {number:.0f}' for job, number in cell.runs.items())}; {load_average()}",
                    flush=True,
                )
    if len(shares) == len(WAYS):
        before, after = (shares[way] for way in WAYS)
        print(f"ratio {after / before:.2f}")


def _measure(options: DemoOptions, way: str, tables: int, interval: int, seconds: int, launches: int) -> Cell:
    properties = {
        "table.self-optimizing.minor.trigger.file-count": "2",
        "table.self-optimizing.min-plan-interval": "0",
        "table.self-optimizing.commit.interval": str(1_000 * interval),
    }
    quiet_deployment(options, tables, partitions=1, files=1, properties=properties)
    catalog = make_catalog(options.root)
    # Those of a thousand tables that get no files are quiet.
    names = [table[1] for table in catalog.list_tables("db")][: max(1, seconds // _WRITE_EVERY)]
    cell, number = Cell(), 0
    with Processes() as processes:
        pid = start_dagster(
            processes, options, linger_seconds=20, module=WAYS[way], **({EVERY: str(interval)} if WAYS[way] != OURS else {})
        )

        def write_for(duration: float, launched: int) -> None:
            nonlocal number
            began = time.monotonic()
            launch_at = [duration * (each + 1) / (launched + 1) for each in range(launched)]
            while (elapsed := time.monotonic() - began) < duration:
                processes.check()
                if launch_at and elapsed >= launch_at[0]:
                    launch_at.pop(0)
                    cell.launched.append((_launched(options, names[number % len(names)]), time.time()))
                table = catalog.load_table(("db", names[number % len(names)]))
                for _ in range(2):
                    table.append(_rows())
                snapshot = table.current_snapshot()
                assert snapshot is not None
                identifier = TableIdentifier("bench", ("db",), names[number % len(names)])
                cell.written.append((identifier, snapshot.sequence_number or 0, snapshot.timestamp_ms / 1000))
                number += 1
                time.sleep(max(0.0, began + _WRITE_EVERY * (1 + elapsed // _WRITE_EVERY) - time.monotonic()))

        _wait_until_up(options, processes)
        # The first ticks of a process import modules and read all nodes, and the first run starts.
        write_for(30 + 2 * options.sensor_interval_seconds, 0)
        cell.written.clear()
        from_ = datetime.now(timezone.utc)
        with measured(pid=pid) as cost:
            write_for(seconds, launches)
        cell.cost, to = cost, datetime.now(timezone.utc)
        _wait_for_commits(options, cell, processes)
        _read_runs(options, cell, from_, to)
    catalog.close()
    return cell


def _rows() -> pa.Table:
    one = {"id": 1, "customer": 1, "price": 1.0, "quantity": 1, "status": "a", "region": "b", "ordered_at": datetime.now(timezone.utc)}
    return pa.Table.from_pylist([{**one, "day": 0}], schema=SCHEMA.as_arrow())


def _wait_until_up(options: DemoOptions, processes: Processes) -> None:
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        processes.check()
        try:
            urllib.request.urlopen(f"{options.address}/server_info", timeout=5).read()
            return
        except OSError:
            time.sleep(0.5)
    raise SystemExit(f"Dagster's webserver did not answer within {_PATIENCE} s")


def _launched(options: DemoOptions, table: str) -> str:
    """Launch `compact_job` as the launchpad does, and return the id of the run."""
    variables: dict[str, Any] = {
        "config": {"ops": {"compact": {"config": {"tables": [f"bench.db.{table}"]}}}},
        "selector": {"repositoryLocationName": _location(options), "repositoryName": "__repository__", "jobName": "compact_job"},
    }
    answer = _asked(options, _LAUNCH, variables)["launchPipelineExecution"]
    if "run" not in answer:
        raise SystemExit(f"the launch was refused: {answer}")
    return str(answer["run"]["runId"])


def _location(options: DemoOptions) -> str:
    nodes = _asked(options, "{ repositoriesOrError { ... on RepositoryConnection { nodes { location { name } } } } }", {})
    if not nodes["repositoriesOrError"].get("nodes"):
        raise SystemExit("the definitions were not loaded; Dagster printed:\n" + (options.logs / "dagster.log").read_text()[-3_000:])
    return str(nodes["repositoriesOrError"]["nodes"][0]["location"]["name"])


def _asked(options: DemoOptions, query: str, variables: dict[str, Any]) -> Any:
    body = json.dumps({"query": query, "variables": variables}).encode()
    request = urllib.request.Request(f"{options.address}/graphql", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=_PATIENCE) as answer:
        return json.loads(answer.read())["data"]


def _wait_for_commits(options: DemoOptions, cell: Cell, processes: Processes) -> None:
    """Wait until every commit of the writer is in a commit of ours, and note how long each took."""
    services = OpenedServices(Settings(home=options.home))
    deadline = time.monotonic() + _PATIENCE
    while True:
        processes.check()
        cell.commits = [took for each in cell.written if (took := _took(services, *each)) is not None]
        if len(cell.commits) == len(cell.written) or time.monotonic() > deadline:
            break
        time.sleep(2)
    services.close()


def _took(services: OpenedServices, table: TableIdentifier, sequence: int, at: float) -> float | None:
    """How long after `at` the first commit of ours ended that was planned from this sequence number or a later one."""
    ends = [
        record.ended_at.timestamp()
        for record in services.stores.records.records(table)
        if record.status is RecordStatus.COMMITTED
        and record.ended_at is not None
        and any(services.stores.tasks.task(task_id).sequence_number >= sequence for task_id in record.committed_task_ids)
    ]
    return min(ends) - at if ends else None


def _read_runs(options: DemoOptions, cell: Cell, from_: datetime, to: datetime) -> None:
    """Note when the person's runs began, and how many runs were made in the measured time."""
    os.environ["DAGSTER_HOME"] = str(options.dagster_home)
    with dg.DagsterInstance.get() as instance:
        for run_id, at in cell.launched:
            steps = instance.get_run_step_stats(run_id)
            if steps and steps[0].start_time is not None:
                cell.launches.append(steps[0].start_time - at)
        hours = (to - from_).total_seconds() / 3_600
        for job in ("compact_job", "commit_job"):
            made = instance.get_runs(filters=dg.RunsFilter(job_name=job, created_after=from_, created_before=to))
            cell.runs[job] = len(made) / hours


def _middle_and_worst(values: list[float]) -> str:
    return f"{statistics.median(values):.1f} s, worst {max(values):.1f} s" if values else "never"


if __name__ == "__main__":
    main()
