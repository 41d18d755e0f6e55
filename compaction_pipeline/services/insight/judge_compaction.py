"""Judges what compaction promises: rows are preserved, small files go, files have the right size, and commits are on time.

It reads the state database; only `record_matches_table` reads table metadata too. Each judgement looks at *all* nodes or tables and names
those that fail, so a good one never hides a bad one. It changes nothing.
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
from compaction_pipeline.core.words import bytes_text, duration_text

LATEST_TASKS = 1000
"""The number of committed tasks that `target_file_size` looks at. A busy deployment makes fewer in a day, and reading them takes less
than a second."""

LEAST_GRACE = timedelta(minutes=1)
"""A commit is not called late before this time. A shorter delay may only mean that a sensor has not ticked yet."""

_NOT_MERGED = (TaskStatus.FAILED, TaskStatus.PENDING, TaskStatus.EXECUTING)
# A writer adds a remainder below the fragment size, which is at most half the target, to its last file.
_OVERSIZE = 1.5


@dataclass(frozen=True, slots=True)
class Failure:
    """A node or a table that fails, and why. `node` is None when the whole table fails."""

    table: TableIdentifier
    node: TableNode | None
    reason: str


@dataclass(frozen=True, slots=True)
class Judgement:
    """The result of looking at `judged` nodes or tables. `failures` has those that fail, the worst or the oldest first."""

    subject: str
    judged: int
    failures: tuple[Failure, ...] = ()

    @property
    def passed(self) -> bool:
        return not self.failures

    @property
    def text(self) -> str:
        """One sentence with numbers and the first failure."""
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
        """Check that no node's last merge wrote other rows than it read. A node fails the check until a merge of it is committed."""
        nodes = self._tables.nodes()
        tried = [task for task in self._tasks.tasks(statuses=_NOT_MERGED) if task.attempt]
        return rows_preserved(nodes, [(task, self._tasks.attempts(task.task_id)) for task in tried])

    def small_files_left(self) -> Judgement:
        """No node has so many small files that a MINOR is due."""
        return small_files_left(self._compacted_nodes())

    def target_file_size(self) -> Judgement:
        """The newest merges of each node wrote files of the size that the table asks for."""
        return target_file_size(self._tasks.tasks(statuses=(TaskStatus.COMMITTED,), limit=LATEST_TASKS))

    def commits_on_time(self) -> Judgement:
        """No Prepared task is older than twice its table's commit interval."""
        prepared = self._tasks.tasks(statuses=(TaskStatus.PREPARED,))
        intervals = {table: found.commit_interval for table, (_, found) in self._properties()}
        return commits_on_time([(task, self._prepared_at(task)) for task in prepared], intervals, self._clock())

    def record_matches_table(self, deadline: datetime | None = None) -> Judgement:
        """The newest committed record of each table agrees with the table's metadata. After `deadline` no further table is judged."""
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
                continue  # `table_health` shows why this table is stopped.

    def _compacted_nodes(self) -> Iterable[tuple[NodeState, TableProperties]]:
        """The nodes of all tables that are compacted. Refused, paused, disabled and observed tables are not judged."""
        observed = {entry.name for entry in self._catalogs.entries() if entry.observe}
        properties = {
            table: found
            for table, (state, found) in self._properties()
            if found.enabled and not state.paused and state.refusal is None and table.catalog not in observed
        }
        return [(node, properties[node.table]) for node in self._tables.nodes() if node.table in properties]


def rows_preserved(nodes: Sequence[NodeState], tried: Iterable[tuple[CompactionTask, Sequence[TaskAttempt]]]) -> Judgement:
    """Fail each node that had a digest mismatch and no commit since. `tried` are tasks with all their attempts."""
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
    """Fail each node whose small data files, or small delete files, make a MINOR due. The node with the most comes first."""
    judged, failing = 0, []
    for node, properties in nodes:
        judged += 1
        small = max(node.metrics.small_data_files, node.metrics.small_delete_files)
        if small >= properties.minor_file_count:
            word = "data" if node.metrics.small_data_files >= node.metrics.small_delete_files else "delete"
            failing.append(
                (small, Failure(node.table, node.node, f"{small} small {word} files, {properties.minor_file_count} make a MINOR due"))
            )
    failing.sort(key=lambda item: -item[0])
    return Judgement("nodes", judged, tuple(failure for _, failure in failing))


def target_file_size(tasks: Iterable[CompactionTask]) -> Judgement:
    """Judge the files that the newest plan of each node wrote. Each task may write one file below the target, which is its remainder."""
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
            failures[key] = Failure(
                *key, f"task {task.task_id} wrote a file of {bytes_text(sizes[-1])}, and the target is {bytes_text(target)}"
            )
        elif below > 1:
            failures[key] = Failure(
                *key,
                f"task {task.task_id} wrote {below} undersized files of {len(sizes)}: the smallest has {bytes_text(sizes[0])}, "
                f"and the target is {bytes_text(target)}",
            )
    return Judgement("nodes", len(newest), tuple(failures.values()))


def commits_on_time(
    prepared: Iterable[tuple[CompactionTask, datetime]], intervals: Mapping[TableIdentifier, timedelta], now: datetime
) -> Judgement:
    """Fail each table whose oldest Prepared task has waited longer than twice the commit interval, and longer than a minute.

    `prepared` are tasks with the time since when they are Prepared.
    """
    oldest: dict[TableIdentifier, tuple[datetime, CompactionTask]] = {}
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
    return Judgement("tables", len(set(intervals) | set(oldest)), tuple(failure for _, failure in late))


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
