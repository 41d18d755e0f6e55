"""The TableReader: reads everything that the state database knows of tables and of their nodes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from sqlalchemy import func, select

from compaction_pipeline.core.dependencies.center.figures import MissedEvents
from compaction_pipeline.core.dependencies.center.instances import Instance, InstanceState
from compaction_pipeline.core.dependencies.center.lineage import Alert
from compaction_pipeline.core.dependencies.standing import Standing
from compaction_pipeline.core.errors import NotFoundError
from compaction_pipeline.core.fragmentation.verdict import NodeState
from compaction_pipeline.core.insight.checks.jobs_start import ReadyJobs
from compaction_pipeline.core.insight.known_table import KnownTable
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.node_keys import long_key
from compaction_pipeline.core.tables.policies import TablePolicies
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.storage import schema
from compaction_pipeline.storage.center_rows import INSTANCE, instance_of, miscounted
from compaction_pipeline.storage.engine import batches, reading
from compaction_pipeline.storage.node_rows import node_state
from compaction_pipeline.storage.sql_store import SqlStore
from compaction_pipeline.storage.table_rows import IndexStateName, identifier_of, known_table, unknown

_NODES = select(schema.node, schema.node_key.c.key).join(schema.node_key, schema.node_key.c.identity == schema.node.c.identity)

_LAST_READ: Mapping[str, tuple[NodeState, ...]] = {}
"""The nodes of all tables as this process read them the last time, by their versions. A tick reads only nodes that changed since.

