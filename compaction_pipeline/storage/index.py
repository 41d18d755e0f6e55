"""The IndexStore: the state of each table's index of files, and the figures of its nodes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy import Connection, bindparam, delete, insert, select, update

from compaction_pipeline.core.tables.figures import MeasuredNode
from compaction_pipeline.core.tables.index import TableIndex
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.node_keys import long_key
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.storage import schema
from compaction_pipeline.storage.engine import batches, lock, upsert, writing
from compaction_pipeline.storage.node_keys import give_keys
from compaction_pipeline.storage.node_rows import last_done_text, new_version, note_change
from compaction_pipeline.storage.orphans import note_places
from compaction_pipeline.storage.removal import keep_uuid, remove_table
from compaction_pipeline.storage.sql_store import SqlStore
from compaction_pipeline.storage.switches import end_kept_pauses, keep_pause, lock_new_tables, new_tables_paused
from compaction_pipeline.storage.table_rows import index_columns, unknown


class SqlIndexStore(SqlStore):
    """Indexes and figures in the state database."""

    def add(self, table: TableIdentifier) -> None:
        with writing(self._engine) as connection:
            add_tables(connection, [table])

    def save(self, index: TableIndex, version: str) -> str | None:
        columns = schema.table_state.c
        is_table, new = columns.identifier == str(index.table), new_version()
        statement = update(schema.table_state).where(is_table, columns.index_version == version)
        with writing(self._engine) as connection:
            if connection.execute(statement.values({**index_columns(index), "index_version": new})).rowcount:
                note_places(connection, index)
                return new
            if connection.execute(select(columns.identifier).where(is_table)).first() is None:
                raise unknown(index.table)
        return None

    def save_all(self, indexes: Sequence[tuple[TableIndex, str]]) -> Collection[TableIdentifier]:
        columns = schema.table_state.c
        versions = {str(index.table): version for index, version in indexes}
        with writing(self._engine) as connection:
            # Tables are locked in the order of their names, as everywhere.
            query = select(columns.identifier, columns.index_version).order_by(columns.identifier).with_for_update()
            same: set[str] = set()
            for names in batches(sorted(versions)):
                rows = connection.execute(query.where(columns.identifier.in_(names)))
                same.update(row.identifier for row in rows if row.index_version == versions[row.identifier])
            saved = [index for index, _ in indexes if str(index.table) in same]
            values = [{"_table": str(index.table), **index_columns(index), "index_version": new_version()} for index in saved]
            if values:
                names_of = [name for name in values[0] if name != "_table"]
                statement = update(schema.table_state).where(columns.identifier == bindparam("_table"))
                connection.execute(statement.values({name: bindparam(name, type_=columns[name].type) for name in names_of}), values)
                note_places(connection, *saved)
        return frozenset(index.table for index in saved)

    def begin_anew(self, table: TableIdentifier, version: str) -> str | None:
        columns = schema.table_state.c
        query = select(columns.paused).where(columns.identifier == str(table), columns.index_version == version)
        with writing(self._engine) as connection:
            # The row is locked, so that nobody pauses the table between this look and the new row.
            row = connection.execute(query.with_for_update()).first()
            if row is None:
                return None
            keep_uuid(connection, str(table))
            remove_table(connection, str(table))
            new = _new_row(table)
            connection.execute(insert(schema.table_state).values({**new, "paused": row.paused}))
        return str(new["index_version"])

    def forget(self, table: TableIdentifier) -> None:
        with writing(self._engine) as connection:
            keep_pause(connection, str(table))
            keep_uuid(connection, str(table))
            remove_table(connection, str(table))

    def save_figures(self, table: TableIdentifier, nodes: Sequence[MeasuredNode], now: datetime) -> None:
        with writing(self._engine) as connection:
            statement = upsert(connection, schema.node)
            statement = statement.on_conflict_do_update(
                index_elements=["identity"],
                set_={name: statement.excluded[name] for name in ("metrics", "changed_snapshot_id", "small_since", "overlap_depth")},
            )
            lock(connection, f"nodes {table}")
            note_change(connection, table)
            for batch in batches([_node_row(table, node, now) for node in nodes]):
                connection.execute(statement, list(batch))
            give_keys(connection, table, [node.node for node in nodes])

    def remove_nodes(self, table: TableIdentifier, nodes: Collection[TableNode]) -> None:
        if nodes:
            with writing(self._engine) as connection:
                lock(connection, f"nodes {table}")
                note_change(connection, table)
                _delete(connection, [long_key(table, node) for node in nodes])

    def forget_verdicts(self, table: TableIdentifier) -> None:
        with writing(self._engine) as connection:
            lock(connection, f"nodes {table}")
            note_change(connection, table)
            connection.execute(update(schema.node).where(schema.node.c.identifier == str(table)).values(verdict=None))


def add_tables(connection: Connection, tables: Sequence[TableIdentifier]) -> None:
    """Add these tables as unread, in the caller's transaction. Tables that are known already do not change."""
    lock_new_tables(connection)
    statement = upsert(connection, schema.table_state).on_conflict_do_nothing(index_elements=["identifier"])
    by_name = {str(table): table for table in tables}
    # All processes lock rows in the order of their names.
    for batch in batches(sorted(map(str, tables))):
        paused = new_tables_paused(connection, batch)
        connection.execute(statement, [{**_new_row(by_name[name]), "paused": name in paused} for name in batch])
        end_kept_pauses(connection, batch)


def _new_row(table: TableIdentifier) -> dict[str, object]:
    return {
        "identifier": str(table),
        "catalog": table.catalog,
        "index_version": new_version(),
        "nodes_version": new_version(),
        **index_columns(TableIndex(table)),
    }


def _node_row(table: TableIdentifier, node: MeasuredNode, now: datetime) -> dict[str, object]:
    return {
        "identity": long_key(table, node.node),
        "identifier": str(table),
        "node": node.node,
        "metrics": node.metrics,
        "first_seen": now,
        "last_done": last_done_text({}),
        "changed_snapshot_id": node.changed_snapshot_id,
        "small_since": node.small_since,
        "overlap_depth": node.overlap_depth,
    }


def _delete(connection: Connection, identities: Sequence[str]) -> None:
    for batch in batches(identities):
        connection.execute(delete(schema.node).where(schema.node.c.identity.in_(batch)))
