"""Judges what compaction promised: are rows preserved, small files gone, files of the right size, commits on time and in the table.

Reads the state database; only `record_matches_table` reads table metadata too. Each judgement looks at *all* nodes or tables and
names those that fail, so that a good one never hides a bad one. Changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from compaction_pipeline.core.commit.ports import RecordStore
from compaction_pipeline.core.commit.record import RECORD_ID_PROPERTY, CompactionRecord, RecordStatus
from compaction_pipeline.core.errors import CompactionError, ConfigError, NotFoundError
from compaction_pipeline.core.fragmentation.verdict import NodeState
from compaction_pipeline.core.insight.known_table import KnownTable
from compaction_pipeline.core.insight.ports import TableReader
from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.core.queue.ports import TaskStore
from compaction_pipeline.core.queue.task import CompactionTask, EndReason, TaskAction, TaskAttempt, TaskStatus
from compaction_pipeline.core.tables.data_file import FileContent
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.ports import CatalogStore, TableScan
from compaction_pipeline.core.tables.properties import TableProperties, resolve_properties
from compaction_pipeline.core.tables.table import TableHead, TableIdentifier

LATEST_TASKS = 1000
"""Committed tasks that `target_file_size` looks at: more than a day of a busy deployment, and read in well under a second."""

LEAST_GRACE = timedelta(minutes=1)
"""A commit is never called late before this: below it a tick of a sensor decides, not a fault."""

_NOT_MERGED = (TaskStatus.FAILED, TaskStatus.PENDING, TaskStatus.EXECUTING)
_OVERSIZE = 1.5  # Of the target: the writer folds a remainder below the fragment size (≤ half the target) into its last file.


@dataclass(frozen=True, slots=True)
class Failure:
    """One node or table that fails and why. `node` is None when the table as a whole fails."""

    table: TableIdentifier
    node: TableNode | None
    reason: str


@dataclass(frozen=True, slots=True)
class Judgement:
    """`judged` nodes (or tables) were looked at, `failures` name those that fail; worst or oldest first."""

    subject: str
    judged: int
    failures: tuple[Failure, ...] = ()

    @property
    def passed(self) -> bool:
        return not self.failures

    @property
    def text(self) -> str:
        """One sentence with numbers, and the first failure."""
        if self.passed:
            return f"all {self.judged} {self.subject} pass" if self.judged else f"no {self.subject} to judge yet"
        first = self.failures[0]
        name = str(first.table) if first.node is None else f"{first.table} {first.node}"
        return f"{len(self.failures)} of {self.judged} {self.subject} fail; {name}: {first.reason}"


class JudgeCompaction:
    """One verb: judge."""

    def __init__(
        self, catalogs: CatalogStore, tables: TableReader, tasks: TaskStore, records: RecordStore, scan: TableScan, clock: Clock
    ) -> None:
        self._catalogs = catalogs
        self._tables = tables
        self._tasks = tasks
        self._records = records
        self._scan = scan
        self._clock = clock

    def rows_preserved(self) -> Judgement:
        """No node's last merge wrote other rows than it read; such a node stays red until it succeeds."""
        nodes = self._tables.nodes()
        tried = [task for task in self._tasks.tasks(statuses=_NOT_MERGED) if task.attempt]
        return rows_preserved(nodes, [(task, self._tasks.attempts(task.task_id)) for task in tried])

    def small_files_left(self) -> Judgement:
        """No node holds as many small files as make a minor due."""
        return small_files_left(self._compacted_nodes())

    def target_file_size(self) -> Judgement:
        """The files that each node's newest merges wrote are as large as the table wants them."""
        return target_file_size(self._tasks.tasks(statuses=(TaskStatus.COMMITTED,), limit=LATEST_TASKS))

    def commits_on_time(self) -> Judgement:
        """No Prepared task is older than twice its table's commit interval."""
        prepared = self._tasks.tasks(statuses=(TaskStatus.PREPARED,))
        intervals = {table: found.commit_interval for table, (_, found) in self._properties()}
        return commits_on_time([(task, self._prepared_at(task)) for task in prepared], intervals, self._clock())

    def record_matches_table(self, deadline: datetime | None = None) -> Judgement:
        """The newest committed record of each table is what the table itself says; past `deadline` the rest is left for next time."""
        failures, judged = [], 0
        for state in self._tables.states():
            record = self._newest_committed(state.table)
            if record is None:
                continue
            if deadline is not None and self._clock() >= deadline:
                break
            judged += 1
            try:
                reason = disagreement(record, self._scan.head(state.table))
            except CompactionError as error:
                reason = f"the table could not be read: {error}"
            if reason is not None:
                failures.append(Failure(state.table, None, reason))
        return Judgement("tables", judged, tuple(failures))

    def _prepared_at(self, task: CompactionTask) -> datetime:
        ended = [attempt.ended_at for attempt in self._tasks.attempts(task.task_id) if attempt.ended_at is not None]
        return max(ended, default=task.created_at)

    def _newest_committed(self, table: TableIdentifier) -> CompactionRecord | None:
        records = self._records.records(table, limit=20)
        return next((record for record in records if record.status is RecordStatus.COMMITTED and record.snapshot_after is not None), None)

    def _properties(self) -> Iterable[tuple[TableIdentifier, tuple[KnownTable, TableProperties]]]:
        for state in self._tables.states():
            try:
                entry = self._catalogs.entry(state.table.catalog)
                own = state.layout.properties if state.layout is not None else {}
                yield state.table, (state, resolve_properties(own, entry.properties))
            except (ConfigError, NotFoundError):
                continue  # The table is stopped and says why; `table_health` shows it.

    def _compacted_nodes(self) -> Iterable[tuple[NodeState, TableProperties]]:
        """Nodes of tables that we compact: a refused, paused, disabled or observed one promises nothing."""
        observed = {entry.name for entry in self._catalogs.entries() if entry.observe}
        properties = {
            table: found
            for table, (state, found) in self._properties()
            if found.enabled and not state.paused and state.refusal is None and table.catalog not in observed
        }
        return [(node, properties[node.table]) for node in self._tables.nodes() if node.table in properties]


