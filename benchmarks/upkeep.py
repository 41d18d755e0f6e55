"""Compares the CPU of our expiry with that of Iceberg's `expire_snapshots`, on the same table and with the same files to delete.

    python benchmarks/upkeep.py --files 20000 --commits 40     # a first look
    python benchmarks/upkeep.py                                # 100,000 files in 100 commits

A table gets `--files` small files in `--commits` appends. Then one snapshot replaces nine of ten of these files by a few large ones, as a
compaction does. All snapshots but the last expire, and the replaced files are deleted; each exists, and has one byte. Both sides begin with
a copy of the same folder. Ours is one process that removes the snapshots and then deletes the files, imports and start included. The peer's
Spark session is warm in `warm`, and started anew in `cold`. The last lines are `cold <peer's CPU / ours>` and `ratio <warm peer's CPU /
ours>`.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from measure import CATALOG, MB, Cost, load_average, measured, median, positive, spark_settings
from opened_services import OpenedServices
from synthetic_table import Fake, append, fakes, make_catalog, make_table, show_to_java

from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier
from compaction_pipeline.settings import Settings
from compaction_pipeline.spark.session import SparkSessions

_TABLE = TableIdentifier("bench", ("db",), "t")
_PARTITIONS = 50


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=positive, default=100_000)
    parser.add_argument("--commits", type=positive, default=100)
    parser.add_argument("--rounds", type=positive, default=3, help="counted rounds of the warm peer, and of ours")
    parser.add_argument("--no-peer", action="store_true", help="measure only our side")
    parser.add_argument("--ours", type=Path, default=None, help="expire the table in this folder, and stop (a step of the benchmark)")
    arguments = parser.parse_args()
    if arguments.ours is not None:
        _expire(arguments.ours)
        return
    with tempfile.TemporaryDirectory(prefix="upkeep-benchmark-") as name:
        _compare(Path(name), arguments)


def _compare(folder: Path, arguments: Any) -> None:
    live, start = folder / "live", folder / "start"
    name = _make(live, arguments.files, arguments.commits)
    live.rename(start)
    print(f"{_count(start):,} files, {arguments.commits + 1} snapshots; {load_average()}", flush=True)
    ours = median([_ours(live, start) for _ in range(arguments.rounds)])
    left = _count(live)
    print(f"ours: {left:,} files left", flush=True)
    if arguments.no_peer:
        print(f"ours {ours.cpu_seconds:.1f} CPU-s, {ours.peak_rss_bytes / MB:.0f} MB")
        return
    cold, warm = _theirs(live, start, folder, name, arguments.rounds)
    # Their warehouse has the copies of metadata that show the table to Java.
    print(f"peer: {_count(live):,} files left", flush=True)
    print(f"cold {cold.cpu_seconds / ours.cpu_seconds:.2f}")
    print(f"{load_average()}\nratio {warm.cpu_seconds / ours.cpu_seconds:.2f}")


def _make(folder: Path, files: int, commits: int) -> str:
    """Make the table. Return its name in the catalog of the peer."""
    table = make_table(make_catalog(folder), "t", **{"write.metadata.previous-versions-max": "1"})
    made = list(fakes(files, _PARTITIONS, 1 << 20))
    for number in range(commits):
        append(table, made[number::commits])
    replaced = len(made) * 9 // 10
    merged = list(fakes(max(1, files // 1000), _PARTITIONS, 128 << 20, seed=2))
    append(table, [*made[replaced:], *merged], parent_manifests=False)
    root = Path(table.location().removeprefix("file://"))
    _touch(root, [*made, *merged])
    return show_to_java(table, folder / "warehouse")


def _touch(root: Path, files: Sequence[Fake]) -> None:
    for parent in {(root / file.path).parent for file in files}:
        parent.mkdir(parents=True, exist_ok=True)
    for file in files:
        (root / file.path).write_bytes(b"x")


def _ours(live: Path, start: Path) -> Cost:
    _fresh(live, start)
    with measured() as cost:
        subprocess.run([sys.executable, __file__, "--ours", str(live)], check=True)
    _print("ours", cost)
    return cost


def _expire(folder: Path) -> None:
    now = [datetime.now(timezone.utc)]
    services = OpenedServices(Settings(home=folder / "home"), clock=lambda: now[0])
    catalog = make_catalog(folder)
    services.stores.catalogs.add(CatalogEntry("bench", dict(catalog.properties)))
    table = catalog.load_table(("db", "t"))
    with table.transaction() as transaction:
        transaction.set_properties({"history.expire.max-snapshot-age-ms": "0", "compaction.expire.grace": "0s"})
    for _ in range(2):
        now[0] += timedelta(days=1)
        expired = services.expire_snapshots.expire(_TABLE)
    (record,) = expired.earlier
    print(record.summary, flush=True)
    services.close()


def _theirs(live: Path, start: Path, folder: Path, name: str, rounds: int) -> tuple[Cost, Cost]:
    costs = []
    call = f"CALL {CATALOG}.system.expire_snapshots(table => '{name}', older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1)"
    _fresh(live, start)
    with measured() as cold:
        sessions = SparkSessions(spark_settings(live))
        session = sessions.session()
        session.sql(call).collect()
    _print("cold", cold)
    for _ in range(rounds):
        _fresh(live, start)
        session.catalog.clearCache()
        session.sql(f"REFRESH TABLE {CATALOG}.{name}")
        with measured() as cost:
            session.sql(call).collect()
        _print("warm", cost)
        costs.append(cost)
    sessions.stop()
    return cold, median(costs)


def _fresh(live: Path, start: Path) -> None:
    shutil.rmtree(live, ignore_errors=True)
    subprocess.run(["cp", "-a", str(start), str(live)], check=True)


def _count(folder: Path) -> int:
    return sum(1 for path in (folder / "warehouse").rglob("*") if path.is_file())


def _print(side: str, cost: Cost) -> None:
    print(f"{side:8} {cost.seconds:7.2f} s {cost.cpu_seconds:7.2f} CPU-s {cost.peak_rss_bytes / MB:7.0f} MB", flush=True)


if __name__ == "__main__":
    main()
