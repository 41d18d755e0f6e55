"""Compares the CPU of our merge of change files with each other with the same merge as a plain PySpark job.

    python benchmarks/keyed_minor.py                          # 4 million changes in 40 transactions
    python benchmarks/keyed_minor.py --changes 400000 --keys 10000000

A keyed table with delta-rewrite gets upserts and deletes in `--transactions` commits, each of which leaves an insert file and a delete file
in every node. A MINOR merges them per node: of the deletes of a key the last one stays, and inserts that a later delete outdoes go. The
peer does the same with DataFrames: the greatest place in the log of each deleted key by an aggregation, a join, and one insert file and one
delete file for each node. It has half of the rules only, because it trusts the offsets and proves nothing. Both sides read the same files,
and each has a warm Spark session of its own; `without Spark` is the same kernel in one process. Our side is measured without its commit.
The last lines are the peak memory of a task of ours, and `ratio <peer's CPU / ours>`.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import opened_services
from generate import Warehouse, warehouse
from keyed_major import SCHEMA, rows_of, with_kind
from measure import MB, alternating, load_average, median, positive
from own_session import own_session
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from compaction_pipeline.core.queue.task import CompactionTask
from compaction_pipeline.core.tables.keyed.file_names import change_file, is_delete_file
from compaction_pipeline.core.tables.table import TableLayout
from compaction_pipeline.core.work.merge_engine import MergeEngine
from compaction_pipeline.iceberg.catalogs import SqlCatalog
from compaction_pipeline.keyed import KeyedTable
from compaction_pipeline.merging.engine import InProcessMergeEngine

assert opened_services.__all__, "this import puts the tests' folder on the path"

from compaction_pipeline_tests.keyed.compactions import Compactions  # noqa: E402 - the path is set above

_MEMORY = 1024 * 1024 * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--changes", type=positive, default=4_000_000, help="changes, each an upsert or a delete")
    parser.add_argument("--keys", type=positive, default=2_000_000, help="different keys that they are drawn from")
    parser.add_argument("--transactions", type=positive, default=40, help="transactions of changes")
    parser.add_argument("--memory", type=positive, default=_MEMORY, help="bytes of memory that one task of ours may use")
    parser.add_argument("--rounds", type=positive, default=3, help="counted rounds")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="keyed-benchmark-") as name, warehouse(Path(name)) as opened, own_session(Path(name)) as engine:
        tasks, layout = _keyed_table(Path(name) / "keyed", arguments)
        output = Path(name) / "merged"
        megabytes = sum(task.work.input_bytes for task in tasks) / MB
        files = sum(len(task.work.inputs) for task in tasks)
        print(f"{arguments.changes} changes, {files} change files, {megabytes:.0f} MB, {len(tasks)} tasks; {load_average()}")
        peaks: list[int] = []
        runs: dict[str, Callable[[], object]] = {
            "PySpark": lambda: _with_data_frames(opened, tasks, output),
            "ours": lambda: _ours(engine, tasks, _writing_to(layout, output), peaks),
            "without Spark": lambda: _ours(InProcessMergeEngine(), tasks, _writing_to(layout, output), peaks),
        }
        every = alternating(runs, arguments.rounds, tidy=lambda: shutil.rmtree(output, ignore_errors=True), pids={"ours": engine.pid()})
        costs = {side: median(each) for side, each in every.items()}
        for side, cost in costs.items():
            print(f"{side:14} {megabytes / cost.cpu_seconds:6.1f} MB per CPU-second, {cost.seconds:.2f} s")
        print(f"peak memory of a task {max(peaks) / MB:.0f} MB; {load_average()}")
        print(f"ratio {costs['PySpark'].cpu_seconds / costs['ours'].cpu_seconds:.2f}")


def _keyed_table(folder: Path, arguments: argparse.Namespace) -> tuple[Sequence[CompactionTask], TableLayout]:
    """Tasks that merge the change files of each node of a new keyed table, and its layout."""
    folder.mkdir()
    properties = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/wh"}
    catalog = SqlCatalog("bench", **{key: value for key, value in properties.items() if key != "type"})
    catalog.create_namespace("db")
    table = KeyedTable.create(catalog, "db.t", SCHEMA, ["id"], upsert=True, delta_rewrite=True)
    chance = np.random.default_rng(7)
    count = arguments.changes // arguments.transactions
    for number in range(arguments.transactions):
        kinds = np.where(chance.random(count) < 0.9, "INSERT", "DELETE").tolist()
        table.write_changes(with_kind(rows_of(chance, chance.choice(arguments.keys, count, replace=False), number), kinds))
    compactions = Compactions(catalog, properties)
    return [replace(task, memory_bytes=arguments.memory) for task in compactions.plan_rewrites()], compactions.stores.layout


def _writing_to(layout: TableLayout, output: Path) -> TableLayout:
    assert layout.keyed is not None
    change = replace(layout.keyed.change, properties={**layout.keyed.change.properties, "write.data.path": str(output)})
    return replace(layout, keyed=replace(layout.keyed, change=change))


def _with_data_frames(opened: Warehouse, tasks: Sequence[CompactionTask], output: Path) -> None:
    deletes, inserts = (_logged(opened, tasks, is_delete=is_delete) for is_delete in (True, False))
    key = ["node", "id"]
    last = deletes.groupBy(*key).agg(F.max(F.struct("_transaction_id", "_file_offset")).alias("last"))
    place = F.struct("_transaction_id", "_file_offset")
    kept_deletes = deletes.join(last, key).where(place == F.col("last")).drop("last")
    kept_inserts = inserts.join(last, key, "left").where(F.col("last").isNull() | (F.col("last") <= place)).drop("last")
    for name, kept in (("deletes", kept_deletes), ("inserts", kept_inserts)):
        kept.repartition("node").write.mode("overwrite").partitionBy("node").parquet(f"{output}/{name}")


def _logged(opened: Warehouse, tasks: Sequence[CompactionTask], *, is_delete: bool) -> DataFrame:
    """The rows of all delete files, or of all insert files, each with its node, its transaction and its offset."""
    spark = opened.session
    files = [file for task in tasks for file in task.work.inputs if is_delete_file(file.path) is is_delete]
    names = [(file.path.rsplit("/", 1)[1], change_file(file.path, 1).node.id, file.data_sequence_number) for file in files]
    told = F.broadcast(spark.createDataFrame(names, "name string, node long, _transaction_id long"))
    rows = spark.read.parquet(*(file.path for file in files)).withColumn("name", F.element_at(F.split(F.input_file_name(), "/"), -1))
    return rows.join(told, "name").drop("name")


def _ours(engine: MergeEngine, tasks: Sequence[CompactionTask], layout: TableLayout, peaks: list[int]) -> None:
    for result in engine.merge([each.merge_input(layout) for each in tasks], {}):
        if result.error is not None:
            raise SystemExit(result.error)
        peaks.append(result.peak_memory_bytes)


if __name__ == "__main__":
    main()
