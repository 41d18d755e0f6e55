"""What use cases need to commit: the committer of tables and the records."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Protocol

from compaction_pipeline.core.commit.record import CommitFigures, CompactionRecord
from compaction_pipeline.core.commit.table_commits import TableCommits
from compaction_pipeline.core.ids import RecordId, TaskId
from compaction_pipeline.core.queue.task import CompactionTask, CompactionType
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.table import TableIdentifier


class CommitState(str, Enum):
    """How a commit of some tasks ended. NOTHING: for certain not committed (all conflicts, or nothing left to do)."""

    COMMITTED = "COMMITTED"
    NOTHING = "NOTHING"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True)
class CommitOutcome:
    """What a commit did. Every task is in exactly one of `committed` and `conflicts` unless the state is UNKNOWN.

    `unanswered`: an attempt of it got no answer, so its request may still arrive: nothing that it wrote may go today.
    """

    state: CommitState
    committed: tuple[TaskId, ...] = ()
    conflicts: Mapping[TaskId, str] = field(default_factory=dict)
    snapshot_before: int | None = None
    snapshot_after: int | None = None
    figures: CommitFigures = CommitFigures()
    attempts: int = 0
    reason: str | None = None
    unanswered: bool = False


class Committer(Protocol):
    """Puts Prepared tasks of one table in, as `design/commit` rules. The caller holds the table's commit lease."""

    def commit(self, table: TableIdentifier, record_id: RecordId, tasks: Sequence[CompactionTask]) -> CommitOutcome:
        """Validate at each attempt, salvage, commit. Raises NotFoundError when the table is gone, TableRefused when refused."""

    def settle(self, table: TableIdentifier, record_id: RecordId, tasks: Sequence[CompactionTask]) -> CommitOutcome:
        """Find out from the table how an earlier commit of this record ended, without writing.

        UNKNOWN only while it may still land (see "Outcomes").
        """

    def delete_orphans(self, table: TableIdentifier, table_uuid: str, paths: Sequence[str]) -> Sequence[str]:
        """Delete those of these files that no snapshot of freshly loaded metadata lists; answers those deleted.

        Outputs of merges, manifests and manifest lists. None where another table has the name by now: the files' own table may
        live on under another.
        """

    def leftovers(self, table: TableIdentifier, task_ids: Sequence[TaskId], record_ids: Sequence[RecordId] = ()) -> Sequence[str]:
        """Files on storage whose names carry one of these task ids, or, manifests and manifest lists, one of these records'."""

    def may_land(self, table: TableIdentifier, record_ids: Sequence[RecordId]) -> Sequence[str]:
        """Those of these records of which an attempt was built on what is the head now: a late request of it would land."""

    def check_writable(self, table: TableIdentifier) -> None:
        """Raises AccessDenied when files of the table may for certain not be written, before anything is merged for nothing."""

    def file_io(self, table: TableIdentifier) -> Mapping[str, str]:
        """FileIO properties that open the table's files, vended credentials included."""


class CommitsStore(Protocol):
    """How the commits of tables went. `core/insight/ports.py` reads it."""

    def save(self, table: TableIdentifier, commits: TableCommits) -> None:
        """Replace the value whole. NotFoundError when the table is unknown."""

    def mark_done(self, table: TableIdentifier, done: Sequence[tuple[TableNode, CompactionType]], at: datetime) -> None:
        """Note when these kinds of work were last done on these nodes; a later moment that is stored stays."""


class RecordStore(Protocol):
    """CompactionRecords and their mirror into Dagster."""

    def save(self, record: CompactionRecord) -> None:
        """Insert or replace."""

    def record(self, record_id: RecordId) -> CompactionRecord:
        """NotFoundError when unknown."""

    def records(
        self, table: TableIdentifier | None = None, limit: int | None = None, unsettled: bool = False
    ) -> Sequence[CompactionRecord]:
        """Newest first; `unsettled`: OPEN and UNKNOWN only."""

    def unmirrored(self, limit: int) -> Sequence[CompactionRecord]:
        """Ended records that Dagster was not told of, oldest first."""

    def mark_mirrored(self, record_ids: Sequence[RecordId]) -> None: ...

    def expire(self, before: datetime, kept: Collection[str] = ()) -> int:
        """Remove records that ended before, those of `kept` (ids) apart; answers how many."""
