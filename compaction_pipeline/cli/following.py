"""What a person sees while a table is compacted: a bar on a terminal, or lines when stderr is a pipe or a log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from compaction_pipeline.cli.output import Output
from compaction_pipeline.core.commit.record import CompactionRecord
from compaction_pipeline.core.ids import RecordId, TaskId
from compaction_pipeline.core.insight.listener import CompactionListener
from compaction_pipeline.core.queue.task import CompactionTask, TaskStatus
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.words import count_text
from compaction_pipeline.core.work.merged import MergedWork
from compaction_pipeline.core.work.work import Work

if TYPE_CHECKING:
    from rich.progress import Progress


class Following(CompactionListener):
    """Hears of each step of one compaction, and remembers which tasks and records are its own.

    `spark` is where merges run, such as "Spark at local[*]", or None without Spark.
    """

    def __init__(self, output: Output, progress: Progress, table: TableIdentifier, spark: str | None) -> None:
        self._records: dict[RecordId, CompactionRecord] = {}
        self._tasks: set[TaskId] = set()
        self._merged: set[TaskId] = set()
        self._output = output
        self._progress = progress
        self._table = table
        self._spark = spark
        self._bar = progress.add_task(f"compacting {table}", total=None)
        self._planned = 0
        self._ended = 0

    def planned(self, table: TableIdentifier, tasks: Sequence[MergedWork[Work]], reason: str) -> None:
        first = self._planned == 0
        self._planned += len(tasks)
        self._tasks.update(task.task_id for task in tasks)
        self._progress.update(self._bar, total=self._planned)
        self._line(f"{self._table}: {count_text(len(tasks), 'task')} planned")
        if first and self._spark is not None:
            self._progress.update(self._bar, description=f"starting {self._spark}")
            self._line(f"starting {self._spark}")

    def task_ended(self, task: CompactionTask, status: TaskStatus) -> None:
        self._progress.update(self._bar, description=f"compacting {self._table}")
        reason = task.result.error if task.result is not None else None
        if status is TaskStatus.PENDING:
            # The task has retries left, so it will run again.
            self._line(
                f"{task.work.node}: attempt {task.attempt} failed ({task.failures + 1} of {task.max_attempts}), tried again: {reason}"
            )
            return
        if status is TaskStatus.PREPARED:
            self._merged.add(task.task_id)
        self._ended += 1
        self._progress.advance(self._bar)
        how = "merged" if status is TaskStatus.PREPARED else f"failed: {reason}"
        self._line(f"task {self._ended} of {self._planned} {how} ({task.work.node})")

    def committed(self, record: CompactionRecord) -> None:
        self._records[record.record_id] = record

    def own(self, records: Iterable[CompactionRecord]) -> list[CompactionRecord]:
        """The records that this compaction made, oldest first. `records` are those that the state database holds.

        A record is among them even if an interrupt or an error came before `committed` was called.
        """
        own = {record.record_id: record for record in records if not self._tasks.isdisjoint(record.task_ids)}
        return sorted({**own, **self._records}.values(), key=lambda record: record.created_at)

    def has_uncommitted_merges(self) -> bool:
        """True when a task was merged and `committed` has not told of its commit."""
        return not self._merged.issubset(task_id for record in self._records.values() for task_id in record.task_ids)

    def is_earlier(self, record: CompactionRecord) -> bool:
        """True when this compaction planned none of the record's tasks. An interrupted command or a tick had merged them."""
        return self._tasks.isdisjoint(record.task_ids)

    def tasks(self, records: Iterable[CompactionRecord]) -> int:
        """How many tasks this compaction planned, plus those that others had merged and that these records committed."""
        return len(self._tasks.union(*(record.task_ids for record in records)))

    def _line(self, text: str) -> None:
        if self._progress.disable:
            self._output.say(text)
