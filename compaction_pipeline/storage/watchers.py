"""The WatcherStore: servers and keepers, and since when each has been there without a break."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import delete, select

from compaction_pipeline.core.queue.watchers import FORGOTTEN_AFTER, Watcher, WatcherKind, renewed
from compaction_pipeline.storage import schema
from compaction_pipeline.storage.engine import upsert, writing
from compaction_pipeline.storage.sql_store import SqlStore

_watcher = schema.watcher.c


class SqlWatcherStore(SqlStore):
    """Watchers in the state database."""

    def renew(self, name: str, kind: WatcherKind, now: datetime, gap: timedelta) -> None:
        with writing(self._engine) as connection:
            row = connection.execute(select(schema.watcher).where(_watcher.name == name)).first()
            if row is None:
                connection.execute(delete(schema.watcher).where(_watcher.renewed_at < now - FORGOTTEN_AFTER))
            watcher = renewed(None if row is None else Watcher(**row._mapping), name, kind, now, gap)
            values = {"kind": watcher.kind, "since": watcher.since, "renewed_at": watcher.renewed_at}
            statement = upsert(connection, schema.watcher).values(name=name, **values)
            connection.execute(statement.on_conflict_do_update(index_elements=["name"], set_=values))

    def watchers(self) -> Sequence[Watcher]:
        return tuple(Watcher(**row._mapping) for row in self._rows(select(schema.watcher).order_by(_watcher.name)))
