"""Finds out whether the state database takes writes now.

A read would not tell: in WAL mode, SQLite reads while somebody holds its write lock.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

from sqlalchemy import Engine, text

from compaction_pipeline.core.errors import StorageUnavailable
from compaction_pipeline.storage.engine import reachable, shown


def begin_write(engine: Engine, within: timedelta) -> None:
    """Begin an empty write transaction, and end it. It waits at most `within` for other transactions.

    Raises StorageUnavailable when the database does not answer, when it takes no writes, or when another transaction holds it for longer.
    """
    with reachable(engine):
        if engine.dialect.name == "postgresql":
            _begin_on_postgres(engine, within)
        else:
            _begin_on_sqlite(engine, within)


def _begin_on_postgres(engine: Engine, within: timedelta) -> None:
    milliseconds = int(within / timedelta(milliseconds=1))
    with engine.connect() as connection, connection.begin():
        connection.execute(text(f"SET LOCAL statement_timeout = {milliseconds}"))
        standby, read_only = connection.execute(text("SELECT pg_is_in_recovery(), current_setting('transaction_read_only') = 'on'")).one()
    if standby or read_only:
        why = "it is a standby, in recovery" if standby else "it is read-only"
        raise StorageUnavailable(f"the state database {shown(engine)} takes no writes: {why}; name the primary in COMPACTION_STATE_URL")


def _begin_on_sqlite(engine: Engine, within: timedelta) -> None:
    # Connections of the engine wait for half a minute. `mode=rw` does not make a file that somebody has deleted.
    path = Path(engine.url.database or "").absolute()
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True, timeout=within.total_seconds())) as connection:
            connection.isolation_level = None
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
    except sqlite3.Error as error:
        raise StorageUnavailable(
            f"the state database {shown(engine)} takes no writes: {error} (waited for {within.total_seconds():g} s); see which process "
            "holds it, and that it can be written"
        ) from error
