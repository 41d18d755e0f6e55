"""Compares four ways to keep the small files of a stream few: none, the service's MINOR, a sink that merges its own files, and both.

    python benchmarks/sink.py                        # 60 batches each, under four loads
    python benchmarks/sink.py --batches 200 --loads trickle
    python benchmarks/sink.py --s3                   # the small files handed to the process that merges, or read again

A batch is committed every `--pace` seconds to a keyed table with delta-rewrite, and stands for a minute of a stream. So an interval of ten
minutes is ten batches. The service looks at the table after every fifth batch; its time does not count, because it runs elsewhere.

The loads:

- one partition:     4 tree nodes, 4,000 changes a batch
- many partitions:   200 partitions of one node each, 4,000 changes a batch, so that each node gets few. A batch takes half a second, so
                     there are at least two seconds from batch to batch
- large commits:     every hundredth batch, and the first one, has as many bytes as a file that is no small one
- trickle:           20 changes a batch

For each way it prints n, the files that a reader of a node opens, on average and at the end, beside what the commit rate and the interval
let expect; the bytes that were written and that were read again to be merged; the objective, which is how many opened files were saved for
each kilobyte that was written again, when the table is read once a batch; the time of a batch (p50, p99); how long small files waited
until they were merged; and the most memory that the process held, which writes and also does what the service would. The last line is
`ratio <p50 of a batch with a merging sink / without>` under the load where it is highest.

With `--s3` the table is on a small S3 in a process of its own that answers after 30 ms. A sink that hands its small files to the process
that merges runs beside one that lets it read them from there, `--rounds` times in turn, under the load "one partition". Requests and
memory are those of the last round, p50 and p99 are medians over the rounds, and the last line is
`ratio <requests when files are handed over / read again>`.
"""

from __future__ import annotations

import argparse
import random
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import opened_services
import pyarrow as pa
from measure import load_average, measured, positive
from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from compaction_pipeline.core.planning.plan import PlanRequest
from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.file_io.object_io import OBJECT_FILE_IO
from compaction_pipeline.iceberg.catalogs import SqlCatalog
from compaction_pipeline.iceberg.manifests.entries import read_entries
from compaction_pipeline.iceberg.scan import manifests_of
from compaction_pipeline.keyed import KeyedTable, merging_sink
from compaction_pipeline.settings import Settings

assert opened_services.__all__, "this import puts the tests' folder on the path"

from compaction_pipeline_tests.object_store import BUCKET, object_store  # noqa: E402 - the path is set above
from compaction_pipeline_tests.opened import OpenedServices  # noqa: E402 - the path is set above

_SCHEMA = Schema(
    NestedField(1, "place", LongType(), required=True),
    NestedField(2, "id", LongType(), required=True),
    NestedField(3, "text", StringType()),
)
_TABLE = TableIdentifier("bench", ("db",), "t")
_LOADS = ("one partition", "many partitions", "large commits", "trickle")
_WAYS = ("none", "service", "sink", "both")
_PARTITIONS = 200
_PACE_OF_MANY = 2.0
_TICK = 5
_INTERVAL = 10
_SMALL = 400_000
"""Change files of more bytes are no small ones: a target of 3.2 MB, divided by the fragment ratio 8."""

Write = Callable[[pa.Table, int], object]


@dataclass
class Run:
    """What was seen of one way under one load."""

    files: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    waited: list[int] = field(default_factory=list)
    written: int = 0
    again: int = 0
    peak_bytes: int = 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=positive, default=60, help="batches of each run")
    parser.add_argument("--pace", type=float, default=0.4, help="seconds from batch to batch")
    parser.add_argument("--loads", nargs="*", default=list(_LOADS), choices=_LOADS, help="the loads")
    parser.add_argument("--s3", action="store_true", help="compare on an S3 with 30 ms of latency")
    parser.add_argument("--rounds", type=positive, default=3, help="with --s3: runs of each way")
    arguments = parser.parse_args()
    if arguments.s3:
        _compare_on_s3(arguments)
        return
    ratios = []
    for load in arguments.loads:
        runs = {way: _alone(load, way, arguments) for way in _WAYS}
        print(f"\n{load} ({load_average()}); expected n without merging {arguments.batches + 1}–{2 * arguments.batches}, "
              f"with an interval of {_INTERVAL} batches at most {2 * (_INTERVAL + arguments.batches // _INTERVAL)}")  # fmt: skip
        print("way         n mean     n end   MB written   MB again   saved/kB   p50 ms   p99 ms   waited    peak MB")
        for way, run in runs.items():
            saved = sum(before - now for before, now in zip(runs["none"].files, run.files, strict=True))
            objective = f"{saved / max(run.written - runs['none'].written, 1) * 1000:10.2f}" if way != "none" else " " * 10
            waited = f"{statistics.median(run.waited):5.0f}" if run.waited else " " * 5
            opened = f"{statistics.mean(run.files):10.1f}{run.files[-1]:10.1f}"
            moved = f"{run.written / 1e6:13.1f}{run.again / 1e6:11.1f} {objective}"
            batch = f"{_percentile(run.seconds, 50):9.0f}{_percentile(run.seconds, 99):9.0f}"
            print(f"{way:8}{opened}{moved}{batch}    {waited}{run.peak_bytes / 1e6:11.0f}", flush=True)
        ratios.append(_percentile(runs["sink"].seconds, 50) / _percentile(runs["none"].seconds, 50))
    print(f"ratio {max(ratios):.3f}")


