"""The UpkeepStore: what works of upkeep did, what was seen of stores, the last turns of tables, and registered consumers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Select, Table, delete, select

from compaction_pipeline.core.ids import RecordId
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.upkeep.commit_record import UpkeepCommit
from compaction_pipeline.core.upkeep.consumers import Consumer
from compaction_pipeline.core.upkeep.record import ENDED, UpkeepRecord
from compaction_pipeline.core.upkeep.sightings import Sightings
from compaction_pipeline.core.upkeep.turns import Turn
from compaction_pipeline.core.upkeep.works import UpkeepWork
from compaction_pipeline.storage import schema
from compaction_pipeline.storage.engine import upsert, writing
from compaction_pipeline.storage.moves import set_consumer_aside
from compaction_pipeline.storage.sql_store import SqlStore
from compaction_pipeline.storage.table_rows import identifier_of

_sightings, _turn, _consumer = schema.sightings.c, schema.upkeep_turn.c, schema.consumer.c


class SqlUpkeepStore(SqlStore):
    """Records, sightings, turns and consumers in the state database."""

    def save(self, record: UpkeepRecord) -> None:
        self._save(schema.upkeep_record, record)

    def records(self, table: TableIdentifier | None = None, limit: int | None = None, under_way: bool = False) -> Sequence[UpkeepRecord]:
        return tuple(self._values(_newest(schema.upkeep_record, table, limit, under_way)))

    def save_commit(self, record: UpkeepCommit) -> None:
        self._save(schema.upkeep_commit, record)

    def commits(self, table: TableIdentifier | None = None, limit: int | None = None, under_way: bool = False) -> Sequence[UpkeepCommit]:
        return tuple(self._values(_newest(schema.upkeep_commit, table, limit, under_way)))

    def forget_commit(self, record_id: RecordId) -> None:
        self._write(delete(schema.upkeep_commit).where(schema.upkeep_commit.c.record_id == record_id))

    def expire(self, before: datetime) -> int:
        self._write(delete(schema.consumer).where(_consumer.until < before))
        self._write(delete(schema.upkeep_turn).where(_turn.at < before))
        both = (schema.upkeep_record, schema.upkeep_commit)
        return sum(self._write(delete(one).where(one.c.status.in_(ENDED), one.c.ended_at < before)) for one in both)

    def turns(self, work: UpkeepWork) -> Mapping[TableIdentifier, Turn]:
        rows = self._rows(select(schema.upkeep_turn).where(_turn.work == work))
        return {identifier_of(row.identifier): Turn(row.at, row.metadata_location, row.next_look) for row in rows}

    def note_turn(self, table: TableIdentifier, work: UpkeepWork, turn: Turn) -> None:
        values = {"at": turn.at, "metadata_location": turn.metadata_location, "next_look": turn.next_look}
        with writing(self._engine) as connection:
            row = upsert(connection, schema.upkeep_turn).values(identifier=str(table), work=work, **values)
            connection.execute(row.on_conflict_do_update(index_elements=["identifier", "work"], set_=values))

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

    def consumers(self) -> Sequence[Consumer]:
        return sorted(self._values(select(_consumer.value)), key=lambda one: (one.table, one.name))

    def set_consumer(self, consumer: Consumer) -> None:
        key = {"identifier": str(consumer.table), "name": consumer.name}
        values = {"until": consumer.until, "value": consumer}
        with writing(self._engine) as connection:
            set_consumer_aside(connection, consumer)
            row = upsert(connection, schema.consumer).values(**key, **values)
            connection.execute(row.on_conflict_do_update(index_elements=list(key), set_=values))

    def remove_consumer(self, table: TableIdentifier, name: str) -> None:
        self._write(delete(schema.consumer).where(_consumer.identifier == str(table), _consumer.name == name))

    def _save(self, records: Table, record: UpkeepRecord | UpkeepCommit) -> None:
        values = {
            "identifier": str(record.table),
            "status": record.status,
            "created_at": record.created_at,
            "ended_at": record.ended_at,
            "value": record,
        }
        with writing(self._engine) as connection:
            row = upsert(connection, records).values(record_id=record.record_id, **values)
            connection.execute(row.on_conflict_do_update(index_elements=["record_id"], set_=values))


def _newest(records: Table, table: TableIdentifier | None, limit: int | None, under_way: bool) -> Select[Any]:
    """The query of records of one kind, newest first."""
    query = select(records.c.value).order_by(records.c.created_at.desc(), records.c.record_id.desc())
    if table is not None:
        query = query.where(records.c.identifier == str(table))
    if under_way:
        query = query.where(records.c.status.not_in(ENDED))
    return query if limit is None else query.limit(limit)
