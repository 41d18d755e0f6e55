"""Measures how well a plan predicts what a compaction leaves and costs: 40 runs on each of three kinds of tables.

    python benchmarks/predictions.py                     # Spark, 40 runs; the first 20 only calibrate
    python benchmarks/predictions.py --runs 24 --rows 500 --engine in-process

`grows` is rewritten whole each time (FULL) and gets 10 to 30 % more rows a run. `appends` gets about as many small files each time (MINOR).
`deletes` keeps its size and gets equality deletes of a tenth of its keys (MAJOR). Files, bytes and GB-hours are predicted before each run,
and compared with the table and the ledger after it. An error is max(predicted / found, found / predicted) - 1. Its median over the counted
runs is printed beside that of "the same as the last run". GB-hours are also given for the runs of at least `--long` seconds alone.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import pyarrow as pa
from measure import load_average, positive
from opened_services import OpenedServices, merge_on_spark, opened
from pyiceberg.io.pyarrow import schema_to_pyarrow

from compaction_pipeline.core.capacity.costs import CostKey
from compaction_pipeline.core.planning.plan import PlanRequest
from compaction_pipeline.core.tables.table import CatalogEntry
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.services.planning.fits import Fits
from compaction_pipeline.settings import Settings
from compaction_pipeline_tests.iceberg.lake import Lake, LakeTable

CALIBRATING = 20
RUN_MEMORY = 2 * 10**9


@dataclass(frozen=True)
class Figures:
    """What a run left and cost."""

    files: float
    size: float
    gb_hours: float
    seconds: float = 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=positive, default=40)
    parser.add_argument("--rows", type=positive, default=2_000, help="rows of a table at its first run")
    parser.add_argument("--engine", choices=("spark", "in-process"), default="spark")
    parser.add_argument("--long", type=float, default=10.0, help="runs of at least so many seconds count as long")
    parser.add_argument("--only", choices=("grows", "appends", "deletes"), help="one kind of tables")
    arguments = parser.parse_args()
    print(f"{arguments.runs} runs, {arguments.engine}, {load_average()}", flush=True)
    for name, (kind, write) in KINDS.items():
        if arguments.only in (None, name):
            with tempfile.TemporaryDirectory(prefix="predictions-benchmark-") as folder:
                _measure(name, kind, write, Path(folder), arguments)
    print(load_average())


def _measure(
    name: str, kind: CompactionType, write: Callable[[LakeTable, random.Random, int, int], int], folder: Path, arguments: argparse.Namespace
) -> None:
    lake, of = Lake(folder), random.Random(name)
    table = lake.table(name)
    settings = Settings(home=folder / "home", merge_engine=arguments.engine, run_memory=RUN_MEMORY, task_slots=1)
    services = opened(settings)
    if arguments.engine == "spark":
        merge_on_spark(services)
    services.explore_catalogs.register(CatalogEntry("lake", lake.properties))
    rows, begun = 0, time.monotonic()
    pairs: list[tuple[Figures, Figures, Figures | None]] = []
    last: Figures | None = None
    for run in range(arguments.runs):
        rows = write(table, of, rows, arguments.rows)
        predicted, found = _run(services, table, PlanRequest((kind,), force=True))
        if run >= CALIBRATING and predicted is not None:
            pairs.append((predicted, found, last))
        last = found
    services.close()
    print(f"{name} ({kind.value}, {rows:,} rows at the end, {time.monotonic() - begun:.0f} s, {len(pairs)} runs counted)")
    for what in ("files", "size", "gb_hours"):
        _print(what, pairs, what)
    long = [each for each in pairs if each[1].seconds >= arguments.long]
    if long:
        _print("gb_hours", long, f"gb_hours of {len(long)} runs of at least {arguments.long:g} s")
    else:
        print(
            f"  no run took {arguments.long:g} s: the longest {max((found.seconds for _, found, _ in pairs), default=0):.1f} s", flush=True
        )


def _print(what: str, pairs: list[tuple[Figures, Figures, Figures | None]], words: str) -> None:
    errors = [_error(getattr(predicted, what), getattr(found, what)) for predicted, found, _ in pairs]
    same = [_error(getattr(last, what), getattr(found, what)) for _, found, last in pairs if last is not None]
    if errors and same:
        print(f"  {words}: median error {median(errors):.1%}, the same as the last run {median(same):.1%}", flush=True)


def _error(one: float, other: float) -> float:
    if one <= 0 or other <= 0:
        return 0.0 if one == other else float("inf")
    return max(one / other, other / one) - 1


def _run(services: OpenedServices, table: LakeTable, request: PlanRequest) -> tuple[Figures | None, Figures]:
    """Predict, then compact, then look. Nothing is predicted while nothing was merged."""
    identifier = table.identifier
    services.one_table.refresh(identifier)
    plan = services.one_table.explain(identifier, request)
    fits, costs = Fits(services.stores.costs), []
    for work in plan.tasks:
        known = fits.of(identifier, work.type)
        costs.append(None if known is None else known.gb_hours(work.bytes_read))
    predicted = None
    if costs and None not in costs:
        predicted = Figures(plan.predicted_files + plan.predicted_delete_files, plan.predicted_bytes, sum(filter(None, costs)))
    before = _spent(services)
    done = services.compact_tables.compact(identifier, request)
    if not done.committed or done.failed:
        raise SystemExit(f"{identifier} was not compacted: {done.plan.reason.text}")
    services.one_table.refresh(identifier)
    files = services.stores.files.files(identifier)
    after = _spent(services)
    size = sum(file.file_size_bytes for file in files)
    return predicted, Figures(len(files), size, after[0] - before[0], after[1] - before[1])


def _spent(services: OpenedServices) -> tuple[float, float]:
    sums = services.read_costs.costs(CostKey.TABLE, 2).costs
    return sum(one.gb_hours or 0.0 for one in sums), sum(one.slot_seconds for one in sums)


def _append(table: LakeTable, of: random.Random, first: int, rows: int, files: int) -> None:
    table.table.refresh()
    schema = schema_to_pyarrow(table.table.schema(), include_field_ids=False)
    parts = [range(first + rows * part // files, first + rows * (part + 1) // files) for part in range(files)]
    for ids in filter(len, parts):
        names = [f"{of.getrandbits(160):040x}" for _ in ids]
        table.table.append(pa.table({"id": pa.array(ids, pa.int64()), "name": names}, schema=schema))


def _grow(table: LakeTable, of: random.Random, rows: int, first: int) -> int:
    more = first if not rows else round(rows * of.uniform(0.1, 0.3))
    _append(table, of, rows, more, 3)
    return rows + more


def _append_alike(table: LakeTable, of: random.Random, rows: int, first: int) -> int:
    more = round(first * of.uniform(0.8, 1.2))
    _append(table, of, rows, more, of.randint(6, 10))
    return rows + more


def _delete(table: LakeTable, of: random.Random, rows: int, first: int) -> int:
    """Ids from `rows - 10 × first` on are live: the oldest tenth of them goes, and as many come."""
    more = 10 * first if not rows else first
    _append(table, of, rows, more, 3)
    rows += more
    gone = range(max(0, rows - 11 * first), rows - 10 * first)
    if gone:
        table.delete_ids(*gone)
    return rows


KINDS: dict[str, tuple[CompactionType, Callable[[LakeTable, random.Random, int, int], int]]] = {
    "grows": (CompactionType.FULL, _grow),
    "appends": (CompactionType.MINOR, _append_alike),
    "deletes": (CompactionType.MAJOR, _delete),
}

if __name__ == "__main__":
    main()
