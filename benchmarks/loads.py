"""Writes down the tasks that a benchmark or the demo merged, so that a simulation can let them come again, and reads them.

    python benchmarks/loads.py .demo/home benchmarks/loads/demo.csv      # after a demo has ended

A line of a load is a task: `arrival` in seconds after the first one, the seconds that it waited for its store, the CPU seconds that it
used, and the bytes that it read. What an attempt's slot was held for beside its CPU counts as waiting, so waiting for a busy core is in it.
"""

from __future__ import annotations

import argparse
import csv
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from opened_services import OpenedServices, opened

from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.settings import Settings

_COLUMNS = ("arrival", "io_seconds", "cpu_seconds", "bytes")


def write_load(services: OpenedServices, home: Path, file: Path) -> int:
    """Write the tasks that the state database below `home` knows as merged. Returns how many they are."""
    (database,) = [path for path in home.rglob("*.db") if _has_costs(path)]
    with closing(sqlite3.connect(database)) as connection:
        query = "select attempt_id, sum(slot_seconds), sum(cpu_seconds), sum(bytes_read) from compaction_cost group by attempt_id"
        costs = {attempt: (slot, cpu or 0.0, size or 0) for attempt, slot, cpu, size in connection.execute(query)}
    found = []
    for status in (TaskStatus.PREPARED, TaskStatus.COMMITTED):
        for task in services.stores.tasks.tasks(statuses=(status,)):
            for attempt in services.stores.tasks.attempts(task.task_id)[-1:]:
                if attempt.attempt_id in costs:
                    slot, cpu, size = costs[attempt.attempt_id]
                    found.append((task.created_at.timestamp(), max(slot - cpu, 0.0), cpu, size))
    rows = sorted(found)
    with file.open("w", newline="") as written:
        lines = csv.writer(written, lineterminator="\n")
        lines.writerow(_COLUMNS)
        lines.writerows((f"{arrival - rows[0][0]:.2f}", f"{io:.3f}", f"{cpu:.3f}", size) for arrival, io, cpu, size in rows)
    return len(rows)


def _has_costs(path: Path) -> bool:
    with closing(sqlite3.connect(path)) as connection:
        return bool(connection.execute("select 1 from sqlite_master where name = 'compaction_cost'").fetchall())


def load(file: Path) -> Sequence[tuple[float, float, float, int]]:
    """Return the tasks of a file, as arrival, seconds of waiting, seconds of CPU, and bytes."""
    with file.open(newline="") as lines:
        return [
            (float(row[_COLUMNS[0]]), float(row[_COLUMNS[1]]), float(row[_COLUMNS[2]]), int(row[_COLUMNS[3]]))
            for row in csv.DictReader(lines)
        ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("home", type=Path, help="COMPACTION_HOME of the program that merged the tasks")
    parser.add_argument("file", type=Path, help="the CSV file to write")
    arguments = parser.parse_args()
    services = opened(Settings(home=arguments.home))
    print(f"{write_load(services, arguments.home, arguments.file)} tasks recorded")
    services.close()


if __name__ == "__main__":
    main()
