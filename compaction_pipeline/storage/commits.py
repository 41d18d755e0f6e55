"""The CommitsStore: the state of each table's commits, and when work was last done on each node."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Engine, select, update

from compaction_pipeline.core.commit.table_commits import TableCommits
from compaction_pipeline.core.queue.task import CompactionType
from compaction_pipeline.core.tables.node import TableNode, node_key
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.storage import schema
from compaction_pipeline.storage.engine import batches, lock, writing
from compaction_pipeline.storage.node_rows import last_done_of, last_done_text, update_nodes
from compaction_pipeline.storage.table_rows import commits_columns, unknown


class SqlCommitsStore:
    """The state of commits in the state database. Their records are stored by `storage/records.py`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def save(self, table: TableIdentifier, commits: TableCommits) -> None:
        statement = update(schema.table_state).where(schema.table_state.c.identifier == str(table))
        with writing(self._engine) as connection:
            if connection.execute(statement.values(commits_columns(commits))).rowcount == 0:
                raise unknown(table)

    def mark_done(self, table: TableIdentifier, done: Sequence[tuple[TableNode, CompactionType]], at: datetime) -> None:
        columns = schema.node.c
        kinds: dict[str, list[CompactionType]] = {}
        for node, kind in done:
            kinds.setdefault(node_key(table, node), []).append(kind)
        with writing(self._engine) as connection:
            lock(connection, f"nodes {table}")
            rows: list[dict[str, object]] = []
            for keys in batches(sorted(kinds)):
                for row in connection.execute(select(columns.key, columns.last_done).where(columns.key.in_(keys))):
                    before = last_done_of(row.last_done)
                    after = {**before, **{kind: max(at, before.get(kind, at)) for kind in kinds[row.key]}}
                    rows.append({"key": row.key, "last_done": last_done_text(after)})
            update_nodes(connection, rows)
