"""The RecordStore: the history of commits, with a mark on each record that Dagster knows."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, delete, func, or_, select, update

from compaction_pipeline.core.commit.record import CompactionRecord, RecordStatus
from compaction_pipeline.core.errors import NotFoundError
from compaction_pipeline.core.ids import RecordId
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.storage import schema
from compaction_pipeline.storage.engine import batches, reading, upsert, writing
from compaction_pipeline.storage.sql_store import SqlStore
from compaction_pipeline.storage.table_rows import identifier_of

UNSETTLED = (RecordStatus.OPEN, RecordStatus.UNKNOWN)
ENDED = (RecordStatus.COMMITTED, RecordStatus.FAILED)

_record = schema.record.c


def _is_of_present_table(identifier: str) -> ColumnElement[bool]:
    """Leave out what is about a former table of this name. What is not settled stays: its outcome still decides about files."""
    known = schema.table_state.c
    uuid = select(known.table_uuid).where(known.identifier == identifier).scalar_subquery()
    return or_(_record.table_uuid.is_(None), uuid.is_(None), _record.table_uuid == uuid, _record.status.in_(UNSETTLED))


class SqlRecordStore(SqlStore):
    """CompactionRecords in the state database."""

    def save(self, record: CompactionRecord) -> None:
        values = {
            "identifier": str(record.table),
            "status": record.status,
            "created_at": record.created_at,
            "ended_at": record.ended_at,
            "merged_away": record.merged_away,
            "value": record,
        }
        with writing(self._engine) as connection:
            known = schema.table_state.c
            uuid = select(known.table_uuid).where(known.identifier == str(record.table)).scalar_subquery()
            connection.execute(
                upsert(connection, schema.record)
                .values(record_id=record.record_id, mirrored=False, table_uuid=uuid, **values)
                .on_conflict_do_update(index_elements=["record_id"], set_=values)
            )

    def record(self, record_id: RecordId) -> CompactionRecord:
        with reading(self._engine) as connection:
            found: CompactionRecord | None = connection.execute(select(_record.value).where(_record.record_id == record_id)).scalar()
        if found is None:
            raise NotFoundError(f"record {record_id!r} is not known; `compaction-pipeline record list` shows those that are")
        return found

    def records(
        self, table: TableIdentifier | None = None, limit: int | None = None, unsettled: bool = False, *, former: bool = False
    ) -> Sequence[CompactionRecord]:
        query = select(_record.value).order_by(_record.created_at.desc(), _record.record_id.desc())
        if table is not None:
            query = query.where(_record.identifier == str(table))
        if table is not None and not former:
            query = query.where(_is_of_present_table(str(table)))
        if unsettled:
            query = query.where(_record.status.in_(UNSETTLED))
        if limit is not None:
            query = query.limit(limit)
        return tuple(self._values(query))

    def merged_away(self) -> Mapping[TableIdentifier, int]:
        query = select(_record.identifier, func.sum(_record.merged_away)).group_by(_record.identifier)
        with reading(self._engine) as connection:
            # PostgreSQL returns sums as decimals.
            return {identifier_of(identifier): int(total) for identifier, total in connection.execute(query)}

    def unmirrored(self, limit: int) -> Sequence[CompactionRecord]:
        query = select(_record.value).where(_record.status.in_(ENDED), _record.mirrored.is_(False))
        return tuple(self._values(query.order_by(_record.created_at, _record.record_id).limit(limit)))

    def mark_mirrored(self, record_ids: Sequence[RecordId]) -> None:
        with writing(self._engine) as connection:
            for batch in batches(record_ids):
                connection.execute(update(schema.record).where(_record.record_id.in_(batch)).values(mirrored=True))

    def expire(self, before: datetime, kept: Collection[str] = ()) -> int:
        # An unsettled record never expires, because its outcome still decides the status of its tasks.
        old = select(_record.record_id).where(_record.status.in_(ENDED), func.coalesce(_record.ended_at, _record.created_at) < before)
        with writing(self._engine) as connection:
            gone = sorted(set(connection.execute(old).scalars()) - set(kept))
            for batch in batches(gone):
                connection.execute(delete(schema.record).where(_record.record_id.in_(batch)))
            # A vanished table is found again for as long as anything is known of it.
            connection.execute(delete(schema.vanished).where(schema.vanished.c.at < before))
        return len(gone)