def _percentile(seconds: list[float], percent: int) -> float:
    return 1000 * sorted(seconds)[min(len(seconds) - 1, len(seconds) * percent // 100)]


def _alone(load: str, way: str, arguments: argparse.Namespace) -> Run:
    """A run in a process of its own, so that no way has the memory of another."""
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_send, args=(theirs, load, way, arguments))
    process.start()
    theirs.close()
    with measured(pid=process.pid) as cost:
        run: Run = ours.recv()
    process.join()
    run.peak_bytes = cost.peak_rss_bytes
    return run


def _send(pipe: Connection, load: str, way: str, arguments: argparse.Namespace) -> None:
    # Imports and first connections are not counted.
    _run(load, way, argparse.Namespace(batches=12, pace=arguments.pace))
    pipe.send(_run(load, way, arguments))


def _run(load: str, way: str, arguments: argparse.Namespace) -> Run:
    with tempfile.TemporaryDirectory(prefix="sink-benchmark-") as name:
        table, services = _table(Path(name), load)
        run, chance = Run(), random.Random(7)
        nodes = _PARTITIONS if load == "many partitions" else 4
        pace = max(arguments.pace, _PACE_OF_MANY) if load == "many partitions" else arguments.pace
        with _writer(table, way, pace) as write:
            for number in range(arguments.batches):
                began = time.monotonic()
                rows = _rows(load, number, chance)
                started = time.monotonic()
                write(rows, number)
                run.seconds.append(time.monotonic() - started)
                run.files.append(_live(services) / nodes)
                if way in ("service", "both") and number % _TICK == _TICK - 1:
                    services.compact_tables.compact(_TABLE, PlanRequest((CompactionType.MINOR,)))
                time.sleep(max(0.0, began + pace - time.monotonic()))
        run.files[-1] = _live(services) / nodes
        _look_back(services, run)
        return run


@contextmanager
def _writer(table: KeyedTable, way: str, pace: float) -> Iterator[Write]:
    if way in ("none", "service"):
        yield lambda rows, number: table.write_changes(rows, sink_id="bench", batch=number)
        return
    with table.merging_sink("bench", interval=timedelta(seconds=max(1.0, pace * _INTERVAL))) as sink:
        yield lambda rows, number: sink.write_changes(rows, batch=number)
    if sink.figures.problem is not None:
        print(f"the sink left {sink.figures.left_files} files: {sink.figures.problem}")


def _table(folder: Path, load: str) -> tuple[KeyedTable, OpenedServices]:
    properties = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/wh"}
    catalog = SqlCatalog("bench", **{key: value for key, value in properties.items() if key != "type"})
    catalog.create_namespace("db")
    many = load == "many partitions"
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "place")) if many else PartitionSpec()
    table = KeyedTable.create(
        catalog, "db.t", _SCHEMA, ["place", "id"], spec, buckets=1 if many else 4, upsert=True, delta_rewrite=True,
        properties={
            "self-optimizing.target-size": str(_SMALL * 8),
            "self-optimizing.min-plan-interval": "0",
            "self-optimizing.commit.interval": "0",
        },
    )  # fmt: skip
    services = OpenedServices(Settings(home=folder / "home", merge_engine="in-process"), sleep=lambda seconds: None)
    services.stores.catalogs.add(CatalogEntry("bench", properties))
    return table, services


def _rows(load: str, number: int, chance: random.Random) -> pa.Table:
    count = {"trickle": 20, "large commits": 200_000 if number % 100 == 0 else 1_000}.get(load, 4_000)
    ids = chance.sample(range(1_000_000), count)
    places = [each % _PARTITIONS if load == "many partitions" else 0 for each in ids]
    texts = [f"{number} {each * 7919 % 1_000_003}" for each in ids]
    return pa.table({"place": places, "id": ids, "text": texts, "_change_type": ["INSERT"] * count})


