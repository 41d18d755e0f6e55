"""Measures how well a plan predicts what a compaction leaves and costs: 40 runs on each of four kinds of tables.

    python benchmarks/predictions.py                     # Spark, 40 runs; the first 20 only calibrate
    python benchmarks/predictions.py --only appends --rows 1000000 --columns 100 --folder /tmp/appends --pause-after 540   # longer runs
    python benchmarks/predictions.py --runs 24 --rows 500 --engine in-process

`grows` is rewritten whole each time (FULL) and gets 10 to 30 % more rows a run. `appends` gets about as many small files each time (MINOR).
`deletes` keeps its size and gets equality deletes of a tenth of its keys (MAJOR). `shifts` is as `appends` until run 30; from then on three
times as many rows come, and they compress better. Files, bytes and GB-hours are predicted before each run, and compared with the table
and the ledger after it. An error is max(predicted / found, found / predicted) - 1. Its median over the counted runs is printed beside that
of "the same as the last run". GB-hours are also given for the runs of at least `--long` seconds alone. Of `shifts` the runs after the shift
are printed one by one.

A row of `--columns` columns of small numbers costs more time than bytes. With them a table is sorted by its random column, so that each
merge decodes its rows. One compaction before the first run starts Spark; it counts nowhere. With `--folder` a benchmark may be made in
pieces: it ends after `--pause-after` seconds, and the same command goes on.
"""

from __future__ import annotations

import argparse
import json
import pickle
import random
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
from measure import load_average, positive
from opened_services import OpenedServices, merge_on_spark, opened
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

from compaction_pipeline.core.capacity.costs import CostKey
from compaction_pipeline.core.planning.plan import PlanRequest
from compaction_pipeline.core.tables.data_file import FileContent, OutputFile
from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.demo.row_delta import row_delta
from compaction_pipeline.demo.write_files import write_parquet_file
from compaction_pipeline.settings import Settings
from compaction_pipeline_tests.iceberg.lake import Lake, LakeTable

CALIBRATING = 20
SHIFTS_AT = 30
RUN_MEMORY = 2 * 10**9


@dataclass(frozen=True)
class Figures:
    """What a run left and cost."""

    files: float
    size: float
    gb_hours: float
    seconds: float = 0.0


Pair = tuple[int, Figures, Figures, Figures]
"""The number of a run, what was predicted, what was found, and what the run before left and cost."""


