"""What a person asks about tables: the health of each one, its nodes, and the reasons for their health.

Reads the state database only, so it answers at once and also while a catalog is down.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from compaction_pipeline.core.capacity.ports import TeamStore
from compaction_pipeline.core.capacity.team import team_missing_text
from compaction_pipeline.core.commit.ports import RecordStore
from compaction_pipeline.core.commit.record import CompactionRecord
from compaction_pipeline.core.errors import ConfigError, NotFoundError
from compaction_pipeline.core.fragmentation.verdict import NodeState
from compaction_pipeline.core.insight.known_table import KnownTable
from compaction_pipeline.core.insight.overview import (
    NO_TASKS,
    SHOWN,
    NodeOverview,
    TableOverview,
    commit_is_overdue,
    node_overviews,
    table_overview,
    worst_first,
)
from compaction_pipeline.core.insight.own_assets import AssetLevels, AssetReport, OwnAssets, assign_assets
from compaction_pipeline.core.insight.ports import TableReader
from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.core.queue.ports.tasks import TaskStore
from compaction_pipeline.core.queue.task import CompactionTask, TaskStatus
from compaction_pipeline.core.queue.transitions import OPEN
from compaction_pipeline.core.tables.bloom_filters import not_honoured
from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.core.tables.deletion_ban import why_no_deletion
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.policies import PolicyType, TablePolicies, inherited
from compaction_pipeline.core.tables.ports.catalogs import CatalogStore
from compaction_pipeline.core.tables.ports.files import FileStore
from compaction_pipeline.core.tables.properties import TableProperties, asset_key_of, named_team, resolve_properties
from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier, TableLayout
from compaction_pipeline.services.insight.overviews import tables_with_nodes

_SINGLE_QUERIES = 20


@dataclass(frozen=True, slots=True)
class TableDetail:
    """Everything that is known of a table.

    `catalog_says` is what its catalog forbids, and what is ignored of the `policies` that the catalog has for the table.

    `properties` is None when a property breaks its rule, and `property_error` says which. `write_properties_not_honoured` maps
    properties of Iceberg that a merge cannot follow to the reason. For a keyed table `files` are empty and `manifests` is None, because its
    files are not in the state database (`ReadFiles`).
    """

    overview: TableOverview
    properties: TableProperties | None
    property_error: str | None
    write_properties_not_honoured: Mapping[str, str]
    nodes: tuple[NodeOverview, ...]
    files: tuple[LiveFile, ...]
    tasks: tuple[CompactionTask, ...]
    records: tuple[CompactionRecord, ...]
    layout: TableLayout | None = None
    policies: TablePolicies | None = None
    catalog_says: tuple[str, ...] = ()


class ReadTables:
    """Answers questions about tables and changes nothing."""

    def __init__(
        self,
        catalogs: CatalogStore,
        tables: TableReader,
        files: FileStore,
        tasks: TaskStore,
        records: RecordStore,
        teams: TeamStore,
        clock: Clock,
    ) -> None:
        self._catalogs = catalogs
        self._tables = tables
        self._files = files
        self._tasks = tasks
        self._records = records
        self._teams = teams
        self._clock = clock

    def names(self, catalog: str | None = None) -> tuple[TableIdentifier, ...]:
        """Every known table, or those of one catalog, sorted."""
        return tuple(sorted(table for table in self._tables.seen() if catalog in (None, table.catalog)))

    def tables(self, catalog: str | None = None) -> tuple[TableOverview, ...]:
        """Every known table, or those of one catalog, sorted by name. Raises NotFoundError when the catalog is not registered."""
        if catalog is not None:
            self._catalogs.entry(catalog)
        return tuple(
            found.overview
            for found in tables_with_nodes(self._catalogs.entries(), self._tables, self._tasks, self._clock())
            if catalog in (None, found.overview.table.catalog)
        )

    def table(self, table: TableIdentifier, *, with_files: bool = False) -> TableDetail:
        """One whole table. Its files come only when asked for, because there may be a million. Raises NotFoundError when unknown."""
        entry = self._catalogs.entry(table.catalog)
        state = self._tables.state(table)
        open_tasks = self._tasks.open_tasks(table).get(table, NO_TASKS)
        nodes = worst_first(node_overviews(self._tables.nodes(table), state, entry, open_tasks))
        properties, error = _properties(state, entry)
        overview = table_overview(state, entry, nodes, open_tasks, overdue=commit_is_overdue(state, entry, open_tasks, self._clock()))
        return TableDetail(
            overview=replace(overview, warning=overview.warning or self._team_problem(state, entry)),
            properties=properties,
            property_error=error,
            write_properties_not_honoured=_not_honoured(state),
            nodes=nodes,
            files=self._sorted_files(table) if with_files else (),
            tasks=tuple(task for task in self._tasks.tasks(table, statuses=(*OPEN, TaskStatus.FAILED)) if not task.is_final),
            records=tuple(self._records.records(table, limit=SHOWN)),
            layout=state.layout,
            policies=state.policies,
            catalog_says=_catalog_says(state, entry),
        )

    def asset_reports(
        self, mapped: Mapping[TableIdentifier, AssetLevels], taken: Collection[AssetLevels]
    ) -> tuple[OwnAssets, tuple[AssetReport, ...]]:
        """The assets of users that stand for tables, and what each is told of its table now.

        A table's properties name its asset. `mapped` wins over them. `taken` are the program's own assets.
        """
        catalogs = {entry.name: entry for entry in self._catalogs.entries()}
        states = {state.table: state for state in self._tables.states()}
        assets = _own_assets(states, {name: entry.properties for name, entry in catalogs.items()}, mapped, taken)
        nodes = self._nodes_of(frozenset(assets.tables.values()))
        open_tasks = self._tasks.open_tasks() if assets.tables else {}
        reports, now = [], self._clock()
        for levels, table in assets.tables.items():
            state, entry = states[table], catalogs.get(table.catalog) or CatalogEntry(table.catalog, {})
            of_table = open_tasks.get(table, NO_TASKS)
            of_nodes = node_overviews(nodes.get(table, ()), state, entry, of_table)
            overdue = commit_is_overdue(state, entry, of_table, now)
            overview = table_overview(state, entry, of_nodes, of_table, overdue=overdue)
            reports.append(AssetReport(levels, overview, state.commits.landed))
        return assets, tuple(reports)

    def _nodes_of(self, tables: frozenset[TableIdentifier]) -> Mapping[TableIdentifier, Sequence[NodeState]]:
        """The nodes of these tables. A query for each of many tables would take longer than one query for all nodes."""
        if len(tables) <= _SINGLE_QUERIES:
            return {table: self._tables.nodes(table) for table in tables}
        return self._tables.nodes_of_tables()

    def node(self, key: str) -> tuple[TableIdentifier, TableNode]:
        """The table and the node that a node key names. Raises NotFoundError when unknown."""
        found = self._tables.node(key)
        return found.table, found.node

    def nodes(self, table: TableIdentifier) -> Mapping[str, TableNode]:
        """The table's nodes by their keys. An unknown table has none."""
        return {node.key: node.node for node in self._tables.nodes(table)}

    def named_nodes(self, table: TableIdentifier, names: Sequence[str]) -> frozenset[TableNode]:
        """The nodes of a table that these keys or texts name. Raises NotFoundError for a name that no node of the table has."""
        known = self.nodes(table)
        named = {**{str(node): node for node in known.values()}, **known}
        unknown = [name for name in names if name not in named]
        if unknown:
            raise NotFoundError(f"table {table} has no node {unknown[0]!r}: a plan of the whole table lists its nodes")
        return frozenset(named[name] for name in names)

    def _team_problem(self, state: KnownTable, entry: CatalogEntry) -> str | None:
        """Say that a table names a team that does not exist, which stops nothing, or that its team may begin nothing more now."""
        properties = state.layout.properties if state.layout is not None else {}
        named = named_team(state.table, properties, entry.properties, self._teams.mapping())
        standings = self._teams.standings()
        if named not in standings:
            return team_missing_text(named)
        held = standings[named].why_held
        return None if held is None else f"nothing new of its team begins: {held}"

    def _sorted_files(self, table: TableIdentifier) -> tuple[LiveFile, ...]:
        return tuple(sorted(self._files.files(table), key=lambda file: (str(file.node), file.content.value, file.path)))


