"""What the use cases need from the outside worlds: databases, tables, Spark. Protocols only.

`storage/` implements the stores, `iceberg/` TableScan and Committer, `spark/` MergeEngine; `compaction_pipeline_tests/fakes.py`
holds in-memory ones that pass the same suites.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from typing import Protocol

from compaction_pipeline.core.lifecycle.holders import LeaseHolder
from compaction_pipeline.core.model.data_file import LiveFile
from compaction_pipeline.core.model.ids import AttemptId, RecordId, TaskId
from compaction_pipeline.core.model.node import TableNode
from compaction_pipeline.core.model.plan import InUse, NodeFigures, NodeMetrics, NodeVerdict, PlanReason
from compaction_pipeline.core.model.record import CommitFigures, CompactionRecord
from compaction_pipeline.core.model.table import CatalogEntry, ManifestRef, TableHead, TableIdentifier, TableLayout
from compaction_pipeline.core.model.task import CompactionTask, CompactionType, EndReason, MergeResult, TaskStatus
from compaction_pipeline.core.planning.budget import PlannedWork
from compaction_pipeline.core.scheduling.commit_interval import PreparedWork

Clock = Callable[[], datetime]
"""Now, aware, in UTC. Only `bootstrap` reads the real one."""

Heartbeat = Callable[[Callable[[], object]], AbstractContextManager[None]]
"""Calls its argument every `RENEWAL_INTERVAL` beside the block that it opens; one call that fails does not end it."""


# ---- tables ----------------------------------------------------------------------------------------------------------


class TableScan(Protocol):
    """Reads catalogs and table metadata. Errors: NotFoundError, ConfigError, StorageUnavailable."""

    def list_tables(self, catalog: str) -> Sequence[TableIdentifier]:
        """Every table that the catalog lists, all namespaces, sorted."""

    def locations(self, catalog: str) -> Mapping[TableIdentifier, str]:
        """Where the newest metadata of each table lies, if the catalog tells it of all in one answer; else none."""

    def head(self, table: TableIdentifier) -> TableHead:
        """The table's newest metadata, loaded afresh. NotFoundError when it was dropped."""

    def manifests(self, table: TableIdentifier, snapshot_id: int) -> Sequence[ManifestRef]:
        """The manifest list of a snapshot of the metadata that `head` loaded last."""

    def live_files(self, table: TableIdentifier, manifest: ManifestRef) -> Iterator[LiveFile]:
        """The live (not DELETED) entries of a manifest."""


class MergeEngine(Protocol):
    """Merges the files of tasks; never touches metadata."""

    def ready(self) -> None:
        """Start what merges need, or find it running; asked before tasks are polled, so that none pays for an engine that is away.

        ConfigError when it can never start as it is set up, StorageUnavailable when it does not start now.
        """

    def merge(self, tasks: Sequence[CompactionTask], layout: TableLayout, file_io: Mapping[str, str]) -> Iterator[MergeResult]:
        """One result per task of one table, in any order, as they end. A failed task is a result with `error`, never an exception.

        `file_io` are the FileIO properties (secrets included) that open the table's files.
        """

    def close(self) -> None:
        """Free what the engine holds (a Spark session that it started)."""


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


# ---- state -----------------------------------------------------------------------------------------------------------


class CatalogStore(Protocol):
    """Registered catalogs."""

    def add(self, entry: CatalogEntry) -> None:
        """Register; ConfigError when the name is taken."""

    def remove(self, name: str) -> None:
        """Forget a catalog and all state of its tables; NotFoundError when unknown."""

    def entry(self, name: str) -> CatalogEntry:
        """NotFoundError when unknown; the message lists those that are."""

    def entries(self) -> Sequence[CatalogEntry]: ...


@dataclass(frozen=True, slots=True)
class TableState:
    """What the state database knows of a table.

    `known_snapshot_id` is the snapshot whose files are indexed; `complete` is False while a first look is under way (then
    nothing is planned). `head_*` are of the newest head seen. `problem` is what is wrong with it now (refusal, bad property,
    catalog error), `warning` what a person should know (foreign REPLACE snapshots). `commit_problem` is why its last
    `commit_failures` commits failed, None after one that did not; no tick commits it before `commit_retry_at`.
    """

    table: TableIdentifier
    table_uuid: str | None = None
    head_snapshot_id: int | None = None
    known_snapshot_id: int | None = None
    known_sequence_number: int = 0
    # Newest commit that we saw of a delete file whose spec is not the current one; see "Specs" in the planning rules.
    last_old_spec_delete_at: datetime | None = None
    complete: bool = False
    layout: TableLayout | None = None
    paused: bool = False
    dropped: bool = False
    refusal: str | None = None
    problem: str | None = None
    warning: str | None = None
    last_planned_at: datetime | None = None
    last_committed_at: datetime | None = None
    plan_reason: PlanReason | None = None
    refreshed_at: datetime | None = None
    # Where the metadata lay of which `head_snapshot_id`, `layout`, `refusal` and `problem` tell.
    metadata_location: str | None = None
    commit_problem: str | None = None
    commit_failures: int = 0
    commit_retry_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class NodeState:
    """A node as last measured: figures, verdict and when each type was last done."""

    table: TableIdentifier
    node: TableNode
    key: str
    metrics: NodeMetrics
    verdict: NodeVerdict | None = None
    first_seen: datetime | None = None
    last_done: Mapping[CompactionType, datetime] = field(default_factory=dict)
    changed_snapshot_id: int | None = None
    failing: str | None = None