The ticks of Dagster open the state database anew each time, but they share a process. Versions are random, so those of two databases
differ too. The next read replaces the whole value, so nothing stays that is no longer needed.
"""

MOST_READY = 1_000
_LOCATED = (IndexStateName.COMPLETE, IndexStateName.EMPTY)


class SqlTableReader(SqlStore):
    """Tables and nodes in the state database."""

    def states(self, catalog: str | None = None) -> Sequence[KnownTable]:
        query = select(schema.table_state)
        if catalog is not None:
            query = query.where(schema.table_state.c.catalog == catalog)
        return tuple(sorted(map(known_table, self._rows(query)), key=lambda known: known.table))

    def with_uuid(self, table_uuid: str) -> Sequence[KnownTable]:
        query = select(schema.table_state).where(schema.table_state.c.table_uuid == table_uuid)
        return tuple(sorted(map(known_table, self._rows(query)), key=lambda known: known.table))

    def seen(self) -> Mapping[TableIdentifier, str | None]:
        columns = schema.table_state.c
        # This computes `KnownTable.metadata_location` in SQL, so that the layouts of a thousand tables need not be read.
        outdated = (columns.read_landed != columns.landed) | columns.read_id.is_not_distinct_from(columns.distrusted_read_id)
        trusted = (columns.index_state == IndexStateName.REFUSED) | (columns.index_state.in_(_LOCATED) & ~outdated)
        query = select(columns.identifier, columns.metadata_location, trusted.label("trusted"))
        return {identifier_of(row.identifier): row.metadata_location if row.trusted else None for row in self._rows(query)}

    def waiting_for_room(self) -> Mapping[TableIdentifier, datetime]:
        columns = schema.table_state.c
        query = select(columns.identifier, columns.queue_full_since).where(columns.queue_full_since.is_not(None))
        return {identifier_of(row.identifier): row.queue_full_since for row in self._rows(query)}

    def unread(self, tables: Collection[TableIdentifier]) -> Sequence[KnownTable]:
        columns = schema.table_state.c
        found: list[KnownTable] = []
        with reading(self._engine) as connection:
            for names in batches(list(map(str, tables))):
                query = select(schema.table_state).where(columns.identifier.in_(names), columns.index_state == IndexStateName.UNREAD)
                found += map(known_table, connection.execute(query))
        return found

    def policies(self, tables: Collection[TableIdentifier]) -> Mapping[TableIdentifier, tuple[str, TablePolicies | None]]:
        columns = schema.table_state.c
        found: dict[TableIdentifier, tuple[str, TablePolicies | None]] = {}
        with reading(self._engine) as connection:
            for names in batches(list(map(str, tables))):
                query = select(columns.identifier, columns.table_uuid, columns.policies)
                for row in connection.execute(query.where(columns.identifier.in_(names), columns.table_uuid.is_not(None))):
                    found[identifier_of(row.identifier)] = row.table_uuid, row.policies
        return found

    def known_uuids(self, uuids: Collection[str]) -> Collection[str]:
        found: set[str] = set()
        with reading(self._engine) as connection:
            for names in batches(list(uuids)):
                for column in (schema.table_state.c.table_uuid, schema.vanished.c.table_uuid):
                    found.update(connection.execute(select(column).where(column.in_(names))).scalars())
        return found

    def missed(self) -> Collection[TableIdentifier]:
        columns = schema.table_state.c
        return {identifier_of(row.identifier) for row in self._rows(select(columns.identifier).where(columns.unseen_rounds > 0))}

    def ready_jobs(self) -> ReadyJobs:
        ready = (INSTANCE.state == InstanceState.READY, INSTANCE.receiver.is_not(None))
        rows = self._rows(select(schema.center_instance).where(*ready).order_by(INSTANCE.ready_at, INSTANCE.id).limit(MOST_READY))
        by_receiver: dict[str, list[Instance]] = {}
        for row in rows:
            by_receiver.setdefault(row.receiver, []).append(instance_of(row))
        return ReadyJobs(by_receiver, int(self._values(miscounted())[0]))

    def missed_events(self, since: datetime) -> Sequence[MissedEvents]:
        columns = schema.center_missed.c
        of = (columns.detector, columns.name)
        found = select(*of, func.sum(columns.events).label("events"), func.max(columns.hour).label("last_at"))
        rows = self._rows(found.where(columns.hour > since).group_by(*of).order_by(*of))
        return tuple(MissedEvents(row.detector, row.name, int(row.events), row.last_at) for row in rows)

    def job_alerts(self) -> Sequence[Alert]:
        rows = self._rows(select(schema.center_alert).order_by(schema.center_alert.c.number))
        return tuple(Alert(row.job, row.owner, row.text) for row in rows)

    def standings(self, asked_since: datetime) -> Sequence[Standing]:
        columns = schema.ready_standing.c
        rows = self._rows(select(columns.value).where(columns.asked_at >= asked_since))
        return sorted((row.value for row in rows), key=lambda one: (str(one.table), one.writer))

    def state(self, table: TableIdentifier) -> KnownTable:
        row = self._first(select(schema.table_state).where(schema.table_state.c.identifier == str(table)))
        if row is None:
            raise unknown(table)
        return known_table(row)

    def nodes(self, table: TableIdentifier | None = None, only: Collection[TableNode] | None = None) -> Sequence[NodeState]:
        query = _NODES
        if table is not None:
            query = query.where(schema.node.c.identifier == str(table))
        queries = [query]
        if table is not None and only is not None:
            queries = [query.where(schema.node.c.identity.in_(batch)) for batch in batches([long_key(table, node) for node in only])]
        with reading(self._engine) as connection:
            found = [node_state(row) for each in queries for row in connection.execute(each)]
        return tuple(sorted(found, key=lambda node: node.key))

    def nodes_of_tables(self) -> Mapping[TableIdentifier, Sequence[NodeState]]:
        global _LAST_READ
        columns = schema.table_state.c
        with reading(self._engine) as connection:
            versions = {row.identifier: row.nodes_version for row in connection.execute(select(columns.identifier, columns.nodes_version))}
            known = {identifier: nodes for identifier, version in versions.items() if (nodes := _LAST_READ.get(version)) is not None}
            changed = {identifier: list[NodeState]() for identifier in versions if identifier not in known}
            for batch in batches(sorted(changed)):
                for row in connection.execute(_NODES.where(schema.node.c.identifier.in_(batch))):
                    changed[row.identifier].append(node_state(row))
        known.update((identifier, tuple(sorted(nodes, key=lambda node: node.key))) for identifier, nodes in changed.items())
        _LAST_READ = {version: known[identifier] for identifier, version in versions.items()}
        return {identifier_of(identifier): known[identifier] for identifier in versions}

    def node(self, key: str) -> NodeState:
        row = self._first(_NODES.where(schema.node_key.c.key == key))
        if row is None:
            raise NotFoundError(
                f"node {key!r} is not known; `compaction-pipeline table show TABLE` lists the nodes that its last refresh found"
            )
        return node_state(row)
