"""The CommitsStore: the state of each table's commits, and when work was last done on each node."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime

from sqlalchemy import select, update

from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.node_keys import long_key
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.storage import schema
from compaction_pipeline.storage.engine import batches, lock, writing
from compaction_pipeline.storage.node_rows import last_done_of, last_done_text, note_change, update_nodes
from compaction_pipeline.storage.sql_store import SqlStore
from compaction_pipeline.storage.table_rows import unknown

LastDone = Mapping[CompactionType, datetime]
"""When each type of work was last done on a node."""


class SqlCommitsStore(SqlStore):
    """The state of commits in the state database. Their records are stored by `storage/records.py`."""

    def note_landed(self, table: TableIdentifier, at: datetime) -> None:
        landed = schema.table_state.c.landed + 1
        self._change(table, landed=landed, last_committed_at=at, commit_problem=None, commit_failures=0, commit_retry_at=None)

    def note_failure(self, table: TableIdentifier, problem: str, failures: int, retry_at: datetime) -> None:
        self._change(table, commit_problem=problem, commit_failures=failures, commit_retry_at=retry_at)

    def _change(self, table: TableIdentifier, **values: object) -> None:
        statement = update(schema.table_state).where(schema.table_state.c.identifier == str(table))
        with writing(self._engine) as connection:
            if connection.execute(statement.values(values)).rowcount == 0:
                raise unknown(table)

    def mark_done(self, table: TableIdentifier, done: Sequence[tuple[TableNode, CompactionType]], at: datetime) -> None:
        def with_done(before: LastDone, kinds: Collection[CompactionType]) -> LastDone:
            return {**before, **{kind: max(at, before.get(kind, at)) for kind in kinds}}

        self._change_done(table, done, with_done)

    def forget_done(
        self, table: TableIdentifier, done: Sequence[tuple[TableNode, CompactionType]], since: datetime, until: datetime
    ) -> None:
        def without(before: LastDone, kinds: Collection[CompactionType]) -> LastDone:
            return {kind: at for kind, at in before.items() if kind not in kinds or not since <= at <= until}

        self._change_done(table, done, without)

    def _change_done(
        self,
        table: TableIdentifier,
        done: Sequence[tuple[TableNode, CompactionType]],
        change: Callable[[LastDone, Collection[CompactionType]], LastDone],
    ) -> None:
        columns = schema.node.c
        kinds: dict[str, list[CompactionType]] = {}
        for node, kind in done:
            kinds.setdefault(long_key(table, node), []).append(kind)
        with writing(self._engine) as connection:
            lock(connection, f"nodes {table}")
            note_change(connection, table)
            rows: list[dict[str, object]] = []
            for batch in batches(sorted(kinds)):
                for row in connection.execute(select(columns.identity, columns.last_done).where(columns.identity.in_(batch))):
                    after = change(last_done_of(row.last_done), kinds[row.identity])
                    rows.append({"identity": row.identity, "last_done": last_done_text(after)})
            update_nodes(connection, rows)
