"""Compares the CPU of our merge of changes into a base store with Spark's MERGE INTO on a plain Iceberg table.

    python benchmarks/keyed_major.py                       # 8 million rows, of which a fifth changes
    python benchmarks/keyed_major.py --rows 1000000 --share 0.05

A keyed table holds the rows in its base store and the changes of `--transactions` transactions in its change store: updates, inserts and
deletes. MAJOR merges all of them into the base store. The peer is what a team without keyed tables does: it keeps the newest change of each
key, and applies these by MERGE INTO (copy-on-write) to a plain Iceberg table with the same rows. Spark reads the same bytes in both cases.
Each side has a warm Spark session of its own, and `without Spark` is the same kernel in one process. Our side is measured without its
commit. The last line is `ratio <peer's CPU / ours>`.
"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import opened_services
import pyarrow as pa
import pyarrow.parquet as pq
from generate import Warehouse, warehouse
from measure import CATALOG, MB, alternating, load_average, median, positive
from own_session import own_session
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, LongType, NestedField, StringType

from compaction_pipeline.core.queue.task import CompactionTask
from compaction_pipeline.core.tables.table import TableLayout
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.core.work.merge_engine import MergeEngine
from compaction_pipeline.iceberg.catalogs import SqlCatalog
from compaction_pipeline.keyed import KeyedTable
from compaction_pipeline.merging.engine import InProcessMergeEngine

assert opened_services.__all__, "this import puts the tests' folder on the path"

from compaction_pipeline_tests.keyed.compactions import Compactions  # noqa: E402 - the path is set above

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "name", StringType()),
    NestedField(3, "amount", DoubleType()),
    NestedField(4, "seq", LongType()),
)
_COLUMNS = ("id", "name", "amount", "seq")
_PEER = f"{CATALOG}.db.plain"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=positive, default=8_000_000, help="rows of the base store")
    parser.add_argument("--share", type=float, default=0.2, help="changes as a share of the rows")
    parser.add_argument("--transactions", type=positive, default=20, help="transactions of changes")
    parser.add_argument("--rounds", type=positive, default=3, help="counted rounds")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="keyed-benchmark-") as name, warehouse(Path(name)) as opened, own_session(Path(name)) as engine:
        folder = Path(name)
        tasks, layout, changes = _keyed_table(folder / "keyed", arguments)
        output = folder / "ours"
        layout = replace(layout, properties={**layout.properties, "write.data.path": str(output)})
        megabytes = sum(task.work.input_bytes for task in tasks) / MB
        files = sum(len(task.work.change_files) for task in tasks)
        _plain_table(opened, tasks, changes)
        print(f"{arguments.rows} rows, {files} change files, {megabytes:.0f} MB, {len(tasks)} tasks; {load_average()}")
        before = _snapshot_id(opened)
        runs: dict[str, Callable[[], object]] = {
            "merge into": lambda: _merge_into(opened, before),
            "ours": lambda: _ours(engine, tasks, layout),
            "without Spark": lambda: _ours(InProcessMergeEngine(), tasks, layout),
        }
        every = alternating(runs, arguments.rounds, tidy=lambda: shutil.rmtree(output, ignore_errors=True), pids={"ours": engine.pid()})
        costs = {side: median(each) for side, each in every.items()}
        for side, cost in costs.items():
            print(f"{side:14} {megabytes / cost.cpu_seconds:6.1f} MB per CPU-second, {cost.seconds:.2f} s")
        print(load_average())
        print(f"ratio {costs['merge into'].cpu_seconds / costs['ours'].cpu_seconds:.2f}")


def _keyed_table(folder: Path, arguments: argparse.Namespace) -> tuple[Sequence[CompactionTask], TableLayout, pa.Table]:
    """Tasks that merge all changes of a new keyed table, its layout, and the changes as one table."""
    folder.mkdir()
    properties = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/wh"}
    catalog = SqlCatalog("bench", **{key: value for key, value in properties.items() if key != "type"})
    catalog.create_namespace("db")
    table = KeyedTable.create(catalog, "db.t", SCHEMA, ["id"], upsert=True)
    chance = np.random.default_rng(7)
    compactions = Compactions(catalog, properties)
    table.write_changes(with_kind(rows_of(chance, np.arange(arguments.rows), 0), ["INSERT"] * arguments.rows))
    compactions.compact(CompactionType.FULL)
    count = max(1, int(arguments.rows * arguments.share) // arguments.transactions)
    written = []
    for number in range(arguments.transactions):
        ids = chance.choice(int(arguments.rows * 1.05), count, replace=False)
        kinds = random.Random(number).choices(["INSERT", "DELETE"], [0.92, 0.08], k=count)
        written.append(with_kind(rows_of(chance, ids, number + 1), kinds))
        table.write_changes(written[-1])
    stores = compactions.stores
    return compactions.plan(CompactionType.MAJOR), stores.layout, pa.concat_tables(written)


def rows_of(chance: np.random.Generator, ids: np.ndarray[Any, Any], sequence: int) -> pa.Table:
    names = pa.array([f"customer {number % 9973:05d} of {sequence}" for number in ids.tolist()])
    return pa.table({"id": ids, "name": names, "amount": chance.random(len(ids)), "seq": np.full(len(ids), sequence)})


def with_kind(rows: pa.Table, kinds: Sequence[str]) -> pa.Table:
    return rows.append_column("_change_type", pa.array(kinds))


def _plain_table(opened: Warehouse, tasks: Sequence[CompactionTask], changes: pa.Table) -> None:
    """The same rows as a plain Iceberg table of the peer, and a view of the changes."""
    spark = opened.session
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.db")
    base = sorted({file.path for task in tasks for file in task.work.inputs})
    spark.read.parquet(*base).select(*_COLUMNS).writeTo(_PEER).using("iceberg").create()
    path = f"{Path(base[0].removeprefix('file://')).parents[3]}/changes.parquet"
    pq.write_table(changes, path)
    spark.read.parquet(path).createOrReplaceTempView("changes")


def _snapshot_id(opened: Warehouse) -> int:
    (row,) = opened.session.sql(f"SELECT snapshot_id FROM {_PEER}.snapshots ORDER BY committed_at DESC LIMIT 1").collect()
    return int(row[0])


def _merge_into(opened: Warehouse, before: int) -> None:
    spark = opened.session
    newest = "SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY id ORDER BY seq DESC) AS place FROM changes) WHERE place = 1"
    assigned = ", ".join(f"t.{name} = c.{name}" for name in _COLUMNS)
    spark.sql(
        f"MERGE INTO {_PEER} t USING ({newest}) c ON t.id = c.id WHEN MATCHED AND c._change_type = 'DELETE' THEN DELETE "
        f"WHEN MATCHED THEN UPDATE SET {assigned} WHEN NOT MATCHED AND c._change_type = 'INSERT' "
        f"THEN INSERT ({', '.join(_COLUMNS)}) VALUES ({', '.join(f'c.{name}' for name in _COLUMNS)})"
    )
    spark.sql(f"CALL {CATALOG}.system.rollback_to_snapshot('db.plain', {before})")


def _ours(engine: MergeEngine, tasks: Sequence[CompactionTask], layout: TableLayout) -> None:
    for result in engine.merge([each.merge_input(layout) for each in tasks], {}):
        if result.error is not None:
            raise SystemExit(result.error)


if __name__ == "__main__":
    main()