def _own_assets(
    states: Mapping[TableIdentifier, KnownTable],
    catalogs: Mapping[str, Mapping[str, str]],
    mapped: Mapping[TableIdentifier, AssetLevels],
    taken: Collection[AssetLevels],
) -> OwnAssets:
    named: list[tuple[TableIdentifier, AssetLevels]] = []
    problems = []
    for table, state in states.items():
        properties = state.layout.properties if state.layout is not None else {}
        levels, problem = asset_key_of(properties, catalogs.get(table.catalog, {}), table)
        if table in mapped or levels:
            named.append((table, mapped.get(table, levels)))
        if problem is not None and table not in mapped:
            problems.append(problem)
    # The tables of a catalog are unknown until its first listing.
    listed = {table.catalog for table in states}
    problems += [
        f"attribute 'asset_keys' names {table}, but its catalog has no such table: correct the name"
        for table in sorted(mapped)
        if table not in states and table.catalog in listed
    ]
    return assign_assets(named, taken, problems)


def _catalog_says(state: KnownTable, entry: CatalogEntry) -> tuple[str, ...]:
    """What the catalog forbids, and what of its policies has no effect, a sentence for each."""
    properties = state.layout.properties if state.layout is not None else {}
    ban, policies = why_no_deletion(properties, entry.properties, {}), state.policies
    if policies is None:
        return (ban,) if ban is not None else ()
    forbidden = dict.fromkeys(why for kind in PolicyType if (why := policies.why_not(kind)) is not None)
    unknown = [f"the catalog does not tell its policies now: {policies.problem}"] if policies.problem is not None else []
    return (*([ban] if ban is not None else []), *forbidden, *unknown, *policies.ignored)


def _not_honoured(state: KnownTable) -> Mapping[str, str]:
    layout = state.layout
    if layout is None or layout.schema_id not in layout.schemas:
        return {}
    return not_honoured(layout.properties, layout.schemas[layout.schema_id])


def _properties(state: KnownTable, entry: CatalogEntry) -> tuple[TableProperties | None, str | None]:
    try:
        of_catalog = inherited(entry.properties, state.policies)
        return resolve_properties(state.layout.properties if state.layout is not None else {}, of_catalog, state.table), None
    except ConfigError as error:
        return None, str(error)
