"""CompactionRecords: each says what one commit of this program did with all its tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum

from compaction_pipeline.core.ids import RecordId, TaskId
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.words import count_change_text, count_text
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.core.work.merged import MergedWork, by_kind
from compaction_pipeline.core.work.work import Work

RECORD_ID_PROPERTY = "compaction-pipeline.record-id"
"""The key in a snapshot's summary that holds the record id of the commit that made it."""


class RecordStatus(str, Enum):
    """How far a commit has come."""

    OPEN = "OPEN"
    """The record was written before the first attempt, and the commit has not ended."""
    COMMITTED = "COMMITTED"
    """The commit landed in the table."""
    FAILED = "FAILED"
    """The commit ended, and nothing landed in the table."""
    UNKNOWN = "UNKNOWN"
    """The catalog did not answer, or its answer does not tell. A later look at the table finds out how the commit ended."""


@dataclass(frozen=True, slots=True)
class CommitFigures:
    """Counts that the commit takes from manifests.

    The fields `*_before` and `*_after` are about the whole table: `files_*` count data files, `delete_files_*` count delete files, and
    `bytes_*` are the sizes of both. The other fields are about the tasks that were committed.

    Of a keyed table these are the files of the base store. The change files that the commit merged count before it too, inserts as data
    files and deletes as delete files, because a reader opened them. The bytes of what was merged and written are those of both kinds.
    """

    files_before: int = 0
    files_after: int = 0
    delete_files_before: int = 0
    delete_files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    input_files: int = 0
    input_bytes: int = 0
    output_files: int = 0
    output_bytes: int = 0
    delete_files_dropped: int = 0
    delete_files_added: int = 0

    @property
    def of_commit(self) -> str:
        """What the commit itself changed, for example "64 data files → 1, 3 delete files dropped"."""
        parts = [f"{count_text(self.input_files, 'data file')} → {self.output_files:,}"]
        if self.delete_files_dropped:
            parts.append(f"{count_text(self.delete_files_dropped, 'delete file')} dropped")
        if self.delete_files_added:
            parts.append(f"{count_text(self.delete_files_added, 'delete file')} added")
        return ", ".join(parts)

    @property
    def of_table(self) -> str:
        """All files of the table just before the commit and just after it. The difference is exactly what the commit itself changed."""
        text = count_change_text(self.files_before, self.files_after, "data file")
        if self.delete_files_before or self.delete_files_after:
            text += f", {count_change_text(self.delete_files_before, self.delete_files_after, 'delete file')}"
        return text


def with_changes(figures: CommitFigures, committed: Iterable[MergedWork[Work]]) -> CommitFigures:
    """Return figures that also count the change files of these tasks, each once."""
    spans = [task.work.changes for task in by_kind(committed).to_base]
    inserts = {file.path: file.file_size_bytes for span in spans for file in span.inserts}
    deletes = {file.path: file.file_size_bytes for span in spans for file in span.deletes}
    size = sum(inserts.values()) + sum(deletes.values())
    return replace(
        figures,
        files_before=figures.files_before + len(inserts),
        delete_files_before=figures.delete_files_before + len(deletes),
        bytes_before=figures.bytes_before + size,
        input_files=figures.input_files + len(inserts),
        input_bytes=figures.input_bytes + size,
        delete_files_dropped=figures.delete_files_dropped + len(deletes),
    )