@dataclass
class Table:
    """A table that is written before each run. `first` is how many rows its first run has, and `run` the number of the next run, from 1."""

    table: LakeTable
    first: int
    rows: int = 0
    run: int = 1

    @property
    def of(self) -> random.Random:
        """What is random in this run; the same in each benchmark."""
        return random.Random(f"{self.table.identifier.name} {self.run}")

    def append(self, rows: int, files: int, *, alike: bool = False) -> None:
        """Append so many rows in so many files; with `alike` rows that compress well."""
        parts = [range(self.rows + rows * part // files, self.rows + rows * (part + 1) // files) for part in range(files)]
        written = [self._written(ids, f"run-{self.run}-{part}", alike=alike) for part, ids in enumerate(parts) if ids]
        row_delta(self.table.table, written)
        self.rows += rows

    def append_copies(self, files: int) -> None:
        """Append copies of so many files, of which sixteen have about as many rows as the table at its first run. They are written once: to
        write all of them in each run would take longer than to merge them."""
        kept = self.table.lake.folder / "copied"
        if not kept.exists():
            kept.mkdir()
            sizes = [round(self.first / 16 * self.of.uniform(0.6, 1.4)) for _ in range(24)]
            made = [self._written(range(size), f"copied-{number}") for number, size in enumerate(sizes)]
            (kept / "files").write_bytes(pickle.dumps(made))
        copies = []
        for number, file in enumerate(self.of.sample(pickle.loads((kept / "files").read_bytes()), files)):
            path = file.path.replace("copied-", f"run-{self.run}-{number}-")
            shutil.copy(file.path.removeprefix("file://"), path.removeprefix("file://"))
            copies.append(replace(file, path=path))
        row_delta(self.table.table, copies)
        self.rows += sum(file.record_count for file in copies)

    def delete(self, ids: range) -> None:
        """Delete by equality on `id`."""
        keys = pa.table({"id": pa.array(ids, pa.int64())})
        name = f"deletes-{self.run}"
        file = write_parquet_file(self.table.table, keys, content=FileContent.EQUALITY_DELETES, equality_ids=(1,), name=name)
        row_delta(self.table.table, equality_deletes=[(file, [1])])

    def _written(self, ids: range, name: str, *, alike: bool = False) -> OutputFile:
        schema = schema_to_pyarrow(self.table.table.schema())
        of, drawn = random.Random(name), np.random.default_rng(self.run)
        names = [f"{of.getrandbits(12 if alike else 160):040x}" for _ in ids]
        small = {name: drawn.integers(0, 50, len(ids), dtype=np.int32) for name in schema.names[2:]}
        rows = pa.table({"id": pa.array(ids, pa.int64()), "name": names, **small}, schema=schema)
        return write_parquet_file(self.table.table, rows, content=FileContent.DATA, name=name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=positive, default=40)
    parser.add_argument("--rows", type=positive, default=2_000, help="rows of a table at its first run")
    parser.add_argument("--columns", type=int, default=0, help="so many columns of small numbers, in sorted tables")
    parser.add_argument("--engine", choices=("spark", "in-process"), default="spark")
    parser.add_argument("--long", type=float, default=10.0, help="runs of at least so many seconds count as long")
    parser.add_argument("--only", choices=tuple(KINDS), help="one kind of tables")
    parser.add_argument("--folder", type=Path, help="where the benchmark stays, so that it can go on; a temporary folder otherwise")
    parser.add_argument("--pause-after", type=float, default=float("inf"), help="end after so many seconds, with --folder")
    arguments = parser.parse_args()
    print(f"{arguments.runs} runs, {arguments.engine}, {arguments.columns} more columns, {load_average()}", flush=True)
    for name in KINDS if arguments.only is None else (arguments.only,):
        with tempfile.TemporaryDirectory(prefix="predictions-benchmark-") as folder:
            _measure(name, Path(folder) if arguments.folder is None else arguments.folder / name, arguments)
    print(load_average())


def _measure(name: str, folder: Path, arguments: argparse.Namespace) -> None:
    kind, write = KINDS[name]
    folder.mkdir(parents=True, exist_ok=True)
    begun, lake, log = time.monotonic(), Lake(folder), folder / "runs.jsonl"
    services = opened(Settings(home=folder / "home", merge_engine=arguments.engine, run_memory=RUN_MEMORY, task_slots=1))
    if arguments.engine == "spark":
        merge_on_spark(services)
    done = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    if not done:
        services.explore_catalogs.register(CatalogEntry("lake", lake.properties))
    warm = Table(_table(lake, f"warm_{len(done)}", arguments.columns), 1_000)
    warm.append(1_000, 3)
    _run(services, warm.table, PlanRequest((CompactionType.FULL,), force=True))
    table = Table(_table(lake, name, arguments.columns), arguments.rows, done[-1]["rows"] if done else 0, len(done) + 1)
    while table.run <= arguments.runs and time.monotonic() - begun < arguments.pause_after:
        write(table)
        predicted, found = _run(services, table.table, PlanRequest((kind,), force=True))
        # What a replay of the calibration needs: what the last attempts read and took, and what was predicted of the run.
        past = [asdict(run) for run in services.stores.costs.past(table.table.identifier, kind)]
        told = None if predicted is None else asdict(predicted)
        done.append({"run": table.run, "rows": table.rows, "predicted": told, "found": asdict(found), "past": past})
        with log.open("a") as file:
            file.write(json.dumps(done[-1]) + "\n")
        table.run += 1
    services.close()
    pairs = [
        (one["run"], Figures(**one["predicted"]), Figures(**one["found"]), Figures(**before["found"]))
        for before, one in pairwise(done)
        if one["run"] > CALIBRATING and one["predicted"] is not None
    ]
    print(f"{name} ({kind.value}, {table.rows:,} rows, {len(done)} runs, {time.monotonic() - begun:.0f} s, {len(pairs)} runs counted)")
    _print_all(pairs, arguments.long)
    if name == "shifts":
        _print_shift([pair for pair in pairs if pair[0] >= SHIFTS_AT])


def _table(lake: Lake, name: str, columns: int) -> LakeTable:
    fields = [NestedField(1, "id", LongType(), required=True), NestedField(2, "name", StringType())]
    fields += [NestedField(3 + number, f"c{number}", IntegerType()) for number in range(columns)]
    order = SortOrder(SortField(2, IdentityTransform())) if columns else SortOrder(order_id=0)
    # Files of the target size are left alone. A table of a few hundred MB would soon have such ones, and not be rewritten whole any more.
    whole = name in ("grows", "deletes")
    more = {"write.target-file-size-bytes": str(2**30)} if whole else {"self-optimizing.fragment-ratio": "2"} if columns else {}
    schema, properties = Schema(*fields, identifier_field_ids=[1]), {"format-version": "2", **more}
    created = lake.catalog.create_table_if_not_exists((lake.namespace, name), schema, sort_order=order, properties=properties)
    return LakeTable(lake, TableIdentifier("lake", (lake.namespace,), name), created)


def _print_all(pairs: list[Pair], least: float) -> None:
    for what in ("files", "size", "gb_hours"):
        _print(what, pairs, what)
    long = [pair for pair in pairs if pair[2].seconds >= least]
    if long:
        most = max(pair[2].seconds for pair in long)
        _print("gb_hours", long, f"gb_hours of {len(long)} runs of at least {least:g} s, at most {most:.0f} s")
    else:
        print(f"  no run took {least:g} s: the longest {max((pair[2].seconds for pair in pairs), default=0):.1f} s", flush=True)


def _print(what: str, pairs: list[Pair], words: str) -> None:
    errors = [_error(getattr(predicted, what), getattr(found, what)) for _, predicted, found, _ in pairs]
    same = [_error(getattr(last, what), getattr(found, what)) for _, _, found, last in pairs]
    if errors:
        print(f"  {words}: median error {median(errors):.1%}, the same as the last run {median(same):.1%}", flush=True)


def _print_shift(pairs: list[Pair]) -> None:
    for number, predicted, found, last in pairs:
        for words, one in (("predicted", predicted), ("the same as the last run", last)):
            errors = _error(one.size, found.size), _error(one.gb_hours, found.gb_hours)
            print(f"  run {number}, {words}: bytes {errors[0]:.1%}, GB-hours {errors[1]:.1%}", flush=True)


def _error(one: float, other: float) -> float:
    if one <= 0 or other <= 0:
        return 0.0 if one == other else float("inf")
    return max(one / other, other / one) - 1


def _run(services: OpenedServices, table: LakeTable, request: PlanRequest) -> tuple[Figures | None, Figures]:
    """Predict, then compact, then look. Nothing is predicted while nothing was merged."""
    identifier = table.identifier
    services.one_table.refresh(identifier)
    plan = services.one_table.explain(identifier, request)
    costs = [one.gb_hours for one in plan.predictions if one.gb_hours is not None]
    predicted = None
    if costs and len(costs) == len(plan.tasks):
        predicted = Figures(plan.predicted_files + plan.predicted_delete_files, plan.predicted_bytes, sum(costs))
    before = _spent(services, identifier)
    done = services.compact_tables.compact(identifier, request)
    if not done.committed or done.failed:
        raise SystemExit(f"{identifier} was not compacted: {done.plan.reason.text}")
    services.one_table.refresh(identifier)
    files = services.stores.files.files(identifier)
    after = _spent(services, identifier)
    size = sum(file.file_size_bytes for file in files)
    return predicted, Figures(len(files), size, after[0] - before[0], after[1] - before[1])


def _spent(services: OpenedServices, table: TableIdentifier) -> tuple[float, float]:
    sums = [one for one in services.read_costs.costs(CostKey.TABLE, 2).costs if one.key == str(table)]
    return sum(one.gb_hours or 0.0 for one in sums), sum(one.slot_seconds for one in sums)


def _grow(table: Table) -> None:
    table.append(table.first if not table.rows else round(table.rows * table.of.uniform(0.1, 0.3)), 3)


def _append_alike(table: Table) -> None:
    if len(table.table.table.schema().fields) > 2:
        table.append_copies(table.of.randint(12, 20))
    else:
        table.append(round(table.first * table.of.uniform(0.8, 1.2)), table.of.randint(6, 10))


def _delete(table: Table) -> None:
    """Ids from `rows - 10 × first` on are live: the oldest tenth of them goes, and as many come."""
    first = table.first
    table.append(10 * first if not table.rows else first, 3)
    gone = range(max(0, table.rows - 11 * first), table.rows - 10 * first)
    if gone:
        table.delete(gone)


def _shift(table: Table) -> None:
    shifted = table.run >= SHIFTS_AT
    table.append(round(table.first * table.of.uniform(0.8, 1.2)) * (3 if shifted else 1), table.of.randint(6, 10), alike=shifted)


KINDS: dict[str, tuple[CompactionType, Callable[[Table], None]]] = {
    "grows": (CompactionType.FULL, _grow),
    "appends": (CompactionType.MINOR, _append_alike),
    "deletes": (CompactionType.MAJOR, _delete),
    "shifts": (CompactionType.MINOR, _shift),
}

if __name__ == "__main__":
    main()
