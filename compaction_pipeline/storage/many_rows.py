"""Writes many rows by one statement.

PostgreSQL gets each column as one array. To write out every value for it, and to have it parse them, takes longer than the work itself:
60,000 requirements took 1.6 CPU-seconds of this process as VALUES, and 0.5 as arrays. SQLite, which is in this process, takes row by row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Insert, Select, bindparam, func, select, update
from sqlalchemy.schema import Table

Rows = Sequence[Mapping[str, Any]]
"""At least one. All have the same columns, and none has one of JSON."""


def insert_rows(connection: Connection, insert: Insert, rows: Rows) -> Any:
    """Run an INSERT for rows, and return its result. With RETURNING, its rows come in any order."""
    if connection.dialect.name != "postgresql":
        return connection.execute(insert, rows)
    assert isinstance(insert.table, Table)
    return connection.execute(insert.from_select(list(rows[0]), _as_arrays(insert.table, rows)))


def update_rows(connection: Connection, table: Table, key: str, rows: Rows) -> None:
    """Set the columns of rows, each found by its `key`. No key comes twice."""
    names = [name for name in rows[0] if name != key]
    if connection.dialect.name != "postgresql":
        one = update(table).where(table.c[key] == bindparam(f"of_{key}")).values({name: bindparam(f"new_{name}") for name in names})
        connection.execute(one, [{f"of_{key}": row[key], **{f"new_{name}": row[name] for name in names}} for row in rows])
        return
    given = _as_arrays(table, rows).subquery("given")
    connection.execute(update(table).where(table.c[key] == given.c[key]).values({name: given.c[name] for name in names}))


def _as_arrays(table: Table, rows: Rows) -> Select[Any]:
    # The import takes a quarter of a second.
    from sqlalchemy.dialects.postgresql import ARRAY

    arrays = (bindparam(name, [row[name] for row in rows], type_=ARRAY(table.c[name].type)) for name in rows[0])
    return select(*(func.unnest(array).label(array.key) for array in arrays))
