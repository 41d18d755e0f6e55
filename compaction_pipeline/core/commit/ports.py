"""What use cases need in order to commit: the committer of tables, and the stores of commits and records."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Protocol

from compaction_pipeline.core.commit.record import CommitFigures, CompactionRecord
from compaction_pipeline.core.commit.table_commits import TableCommits
from compaction_pipeline.core.ids import RecordId, TaskId
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.table import TableIdentifier, TableLayout
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.core.work.merged import MergedWork
from compaction_pipeline.core.work.work import Work


class CommitState(str, Enum):
    """How a commit of some tasks ended."""

    COMMITTED = "COMMITTED"
    """The commit landed."""
    NOTHING = "NOTHING"
    """Certainly nothing was committed: all tasks conflict, or nothing was left to do."""
    UNKNOWN = "UNKNOWN"
    """The commit may have landed, or may still land."""


@dataclass(frozen=True, slots=True)
class CommitOutcome:
    """What a commit did. Every task is in exactly one of `committed` and `conflicts`, unless the state is UNKNOWN.

    `unusable` are those of the conflicts whose merged files cannot be used, whatever became of the table.
    `unanswered` is True when an attempt got no answer. The request of that attempt may still arrive, so the files that the attempt wrote
    must stay for as long as `core.commit.late_requests` says.
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
    unusable: frozenset[TaskId] = frozenset()


@dataclass(frozen=True, slots=True)
class Look:
    """What the storage says of some files of a table: one of them is absent, or access to one is denied."""

    absent: bool = False
    denied: bool = False


class CommitMaker(Protocol):
    """Commits Prepared tasks of one table by the rules in `iceberg/CONTRACT.md`. The caller holds the table's commit lease."""

    def commit(self, table: TableIdentifier, record_id: RecordId, tasks: Sequence[MergedWork[Work]]) -> CommitOutcome:
        """Commit the tasks. Each attempt validates them again and leaves out those that conflict.

        Raises NotFoundError when the table is gone, TableRefused when the table is not supported, and StorageUnavailable or one of its
        subclasses when certainly nothing was committed.
        """

    def settle(self, table: TableIdentifier, record_id: RecordId, tasks: Sequence[MergedWork[Work]]) -> CommitOutcome:
        """Find out from the table how an earlier commit of this record ended. Nothing is written.

        The outcome is UNKNOWN only while the commit may still land (see "Outcomes" in `iceberg/CONTRACT.md`).
        """

    def delete_orphans(self, table: TableIdentifier, table_uuid: str, paths: Sequence[str]) -> Sequence[str]:
        """Delete those of these files that no snapshot of freshly loaded metadata lists, and return them.

        The files are outputs of merges, manifests and manifest lists. Nothing is deleted when the table's uuid is no longer `table_uuid`:
        the table that the files belong to may have been renamed.
        """


class Committer(CommitMaker, Protocol):
    """Makes commits, and answers for the files of tables on storage."""

    def leftovers(self, table: TableIdentifier, task_ids: Sequence[TaskId], record_ids: Sequence[RecordId] = ()) -> Sequence[str]:
        """Return the outputs of merges on storage whose names have one of these task ids.

        Also return the manifests and manifest lists whose names have one of these record ids.
        """

    def may_land(self, table: TableIdentifier, record_ids: Sequence[RecordId]) -> Sequence[str]:
        """Return those of these records that have an attempt on the present head. A late request of such an attempt would land."""

    def check_writable(self, table: TableIdentifier) -> None:
        """Raise AccessDenied when this process certainly may not write files of the table. It is called before files are merged."""

    def look(self, table: TableIdentifier, paths: Sequence[str]) -> Look:
        """Ask the storage for each of these files of a table, and read none. Raises StorageUnavailable when it does not answer."""

    def file_io(self, table: TableIdentifier) -> Mapping[str, str]:
        """Return the FileIO properties that open the table's files, vended credentials included."""


class CommitsOfTable(Protocol):
    """What a commit must know of a table. `KnownTable` (core/insight/known_table.py) knows more."""

    @property
    def commits(self) -> TableCommits:
        """How the table's commits went."""

    @property
    def layout(self) -> TableLayout | None:
        """The layout of the newest metadata that was loaded; None while none was."""


class NodeOfTable(Protocol):
    """A node that a table has. `NodeState` (core/fragmentation/verdict.py) says more of it."""

    @property
    def node(self) -> TableNode: ...


class CommitsReader(Protocol):
    """Reads what a commit must know of tables and their nodes. `TableReader` (core/insight/ports.py) reads more."""

    def state(self, table: TableIdentifier) -> CommitsOfTable:
        """Return what is known of a table. Raises NotFoundError when it is unknown."""

    def nodes(self, table: TableIdentifier) -> Sequence[NodeOfTable]:
        """Return the nodes of a table, sorted by key."""


class CommitsStore(Protocol):
    """Writes how the commits of tables went. `CommitsReader` reads it."""

    def note_landed(self, table: TableIdentifier, at: datetime) -> None:
        """Count one more commit that landed, and forget the failures before it. Raises NotFoundError when the table is unknown."""

    def note_failure(self, table: TableIdentifier, problem: str, failures: int, retry_at: datetime) -> None:
        """Store why the last `failures` commits failed, and change nothing else. Raises NotFoundError when the table is unknown."""

    def mark_done(self, table: TableIdentifier, done: Sequence[tuple[TableNode, CompactionType]], at: datetime) -> None:
        """Note that these types of work were done on these nodes at this time. A later time that is stored already stays."""

    def forget_done(
        self, table: TableIdentifier, done: Sequence[tuple[TableNode, CompactionType]], since: datetime, until: datetime
    ) -> None:
        """Forget that these types of work were done on these nodes, where that was noted between these two times, both included."""


class RecordStore(Protocol):
    """The stored CompactionRecords, and which of them Dagster has been told about."""

    def save(self, record: CompactionRecord) -> None:
        """Insert or replace a record."""

    def record(self, record_id: RecordId) -> CompactionRecord:
        """Return a record. Raises NotFoundError when it is unknown."""

    def records(
        self, table: TableIdentifier | None = None, limit: int | None = None, unsettled: bool = False, *, former: bool = False
    ) -> Sequence[CompactionRecord]:
        """Return the records, or those of a table, newest first, at most `limit`. With `unsettled` only OPEN and UNKNOWN ones.

        Settled records of another table that had the name before are among them only with `former`.
        """

    def merged_away(self) -> Mapping[TableIdentifier, int]:
        """Return, for each table with records, the sum of `CompactionRecord.merged_away` over the records that are kept."""

    def unmirrored(self, limit: int) -> Sequence[CompactionRecord]:
        """Return ended records that Dagster has not been told about, oldest first, at most `limit`."""

    def mark_mirrored(self, record_ids: Sequence[RecordId]) -> None:
        """Note that Dagster has been told about these records."""

    def expire(self, before: datetime, kept: Collection[str] = ()) -> int:
        """Remove the records that ended before this time, except those with an id in `kept`. Return how many were removed."""