class TableStore(Protocol):
    """Tables and their nodes."""

    def states(self, catalog: str | None = None) -> Sequence[TableState]:
        """All known tables that were not dropped, sorted by identifier."""

    def seen(self) -> Mapping[TableIdentifier, str | None]:
        """All known tables that were not dropped, with the place of the metadata that their state tells of whole.

        None for one that must be read: never, not wholly, or with an error.
        """

    def state(self, table: TableIdentifier) -> TableState:
        """NotFoundError when unknown."""

    def save(self, state: TableState) -> None:
        """Insert or replace, `paused` excepted (only `pause` changes it)."""

    def update(self, table: TableIdentifier, changes: Mapping[str, object]) -> None:
        """Set only these fields of a TableState, in one statement: refresh, plan and commit each own some of them.

        NotFoundError when the table is unknown.
        """

    def pause(self, table: TableIdentifier | None, paused: bool) -> int:
        """Pause or resume one table or all; answers how many rows changed. NotFoundError when unknown."""

    def forget(self, table: TableIdentifier) -> None:
        """Remove a dropped table with files, nodes and tasks; its records stay."""

    def nodes(self, table: TableIdentifier | None = None, only: Collection[TableNode] | None = None) -> Sequence[NodeState]:
        """All nodes of a table, or of all tables, sorted by key; of a table only these where given."""

    def remove_nodes(self, table: TableIdentifier, nodes: Collection[TableNode]) -> None:
        """Forget nodes that hold no file any more."""

    def node(self, key: str) -> NodeState:
        """By node key, cut keys included; NotFoundError when unknown."""

    def save_nodes(self, table: TableIdentifier, nodes: Sequence[NodeState]) -> None:
        """Insert or replace; `last_done` and `first_seen` of a stored node are kept where the new value lacks them."""

    def mark_done(self, table: TableIdentifier, done: Sequence[tuple[TableNode, CompactionType]], at: datetime) -> None: ...


@dataclass(frozen=True, slots=True)
class TouchedNode:
    """A node to be measured: how many files it holds now (0: the node is gone), and whether they are others than those last measured."""

    files: int
    changed: bool


class FileStore(Protocol):
    """The live files of every table, by the manifest that lists them."""

    def manifests(self, table: TableIdentifier) -> frozenset[str]:
        """Paths of the manifests whose files are indexed."""

    def apply(self, table: TableIdentifier, removed: Iterable[str], added: Mapping[str, Sequence[LiveFile]]) -> None:
        """In one transaction: drop the files of `removed` manifests, add those of `added` ones. Idempotent.

        Touched are the nodes whose set of files is another than when they were settled: not those of a file that goes with one
        manifest and comes as it was with another.
        """

    def files(self, table: TableIdentifier, nodes: Collection[TableNode] | None = None) -> Sequence[LiveFile]:
        """Every indexed file, or those of these nodes.

        With `nodes` come files of other nodes that matter to theirs whatever the partition: position deletes that name one of their
        data files, data files that one of their position deletes names, and data files of the same path. Global equality deletes do
        not: see `has_global_deletes`.
        """

    def figures(
        self, table: TableIdentifier, small_bytes: int, undersized_bytes: int, nodes: Collection[TableNode] | None = None
    ) -> Mapping[TableNode, NodeFigures]:
        """Sums of every node that holds files, or of these: a million files are counted without being read.

        A file of at most `small_bytes` is small, a data file of more and at most `undersized_bytes` undersized.
        """

    def crossed(self, table: TableIdentifier, nodes: Collection[TableNode] | None = None) -> Collection[TableNode]:
        """All nodes, or those of these, of which a data file is named by a position delete of another node."""

    def has_global_deletes(self, table: TableIdentifier, unpartitioned_spec_ids: Collection[int]) -> bool:
        """Whether an equality delete of one of these specs is indexed: it reaches every node, so none can be looked at alone."""

    def touched(self, table: TableIdentifier) -> Mapping[TableNode, TouchedNode]:
        """Nodes whose figures are to be made anew since they were settled."""

    def touch(self, table: TableIdentifier) -> None:
        """Mark every node touched: what all figures are made with has changed."""

    def settle(self, table: TableIdentifier, nodes: Collection[TableNode]) -> None:
        """The figures of these nodes are stored."""


