"""Judges commits: merged tasks are committed on time, and the tables hold what the records say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from compaction_pipeline.core.commit.record import RECORD_ID_PROPERTY, CompactionRecord
from compaction_pipeline.core.insight.checks.facts import Committed
from compaction_pipeline.core.insight.checks.judgement import Failure, Judgement
from compaction_pipeline.core.tables.properties import TableProperties
from compaction_pipeline.core.tables.table import TableHead, TableIdentifier
from compaction_pipeline.core.words import duration_text
from compaction_pipeline.core.work.merged import MergedWork
from compaction_pipeline.core.work.work import Work

LEAST_GRACE = timedelta(minutes=1)
"""A commit is not called late before this time. A shorter delay may only mean that a sensor has not ticked yet."""


def commits_on_time(
    prepared: Iterable[tuple[MergedWork[Work], datetime]], intervals: Mapping[TableIdentifier, timedelta], now: datetime
) -> Judgement:
    """Fail each table whose oldest Prepared task has waited longer than twice the commit interval, and longer than a minute.

    `prepared` are tasks with the time since when they are Prepared. Only tables with such a task are judged. `intervals` has the commit
    interval of each known table.
    """
    oldest: dict[TableIdentifier, tuple[datetime, MergedWork[Work]]] = {}
    for task, since in prepared:
        if task.table not in oldest or since < oldest[task.table][0]:
            oldest[task.table] = (since, task)
    late = []
    for table, (since, task) in oldest.items():
        allowed = max(2 * intervals.get(table, TableProperties().commit_interval), LEAST_GRACE)
        age = now - since
        if age > allowed:
            reason = f"task {task.task_id} has been Prepared for {duration_text(age)}, and {duration_text(allowed)} are allowed"
            late.append((age, Failure(table, None, reason)))
    late.sort(key=lambda item: -item[0])
    nothing = "no merged task waits for its commit" if intervals else ""
    return Judgement("tables", len(oldest), tuple(failure for _, failure in late), "with merged tasks", nothing)


def record_matches_table(committed: Iterable[Committed]) -> Judgement:
    """Fail each table that contradicts its newest committed record, or that cannot be read."""
    failures, judged = [], 0
    for found in committed:
        judged += 1
        if found.contradiction is not None:
            failures.append(Failure(found.record.table, None, found.contradiction))
    return Judgement("tables", judged, tuple(failures), "with a record", "no table has a committed record yet")


def disagreement(record: CompactionRecord, head: TableHead) -> str | None:
    """Say where the table contradicts the record. None when it does not, and when the snapshot of the record has expired."""
    found = next((snapshot for snapshot in head.ancestors if snapshot.snapshot_id == record.snapshot_after), None)
    if found is None:
        oldest = head.ancestors[-1].timestamp_ms if head.ancestors else None
        ended_at = record.ended_at or record.created_at
        if oldest is not None and ended_at.timestamp() * 1000 < oldest:
            return None
        return f"snapshot {record.snapshot_after} of record {record.record_id} is not in the history of main (rolled back, or expired)"
    said = found.summary.get(RECORD_ID_PROPERTY)
    if said != record.record_id:
        return f"snapshot {found.snapshot_id} carries record id {said}, but record {record.record_id} claims it"
    for name, total, figure in (
        ("data files", found.summary.get("total-data-files"), record.figures.files_after),
        ("delete files", found.summary.get("total-delete-files"), record.figures.delete_files_after),
    ):
        if total is not None and total != str(figure):
            return f"snapshot {found.snapshot_id} holds {total} {name}, but record {record.record_id} says {figure}"
    return None
