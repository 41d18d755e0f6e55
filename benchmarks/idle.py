"""Measures the CPU share of one core that 1,000 quiet tables cost: `dagster dev` with them, less `dagster dev` with an empty catalog.

    python benchmarks/idle.py --tables 1000 --seconds 180
    python benchmarks/idle.py --ticks 5            # without `dagster dev`: the CPU of one tick of each sensor, in this process

The cost of `dagster dev` itself (webserver, daemon, ticks of eight sensors) is printed apart. Sensors tick every 30 s, which is their
default, unless `--sensor-seconds` sets another interval. The last line is `share <per cent of one core>`.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import pstats
import sqlite3
import tempfile
import time
import uuid
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import dagster as dg
from dagster_dev import parsed, start_dagster
from measure import cpu_seconds, load_average, rss_bytes
from synthetic_table import append, fakes, make_catalog, make_table

from compaction_pipeline.bootstrap import Services
from compaction_pipeline.core.tables.table import CatalogEntry
from compaction_pipeline.demo.options import DemoOptions
from compaction_pipeline.demo.processes import Processes
from compaction_pipeline.settings import Settings

_LONG = timedelta(hours=1)
SENSORS = (
    "snapshot_sensor",
    "fragmentation_sensor",
    "commit_sensor",
    "own_assets_sensor",
    "check_sensor",
    "keeper_sensor",
    "queue_sensor",
    "catalog_sensor",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=1_000)
    parser.add_argument("--partitions", type=int, default=3, help="partitions of each table; each holds four files")
    parser.add_argument("--seconds", type=int, default=180, help="how long each side is measured")
    parser.add_argument("--sensor-seconds", type=int, default=30)
    parser.add_argument("--ticks", type=int, default=0, help="measure this many ticks of each sensor in this process, and stop")
    parser.add_argument("--profile", action="store_true", help="with --ticks: show where their time goes")
    arguments = parsed(parser, port=3918)
    with tempfile.TemporaryDirectory(prefix="idle-benchmark-") as folder:
        full = _deployment(Path(folder) / "full", arguments, arguments.tables)
        if arguments.ticks:
            _ticks(full, arguments.ticks, arguments.profile)
            return
        empty = _deployment(Path(folder) / "empty", arguments, 0)
        without, shares = _share(empty, arguments), _share(full, arguments)
        print(f"dagster dev without tables {without:.1f} %, with {arguments.tables} {shares:.1f} % of one core; {load_average()}")
        print(f"share {shares - without:.1f}")


def quiet_deployment(
    options: DemoOptions, tables: int, partitions: int, files: int = 4, properties: Mapping[str, str] | None = None
) -> None:
    """Make a catalog of quiet tables, refresh and plan them, and make the folders for Dagster. Each partition holds this many files.

    `properties` are further properties of the catalog.
    """
    folder = options.root
    options.make_folders()
    catalog = make_catalog(folder)
    services = Services(Settings(home=options.home))
    connection = {"type": "sql", "uri": options.catalog_url, "warehouse": options.warehouse.as_uri()}
    entry = CatalogEntry("bench", connection | dict(properties or {}))
    if tables:
        model = append(make_table(catalog, "t00000"), fakes(files * partitions, partitions, 128 << 20))
        _copied(folder, options, Path(model.metadata_location.removeprefix("file://")), tables)
    catalog.close()
    services.explore_catalogs.register(entry)
    started = time.monotonic()
    while (sweep := services.sweep_tables.sweep(None, _LONG)).refreshed:
        changed = {refresh.table: frozenset(refresh.changed) for refresh in sweep.refreshed if refresh.changed}
        services.sweep_tables.plan_due(changed, _LONG, nodes=changed)
    print(f"{tables} tables read and planned in {time.monotonic() - started:.0f} s", flush=True)
    services.close()


def _deployment(folder: Path, arguments: argparse.Namespace, tables: int) -> DemoOptions:
    options = DemoOptions(folder, arguments.port, sensor_interval_seconds=arguments.sensor_seconds)
    quiet_deployment(options, tables, arguments.partitions)
    return options


def _copied(folder: Path, options: DemoOptions, metadata: Path, tables: int) -> None:
    """Make the other tables. Each has its own metadata file, and all share the manifests of the first table."""
    text = json.loads(metadata.read_text())
    with sqlite3.connect(folder / "catalog.db") as connection:
        row = connection.execute("select * from iceberg_tables").fetchone()
        names = [column[1] for column in connection.execute("pragma table_info(iceberg_tables)")]
        for number in range(1, tables):
            name = f"t{number:05d}"
            place = options.warehouse / "db" / name / "metadata" / "00001.metadata.json"
            place.parent.mkdir(parents=True)
            place.write_text(json.dumps({**text, "table-uuid": str(uuid.uuid4()), "location": place.parents[1].as_uri()}))
            values = dict(zip(names, row, strict=True)) | {"table_name": name, "metadata_location": place.as_uri()}
            connection.execute(
                f"insert into iceberg_tables ({', '.join(names)}) values ({', '.join('?' * len(names))})", list(values.values())
            )


def _share(options: DemoOptions, arguments: argparse.Namespace) -> float:
    """The per cent of one core that `dagster dev` and all its descendants take after their start."""
    with Processes() as processes:
        pid = start_dagster(processes, options, linger_seconds=1)
        # Wait for the start, and for the first ticks of all sensors.
        _wait(processes, 60 + 2 * arguments.sensor_seconds)
        cpu, started = cpu_seconds(pid), time.monotonic()
        _wait(processes, arguments.seconds)
        share = 100 * (cpu_seconds(pid) - cpu) / (time.monotonic() - started)
        print(f"{options.root.name}: {share:.1f} % of one core, {rss_bytes(pid) / 1e6:.0f} MB; {load_average()}", flush=True)
    return share


def _wait(processes: Processes, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        processes.check()
        time.sleep(1)


def _ticks(options: DemoOptions, ticks: int, profile: bool) -> None:
    """Print the CPU-seconds of a tick of each sensor, and the share of one core that all ticks take at their intervals."""
    os.environ |= {"COMPACTION_HOME": str(options.home)}
    from compaction_pipeline.definitions import defs
    from compaction_pipeline.defs.resources import Compaction

    repository = defs.get_repository_def()
    share = 0.0
    with dg.DagsterInstance.ephemeral() as instance:
        for name in SENSORS:
            cursor, spent, text = None, [], ""
            profiler = cProfile.Profile()
            for number in range(ticks + 1):
                before = cpu_seconds()
                if profile and number == ticks:
                    profiler.enable()
                resource = Compaction()
                with dg.build_sensor_context(
                    instance=instance, repository_def=repository, cursor=cursor, resources={"compaction": resource}
                ) as context:
                    result = repository.get_sensor_def(name)(context)
                profiler.disable()
                spent.append(cpu_seconds() - before)
                assert isinstance(result, dg.SensorResult)
                cursor, text = result.cursor or cursor, result.skip_reason.skip_message if result.skip_reason else "a run"
                for request in result.dynamic_partitions_requests or ():
                    instance.add_dynamic_partitions(str(request.partitions_def_name), list(request.partition_keys))
            interval = repository.get_sensor_def(name).minimum_interval_seconds or 30
            each = sum(spent[1:]) / ticks
            share += 100 * each / interval
            print(f"{name:22} first {spent[0]:.3f}, then {each:.3f} CPU-s a tick, every {interval} s; {text}", flush=True)
            if profile:
                pstats.Stats(profiler).sort_stats("tottime").print_stats(14)
    print(f"share {share:.1f}")


if __name__ == "__main__":
    main()
