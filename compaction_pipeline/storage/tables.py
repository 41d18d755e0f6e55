"""TableStore: tables and their nodes.

A table's row is changed field by field (`update`), as refresh, plan and commit run beside each other and each owns some.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from functools import lru_cache
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy import Connection, Engine, Row, delete, insert, select, update

from compaction_pipeline.core.errors import NotFoundError
from compaction_pipeline.core.fragmentation.verdict import NodeState
from compaction_pipeline.core.planning.ports import TableState
from compaction_pipeline.core.queue.task import CompactionType
from compaction_pipeline.core.tables.node import TableNode, node_key
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.storage import schema
from compaction_pipeline.storage.engine import batches, lock, reading, upsert, writing
from compaction_pipeline.storage.removal import remove_table

_identifier = lru_cache(65_536)(TableIdentifier.parse)
_LAST_DONE: TypeAdapter[dict[CompactionType, datetime]] = TypeAdapter(dict[CompactionType, datetime])
_FIELDS = tuple(field.name for field in fields(TableState) if field.name != "table")
_UPDATABLE = frozenset(_FIELDS) - {"paused"}


class SqlTableStore:
    """Tables and nodes in the state database."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def states(self, catalog: str | None = None) -> Sequence[TableState]:
        query = select(schema.table_state).where(schema.table_state.c.dropped.is_(False))
        if catalog is not None:
            query = query.where(schema.table_state.c.catalog == catalog)
        with reading(self._engine) as connection:
            return tuple(sorted(map(_state, connection.execute(query)), key=lambda state: state.table))

    def seen(self) -> Mapping[TableIdentifier, str | None]:
        columns = schema.table_state.c
        query = select(columns.identifier, columns.metadata_location, columns.complete, columns.refusal).where(columns.dropped.is_(False))
        with reading(self._engine) as connection:
            return {
                _identifier(row.identifier): row.metadata_location if row.complete or row.refusal is not None else None
                for row in connection.execute(query)
            }

    def state(self, table: TableIdentifier) -> TableState:
        with reading(self._engine) as connection:
            row = connection.execute(select(schema.table_state).where(schema.table_state.c.identifier == str(table))).first()
        if row is None:
            raise _unknown(table)
        return _state(row)

    def save(self, state: TableState) -> None:
        values = {name: getattr(state, name) for name in _FIELDS if name != "paused"}
        with writing(self._engine) as connection:
            connection.execute(
                upsert(connection, schema.table_state)
                .values(identifier=str(state.table), catalog=state.table.catalog, paused=False, **values)
                .on_conflict_do_update(index_elements=["identifier"], set_=values)
            )

    def update(self, table: TableIdentifier, changes: Mapping[str, object]) -> None:
        unknown = sorted(set(changes) - _UPDATABLE)
        if unknown:
            raise ValueError(f"fields {unknown} of a TableState cannot be updated; these can: {sorted(_UPDATABLE)}")
        statement = update(schema.table_state).where(schema.table_state.c.identifier == str(table))
        with writing(self._engine) as connection:
            # The identifier stands for itself so that a change of nothing still finds out whether the table is known.
            if connection.execute(statement.values(identifier=str(table), **changes)).rowcount == 0:
                raise _unknown(table)

    def pause(self, table: TableIdentifier | None, paused: bool) -> int:
        rows = schema.table_state.c.identifier == str(table) if table is not None else schema.table_state.c.dropped.is_(False)
        with writing(self._engine) as connection:
            if table is not None and connection.execute(select(schema.table_state.c.identifier).where(rows)).first() is None:
                raise _unknown(table)
            changed = update(schema.table_state).where(rows, schema.table_state.c.paused.is_(not paused)).values(paused=paused)
            return connection.execute(changed).rowcount

    def forget(self, table: TableIdentifier) -> None:
        with writing(self._engine) as connection:
            remove_table(connection, str(table))

    def nodes(self, table: TableIdentifier | None = None, only: Collection[TableNode] | None = None) -> Sequence[NodeState]:
        query = select(schema.node)
        if table is not None:
            query = query.where(schema.node.c.identifier == str(table))
        queries = [query]
        if table is not None and only is not None:
            queries = [query.where(schema.node.c.key.in_(keys)) for keys in batches([node_key(table, node) for node in only])]
        with reading(self._engine) as connection:
            found = [_node(row) for each in queries for row in connection.execute(each)]
        return tuple(sorted(found, key=lambda node: node.key))

    def remove_nodes(self, table: TableIdentifier, nodes: Collection[TableNode]) -> None:
        if nodes:
            with writing(self._engine) as connection:
                lock(connection, f"nodes {table}")
                _delete(connection, [node_key(table, node) for node in nodes])

    def node(self, key: str) -> NodeState:
        with reading(self._engine) as connection:
            row = connection.execute(select(schema.node).where(schema.node.c.key == key)).first()
        if row is None:
            raise NotFoundError(
                f"node {key!r} is not known; `compaction-pipeline table show TABLE` lists the nodes that its last refresh found"
            )
        return _node(row)

    def save_nodes(self, table: TableIdentifier, nodes: Sequence[NodeState]) -> None:
        identifier = str(table)
        with writing(self._engine) as connection:
            lock(connection, f"nodes {identifier}")
            stored = _history(connection, identifier, [state.key for state in nodes])
            rows = [_row(identifier, state, *stored.get(state.key, (None, {}))) for state in nodes]
            _delete(connection, [row["key"] for row in rows if row["key"] in stored])
            for batch in batches(rows):
                connection.execute(insert(schema.node), list(batch))

    def mark_done(self, table: TableIdentifier, done: Sequence[tuple[TableNode, CompactionType]], at: datetime) -> None:
        identifier = str(table)
        with writing(self._engine) as connection:
            lock(connection, f"nodes {identifier}")
            stored = _history(connection, identifier, sorted({node_key(table, node) for node, _ in done}))
            changed: dict[str, dict[CompactionType, datetime]] = {}
            for node, kind in done:
                key = node_key(table, node)
                if key in stored:
                    before = changed.setdefault(key, dict(stored[key][1]))
                    before[kind] = max(at, before.get(kind, at))
            for key, last_done in changed.items():
                connection.execute(update(schema.node).where(schema.node.c.key == key).values(last_done=_text(last_done)))


