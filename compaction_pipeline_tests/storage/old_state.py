"""A state database that the commit 77fcefb wrote, with tables in every state, and with tasks of every action and status.

`state_0026/` holds it as the statements of SQLite's `.dump` and of `pg_dump --inserts`.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from sqlalchemy import make_url

from compaction_pipeline.storage.engine import open_state, writing

VERSION = "0026"
_STATEMENTS = Path(__file__).parent / "state_0026"


def make_old_state(url: str) -> None:
    """Write it into this empty database."""
    parsed = make_url(url)
    if parsed.get_backend_name() == "sqlite":
        with closing(sqlite3.connect(str(parsed.database))) as connection:
            connection.executescript((_STATEMENTS / "sqlite.sql").read_text())
        return
    with writing(open_state(url)) as connection:
        # The driver itself, because `:` in a text is no parameter.
        connection.connection.cursor().execute((_STATEMENTS / "postgresql.sql").read_text())
