"""Measures the seconds to compact five files of 300 kB in all, on a warm session, beside Iceberg's `rewrite_data_files`.

    python benchmarks/tiny.py --rounds 10

From poll to Prepared, ours does what `compact_job` does with a task that waits: it claims the task in the state database, merges it on
Spark and reports it. The peer's time includes its plan and its commit, which cannot be measured apart. So our plan and commit are
measured too. The last line is `ratio <peer's seconds / ours, plan and commit included>`.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from generate import ORDERS, GeneratedTable, warehouse
from measure import CATALOG, load_average, positive
from opened_services import OpenedServices

from compaction_pipeline.core.planning.plan import PlanRequest
from compaction_pipeline.core.queue.drain import Drain, Takes
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.tables.table import CatalogEntry
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.settings import Settings
from compaction_pipeline.spark.engine import SparkMergeEngine

STEPS = ("refresh", "plan", "poll to Prepared", "commit")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=positive, default=10, help="counted rounds; two rounds before them are not counted")
    parser.add_argument("--files", type=positive, default=5)
    parser.add_argument("--rows-per-file", type=int, default=1_600)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tiny-benchmark-") as folder, warehouse(Path(folder)) as opened:
        table = opened.table("tiny", ORDERS, arguments.files, arguments.rows_per_file)
        services = OpenedServices(Settings(home=Path(folder) / "home"), engine_override=SparkMergeEngine(opened.sessions))
        services.stores.catalogs.add(CatalogEntry(CATALOG, opened.properties))
        _compare(services, table, arguments.rounds)


def _compare(services: OpenedServices, table: GeneratedTable, rounds: int) -> None:
    files, before = table.files(), table.snapshot_id()
    print(f"{len(files)} files, {sum(file.file_size_bytes for file in files) / 1000:.0f} kB")
    ours: list[dict[str, float]] = []
    peers: list[float] = []
    for number in range(-2, rounds):
        mine = _ours(services, table)
        table.roll_back(before)
        started = time.monotonic()
        (row,) = table.warehouse.session.sql(
            f"call {CATALOG}.system.rewrite_data_files(table => 'db.tiny', options => map('rewrite-all', 'true'))"
        ).collect()
        theirs = time.monotonic() - started
        assert row[0] == len(files)
        table.roll_back(before)
        if number >= 0:
            ours.append(mine)
            peers.append(theirs)
    medians = {step: statistics.median(one[step] for one in ours) for step in STEPS}
    worst = max(one["poll to Prepared"] for one in ours)
    print(f"ours: {', '.join(f'{step} {seconds:.3f} s' for step, seconds in medians.items())}; poll to Prepared at worst {worst:.3f} s")
    print(f"iceberg: {statistics.median(peers):.3f} s, at worst {max(peers):.3f} s; medians of {rounds}, {load_average()}")
    print(f"ratio {statistics.median(peers) / sum(medians.values()):.2f}")


def _ours(services: OpenedServices, table: GeneratedTable) -> dict[str, float]:
    """The seconds of each step of one compaction."""
    seconds: dict[str, float] = {}

    def timed(step: str, run: Callable[[], Any]) -> Any:
        started = time.monotonic()
        answer = run()
        seconds[step] = time.monotonic() - started
        return answer

    name = table.identifier
    timed("refresh", lambda: services.refresh_files.refresh(name))
    planned = timed("plan", lambda: services.plan_tables.plan(name, PlanRequest((CompactionType.MAJOR,), force=True), unlimited=True))
    ids = [task.task_id for task in planned.tasks]
    timed("poll to Prepared", lambda: services.work_on_queue.drain("benchmark", Drain(Takes.only(ids))))
    assert all(services.stores.tasks.task(task_id).status is TaskStatus.PREPARED for task_id in ids)
    commit = timed("commit", lambda: services.commit_tables.commit(name))
    assert commit.record is not None
    assert commit.record.figures.files_after == 1, commit.reason
    return seconds


if __name__ == "__main__":
    main()
