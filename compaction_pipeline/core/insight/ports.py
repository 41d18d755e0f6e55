"""What use cases need to show how everything stands: a reader of tables, and a history of files.

`TableReader` reads what services have written about tables and nodes. `HistoryStore` keeps a history of files, and comparisons of tables
with their records.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from compaction_pipeline.core.dependencies.center.figures import MissedEvents
from compaction_pipeline.core.dependencies.center.lineage import Alert
from compaction_pipeline.core.dependencies.standing import Standing
from compaction_pipeline.core.fragmentation.verdict import NodeState
from compaction_pipeline.core.insight.checks.jobs_start import ReadyJobs
from compaction_pipeline.core.insight.comparison import Comparison
from compaction_pipeline.core.insight.files_over_time import FilesPoint
from compaction_pipeline.core.insight.known_table import KnownTable
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.policies import TablePolicies
from compaction_pipeline.core.tables.table import TableIdentifier


class TableReader(Protocol):
    """Reads the known tables and their nodes. It writes nothing."""

    def states(self, catalog: str | None = None) -> Sequence[KnownTable]:
        """Return all known tables, or those of a catalog, sorted by identifier."""

    def seen(self) -> Mapping[TableIdentifier, str | None]:
        """Return all known tables, each with the path of the metadata that was completely read (`KnownTable.metadata_location`)."""

    def unread(self, tables: Collection[TableIdentifier]) -> Sequence[KnownTable]:
        """Return those of these tables of which nothing was ever read."""

    def policies(self, tables: Collection[TableIdentifier]) -> Mapping[TableIdentifier, tuple[str, TablePolicies | None]]:
        """Return the uuid of each of these tables that was loaded, and the last policies that its catalog told; None when it told none."""

    def known_uuids(self, uuids: Collection[str]) -> Collection[str]:
        """Return those of these uuids that a known table has, or one that has vanished."""

    def missed(self) -> Collection[TableIdentifier]:
        """Return the tables that the last listings of their catalogs missed. A listing decides what becomes of them."""

    def ready_jobs(self) -> ReadyJobs:
        """Return the instances of jobs that are ready and not reported yet, at most 1,000, and how many waiting ones are miscounted."""

    def missed_events(self, since: datetime) -> Sequence[MissedEvents]:
        """Return what detectors of the dependency center missed since then, by detector and table."""

    def job_alerts(self) -> Sequence[Alert]:
        """Return what owners of jobs should look at, as the leader of the dependency center found it last."""

    def waiting_for_room(self) -> Mapping[TableIdentifier, datetime]:
        """Return the tables that wait for room in the queue of their group, each with since when it does."""

    def standings(self, asked_since: datetime) -> Sequence[Standing]:
        """Return where the watermarks stood of all tables whose readiness somebody asked for since then, by table and writer."""

    def state(self, table: TableIdentifier) -> KnownTable:
        """Return what is known of a table. Raises NotFoundError when it is unknown."""

    def with_uuid(self, table_uuid: str) -> Sequence[KnownTable]:
        """Return the known tables of all catalogs whose newest loaded metadata has this uuid, sorted by identifier."""

    def nodes(self, table: TableIdentifier | None = None, only: Collection[TableNode] | None = None) -> Sequence[NodeState]:
        """Return the nodes of a table, or of all tables, sorted by key. `only` limits the answer to these nodes of the table."""

    def nodes_of_tables(self) -> Mapping[TableIdentifier, Sequence[NodeState]]:
        """Return the nodes of each known table, sorted by key.

        As long as the nodes of a table do not change, a process gets the same tuple again. So callers may keep what they make of it.
        """

    def node(self, key: str) -> NodeState:
        """Return the node with this key. Raises NotFoundError when no known node has it."""


class HistoryStore(Protocol):
    """The stored history of all tables' files, and the last comparison of each table with its newest record."""

    def points(self) -> Sequence[FilesPoint]:
        """Return the points, oldest first."""

    def replace(self, points: Sequence[FilesPoint]) -> None:
        """Store these points instead of all others, in one transaction. No two of them have the same time."""

    def comparisons(self) -> Mapping[TableIdentifier, Comparison]:
        """Return the last comparison of each table that was compared."""

    def keep_comparison(self, table: TableIdentifier, comparison: Comparison) -> None:
        """Store the comparison of a table in place of its last one."""
