"""Reads what the checks judge, and judges it (`core/insight/checks/`). It changes nothing, but keeps what a comparison found.

It reads the state database. Only a check that compares with the tables themselves makes it read table metadata
too, and only one that counts keys makes it read rows. Each judgement looks
at *all* nodes or tables and names those that fail, so a good one never hides a bad one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from compaction_pipeline.core.capacity.costs import CostStore
from compaction_pipeline.core.capacity.limits import Standing as TeamStanding
from compaction_pipeline.core.capacity.low_use_share import LATELY as LOW_USE_LATELY
from compaction_pipeline.core.capacity.low_use_share import LowUseShare, low_use_shares
from compaction_pipeline.core.capacity.ports import TeamStore
from compaction_pipeline.core.dependencies.center.figures import LATELY as MISSED_LATELY
from compaction_pipeline.core.errors import CompactionError, ConfigError
from compaction_pipeline.core.insight.checks.due_now import LookedAt
from compaction_pipeline.core.insight.checks.every_check import CHECKS, Check, CheckResult
from compaction_pipeline.core.insight.checks.facts import Facts, KeysOfTable, TableFacts
from compaction_pipeline.core.insight.checks.jobs_start import ReadyJobs
from compaction_pipeline.core.insight.checks.queues import LATELY
from compaction_pipeline.core.insight.checks.unique_keys import on_demand
from compaction_pipeline.core.insight.checks.watermarks_move import ASKED_LATELY
from compaction_pipeline.core.insight.known_table import KnownTable
from compaction_pipeline.core.insight.ports import TableReader
from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.core.queue.known_task import KnownTask
from compaction_pipeline.core.queue.ports.groups import GroupStore
from compaction_pipeline.core.queue.ports.tasks import QueueReader, TaskStore
from compaction_pipeline.core.queue.queue_work import QueueWork
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.tables.keyed.key_reading import is_cheap, is_upsert
from compaction_pipeline.core.tables.ports.catalogs import CatalogStore
from compaction_pipeline.core.tables.ports.scan import KeyReader
from compaction_pipeline.core.tables.properties import resolve_properties
from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier
from compaction_pipeline.core.tables.team_name import UNASSIGNED
from compaction_pipeline.services.insight.compare_tables import CompareTables

LATEST_TASKS = 1000
"""The number of committed tasks that are read, for each table that was named. A busy deployment makes fewer in a day, and reading them
takes less than a second."""

_NOT_MERGED = (TaskStatus.FAILED, TaskStatus.PENDING, TaskStatus.EXECUTING)


class JudgedWork:
    """Three questions about the work and what it costs: works, standings, low_use. It changes nothing."""

    def __init__(self, queues: QueueReader, groups: GroupStore, teams: TeamStore, costs: CostStore) -> None:
        self._queues = queues
        self._groups = groups
        self._teams = teams
        self._costs = costs

    def works(self, since: datetime) -> Mapping[str, QueueWork]:
        """Return the work of each queue, with what was merged since then."""
        return self._queues.works(since)

    def standings(self) -> tuple[TeamStanding, ...]:
        """Return how each team stands now."""
        return tuple(self._teams.standings().values())

    def low_use(self, now: datetime) -> tuple[LowUseShare, ...]:
        """Return which part of the optimizers of each team was of low use in the last day."""
        since = now - LOW_USE_LATELY
        hours = self._costs.use_hours(since)
        if not hours:
            return ()
        known = {team.name for team in self._teams.teams()}
        named = {group.name: group.team for group in self._groups.groups() if group.team is not None}
        teams = {group: team if team in known else UNASSIGNED for group, team in named.items()}
        return tuple(low_use_shares(hours, teams, self._costs.spent(since.date(), now.date())))


class JudgeCompaction:
    """One verb: judge."""

    def __init__(
        self,
        catalogs: CatalogStore,
        tables: TableReader,
        tasks: TaskStore,
        work: JudgedWork,
        compare_tables: CompareTables,
        keys: KeyReader,
        clock: Clock,
    ) -> None:
        self._catalogs = catalogs
        self._tables = tables
        self._tasks = tasks
        self._work = work
        self._compare_tables = compare_tables
        self._keys = keys
        self._clock = clock

    def judge(
        self,
        checks: Sequence[Check] = CHECKS,
        tables: Collection[TableIdentifier] = (),
        *,
        only_changed: bool = False,
        looked_at: Sequence[LookedAt] = (),
    ) -> tuple[CheckResult, ...]:
        """Judge these tables, or all known ones when none is named. Returns one result for each check, in their order.

        With `only_changed`, a table is compared with its record again only when its newest read, or its newest record, is another one than
        the last time, whichever process compared it. Checks that read rows judge nothing unless few rows are to be read (`is_cheap`). So
        nobody who judges again and again loads the metadata of all tables each time. `looked_at` has the tables whose files somebody looked
        at just now, for `DUE_NOW`.

        Raises NotFoundError when a table, or the catalog of a table, is not known.
        """
        facts = replace(self._facts(sorted(set(tables))), looked_at=tuple(looked_at))
        reads_rows = not only_changed or _keys_are_cheap(facts)
        if any(check.needs_tables for check in checks):
            facts = replace(facts, committed=tuple(self._compare_tables.committed(facts.tables, only_changed)))
        if reads_rows and any(check.reads_rows for check in checks):
            facts = replace(facts, keys=tuple(self._keys_of(facts.tables)))
        return tuple(
            CheckResult(check, on_demand(), on_demand=True)
            if check.reads_rows and not reads_rows
            else CheckResult(check, check.judge(facts))
            for check in checks
        )

    def left_alone(self, tables: Collection[TableIdentifier] = (), *, observed: bool = True) -> dict[TableIdentifier, str]:
        """Return why some of these tables, or of all known ones, are not compacted. The checks judge neither their files nor their age.

        Without `observed`, a table is not left alone because its catalog is only observed.

        Raises NotFoundError as `judge` does.
        """
        facts = self._table_facts(sorted(set(tables)))
        seen = (found if observed else replace(found, observed=False) for found in facts)
        return {found.table: found.left_alone for found in seen if found.left_alone is not None}

    def _facts(self, tables: Sequence[TableIdentifier]) -> Facts:
        found = tuple(self._table_facts(tables))
        open_or_failed = self._tasks_of(tables, (*_NOT_MERGED, TaskStatus.PREPARED))
        prepared = [task for task in open_or_failed if task.status is TaskStatus.PREPARED]
        tried = [task for task in open_or_failed if task.attempt and task.status is not TaskStatus.PREPARED]
        missed, names = self._tables.missed_events(self._clock() - MISSED_LATELY), set(map(str, tables))
        asked = self._tables.standings(self._clock() - ASKED_LATELY)
        nodes = [self._tables.nodes(table) for table in tables] if tables else self._tables.nodes_of_tables().values()
        return Facts(
            now=self._clock(),
            tables=found,
            nodes=tuple(node for of_table in nodes for node in of_table),
            open_nodes=frozenset((task.table, task.work.node) for task in open_or_failed if not task.is_final),
            unmerged=tuple((task, self._tasks.attempts(task.task_id)) for task in tried),
            merged=self._tasks_of(tables, (TaskStatus.COMMITTED,), LATEST_TASKS),
            prepared=tuple((task, self._prepared_at(task)) for task in prepared),
            queues=self._queues_of(tables, {task.queue for task in open_or_failed if not task.is_final}),
            jobs=self._tables.ready_jobs() if not tables else ReadyJobs({}),
            watermarks=tuple(one for one in asked if not tables or one.table in tables),
            missed=tuple(one for one in missed if not tables or one.name in names),
            alerts=tuple(self._tables.job_alerts()) if not tables else (),
            teams=None if tables else self._work.standings(),
            low_use=None if tables else self._work.low_use(self._clock()),
        )

    def _queues_of(self, tables: Sequence[TableIdentifier], of_tables: Collection[str]) -> tuple[QueueWork, ...]:
        """The work of all queues, or of those in which the named tables have tasks."""
        works = self._work.works(self._clock() - LATELY).values()
        return tuple(sorted((work for work in works if not tables or work.queue in of_tables), key=lambda work: work.queue))

    def _table_facts(self, tables: Sequence[TableIdentifier]) -> Iterator[TableFacts]:
        catalogs = {entry.name: entry for entry in self._catalogs.entries()}
        for table in tables:
            # This raises the error that names the known catalogs.
            self._catalogs.entry(table.catalog)
        states = [self._tables.state(table) for table in tables] if tables else self._tables.states()
        return (_table_facts(state, catalogs[state.table.catalog]) for state in states if state.table.catalog in catalogs)

    def _tasks_of(
        self, tables: Sequence[TableIdentifier], statuses: Sequence[TaskStatus], limit: int | None = None
    ) -> tuple[KnownTask, ...]:
        """The tasks of these tables, or of all tables, newest first within each table that was named."""
        named: Sequence[TableIdentifier | None] = tables or (None,)
        return tuple(task for table in named for task in self._tasks.tasks(table, statuses=statuses, limit=limit))

    def _prepared_at(self, task: KnownTask) -> datetime:
        ended = [attempt.ended_at for attempt in self._tasks.attempts(task.task_id) if attempt.ended_at is not None]
        return max(ended, default=task.created_at)

    def _keys_of(self, tables: Iterable[TableFacts]) -> Iterator[KeysOfTable]:
        """The keys of the upsert tables among these."""
        for found in filter(_is_upsert, tables):
            try:
                yield KeysOfTable(found.table, self._keys.read_keys(found.table, self._clock().toordinal()))
            except CompactionError as error:
                yield KeysOfTable(found.table, str(error))


def _is_upsert(found: TableFacts) -> bool:
    keyed = found.known.layout.keyed if found.known.layout is not None else None
    return keyed is not None and is_upsert(keyed.change.properties)


def _keys_are_cheap(facts: Facts) -> bool:
    """Whether all upsert tables together are small. A check of some nodes alone would hide what was found in the others."""
    upsert = {found.table for found in facts.tables if _is_upsert(found)}
    return is_cheap(node.metrics for node in facts.nodes if node.table in upsert)


def _table_facts(known: KnownTable, entry: CatalogEntry) -> TableFacts:
    try:
        properties = resolve_properties(known.layout.properties if known.layout is not None else {}, entry.properties)
    except ConfigError:
        # `table_health` shows which property stops this table.
        return TableFacts(known, None, entry.observe)
    return TableFacts(known, properties, entry.observe)