class TaskStore(Protocol):
    """Tasks, the only place where a status is written; each change by compare-and-set after `core.lifecycle` allowed it."""

    def insert(self, tasks: Sequence[CompactionTask], replaces: Sequence[TaskId], now: datetime) -> bool:
        """One transaction: cancel `replaces` (all must still be Pending), insert `tasks` as Pending.

        False when one of `replaces` was polled meanwhile: nothing changed.
        """

    def poll(
        self, queue: str | None, owner: str, now: datetime, lease: timedelta, task_ids: Sequence[TaskId] | None = None
    ) -> CompactionTask | None:
        """Claim the next Pending task (priority, then age), of these ids only where given. None when there is none."""

    def waits(self, queue: str | None, task_ids: Sequence[TaskId] | None = None) -> bool:
        """Whether any Pending task waits that such a poll could claim."""

    def renew(self, attempt_ids: Sequence[AttemptId], now: datetime, lease: timedelta) -> Sequence[str]:
        """Renew leases; answers the attempts that are still held."""

    def complete(self, result: MergeResult, now: datetime) -> TaskStatus:
        """Report an attempt: PREPARED, or (error) PENDING with retries left, else FAILED. StaleAttempt when it no longer holds its task."""

    def release_expired(self, now: datetime) -> Sequence[str]:
        """Executing attempts whose lease ended: PENDING again, or FAILED when retries are used up. Answers the task ids."""

    def fail(self, task_id: TaskId, end_reason: EndReason, reason: str, now: datetime) -> None:
        """EXECUTING or PREPARED → FAILED (conflict, table gone)."""

    def cancel(self, task_ids: Sequence[TaskId], end_reason: EndReason, reason: str, now: datetime) -> Sequence[TaskId]:
        """Pending ones → CANCELED; answers those canceled."""

    def claim(self, table: TableIdentifier, record_id: RecordId, task_ids: Sequence[TaskId] | None = None) -> Sequence[CompactionTask]:
        """Put `record_id` on Prepared tasks without one (all of the table, or these).

        A group is claimed only when none of its tasks is Pending or Executing.
        """

    def unclaim(self, record_id: RecordId) -> None:
        """Take the record off tasks that are still Prepared: the commit was for certain not made."""

    def commit(self, task_ids: Sequence[TaskId], now: datetime) -> None:
        """PREPARED → COMMITTED."""

    def task(self, task_id: TaskId) -> CompactionTask: ...

    def tasks(
        self,
        table: TableIdentifier | None = None,
        statuses: Sequence[TaskStatus] | None = None,
        record_id: RecordId | None = None,
        limit: int | None = None,
    ) -> Sequence[CompactionTask]:
        """Newest first."""

    def counts(self) -> Mapping[TaskStatus, int]: ...

    def planned_work(self, table: TableIdentifier) -> PlannedWork:
        """What of a table is Pending or Executing: Prepared tasks run no more."""

    def prepared_work(self) -> Mapping[TableIdentifier, PreparedWork]:
        """What is Prepared, of every table that has any, claimed by a commit or not."""

    def in_use(self, table: TableIdentifier) -> InUse: ...

    def attempts(self, task_id: TaskId) -> Sequence[TaskAttempt]: ...

    def expire(self, before: datetime) -> int:
        """Remove finished tasks that ended before; answers how many."""


@dataclass(frozen=True, slots=True)
class TaskAttempt:
    """One try of a task: who held it, and why it ended."""

    attempt_id: AttemptId
    task_id: TaskId
    number: int
    owner: str
    started_at: datetime
    ended_at: datetime | None = None
    end_reason: EndReason | None = None
    reason: str | None = None


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


class LeaseStore(Protocol):
    """Named leases: one committer per table, one refresher per table."""

    def acquire(self, name: str, owner: str, now: datetime, lease: timedelta) -> bool: ...

    def holder(self, name: str, now: datetime) -> LeaseHolder | None:
        """Who holds it; None when it is free, or its time is over."""

    def renew(self, name: str, owner: str, now: datetime, lease: timedelta) -> bool: ...

    def release(self, name: str, owner: str) -> None: ...
