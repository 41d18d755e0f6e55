"""The LeaseStore: a lease lets one owner alone do something to a table. One compare-and-set takes or renews it."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import delete, select, update

from compaction_pipeline.core.leases.holders import LeaseHolder
from compaction_pipeline.core.leases.timeouts import expires_at
from compaction_pipeline.storage import schema
from compaction_pipeline.storage.engine import upsert, writing
from compaction_pipeline.storage.sql_store import SqlStore

_lease = schema.lease.c


class SqlLeaseStore(SqlStore):
    """Named leases in the state database."""

    def acquire(self, name: str, owner: str, now: datetime, lease: timedelta) -> bool:
        """True when the lease was free. It is refused to its present owner too, so two threads of one owner exclude each other."""
        values = {"owner": owner, "expires_at": expires_at(now, lease)}
        with writing(self._engine) as connection:
            taken = (
                upsert(connection, schema.lease)
                .values(name=name, **values)
                .on_conflict_do_update(index_elements=["name"], set_=values, where=_lease.expires_at <= now)
            )
            return bool(connection.execute(taken).rowcount == 1)

    def holder(self, name: str, now: datetime) -> LeaseHolder | None:
        row = self._first(select(schema.lease).where(_lease.name == name, _lease.expires_at > now))
        return None if row is None else LeaseHolder(row.owner, row.expires_at)

    def renew(self, name: str, owner: str, now: datetime, lease: timedelta) -> bool:
        """True unless another owner took the lease. An owner that is late may still renew it."""
        held = update(schema.lease).where(_lease.name == name, _lease.owner == owner)
        return self._write(held.values(expires_at=expires_at(now, lease))) == 1

    def release(self, name: str, owner: str) -> None:
        self._write(delete(schema.lease).where(_lease.name == name, _lease.owner == owner))