@dataclass(frozen=True, slots=True)
class CompactionRecord:
    """One commit: its table, snapshots, tasks, figures and durations.

    `task_ids` are all tasks that the commit took, `committed_task_ids` those that landed. `conflicts` gives the reason of each task
    that the commit left out. `failed` gives the reason of each task of the same plans that could not be merged, as far as known at
    the commit; these are not among `task_ids`.

    `predicted_files`, `predicted_bytes` and `predicted_gb_hours` were predicted when the tasks were planned, of all that the commit took.
    `gb_hours` are those of the attempts that merged them. Both GB-hours are None when they are not known of each task.

    `waited` says what the commit waited for after the first of its merges.

    `answered` is True when every request of the commit certainly got an answer, so that none can still arrive.

    `rolled_back_at` is when a look at the table found that its snapshot was taken back; None when none did.

    `queue_ms` is the longest time that a task waited, `merge_ms` the sum of all merges, and `commit_ms` the time from claiming the
    tasks to the end.
    """

    record_id: RecordId
    table: TableIdentifier
    status: RecordStatus
    created_at: datetime
    task_ids: tuple[TaskId, ...]
    types: tuple[CompactionType, ...] = ()
    node_keys: tuple[str, ...] = ()
    committed_task_ids: tuple[TaskId, ...] = ()
    conflicts: Mapping[TaskId, str] = field(default_factory=dict)
    snapshot_before: int | None = None
    snapshot_after: int | None = None
    figures: CommitFigures = CommitFigures()
    rows: int = 0
    rows_deleted: int = 0
    predicted_files: int = 0
    predicted_bytes: int = 0
    queue_ms: int = 0
    merge_ms: int = 0
    commit_ms: int = 0
    attempts: int = 0
    ended_at: datetime | None = None
    reason: str | None = None
    run_id: str | None = None
    answered: bool = False
    failed: Mapping[TaskId, str] = field(default_factory=dict)
    waited: str = ""
    rolled_back_at: datetime | None = None
    predicted_gb_hours: float | None = None
    gb_hours: float | None = None

    @property
    def merged_away(self) -> int:
        """By how many files, data and delete files together, this commit has made its table smaller. It is 0 unless the commit landed
        and stayed."""
        if self.status is not RecordStatus.COMMITTED or self.rolled_back_at is not None:
            return 0
        figures = self.figures
        return figures.files_before + figures.delete_files_before - figures.files_after - figures.delete_files_after

    @property
    def left_out(self) -> str | None:
        """How many tasks of the record's plans did not land, with the first reason of each kind; None when all landed."""
        parts = [
            f"{len(reasons)} {word}, e.g. {next(iter(reasons))}: {next(iter(reasons.values()))}"
            for word, reasons in (("conflict(s)", self.conflicts), ("task(s) failed", self.failed))
            if reasons
        ]
        return "; ".join(parts) or None

    @property
    def summary(self) -> str:
        """What a closed record did, as a sentence."""
        text = "nothing was committed"
        if self.status is RecordStatus.COMMITTED:
            before = self.figures.files_before + self.figures.delete_files_before
            after = self.figures.files_after + self.figures.delete_files_after
            taken, files = count_text(len(self.task_ids), "task"), count_change_text(before, after, "file")
            text = f"committed {len(self.committed_task_ids)} of {taken}: {files}"
        if self.rolled_back_at is not None:
            seen = f"{self.rolled_back_at:%Y-%m-%d %H:%M} UTC"
            text += f"; the catalog rolled it back (seen at {seen}), and its nodes are planned again"
        return f"{text}; {self.left_out}" if self.left_out is not None else text


def opened(
    record_id: RecordId, table: TableIdentifier, tasks: Sequence[MergedWork[Work]], node_keys: Iterable[str], now: datetime
) -> CompactionRecord:
    """Return the record of a commit of these tasks that begins now. `node_keys` are the keys of their nodes."""
    return CompactionRecord(
        record_id=record_id,
        table=table,
        status=RecordStatus.OPEN,
        created_at=now,
        task_ids=tuple(task.task_id for task in tasks),
        types=tuple(sorted({task.work.type for task in tasks})),
        node_keys=tuple(sorted(node_keys)),
        predicted_files=sum(task.work.predicted_files for task in tasks),
        predicted_bytes=sum(_predicted_bytes(task) for task in tasks),
        predicted_gb_hours=sum_if_known(task.prediction.gb_hours for task in tasks),
    )


def _predicted_bytes(task: MergedWork[Work]) -> int:
    """What was predicted with the help of past attempts, or else what the plan alone expected."""
    return task.work.predicted_bytes if task.prediction.size_bytes is None else task.prediction.size_bytes


def sum_if_known(parts: Iterable[float | None]) -> float | None:
    """The sum of parts; None when one of them is not known, or there are none."""
    known = tuple(parts)
    return sum(part for part in known if part is not None) if known and None not in known else None


def timed(record: CompactionRecord, tasks: Iterable[MergedWork[Work]], now: datetime) -> CompactionRecord:
    """Return the record with the durations of its tasks and of its commit, which ends now."""
    tasks = tuple(tasks)
    return replace(
        record,
        commit_ms=_ms(record.created_at, now),
        queue_ms=max((_ms(task.created_at, task.started_at) for task in tasks), default=0),
        merge_ms=sum(task.result.duration_ms for task in tasks if task.result),
    )


def _ms(start: datetime, end: datetime | None) -> int:
    return int((end - start).total_seconds() * 1000) if end is not None else 0
