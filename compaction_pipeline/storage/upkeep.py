"""The UpkeepStore: what expiries did, and what was seen of each store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from sqlalchemy import delete, select

from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.upkeep.record import ENDED, UpkeepRecord
from compaction_pipeline.core.upkeep.sightings import Sightings
from compaction_pipeline.storage import schema
from compaction_pipeline.storage.engine import upsert, writing
from compaction_pipeline.storage.sql_store import SqlStore
from compaction_pipeline.storage.table_rows import identifier_of

_record, _sightings = schema.upkeep_record.c, schema.sightings.c


class SqlUpkeepStore(SqlStore):
    """UpkeepRecords and sightings in the state database."""

    def save(self, record: UpkeepRecord) -> None:
        values = {
            "identifier": str(record.table),
            "status": record.status,
            "created_at": record.created_at,
            "ended_at": record.ended_at,
            "value": record,
        }
        with writing(self._engine) as connection:
            connection.execute(
                upsert(connection, schema.upkeep_record)
                .values(record_id=record.record_id, **values)
                .on_conflict_do_update(index_elements=["record_id"], set_=values)
            )

    def records(self, table: TableIdentifier | None = None, limit: int | None = None, under_way: bool = False) -> Sequence[UpkeepRecord]:
        query = select(_record.value).order_by(_record.created_at.desc(), _record.record_id.desc())
        if table is not None:
            query = query.where(_record.identifier == str(table))
        if under_way:
            query = query.where(_record.status.not_in(ENDED))
        return tuple(self._values(query if limit is None else query.limit(limit)))

    def expire(self, before: datetime) -> int:
        return self._write(delete(schema.upkeep_record).where(_record.status.in_(ENDED), _record.ended_at < before))

    def sightings(self, store: TableIdentifier) -> Sightings | None:
        row = self._first(select(_sightings.value).where(_sightings.identifier == str(store)))
        return None if row is None else row.value

    def all_sightings(self) -> Mapping[TableIdentifier, Sightings]:
        return {identifier_of(row.identifier): row.value for row in self._rows(select(schema.sightings))}

    def note(self, store: TableIdentifier, sightings: Sightings | None) -> None:
        identifier = str(store)
        if sightings is None:
            self._write(delete(schema.sightings).where(_sightings.identifier == identifier))
            return
        with writing(self._engine) as connection:
            row = upsert(connection, schema.sightings).values(identifier=identifier, value=sightings)
            connection.execute(row.on_conflict_do_update(index_elements=["identifier"], set_={"value": sightings}))
