"""What the checks judge: everything that the state database knows of tables, nodes and tasks, read once for all checks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property

from compaction_pipeline.core.capacity.limits import Standing as TeamStanding
from compaction_pipeline.core.capacity.low_use_share import LowUseShare
from compaction_pipeline.core.commit.record import CompactionRecord
from compaction_pipeline.core.dependencies.center.figures import MissedEvents
from compaction_pipeline.core.dependencies.center.lineage import Alert
from compaction_pipeline.core.dependencies.standing import Standing
from compaction_pipeline.core.fragmentation.verdict import NodeState
from compaction_pipeline.core.insight.checks.due_now import LookedAt
from compaction_pipeline.core.insight.checks.jobs_start import ReadyJobs
from compaction_pipeline.core.insight.known_table import KnownTable
from compaction_pipeline.core.queue.queue_work import QueueWork
from compaction_pipeline.core.queue.task import TaskAttempt
from compaction_pipeline.core.tables.keyed.key_reading import KeyReading
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.properties import TableProperties
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.words import duration_text
from compaction_pipeline.core.work.merged import MergedWork
from compaction_pipeline.core.work.work import Work


@dataclass(frozen=True, slots=True)
class TableFacts:
    """One table. `properties` is None when a property breaks its rule. `observed` is True when its catalog is only observed."""

    known: KnownTable
    properties: TableProperties | None
    observed: bool = False

    @property
    def table(self) -> TableIdentifier:
        return self.known.table

    @property
    def left_alone(self) -> str | None:
        """Why nobody compacts this table, so that its small files are nobody's fault. None for a table that is compacted."""
        if self.known.refusal is not None:
            return f"refused: {self.known.refusal}"
        if self.known.paused:
            return "paused"
        if self.observed:
            return f"catalog {self.table.catalog} is only observed"
        if self.properties is None:
            return self.known.problem or "a property breaks its rule"
        return None if self.properties.enabled else self.properties.disabled_by


@dataclass(frozen=True, slots=True)
class JudgedNode:
    """A node of a table that is compacted, the table and its properties, and whether tasks of the node, or of the table, are open.

    `known_since` is when the first node of the table was first seen; None when nobody noted it.
    """

    node: NodeState
    table: TableFacts
    properties: TableProperties
    has_open_tasks: bool = False
    table_has_open_tasks: bool = False
    known_since: datetime | None = None

    def lacks_history(self, needed: timedelta, now: datetime) -> str | None:
        """Say that nobody can tell whether the node has waited for long; None when somebody can.

        The state database has known the table for less than `needed`, and no plan has ever looked at the node. So it is a new database,
        such as that of a machine of a CI service. Where the program works, a plan comes soon.
        """
        if self.node.verdict is not None or self.node.last_work is not None:
            return None
        if self.known_since is None or now - self.known_since > needed:
            return None
        known = duration_text(now - self.known_since)
        return (
            f"this state database has known the table for {known}, and would need {duration_text(needed)} to say whether its files wait "
            "for too long: judge the table as it is now, with `compaction-pipeline check --as-of-now`"
        )


@dataclass(frozen=True, slots=True)
class Committed:
    """The newest committed record of a table, and where the table's metadata contradicts it; None when it does not."""

    record: CompactionRecord
    contradiction: str | None


@dataclass(frozen=True, slots=True)
class KeysOfTable:
    """What a look at the keys of an upsert table found, or why they could not be read."""

    table: TableIdentifier
    reading: KeyReading | str


@dataclass(frozen=True)
class Facts:
    """What is known at `now`.

    `tables` and `nodes` are those to judge, sorted. `open_nodes` are the nodes of Pending, Executing and Prepared tasks. `unmerged` are
    the Pending, Executing and FAILED tasks that have had an attempt, each with all its attempts. `merged` are the newest COMMITTED
    tasks, newest first. `prepared` has each Prepared task with the time since when it is Prepared. `committed` is empty unless a check
    needs the tables' metadata, and `keys` unless a check reads rows. `queues` has the work of each queue, with what was merged lately.
    `looked_at` has the tables whose files somebody looked at just now, and `watermarks` what somebody lately asked about. `jobs`
    has what the dependency center released, `missed` what its detectors missed in the last day, and `alerts` what owners of jobs should
    look at. `teams` are all teams beside their limits, and `low_use` what part of their optimizers' last day was of low use; both are None
    when tables are named.
    """

    now: datetime
    tables: tuple[TableFacts, ...]
    nodes: tuple[NodeState, ...]
    open_nodes: frozenset[tuple[TableIdentifier, TableNode]] = frozenset()
    unmerged: tuple[tuple[MergedWork[Work], Sequence[TaskAttempt]], ...] = ()
    merged: tuple[MergedWork[Work], ...] = ()
    prepared: tuple[tuple[MergedWork[Work], datetime], ...] = ()
    committed: tuple[Committed, ...] = ()
    queues: tuple[QueueWork, ...] = ()
    keys: tuple[KeysOfTable, ...] = ()
    looked_at: tuple[LookedAt, ...] = ()
    watermarks: tuple[Standing, ...] = ()
    jobs: ReadyJobs = ReadyJobs({})
    missed: tuple[MissedEvents, ...] = ()
    alerts: tuple[Alert, ...] = ()
    teams: tuple[TeamStanding, ...] | None = None
    low_use: tuple[LowUseShare, ...] | None = None

    @cached_property
    def compacted_nodes(self) -> Sequence[JudgedNode]:
        """The nodes of the tables that are compacted."""
        compacted = {each.table: (each, each.properties) for each in self.tables if each.properties is not None and each.left_alone is None}
        open_nodes: dict[TableIdentifier, set[TableNode]] = defaultdict(set)
        for table, node in self.open_nodes:
            open_nodes[table].add(node)
        known_since: dict[TableIdentifier, datetime] = {}
        for state in self.nodes:
            if state.first_seen is not None:
                known_since[state.table] = min(state.first_seen, known_since.get(state.table, state.first_seen))
        judged = []
        for state in self.nodes:
            if state.table in compacted:
                of_table = open_nodes.get(state.table)
                is_open = of_table is not None and state.node in of_table
                judged.append(JudgedNode(state, *compacted[state.table], is_open, of_table is not None, known_since.get(state.table)))
        return judged