def _compare_on_s3(arguments: argparse.Namespace) -> None:
    rounds = [{way: _in_process(_run_on_s3, way, arguments) for way in ("read again", "handed over")} for _ in range(arguments.rounds)]
    print(f"\none partition on S3, {arguments.batches} batches ({load_average()})")
    print("way           requests   GET of data   p50 ms   p99 ms   writer MB   merging MB")
    last = rounds[-1]
    for way, (requests, reads, _, writer, merging) in last.items():
        p50, p99 = (statistics.median(_percentile(each[way][2], percent) for each in rounds) for percent in (50, 99))
        print(f"{way:14}{requests:8}{reads:14}{p50:9.0f}{p99:9.0f}{writer / 1e6:12.0f}{merging / 1e6:13.0f}")
    print(f"ratio {last['handed over'][0] / last['read again'][0]:.3f}")


def _in_process(run: Callable[..., Any], *given: Any) -> Any:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(run, *given).result()


def _run_on_s3(way: str, arguments: argparse.Namespace) -> tuple[int, int, list[float], int, int]:
    """(Requests, GETs of data files, the seconds of each batch, the most memory of the writer and of the process that merges)."""
    if way == "read again":
        merging_sink._MOST_HELD_BYTES = 0
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    server = context.Process(target=_serve_s3, args=(theirs,), daemon=True)
    server.start()
    with tempfile.TemporaryDirectory(prefix="sink-benchmark-") as name:
        place = {"warehouse": f"s3://{BUCKET}/wh", "py-io-impl": OBJECT_FILE_IO, **ours.recv()}
        catalog = SqlCatalog("bench", uri=f"sqlite:///{name}/catalog.db", **place)
        catalog.create_namespace("db")
        table = KeyedTable.create(
            catalog, "db.t", _SCHEMA, ["place", "id"], buckets=4, upsert=True, delta_rewrite=True,
            properties={"self-optimizing.target-size": str(_SMALL * 8)},
        )  # fmt: skip
        chance, seconds, merging = random.Random(7), [], 0
        with table.merging_sink("bench", interval=timedelta(seconds=max(1.0, arguments.pace * _INTERVAL))) as sink:
            for number in range(arguments.batches):
                began = time.monotonic()
                sink.write_changes(_rows("one partition", number, chance), batch=number)
                seconds.append(time.monotonic() - began)
                time.sleep(max(0.0, began + arguments.pace - time.monotonic()))
        assert sink.figures.problem is None, sink.figures.problem
        merging = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
        ours.send(None)
        requests = ours.recv()
    reads = sum(method == "GET" and key.endswith(".parquet") for method, key in requests)
    # The first batch opens connections, and imports modules.
    return len(requests), reads, seconds[1:], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, merging


def _serve_s3(pipe: Connection) -> None:
    with object_store() as store:
        store.fault = lambda method, key: time.sleep(0.03)
        pipe.send(store.properties)
        pipe.recv()
        pipe.send(store.requests)


def _change_store(services: OpenedServices) -> Table:
    return services.catalogs.load(TableIdentifier("bench", ("db",), "t_change_"))


def _live(services: OpenedServices) -> int:
    """The live change files. None of them is in the base store, so readers open them all."""
    snapshot = _change_store(services).current_snapshot()
    return int(snapshot.summary["total-data-files"]) if snapshot is not None and snapshot.summary is not None else 0


def _look_back(services: OpenedServices, run: Run) -> None:
    """Add what the snapshots tell: bytes, and how many batches passed until the small files of each were merged."""
    change = _change_store(services)
    batches: dict[int, int] = {}
    for snapshot in change.metadata.snapshots:
        summary = snapshot.summary
        if summary is None:
            continue
        run.written += int(summary["added-files-size"] or 0)
        run.again += int(summary["removed-files-size"] or 0)
        if summary.operation is Operation.APPEND:
            batches[snapshot.sequence_number or 0] = len(batches)
            continue
        for manifest in manifests_of(snapshot, change.io):
            if manifest.added_snapshot_id == snapshot.snapshot_id:
                for entry in read_entries(change.io, manifest, live_only=False):
                    began = batches.get(entry.sequence_number or 0)
                    if entry.status == ManifestEntryStatus.DELETED and began is not None:
                        run.waited.append(len(batches) - began)


if __name__ == "__main__":
    main()