def _unknown(table: TableIdentifier) -> NotFoundError:
    return NotFoundError(f"table {table} is not known; `compaction-pipeline table list` shows those that are")


def _state(row: Row[Any]) -> TableState:
    return TableState(_identifier(row.identifier), **{name: getattr(row, name) for name in _FIELDS})


def _node(row: Row[Any]) -> NodeState:
    return NodeState(
        _identifier(row.identifier),
        row.node,
        row.key,
        row.metrics,
        row.verdict,
        row.first_seen,
        _LAST_DONE.validate_json(row.last_done),
        row.changed_snapshot_id,
        row.failing,
    )


def _history(
    connection: Connection, identifier: str, keys: Sequence[str] | None
) -> dict[str, tuple[datetime | None, dict[CompactionType, datetime]]]:
    """First seen and last done of all stored nodes of a table, or of these."""
    query = select(schema.node.c.key, schema.node.c.first_seen, schema.node.c.last_done).where(schema.node.c.identifier == identifier)
    queries = [query] if keys is None else [query.where(schema.node.c.key.in_(batch)) for batch in batches(keys)]
    return {row.key: (row.first_seen, _LAST_DONE.validate_json(row.last_done)) for each in queries for row in connection.execute(each)}


def _row(identifier: str, state: NodeState, first_seen: datetime | None, last_done: Mapping[CompactionType, datetime]) -> dict[str, object]:
    # A refresh that read its nodes before a commit marked them must not set them back: the later moment stays.
    later = {kind: max(at, state.last_done.get(kind, at)) for kind, at in last_done.items()}
    return {
        "key": state.key,
        "identifier": identifier,
        "node": state.node,
        "metrics": state.metrics,
        "verdict": state.verdict,
        "first_seen": state.first_seen or first_seen,
        "last_done": _text({**state.last_done, **later}),
        "changed_snapshot_id": state.changed_snapshot_id,
        "failing": state.failing,
    }


def _text(last_done: Mapping[CompactionType, datetime]) -> str:
    return _LAST_DONE.dump_json(dict(last_done)).decode()


def _delete(connection: Connection, keys: Sequence[str]) -> None:
    for batch in batches(keys):
        connection.execute(delete(schema.node).where(schema.node.c.key.in_(batch)))
