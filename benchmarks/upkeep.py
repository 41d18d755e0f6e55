"""Compares the CPU of our expiry with that of Iceberg's `expire_snapshots`, on the same table and with the same files to delete.

    python benchmarks/upkeep.py --files 20000 --commits 40     # a first look
    python benchmarks/upkeep.py                                # 100,000 files in 100 commits
    python benchmarks/upkeep.py --of manifests                 # 100,000 entries in 2,000 manifests, beside `rewrite_manifests`
    python benchmarks/upkeep.py --of orphans                   # 100,000 files, a tenth of them orphans, beside `remove_orphan_files`
    python benchmarks/upkeep.py --of orphans --s3 --files 1000000 --rounds 1
    python benchmarks/upkeep.py --s3 --files 1000000 --commits 100 --rounds 1
    python benchmarks/upkeep.py --absent --files 1000000 --commits 100 --rounds 1 --no-peer
    python benchmarks/upkeep.py --absent --overwrites --commits 100000 --rounds 1 --no-peer     # 100,000 snapshots

A table gets `--files` small files in `--commits` appends. Then one snapshot replaces nine of ten of these files by a few large ones, as a
compaction does. All snapshots but the last expire, and the replaced files are deleted; each exists, and has one byte. Both sides begin with
a copy of the same folder. Ours is one process that removes the snapshots and then deletes the files, imports and start included. The peer's
Spark session is warm in `warm`, and started anew in `cold`. With `--of manifests` one snapshot has all files, 50 to a manifest, and both
sides rewrite the manifests. With `--of orphans` one snapshot has nine of ten files, and no snapshot names the others, which have the names
of writers. Ours looks twice, a day apart, the peer once. With `--s3` the table is on a small
S3 in a process of its own, which is not measured. The requests are printed, and there is no peer.
The last lines are `cold <peer's CPU / ours>`, both with their starts, `warm <peer's CPU / ours>`, both without, and
`ratio <warm peer's CPU / ours with its start>`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from uuid import UUID

from measure import CATALOG, MB, Cost, load_average, measured, median, positive, spark_settings
from synthetic_table import Fake, append, fakes, make_catalog, make_table, overwrite_often, show_to_java

sys.path.append(str(Path(__file__).resolve().parents[1]))

from pyiceberg.table import Table

from compaction_pipeline.file_io.object_io import OBJECT_FILE_IO
from compaction_pipeline.iceberg.catalogs import SqlCatalog
from compaction_pipeline.spark.session import SparkSessions
from compaction_pipeline_tests.object_store import BUCKET, object_store

_STEP = Path(__file__).with_name("upkeep_step.py")
_PARTITIONS = 50
_SENT_AT_ONCE = 50_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=positive, default=100_000)
    parser.add_argument("--commits", type=positive, default=100)
    parser.add_argument("--rounds", type=positive, default=3, help="counted rounds of the warm peer, and of ours")
    parser.add_argument("--no-peer", action="store_true", help="measure only our side")
    parser.add_argument("--of", choices=("expiry", "manifests", "orphans"), default="expiry", help="what is measured")
    parser.add_argument("--s3", action="store_true", help="on a small S3, without the peer")
    parser.add_argument("--absent", action="store_true", help="no data file exists: millions of them would fill the disk")
    parser.add_argument("--overwrites", action="store_true", help="each snapshot overwrites the one before, with ten files to a manifest")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="upkeep-benchmark-") as name:
        (_count_requests if arguments.s3 else _compare)(Path(name), arguments)


def _compare(folder: Path, arguments: Any) -> None:
    live, start = folder / "live", folder / "start"
    name = _make(live, arguments)
    live.rename(start)
    print(f"{_count(start):,} files; {load_average()}", flush=True)
    rounds = [_ours(live, start, arguments.of) for _ in range(arguments.rounds)]
    ours, ours_warm = median([cost for cost, _ in rounds]), statistics.median(warm for _, warm in rounds)
    left = _count(live)
    print(f"ours: {left:,} files left", flush=True)
    if arguments.no_peer:
        print(f"ours {ours.cpu_seconds:.1f} CPU-s, {ours.peak_rss_bytes / MB:.0f} MB")
        return
    cold, warm = _theirs(live, start, _CALLS[arguments.of].format(name), name, arguments.rounds)
    # Their warehouse has the copies of metadata that show the table to Java.
    print(f"peer: {_count(live):,} files left", flush=True)
    print(f"cold {cold.cpu_seconds / ours.cpu_seconds:.2f}")
    print(f"warm {warm.cpu_seconds / ours_warm:.2f} ({warm.cpu_seconds:.1f} beside {ours_warm:.1f} CPU-s)")
    print(f"{load_average()}\nratio {warm.cpu_seconds / ours.cpu_seconds:.2f}")


_CALLS = {
    "expiry": f"CALL {CATALOG}.system.expire_snapshots(table => '{{}}', older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1)",
    "manifests": f"CALL {CATALOG}.system.rewrite_manifests(table => '{{}}')",
    "orphans": f"CALL {CATALOG}.system.remove_orphan_files(table => '{{}}', older_than => TIMESTAMP '2020-01-01 00:00:00')",
}
_PROPERTIES = {
    "write.metadata.previous-versions-max": "1",
    "history.expire.max-snapshot-age-ms": "0",
    "compaction.expire.grace": "0s",
}


def _count_requests(folder: Path, arguments: Any) -> None:
    """Measure our side on a small S3 whose objects have one byte."""
    context = get_context("spawn")
    pipe, theirs = context.Pipe()
    server = context.Process(target=_serve_s3, args=(theirs,), daemon=True)
    server.start()
    where = {"warehouse": f"s3://{BUCKET}/wh", "py-io-impl": OBJECT_FILE_IO, **pipe.recv()}
    folder.joinpath("properties.json").write_text(json.dumps(where))
    table, made = _table(make_catalog(folder, **where), arguments)
    for start in range(0, len(made), _SENT_AT_ONCE):
        pipe.send([f"{table.location()}/{file.path}".removeprefix(f"s3://{BUCKET}/") for file in made[start : start + _SENT_AT_ONCE]])
    pipe.send(None)
    pipe.recv()
    print(f"{len(made):,} data files; {load_average()}", flush=True)
    child = subprocess.Popen([sys.executable, str(_STEP), arguments.of, str(folder)])
    with measured(pid=child.pid) as cost:
        failed = child.wait()
    pipe.send(None)
    print(f"requests: {pipe.recv()}")
    _print("ours", cost)
    sys.exit(failed)


def _serve_s3(pipe: Connection) -> None:
    with object_store() as store:
        pipe.send(store.properties)
        while (keys := pipe.recv()) is not None:
            store.objects.update(dict.fromkeys(keys, b"x"))
        store.counts()
        pipe.send(None)
        pipe.recv()
        pipe.send(_by_kind(store.requests))


def _by_kind(requests: Sequence[tuple[str, str]]) -> Mapping[str, int]:
    """How many requests there were of each kind. Only a listing and a deletion of many objects name no object."""
    kinds = {("GET", False): "LIST", ("POST", False): "deletions of many"}
    return Counter(kinds.get((method, bool(key)), method) for method, key in requests)


def _make(folder: Path, arguments: Any) -> str:
    """Make the table. Return its name in the catalog of the peer."""
    table, made = _table(make_catalog(folder), arguments)
    if not arguments.absent and arguments.of != "manifests":
        _touch(Path(table.location().removeprefix("file://")), made)
    return show_to_java(table, folder / "warehouse")


def _table(catalog: SqlCatalog, arguments: Any) -> tuple[Table, Sequence[Fake]]:
    """Make the table. Return its files too, also those that no snapshot names."""
    table = make_table(catalog, "t", **_PROPERTIES)
    made = list(fakes(arguments.files, _PARTITIONS, 1 << 20))
    if arguments.of == "manifests":
        table = append(table, made, per_manifest=50)
    elif arguments.of == "orphans":
        # Names as Spark makes them, because other names are nobody's garbage.
        made = [
            replace(file, path=f"data/day={file.day}/00000-7-{UUID(int=number, version=4)}-00001.parquet")
            for number, file in enumerate(made)
        ]
        table = append(table, made[len(made) // 10 :])
    elif arguments.overwrites:
        table = overwrite_often(catalog, table, made, arguments.commits, per_manifest=10)
    else:
        for number in range(arguments.commits):
            append(table, made[number :: arguments.commits])
        merged = list(fakes(max(1, len(made) // 1000), _PARTITIONS, 128 << 20, seed=2))
        append(table, [*made[len(made) * 9 // 10 :], *merged], parent_manifests=False)
        made += merged
    return table, made


def _touch(root: Path, files: Sequence[Fake]) -> None:
    for parent in {(root / file.path).parent for file in files}:
        parent.mkdir(parents=True, exist_ok=True)
    for file in files:
        (root / file.path).write_bytes(b"x")
        # The peer takes no file that is younger than a day.
        os.utime(root / file.path, (0, 0))


def _ours(live: Path, start: Path, of: str) -> tuple[Cost, float]:
    """Our side from its start, and the CPU-seconds that it took after its start."""
    _fresh(live, start)
    with measured() as cost:
        said = subprocess.run([sys.executable, str(_STEP), of, str(live)], check=True, stdout=subprocess.PIPE, text=True).stdout
    print(said, end="", flush=True)
    _print("ours", cost)
    return cost, float(said.splitlines()[-1].removeprefix("warm "))


def _theirs(live: Path, start: Path, call: str, name: str, rounds: int) -> tuple[Cost, Cost]:
    costs = []
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
