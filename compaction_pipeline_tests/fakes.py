"""Stores in plain dictionaries. They pass the same behaviour suites (`behaviours/`) as the stores of the state database."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import count
from threading import RLock
from uuid import uuid4

from compaction_pipeline.core.commit.record import CompactionRecord, RecordStatus
from compaction_pipeline.core.commit.table_commits import TableCommits
from compaction_pipeline.core.errors import ConfigError, IllegalTransition, NotFoundError, StaleAttempt
from compaction_pipeline.core.fragmentation.metrics import node_metrics
from compaction_pipeline.core.fragmentation.verdict import NodeState, NodeVerdict
from compaction_pipeline.core.insight.comparison import Comparison
from compaction_pipeline.core.insight.files_over_time import FilesPoint
from compaction_pipeline.core.insight.known_table import KnownTable
from compaction_pipeline.core.leases.holders import LeaseHolder
from compaction_pipeline.core.planning.table_planning import TablePlanning
from compaction_pipeline.core.queue.attempts import AfterAttempt, Tries, after_attempt, lost_text, timed_out_text
from compaction_pipeline.core.queue.group import QueueFull, QueueOrder, QueueRoom, ResourceGroup, unknown_group
from compaction_pipeline.core.queue.open_work import InUse, OpenTasks, PlannedWork, PreparedWork
from compaction_pipeline.core.queue.optimizer import OptimizerState
from compaction_pipeline.core.queue.order import in_place_of, priority_order
from compaction_pipeline.core.queue.task import CompactionTask, TaskAttempt, TaskStatus
from compaction_pipeline.core.queue.transitions import allowed
from compaction_pipeline.core.tables.commit_report import CommitReport, ReportedTable, with_report
from compaction_pipeline.core.tables.data_file import FileContent, LiveFile
from compaction_pipeline.core.tables.deletes.reach import DeleteReach
from compaction_pipeline.core.tables.figures import MeasuredNode, NodeFigures
from compaction_pipeline.core.tables.group_name import DEFAULT_GROUP
from compaction_pipeline.core.tables.index import TableIndex
from compaction_pipeline.core.tables.live_files import files_by_node
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.node_keys import new_keys
from compaction_pipeline.core.tables.ports import TouchedNode
from compaction_pipeline.core.tables.properties import TableProperties
from compaction_pipeline.core.tables.switch import TableSwitch
from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.core.work.result import EndReason, MergeResult
from compaction_pipeline.storage.stores import Stores
from compaction_pipeline_tests.fake_queues import FakeQueueReader
from compaction_pipeline_tests.fake_workers import FakeGroupStore, FakeOptimizerStore, FakeTokenStore, FakeWatcherStore


@dataclass
class FakeState:
    """The data that all fake stores of one "database" share."""

    catalogs: dict[str, CatalogEntry] = field(default_factory=dict)
    tables: dict[TableIdentifier, KnownTable] = field(default_factory=dict)
    nodes: dict[str, NodeState] = field(default_factory=dict)
    keys: dict[tuple[TableIdentifier, TableNode], str] = field(default_factory=dict)
    files: dict[TableIdentifier, dict[str, tuple[LiveFile, ...]]] = field(default_factory=dict)
    touched: dict[TableIdentifier, set[TableNode]] = field(default_factory=dict)
    measured: dict[TableIdentifier, dict[TableNode, frozenset[tuple[LiveFile, int]]]] = field(default_factory=dict)
    tasks: dict[str, CompactionTask] = field(default_factory=dict)
    attempts: dict[str, list[TaskAttempt]] = field(default_factory=dict)
    records: dict[str, CompactionRecord] = field(default_factory=dict)
    mirrored: set[str] = field(default_factory=set)
    leases: dict[str, tuple[str, datetime]] = field(default_factory=dict)
    groups: dict[str, ResourceGroup] = field(default_factory=lambda: {DEFAULT_GROUP: ResourceGroup(DEFAULT_GROUP)})
    all_paused: bool = False
    reports: dict[TableIdentifier, ReportedTable] = field(default_factory=dict)
    comparisons: dict[TableIdentifier, Comparison] = field(default_factory=dict)
    kept_pauses: set[TableIdentifier] = field(default_factory=set)
    numbers: count[int] = field(default_factory=lambda: count(1))
    lock: RLock = field(default_factory=RLock)

    def table(self, table: TableIdentifier) -> KnownTable:
        if table not in self.tables:
            raise NotFoundError(f"table {table} is not known")
        return self.tables[table]

    def key(self, table: TableIdentifier, node: TableNode) -> str:
        """The key of a node, or an empty text, which is the key of no node."""
        return self.keys.get((table, node), "")

    def keep_pause(self, table: TableIdentifier) -> None:
        if table in self.tables and self.tables[table].paused:
            self.kept_pauses.add(table)

    def forget(self, table: TableIdentifier) -> None:
        self.tables.pop(table, None)
        self.files.pop(table, None)
        self.touched.pop(table, None)
        self.measured.pop(table, None)
        self.reports.pop(table, None)
        self.comparisons.pop(table, None)
        self.nodes = {key: node for key, node in self.nodes.items() if node.table != table}
        gone = [task_id for task_id, task in self.tasks.items() if task.table == table]
        for task_id in gone:
            del self.tasks[task_id]
            self.attempts.pop(task_id, None)


def fake_stores() -> Stores:
    """One store for each port, all on one empty state."""
    state = FakeState()
    tasks, optimizers, tokens = FakeTaskStore(state), FakeOptimizerStore(state.groups), FakeTokenStore()

    def may_claim(optimizer_id: str, token_id: str) -> bool:
        optimizer, token = optimizers.optimizer(optimizer_id), tokens.token(token_id)
        family = (token, token and token.parent_id and tokens.token(token.parent_id))
        usable = all(each.revoked_at is None and each.blocked_at is None for each in family if each)
        return token is not None and usable and optimizer is not None and optimizer.state is OptimizerState.RUNNING

    tasks.may_claim = may_claim
    optimizers.tell_attempts = tasks.tell_attempts
    return Stores(
        FakeCatalogStore(state),
        FakeTableReader(state),
        FakeIndexStore(state),
        FakePlanningStore(state),
        FakeCommitsStore(state),
        FakeSwitchStore(state),
        FakeFileStore(state),
        tasks,
        FakeRecordStore(state),
        FakeLeaseStore(state),
        FakeHistoryStore(state),
        FakeNodeKeyStore(state),
        optimizers,
        FakeGroupStore(state.groups, optimizers, tasks.open_in),
        tokens,
        FakeQueueReader(FakeTaskStore(state), FakeTaskStore(state)._is_paused, lambda: state.records.values()),
        FakeReportStore(state),
        FakeWatcherStore(),
    )


class FakeHistoryStore:
    def __init__(self, state: FakeState) -> None:
        self._points: tuple[FilesPoint, ...] = ()
        self._state = state

    def points(self) -> Sequence[FilesPoint]:
        return self._points

    def replace(self, points: Sequence[FilesPoint]) -> None:
        self._points = tuple(sorted(points, key=lambda point: point.at))

    def comparisons(self) -> Mapping[TableIdentifier, Comparison]:
        return dict(self._state.comparisons)

    def keep_comparison(self, table: TableIdentifier, comparison: Comparison) -> None:
        self._state.comparisons[table] = comparison


class FakeCatalogStore:
    def __init__(self, state: FakeState | None = None) -> None:
        self._state = state or FakeState()

    def add(self, entry: CatalogEntry) -> None:
        if entry.name in self._state.catalogs:
            raise ConfigError(f"catalog {entry.name!r} is registered already")
        self._state.catalogs[entry.name] = entry

    def replace(self, entry: CatalogEntry) -> None:
        self.entry(entry.name)
        self._state.catalogs[entry.name] = entry

    def remove(self, name: str) -> None:
        self.entry(name)
        state = self._state
        tables = {
            *state.tables,
            *state.files,
            *(task.table for task in state.tasks.values()),
            *(node.table for node in state.nodes.values()),
        }
        for table in [table for table in tables if table.catalog == name]:
            state.keep_pause(table)
            state.forget(table)
        state.records = {key: record for key, record in state.records.items() if record.table.catalog != name}
        del state.catalogs[name]

    def entry(self, name: str) -> CatalogEntry:
        if name not in self._state.catalogs:
            raise NotFoundError(f"catalog {name!r} is not registered; registered: {', '.join(sorted(self._state.catalogs)) or 'none yet'}")
        return self._state.catalogs[name]

    def entries(self) -> Sequence[CatalogEntry]:
        return tuple(self._state.catalogs[name] for name in sorted(self._state.catalogs))


class FakeTableReader:
    def __init__(self, state: FakeState | None = None) -> None:
        self._state = state or FakeState()
        self._last: dict[TableIdentifier, Sequence[NodeState]] = {}

    def states(self, catalog: str | None = None) -> Sequence[KnownTable]:
        known = sorted(self._state.tables.values(), key=lambda known: known.table)
        return tuple(one for one in known if catalog in (None, one.table.catalog))

    def with_uuid(self, table_uuid: str) -> Sequence[KnownTable]:
        states = self.states()
        return tuple(one for one in states if one.index.loaded is not None and one.index.loaded.table_uuid == table_uuid)

    def seen(self) -> Mapping[TableIdentifier, str | None]:
        return {known.table: known.metadata_location for known in self.states()}

    def state(self, table: TableIdentifier) -> KnownTable:
        return self._state.table(table)

    def nodes(self, table: TableIdentifier | None = None, only: Collection[TableNode] | None = None) -> Sequence[NodeState]:
        return tuple(
            node for _, node in sorted(self._state.nodes.items()) if table in (None, node.table) and (only is None or node.node in only)
        )

    def nodes_of_tables(self) -> Mapping[TableIdentifier, Sequence[NodeState]]:
        now = {known.table: self.nodes(known.table) for known in self.states()}
        self._last = {table: self._last[table] if self._last.get(table) == nodes else nodes for table, nodes in now.items()}
        return self._last

    def node(self, key: str) -> NodeState:
        if key not in self._state.nodes:
            raise NotFoundError(f"node {key!r} is not known")
        return self._state.nodes[key]


class FakeIndexStore:
    def __init__(self, state: FakeState | None = None) -> None:
        self._state = state or FakeState()

    def add(self, table: TableIdentifier) -> None:
        paused = self._state.all_paused or table in self._state.kept_pauses
        new = KnownTable(TableIndex(table), switch=TableSwitch(paused), index_version=uuid4().hex)
        self._state.tables.setdefault(table, new)
        self._state.kept_pauses.discard(table)

    def save(self, index: TableIndex, version: str) -> str | None:
        with self._state.lock:
            known = self._state.table(index.table)
            if known.index_version != version:
                return None
            new = uuid4().hex
            self._state.tables[index.table] = replace(known, index=index, index_version=new)
            return new

    def begin_anew(self, table: TableIdentifier, version: str) -> str | None:
        with self._state.lock:
            known = self._state.tables.get(table)
            if known is None or known.index_version != version:
                return None
            self._state.forget(table)
            new = uuid4().hex
            self._state.tables[table] = KnownTable(TableIndex(table), switch=known.switch, index_version=new)
            return new

    def forget(self, table: TableIdentifier) -> None:
        self._state.keep_pause(table)
        self._state.forget(table)

    def save_figures(self, table: TableIdentifier, nodes: Sequence[MeasuredNode], now: datetime) -> None:
        keys = FakeNodeKeyStore(self._state).keys(table, [node.node for node in nodes])
        for node in nodes:
            key = keys[node.node]
            known = self._state.nodes.get(key, NodeState(table, node.node, key, node.metrics, first_seen=now))
            self._state.nodes[key] = replace(
                known, metrics=node.metrics, changed_snapshot_id=node.changed_snapshot_id, small_since=node.small_since
            )

    def remove_nodes(self, table: TableIdentifier, nodes: Collection[TableNode]) -> None:
        for node in nodes:
            self._state.nodes.pop(self._state.key(table, node), None)

    def forget_verdicts(self, table: TableIdentifier) -> None:
        for key, node in self._state.nodes.items():
            if node.table == table:
                self._state.nodes[key] = replace(node, verdict=None)


class FakeNodeKeyStore:
    def __init__(self, state: FakeState | None = None) -> None:
        self._state = state or FakeState()

    def keys(self, table: TableIdentifier, nodes: Collection[TableNode]) -> Mapping[TableNode, str]:
        keys = self._state.keys
        with self._state.lock:
            missing = {node for node in nodes if (table, node) not in keys}
            given = new_keys(table, missing, lambda wanted: set(wanted).intersection(keys.values()))
            keys.update(((table, node), key) for node, key in given.items())
            return {node: keys[table, node] for node in nodes}


class FakePlanningStore:
    def __init__(self, state: FakeState | None = None) -> None:
        self._state = state or FakeState()

    def save(self, table: TableIdentifier, planning: TablePlanning) -> None:
        with self._state.lock:
            self._state.tables[table] = replace(self._state.table(table), planning=planning)

    def save_verdicts(self, table: TableIdentifier, verdicts: Sequence[NodeVerdict]) -> None:
        for verdict in verdicts:
            stored = self._state.nodes.get(self._state.key(table, verdict.node))
            if stored is not None:
                self._state.nodes[stored.key] = replace(stored, verdict=verdict, failing=verdict.failing)


class FakeCommitsStore:
    def __init__(self, state: FakeState | None = None) -> None:
        self._state = state or FakeState()

    def note_landed(self, table: TableIdentifier, at: datetime) -> None:
        with self._state.lock:
            known = self._state.table(table)
            self._state.tables[table] = replace(known, commits=TableCommits(known.commits.landed + 1, at))

    def note_failure(self, table: TableIdentifier, problem: str, failures: int, retry_at: datetime) -> None:
        with self._state.lock:
            known = self._state.table(table)
            commits = replace(known.commits, problem=problem, failures=failures, retry_at=retry_at)
            self._state.tables[table] = replace(known, commits=commits)

    def mark_done(self, table: TableIdentifier, done: Sequence[tuple[TableNode, CompactionType]], at: datetime) -> None:
        for node, kind in done:
            stored = self._state.nodes.get(self._state.key(table, node))
            if stored is not None:
                last_done = {**stored.last_done, kind: max(at, stored.last_done.get(kind, at))}
                self._state.nodes[stored.key] = replace(stored, last_done=last_done)


class FakeSwitchStore:
    def __init__(self, state: FakeState | None = None) -> None:
        self._state = state or FakeState()

    def pause(self, table: TableIdentifier | None, paused: bool) -> int:
        if table is None:
            self._state.all_paused = paused
            if not paused:
                self._state.kept_pauses.clear()
        elif not paused and table not in self._state.tables and table in self._state.kept_pauses:
            self._state.kept_pauses.remove(table)
            return 1
        tables = list(self._state.tables.values()) if table is None else [self._state.table(table)]
        changed = [known for known in tables if known.paused is not paused]
        for known in changed:
            self._state.tables[known.table] = replace(known, switch=TableSwitch(paused))
        return len(changed)


class FakeFileStore:
    def __init__(self, state: FakeState | None = None) -> None:
        self._state = state or FakeState()

    def manifests(self, table: TableIdentifier) -> frozenset[str]:
        return frozenset(self._state.files.get(table, {}))

    def apply(self, table: TableIdentifier, removed: Iterable[str], added: Mapping[str, Sequence[LiveFile]]) -> None:
        known = self._state.files.setdefault(table, {})
        for path in (*removed, *added):
            known.pop(path, None)
        for path, files in added.items():
            known[path] = tuple(replace(file, manifest_path=path) for file in files)

    def files(self, table: TableIdentifier, nodes: Collection[TableNode] | None = None) -> Sequence[LiveFile]:
        every = [file for files in self._state.files.get(table, {}).values() for file in files]
        if nodes is None:
            return tuple(every)
        own = [file for file in every if file.node in nodes]
        paths = {file.path for file in own if file.is_data}
        named = {file.referenced_data_file for file in own}
        others = [file for file in every if file.node not in nodes]
        return (
            *own,
            *(file for file in others if file.referenced_data_file in paths or (file.is_data and file.path in paths | named)),
        )

    def figures(
        self, table: TableIdentifier, small_bytes: int, undersized_bytes: int, nodes: Collection[TableNode] | None = None
    ) -> Mapping[TableNode, NodeFigures]:
        groups = files_by_node(self.files(table))
        return {
            node: NodeFigures(
                node_metrics(
                    group, DeleteReach({}, frozenset()), TableProperties(target_size_bytes=2 * small_bytes, fragment_ratio=2), False, 0
                ),
                sum(1 for file in group.data if small_bytes < file.file_size_bytes <= undersized_bytes),
                max(file.data_sequence_number for file in (*group.data, *group.deletes)),
            )
            for node, group in groups.items()
            if nodes is None or node in nodes
        }

    def named_from_elsewhere(self, table: TableIdentifier, nodes: Collection[TableNode] | None = None) -> Collection[TableNode]:
        every = self.files(table)
        named = {(file.referenced_data_file, file.node) for file in every if file.referenced_data_file is not None}
        found = {file.node for file in every for path, node in named if path == file.path and node != file.node and file.is_data}
        return found if nodes is None else found & set(nodes)

    def has_global_deletes(self, table: TableIdentifier, unpartitioned_spec_ids: Collection[int]) -> bool:
        return any(file.content is FileContent.EQUALITY_DELETES and file.spec_id in unpartitioned_spec_ids for file in self.files(table))

    def touched(self, table: TableIdentifier) -> Mapping[TableNode, TouchedNode]:
        now, measured = self._entries(table), self._state.measured.get(table, {})
        changed = {node for node in (*now, *measured) if now.get(node, frozenset()) != measured.get(node, frozenset())}
        counts = Counter(file.node for file in self.files(table))
        return {node: TouchedNode(counts[node], node in changed) for node in changed | self._state.touched.get(table, set())}

    def _entries(self, table: TableIdentifier) -> Mapping[TableNode, frozenset[tuple[LiveFile, int]]]:
        """The files of each node, with the number of times that each file is listed."""
        entries: dict[TableNode, Counter[LiveFile]] = {}
        for file in self.files(table):
            entries.setdefault(file.node, Counter())[replace(file, manifest_path="", partition=())] += 1
        return {node: frozenset(counts.items()) for node, counts in entries.items()}

    def touch(self, table: TableIdentifier) -> None:
        self._state.touched.setdefault(table, set()).update(file.node for file in self.files(table))

    def mark_measured(self, table: TableIdentifier, nodes: Collection[TableNode]) -> None:
        self._state.touched.setdefault(table, set()).difference_update(nodes)
        now = self._entries(table)
        self._state.measured.setdefault(table, {}).update({node: now.get(node, frozenset()) for node in nodes})


class FakeTaskStore:
    def __init__(self, state: FakeState | None = None) -> None:
        self._state = state or FakeState()
        self.may_claim: Callable[[str, str], bool] = lambda optimizer_id, token_id: False

    def insert(self, tasks: Sequence[CompactionTask], replaces: Sequence[str], now: datetime, room: QueueRoom | None = None) -> bool:
        with self._state.lock:
            for task in tasks:
                allowed(TaskStatus.INIT, TaskStatus.PENDING if task.status is TaskStatus.INIT else task.status)
            known = self._state.tasks
            if any(task_id not in known or not _waits(known[task_id]) for task_id in replaces):
                return False
            for name in {task.queue for task in tasks} - self._state.groups.keys():
                raise unknown_group(name)
            tables = {task.table for task in tasks}
            taken = {
                file.path
                for task in known.values()
                if not task.is_final and task.table in tables and task.task_id not in replaces
                for file in task.work.inputs
            }
            if any(file.path in taken for task in tasks for file in task.work.inputs):
                return False
            replaced = {
                file.path: known[task_id].waiting_since or known[task_id].created_at
                for task_id in replaces
                for file in known[task_id].work.inputs
            }
            if room is not None:
                freed = sum(known[task_id].queue == room.group and not self._is_paused(known[task_id]) for task_id in replaces)
                room = replace(room, taken=self.queue_taken(room.group) - freed)
                if not room.admits(len(tasks)):
                    raise QueueFull(room)
            for task_id in replaces:
                self.cancel([task_id], EndReason.REPLACED, "replaced by a newer plan", now)
            for task in in_place_of(replaced, tasks):
                known[task.task_id] = replace(task, status=TaskStatus.PENDING)
            return True

    def open_in(self, queue: str) -> int:
        """How many open tasks are in a queue."""
        return sum(task.queue == queue and not task.is_final for task in self._state.tasks.values())

    def first_waiting(
        self, queue: str | None, task_ids: Sequence[str] | None = None, turns: Sequence[TableIdentifier] = ()
    ) -> TableIdentifier | None:
        pending = self._pending(queue, task_ids, turns)
        return pending[0].table if pending else None

    def next_tables(self, queue: str, most: int, turns: Sequence[TableIdentifier] = ()) -> Sequence[TableIdentifier]:
        return tuple(dict.fromkeys(task.table for task in self._pending(queue, None, turns)[:most]))

    def waiting_tables(self, queue: str) -> Sequence[TableIdentifier]:
        return sorted({task.table for task in self._pending(queue, None)}, key=str)

    def slot_seconds(self, queue: str, since: datetime, now: datetime) -> Mapping[TableIdentifier, float]:
        used: dict[TableIdentifier, float] = {}
        for task in self._state.tasks.values():
            for attempt in self.attempts(task.task_id) if task.queue == queue else ():
                seconds = (min(attempt.ended_at or now, now) - max(attempt.started_at, since)).total_seconds()
                if attempt.ended_at is None or attempt.ended_at > since:
                    used[task.table] = used.get(task.table, 0.0) + max(0.0, seconds)
        return used

    def queues_to_merge(self) -> Mapping[TableIdentifier, Collection[str]]:
        waiting = [task for task in self._state.tasks.values() if _waits(task)]
        return {table: {task.queue for task in waiting if task.table == table} for table in {task.table for task in waiting}}

    def move_to_queue(self, table: TableIdentifier, queue: str) -> Sequence[str]:
        with self._state.lock:
            found = sorted(
                task.task_id for task in self._state.tasks.values() if task.table == table and _waits(task) and task.queue != queue
            )
            if found and queue not in self._state.groups:
                raise unknown_group(queue)
            for task_id in found:
                self._state.tasks[task_id] = replace(self._state.tasks[task_id], queue=queue)
            return tuple(found)

    def _pending(
        self, queue: str | None, task_ids: Sequence[str] | None, turns: Sequence[TableIdentifier] = ()
    ) -> Sequence[CompactionTask]:
        """The Pending tasks, the next one first."""
        waiting = (
            task
            for task in self._state.tasks.values()
            if task.status is TaskStatus.PENDING and queue in (None, task.queue) and (task_ids is None or task.task_id in task_ids)
            if not self._is_paused(task)
        )
        group = self._state.groups.get(queue) if queue is not None else None

        def place(task: CompactionTask) -> tuple[object, ...]:
            since = task.waiting_since or task.created_at
            turn = turns.index(task.table) if task.table in turns else len(turns)
            if group is not None and group.queue.order is QueueOrder.FIFO:
                return (turn, since, task.task_id)
            return (turn, *priority_order(task.priority, task.work.small_files, since, task.task_id))

        return sorted(waiting, key=place)

    def _is_paused(self, task: CompactionTask) -> bool:
        known = self._state.tables.get(task.table)
        return known is not None and known.paused

    def paused(self) -> int:
        return sum(task.status is TaskStatus.PENDING and self._is_paused(task) for task in self._state.tasks.values())

    def poll(
        self,
        queue: str | None,
        owner: str,
        now: datetime,
        lease: timedelta,
        task_ids: Sequence[str] | None = None,
        turns: Sequence[TableIdentifier] = (),
        application: str = "",
    ) -> CompactionTask | None:
        with self._state.lock:
            pending = self._pending(queue, task_ids, turns)
            if not pending:
                return None
            task = self._move(
                pending[0],
                TaskStatus.EXECUTING,
                attempt_id=f"{next(self._state.numbers):012x}",
                owner=owner,
                lease_expires_at=now + lease,
                started_at=now,
                end_reason=None,
                reason=None,
            )
            task = self._state.tasks[task.task_id] = replace(task, attempt=task.attempt + 1)
            attempt = TaskAttempt(str(task.attempt_id), task.task_id, task.attempt, owner, now, application=application)
            self._state.attempts.setdefault(task.task_id, []).append(attempt)
            return task

    def poll_many(
        self,
        queue: str,
        owner: str,
        now: datetime,
        lease: timedelta,
        most: int,
        turns: Sequence[TableIdentifier] = (),
        token_id: str | None = None,
        application: str = "",
    ) -> Sequence[CompactionTask]:
        with self._state.lock:
            if token_id is not None and not self.may_claim(owner, token_id):
                return ()
            polled = (self.poll(queue, owner, now, lease, None, turns, application) for _ in range(most))
            return tuple(task for task in polled if task is not None)

    def tell_attempts(self, owner: str, application: str) -> None:
        with self._state.lock:
            for task in self._state.tasks.values():
                attempts = self._state.attempts.get(task.task_id, [])
                if task.owner == owner and task.status is TaskStatus.EXECUTING and not attempts[-1].application:
                    attempts[-1] = replace(attempts[-1], application=application)

    def renew(self, attempt_ids: Sequence[str], now: datetime, lease: timedelta) -> Sequence[str]:
        with self._state.lock:
            held = {task.attempt_id: task for task in self._state.tasks.values() if task.status is TaskStatus.EXECUTING}
            for attempt_id in attempt_ids:
                if attempt_id in held:
                    task = held[attempt_id]
                    self._state.tasks[task.task_id] = replace(task, lease_expires_at=now + lease)
            return tuple(attempt_id for attempt_id in attempt_ids if attempt_id in held)

    def complete(
        self, result: MergeResult, now: datetime, retry_after: timedelta = timedelta(0), claimed: EndReason | None = None
    ) -> TaskStatus:
        with self._state.lock:
            task = self._state.tasks.get(result.task_id)
            if task is not None and task.attempt_id == result.attempt_id and task.result == result:
                return task.status
            if task is None or task.status is not TaskStatus.EXECUTING or task.attempt_id != result.attempt_id:
                raise StaleAttempt(f"attempt {result.attempt_id!r} no longer holds task {result.task_id!r}; its report changes nothing")
            after = self._after(task, result.end_reason, now, retry_after)
            if after.status is TaskStatus.PREPARED:
                self._move(task, after.status, result=result, owner=None, lease_expires_at=None, losses=after.tries.losses, prepared_at=now)
                self._close_attempt(task, result.end_reason, result.error, now)
            else:
                self._leave_attempt(task, after, result.end_reason, result.error, now, claimed)
            return after.status

    def _after(self, task: CompactionTask, end_reason: EndReason, now: datetime, retry_after: timedelta) -> AfterAttempt:
        return after_attempt(Tries(task.failures, task.losses), task.max_attempts, end_reason, now, retry_after)

    def release_expired(self, now: datetime, ended_by: datetime | None = None, spared: Collection[str] = ()) -> Sequence[str]:
        with self._state.lock:
            ended = [task for task in self._executing() if task.lease_expires_at is None or task.lease_expires_at <= (ended_by or now)]
            expired = [task for task in ended if task.owner not in spared]
            for task in expired:
                after = self._after(task, EndReason.LOST, now, timedelta(0))
                self._leave_attempt(task, after, EndReason.LOST, lost_text(task.attempt, task.owner, after), now)
            return tuple(task.task_id for task in expired)

    def end_overdue(self, now: datetime, timeout: timedelta, retry_after: timedelta) -> Sequence[str]:
        with self._state.lock:
            overdue = [task for task in self._executing() if task.started_at is not None and task.started_at <= now - timeout]
            for task in overdue:
                after = self._after(task, EndReason.TIMED_OUT, now, retry_after)
                self._leave_attempt(task, after, EndReason.TIMED_OUT, timed_out_text(task.attempt, task.owner, timeout), now)
            return tuple(task.task_id for task in overdue)

    def _executing(self) -> Sequence[CompactionTask]:
        return [task for _, task in sorted(self._state.tasks.items()) if task.status is TaskStatus.EXECUTING]

    def waiting_for_retry(self, due: datetime, limit: int, without: Collection[TableIdentifier] = ()) -> Sequence[CompactionTask]:
        waiting = [task for task in self._state.tasks.values() if task.waits_for_retry and task.table not in without]
        found = [task for task in waiting if task.retry_at is not None and task.retry_at <= due]
        return tuple(sorted(found, key=lambda task: (task.retry_at, task.task_id))[:limit])

    def count_replaced(self) -> int:
        return sum(task.end_reason is EndReason.REPLACED for task in self._state.tasks.values())

    def count_waiting_for_retry(self) -> int:
        return sum(task.waits_for_retry for task in self._state.tasks.values())

    def retry(self, task_ids: Sequence[str]) -> Sequence[str]:
        with self._state.lock:
            known = self._state.tasks
            put_back = [task_id for task_id in task_ids if task_id in known and known[task_id].waits_for_retry]
            for task_id in put_back:
                self._move(known[task_id], TaskStatus.PENDING, retry_at=None)
            return tuple(put_back)

    def fail(self, task_id: str, end_reason: EndReason, reason: str, now: datetime) -> None:
        task = self.task(task_id)
        if task.status is TaskStatus.PENDING:
            raise IllegalTransition(f"task {task_id!r} is PENDING and cannot become FAILED")
        self._move(
            task,
            TaskStatus.FAILED,
            end_reason=end_reason,
            reason=reason,
            owner=None,
            lease_expires_at=None,
            ended_at=now,
            failed_at=now,
        )
        self._close_attempt(task, end_reason, reason, now)

    def cancel(self, task_ids: Sequence[str], end_reason: EndReason, reason: str, now: datetime, *, running: bool = False) -> Sequence[str]:
        canceled = []
        for task_id in task_ids:
            task = self._state.tasks.get(task_id)
            if task is not None and _waits(task):
                self._move(task, TaskStatus.CANCELED, end_reason=end_reason, reason=reason, ended_at=now, retry_at=None)
                canceled.append(task_id)
            elif task is not None and running and task.status is TaskStatus.EXECUTING:
                left = {"attempt_id": None, "owner": None, "lease_expires_at": None, "ended_at": now}
                self._move(task, TaskStatus.CANCELED, end_reason=end_reason, reason=reason, **left)
                self._close_attempt(task, end_reason, reason, now)
                canceled.append(task_id)
        return tuple(canceled)

    def claim(self, table: TableIdentifier, record_id: str, task_ids: Sequence[str] | None = None) -> Sequence[CompactionTask]:
        with self._state.lock:
            tasks = [task for task in self._state.tasks.values() if task.table == table]
            waiting = {task.work.group for task in tasks if task.is_to_be_merged} - {""}
            groups = {task.work.group for task in tasks if task_ids is not None and task.task_id in task_ids} - {""}
            claimed = [
                replace(task, record_id=record_id)
                for task in tasks
                if task.status is TaskStatus.PREPARED
                and task.record_id is None
                and task.work.group not in waiting
                and (task_ids is None or task.task_id in task_ids or task.work.group in groups)
            ]
            self._state.tasks.update((task.task_id, task) for task in claimed)
            return tuple(sorted(claimed, key=lambda task: (task.created_at, task.task_id)))

    def unclaim(self, record_id: str) -> None:
        for task in list(self._state.tasks.values()):
            if task.record_id == record_id and task.status is TaskStatus.PREPARED:
                self._state.tasks[task.task_id] = replace(task, record_id=None)

    def commit(self, task_ids: Sequence[str], now: datetime) -> None:
        moving = [task for task in map(self.task, dict.fromkeys(task_ids)) if task.status is not TaskStatus.COMMITTED]
        for task in moving:
            allowed(task.status, TaskStatus.COMMITTED)
        for task in moving:
            self._move(task, TaskStatus.COMMITTED, ended_at=now, committed_at=now)

    def task(self, task_id: str) -> CompactionTask:
        if task_id not in self._state.tasks:
            raise NotFoundError(f"task {task_id!r} is not known")
        return self._state.tasks[task_id]

    def tasks(
        self,
        table: TableIdentifier | None = None,
        statuses: Sequence[TaskStatus] | None = None,
        record_id: str | None = None,
        limit: int | None = None,
    ) -> Sequence[CompactionTask]:
        newest = sorted(self._state.tasks.values(), key=lambda task: (task.created_at, task.task_id), reverse=True)
        found = [
            task
            for task in newest
            if table in (None, task.table) and (statuses is None or task.status in statuses) and record_id in (None, task.record_id)
        ]
        return tuple(found[:limit])

    def planned_work(self, table: TableIdentifier) -> PlannedWork:
        under_way = [task for task in self.tasks(table) if task.is_to_be_merged]
        return PlannedWork(len(under_way), sum(task.work.input_bytes for task in under_way))

    def prepared_work(self) -> Mapping[TableIdentifier, PreparedWork]:
        found: dict[TableIdentifier, PreparedWork] = {}
        for task in self.tasks(statuses=(TaskStatus.PREPARED,)):
            known = found.get(task.table, PreparedWork())
            found[task.table] = (
                replace(known, tasks=known.tasks + 1, input_bytes=known.input_bytes + task.work.input_bytes)
                if task.record_id is None
                else replace(known, claimed=known.claimed + 1)
            )
        return found

    def counts(self) -> Mapping[TaskStatus, int]:
        return Counter(task.status for task in self._state.tasks.values())

    def open_tasks(self, table: TableIdentifier | None = None) -> Mapping[TableIdentifier, OpenTasks]:
        paused, statuses = "paused", (TaskStatus.PENDING, TaskStatus.EXECUTING, TaskStatus.PREPARED)
        counts = Counter(
            (task.table, paused if task.status is TaskStatus.PENDING and self._is_paused(task) else task.status)
            for task in self.tasks(table)
            if not task.is_final
        )
        order = (*statuses, paused, TaskStatus.FAILED)
        return {found: OpenTasks(*(counts[found, what] for what in order)) for found in {found for found, _ in counts}}

    def queue_taken(self, queue: str) -> int:
        tasks = [task for task in self._state.tasks.values() if task.queue == queue and task.is_to_be_merged]
        return sum(task.status is not TaskStatus.PENDING or not self._is_paused(task) for task in tasks)

    def in_use(self, table: TableIdentifier) -> InUse:
        tasks = [task for task in self._state.tasks.values() if task.table == table]
        pending = [task for task in tasks if task.status is TaskStatus.PENDING]
        running = [task for task in tasks if task.status in (TaskStatus.EXECUTING, TaskStatus.PREPARED)]
        failed = [task for task in tasks if task.waits_for_retry]
        exclusive = {task.work.node for task in (*running, *failed) if task.work.type is not CompactionType.MINOR}
        return InUse(
            paths=frozenset(file.path for task in (*running, *failed) for file in task.work.inputs),
            exclusive_nodes=frozenset(exclusive),
            failed={file.path: task.task_id for task in failed for file in task.work.inputs},
            failed_groups={task.task_id: task.work.group for task in failed if task.work.group},
            failed_nodes=frozenset(exclusive - {task.work.node for task in running if task.work.type is not CompactionType.MINOR}),
            pending={file.path: task.task_id for task in pending for file in task.work.inputs},
            pending_groups={task.task_id: task.work.group for task in pending if task.work.group},
        )

    def attempts(self, task_id: str) -> Sequence[TaskAttempt]:
        return tuple(self._state.attempts.get(task_id, ()))

    def refused_reports(self, since: datetime) -> Mapping[str, int]:
        attempts = [each for of_task in self._state.attempts.values() for each in of_task]
        refused = [each for each in attempts if each.end_reason is EndReason.REPORT_REFUSED and each.ended_at and each.ended_at >= since]
        return dict(Counter(each.owner for each in refused))

    def expire(self, before: datetime) -> int:
        ended = [task for task in self._state.tasks.values() if task.is_final and task.ended_at and task.ended_at < before]
        for task in ended:
            del self._state.tasks[task.task_id]
            self._state.attempts.pop(task.task_id, None)
        return len(ended)

    def _move(self, task: CompactionTask, after: TaskStatus, **changes: object) -> CompactionTask:
        allowed(task.status, after, for_good=task.status is TaskStatus.FAILED and task.is_final)
        moved = replace(task, status=after, **changes)  # type: ignore[arg-type]
        self._state.tasks[task.task_id] = moved
        return moved

    def _leave_attempt(
        self,
        task: CompactionTask,
        after: AfterAttempt,
        end_reason: EndReason,
        reason: str | None,
        now: datetime,
        claimed: EndReason | None = None,
    ) -> None:
        tries, is_failed = after.tries, after.status is TaskStatus.FAILED
        self._move(
            task,
            after.status,
            end_reason=end_reason,
            reason=reason,
            attempt_id=None,
            owner=None,
            lease_expires_at=None,
            failures=tries.failures,
            losses=tries.losses,
            retry_at=after.retry_at,
            failed_at=now if is_failed or tries.failures > task.failures else task.failed_at,
            ended_at=now if is_failed and after.retry_at is None else None,
        )
        self._close_attempt(task, end_reason, reason, now, claimed)

    def _close_attempt(
        self, task: CompactionTask, end_reason: EndReason, reason: str | None, now: datetime, claimed: EndReason | None = None
    ) -> None:
        attempts = self._state.attempts.get(task.task_id, [])
        if attempts and attempts[-1].ended_at is None:
            attempts[-1] = replace(attempts[-1], ended_at=now, end_reason=end_reason, reason=reason, claimed=claimed)


class FakeRecordStore:
    def __init__(self, state: FakeState | None = None) -> None:
        self._state = state or FakeState()

    def save(self, record: CompactionRecord) -> None:
        self._state.records[record.record_id] = record

    def record(self, record_id: str) -> CompactionRecord:
        if record_id not in self._state.records:
            raise NotFoundError(f"record {record_id!r} is not known")
        return self._state.records[record_id]

    def records(
        self, table: TableIdentifier | None = None, limit: int | None = None, unsettled: bool = False
    ) -> Sequence[CompactionRecord]:
        newest = sorted(self._state.records.values(), key=lambda record: (record.created_at, record.record_id), reverse=True)
        found = [record for record in newest if table in (None, record.table) and not (unsettled and _is_ended(record))]
        return tuple(found[:limit])

    def merged_away(self) -> Mapping[TableIdentifier, int]:
        totals: dict[TableIdentifier, int] = {}
        for record in self._state.records.values():
            totals[record.table] = totals.get(record.table, 0) + record.merged_away
        return totals

    def unmirrored(self, limit: int) -> Sequence[CompactionRecord]:
        oldest = reversed(self.records())
        return tuple(record for record in oldest if _is_ended(record) and record.record_id not in self._state.mirrored)[:limit]

    def mark_mirrored(self, record_ids: Sequence[str]) -> None:
        self._state.mirrored.update(record_ids)

    def expire(self, before: datetime, kept: Collection[str] = ()) -> int:
        ended = [record for record in self._state.records.values() if _is_ended(record) and record.record_id not in kept]
        old = [record for record in ended if (record.ended_at or record.created_at) < before]
        for record in old:
            del self._state.records[record.record_id]
        return len(old)


class FakeReportStore:
    def __init__(self, state: FakeState) -> None:
        self._state = state

    def add(self, report: CommitReport, now: datetime) -> ReportedTable:
        with self._state.lock:
            reported = with_report(self._state.reports.get(report.table), report, now)
            self._state.reports[report.table] = reported
            return reported

    def reported(self) -> Sequence[ReportedTable]:
        return tuple(sorted(self._state.reports.values(), key=lambda one: one.table))

    def answer(self, reported: ReportedTable) -> bool:
        with self._state.lock:
            if self._state.reports.get(reported.table) != reported:
                return False
            del self._state.reports[reported.table]
            return True


class FakeLeaseStore:
    def __init__(self, state: FakeState | None = None) -> None:
        self._state = state or FakeState()

    def acquire(self, name: str, owner: str, now: datetime, lease: timedelta) -> bool:
        with self._state.lock:
            if name in self._state.leases and self._state.leases[name][1] > now:
                return False
            self._state.leases[name] = (owner, now + lease)
            return True

    def holder(self, name: str, now: datetime) -> LeaseHolder | None:
        held = self._state.leases.get(name)
        return LeaseHolder(*held) if held is not None and held[1] > now else None

    def renew(self, name: str, owner: str, now: datetime, lease: timedelta) -> bool:
        with self._state.lock:
            if name not in self._state.leases or self._state.leases[name][0] != owner:
                return False
            self._state.leases[name] = (owner, now + lease)
            return True

    def release(self, name: str, owner: str) -> None:
        with self._state.lock:
            if name in self._state.leases and self._state.leases[name][0] == owner:
                del self._state.leases[name]


def _waits(task: CompactionTask) -> bool:
    """Whether a plan may replace the task: it is Pending, or FAILED and waits to be tried again."""
    return task.status is TaskStatus.PENDING or task.waits_for_retry


def _is_ended(record: CompactionRecord) -> bool:
    return record.status in (RecordStatus.COMMITTED, RecordStatus.FAILED)