def rows_preserved(nodes: Sequence[NodeState], tried: Iterable[tuple[CompactionTask, Sequence[TaskAttempt]]]) -> Judgement:
    """Tasks, with their attempts, of which one ended in a digest mismatch and whose node has not been committed since."""
    done = {(node.table, node.node): max(node.last_done.values(), default=None) for node in nodes}
    failures: dict[tuple[TableIdentifier, TableNode], Failure] = {}
    for task, attempts in tried:
        mismatch = next((attempt for attempt in reversed(attempts) if attempt.end_reason is EndReason.DIGEST_MISMATCH), None)
        if mismatch is None:
            continue
        key = (task.table, task.work.node)
        last_done = done.get(key)
        if last_done is None or last_done < (mismatch.ended_at or task.created_at):
            failures.setdefault(
                key, Failure(*key, f"task {task.task_id}, attempt {mismatch.number}: {mismatch.reason or 'digests differ'}")
            )
    return Judgement("nodes", max(len(nodes), len(failures)), tuple(failures.values()))


def small_files_left(nodes: Iterable[tuple[NodeState, TableProperties]]) -> Judgement:
    """Small data files, or small delete files, at or above the count that makes a minor due; most first."""
    judged, failing = 0, []
    for node, properties in nodes:
        judged += 1
        small = max(node.metrics.small_data_files, node.metrics.small_delete_files)
        if small >= properties.minor_file_count:
            word = "data" if node.metrics.small_data_files >= node.metrics.small_delete_files else "delete"
            failing.append(
                (small, Failure(node.table, node.node, f"{small} small {word} files, {properties.minor_file_count} make a minor due"))
            )
    failing.sort(key=lambda item: -item[0])
    return Judgement("nodes", judged, tuple(failure for _, failure in failing))


def target_file_size(tasks: Iterable[CompactionTask]) -> Judgement:
    """Outputs of each node's newest plan. One file below the target per task is right: a remainder, or all there was."""
    newest: dict[tuple[TableIdentifier, TableNode], str] = {}
    failures: dict[tuple[TableIdentifier, TableNode], Failure] = {}
    for task in tasks:
        if task.work.action is not TaskAction.MERGE or task.result is None:
            continue
        key = (task.table, task.work.node)
        if newest.setdefault(key, task.plan_id) != task.plan_id or key in failures:
            continue
        target = task.work.target_size_bytes
        sizes = sorted(output.file_size_bytes for output in task.result.outputs if output.content is FileContent.DATA)
        below = sum(size < target * TableProperties().min_target_size_ratio for size in sizes)
        if sizes and sizes[-1] > target * _OVERSIZE:
            failures[key] = Failure(*key, f"task {task.task_id} wrote a file of {sizes[-1]} bytes, {target} wanted")
        elif below > 1:
            failures[key] = Failure(
                *key, f"task {task.task_id} wrote {below} undersized files of {len(sizes)}, smallest {sizes[0]} bytes, {target} wanted"
            )
    return Judgement("nodes", len(newest), tuple(failures.values()))


def commits_on_time(
    prepared: Iterable[tuple[CompactionTask, datetime]], intervals: Mapping[TableIdentifier, timedelta], now: datetime
) -> Judgement:
    """The oldest Prepared task of each table, and since when it is, against twice its commit interval, at least a minute."""
    oldest: dict[TableIdentifier, tuple[datetime, CompactionTask]] = {}
    for task, since in prepared:
        if task.table not in oldest or since < oldest[task.table][0]:
            oldest[task.table] = (since, task)
    late = []
    for table, (since, task) in oldest.items():
        allowed = max(2 * intervals.get(table, TableProperties().commit_interval), LEAST_GRACE)
        age = now - since
        if age > allowed:
            reason = f"task {task.task_id} has been Prepared for {age.total_seconds():.0f} s, {allowed.total_seconds():.0f} s allowed"
            late.append((age, Failure(table, None, reason)))
    late.sort(key=lambda item: -item[0])
    return Judgement("tables", len(set(intervals) | set(oldest)), tuple(failure for _, failure in late))


def disagreement(record: CompactionRecord, head: TableHead) -> str | None:
    """Why the table does not bear the record out, None when it does or when its snapshot has expired since."""
    found = next((snapshot for snapshot in head.ancestors if snapshot.snapshot_id == record.snapshot_after), None)
    if found is None:
        oldest = head.ancestors[-1].timestamp_ms if head.ancestors else None
        ended_at = record.ended_at or record.created_at
        if oldest is not None and ended_at.timestamp() * 1000 < oldest:
            return None
        return f"snapshot {record.snapshot_after} of record {record.record_id} is not in the history of main (rolled back, or expired)"
    said = found.summary.get(RECORD_ID_PROPERTY)
    if said != record.record_id:
        return f"snapshot {found.snapshot_id} carries record id {said} but record {record.record_id} claims it"
    for name, total, figure in (
        ("data files", found.summary.get("total-data-files"), record.figures.files_after),
        ("delete files", found.summary.get("total-delete-files"), record.figures.delete_files_after),
    ):
        if total is not None and total != str(figure):
            return f"snapshot {found.snapshot_id} holds {total} {name} but record {record.record_id} says {figure}"
    return None
