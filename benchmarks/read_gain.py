"""Measures what readers gain: Spark reads a table of the shape of TPC-H's lineitem before and after a compaction.

    python benchmarks/read_gain.py                # 20 files, 2.4 million rows, 1,000 delete files
    python benchmarks/read_gain.py --scale 1      # 2 GB

The table has 1,000 equality-delete files by default. The same Spark, with Iceberg's Java reader, reads it both times. In between, the
product refreshes, plans, merges and commits. `scan` reads every column and throws the rows away. Q1 and Q6 are TPC-H's two queries on
lineitem alone. The rows must be the same. The last line is `ratio <seconds before / seconds after>` of all three together, from medians
of the rounds.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from generate import LINEITEM, GeneratedTable, Warehouse, total_bytes, warehouse
from measure import CATALOG, MB, Cost, load_average, measured, median, positive

from compaction_pipeline.bootstrap import open_services
from compaction_pipeline.core.planning.plan import PlanRequest
from compaction_pipeline.core.tables.table import CatalogEntry
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.settings import Settings

COMMITS = 20
WARM_UP = 2
CONTENT = "select count(*), sum(cast(xxhash64(*) as decimal(38, 0))) from {table}"
QUERIES = {
    "scan": "select * from {table}",
    "q1": """select l_returnflag, l_linestatus, sum(l_quantity), sum(l_extendedprice), sum(l_extendedprice * (1 - l_discount)),
             sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)), count(*) from {table}
             where l_shipdate <= date'1998-09-02' group by 1, 2 order by 1, 2""",
    "q6": """select sum(l_extendedprice * l_discount) from {table} where l_shipdate >= date'1994-01-01'
             and l_shipdate < date'1995-01-01' and l_discount between 0.05 and 0.07 and l_quantity < 24""",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=0.05, help="1 is at least 2 GB")
    parser.add_argument("--rounds", type=positive, default=3, help="counted rounds")
    parser.add_argument("--delete-files", type=int, default=1000)
    parser.add_argument("--deleted-share", type=float, default=0.1, help="the share of all rows that is deleted")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="read-gain-benchmark-") as folder, warehouse(Path(folder)) as opened:
        _compare(opened, Path(folder), arguments)


def _compare(opened: Warehouse, folder: Path, arguments: argparse.Namespace) -> None:
    files = max(2, round(LINEITEM.files_at_scale_1 * arguments.scale))
    table = opened.table("lineitem", LINEITEM, files, LINEITEM.rows_per_file)
    rows = files * LINEITEM.rows_per_file
    _delete(table, rows, arguments.delete_files, arguments.deleted_share)
    before = table.files()
    print(f"{files} files, {total_bytes(before) / MB:.0f} MB, {rows} rows; {_described(table)}; {load_average()}")
    content, slow = _content(table), _read(table, arguments.rounds, "before")
    with measured() as cost:
        _compact(opened, table, folder / "home")
    print(f"compaction {cost.seconds:.1f} s, {cost.cpu_seconds:.1f} CPU-s; {_described(table)}")
    if content != (after := _content(table)):
        raise SystemExit(f"the rows differ: {content} before, {after} after")
    fast = _read(table, arguments.rounds, "after")
    for name in QUERIES:
        one, other = slow[name], fast[name]
        print(f"{name:4} {one.seconds:6.2f} s before, {other.seconds:6.2f} s after: {one.seconds / other.seconds:.1f} times", end=", ")
        print(f"CPU {one.cpu_seconds / other.cpu_seconds:.1f} times")
    print(load_average())
    cpu = sum(cost.cpu_seconds for cost in slow.values()) / sum(cost.cpu_seconds for cost in fast.values())
    print(f"together: CPU {cpu:.1f} times")
    print(f"ratio {sum(cost.seconds for cost in slow.values()) / sum(cost.seconds for cost in fast.values()):.2f}")


def _described(table: GeneratedTable) -> str:
    count = Counter(file.content.value for file in table.files())
    return ", ".join(f"{number} {content}" for content, number in sorted(count.items()))


def _delete(table: GeneratedTable, rows: int, delete_files: int, share: float) -> None:
    """Commit equality deletes by the whole key, spread over all files, as upserts of single rows leave them."""
    chosen = np.sort(np.random.default_rng(1).choice(rows, int(rows * share), replace=False))
    parts = [chosen[number::delete_files] for number in range(delete_files)]
    for commit in np.array_split(np.arange(delete_files), min(COMMITS, delete_files)):
        table.delete_by_equality(
            *(
                pa.table({"l_orderkey": parts[number] // 4, "l_linenumber": (parts[number] % 4 + 1).astype(np.int32)})
                for number in commit.tolist()
            )
        )


def _content(table: GeneratedTable) -> Any:
    """The number of rows, and the sum of their hashes."""
    return table.warehouse.session.sql(CONTENT.format(table=table.sql_name)).collect()


def _read(table: GeneratedTable, rounds: int, when: str) -> dict[str, Cost]:
    """The median costs of each query. The first rounds are not counted, because Spark still compiles then."""
    costs: dict[str, list[Cost]] = {name: [] for name in QUERIES}
    for number in range(-WARM_UP, rounds):
        for name, query in QUERIES.items():
            with measured() as cost:
                table.warehouse.session.sql(query.format(table=table.sql_name)).write.format("noop").mode("overwrite").save()
            print(f"{when} {name:4} {cost.seconds:6.2f} s {cost.cpu_seconds:6.2f} CPU-s{' (warm-up)' if number < 0 else ''}", flush=True)
            if number >= 0:
                costs[name].append(cost)
    return {name: median(each) for name, each in costs.items()}


def _compact(opened: Warehouse, table: GeneratedTable, home: Path) -> None:
    services = open_services(Settings(home=home, task_slots=2))
    services._spark_sessions = opened.sessions
    services.explore_catalogs.register(CatalogEntry(CATALOG, opened.properties))
    done = services.compact_tables.compact(table.identifier, PlanRequest((CompactionType.FULL,), force=True))
    if not done.committed or done.failed:
        raise SystemExit(done.reason)


if __name__ == "__main__":
    main()
