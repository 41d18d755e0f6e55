"""The NodeKeyStore: the key of every node that was ever known."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from sqlalchemy import Connection, insert, select

from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.node_keys import long_key, new_keys
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.storage import schema
from compaction_pipeline.storage.engine import batches, lock, reading, writing
from compaction_pipeline.storage.sql_store import SqlStore

_COLUMNS = schema.node_key.c


class SqlNodeKeyStore(SqlStore):
    """Keys in the state database."""

    def keys(self, table: TableIdentifier, nodes: Collection[TableNode]) -> Mapping[TableNode, str]:
        with reading(self._engine) as connection:
            keys = _stored(connection, table, nodes)
        if len(keys) == len(set(nodes)):
            return keys
        with writing(self._engine) as connection:
            return give_keys(connection, table, nodes)


def give_keys(connection: Connection, table: TableIdentifier, nodes: Iterable[TableNode]) -> Mapping[TableNode, str]:
    """Return the keys of these nodes, and give one to each node that has none.

    Call this last in a transaction. On PostgreSQL it keeps other processes from giving keys until the transaction ends.
    """
    wanted = set(nodes)
    keys = _stored(connection, table, wanted)
    if len(keys) == len(wanted):
        return keys
    lock(connection, "node keys")
    # Another process may have given some of them before this one got the lock.
    keys = _stored(connection, table, wanted)
    given = new_keys(table, wanted - keys.keys(), lambda wanted_keys: _taken(connection, wanted_keys))
    rows = [{"identity": long_key(table, node), "key": key} for node, key in given.items()]
    for batch in batches(rows):
        connection.execute(insert(schema.node_key), list(batch))
    return {**keys, **given}


def _stored(connection: Connection, table: TableIdentifier, nodes: Collection[TableNode]) -> dict[TableNode, str]:
    by_identity = {long_key(table, node): node for node in nodes}
    return {
        by_identity[row.identity]: row.key
        for batch in batches(list(by_identity))
        for row in connection.execute(select(_COLUMNS.identity, _COLUMNS.key).where(_COLUMNS.identity.in_(batch)))
    }


def _taken(connection: Connection, keys: Sequence[str]) -> set[str]:
    return {key for batch in batches(keys) for key in connection.execute(select(_COLUMNS.key).where(_COLUMNS.key.in_(batch))).scalars()}
