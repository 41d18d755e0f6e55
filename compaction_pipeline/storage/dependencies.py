"""The DependencyStore: what heads of tables said, what manifests said of partitions, answers about readiness, and reports."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from hashlib import sha256

from sqlalchemy import Connection, case, delete, exists, insert, select, update

from compaction_pipeline.core.dependencies.answers import Answer
from compaction_pipeline.core.dependencies.center.subjects import TABLE
from compaction_pipeline.core.dependencies.judge import KnownPartition
from compaction_pipeline.core.dependencies.ports import (
    AwaitedAnswer,
    PartitionCommits,
    PartitionReading,
    ReadTo,
    Remembered,
    Report,
    ToldAs,
)
from compaction_pipeline.core.dependencies.standing import Standing
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.storage import schema
from compaction_pipeline.storage.columns import StoredRow
from compaction_pipeline.storage.engine import batches, lock, upsert, writing
from compaction_pipeline.storage.sql_store import SqlStore
from compaction_pipeline.storage.table_rows import identifier_of

_head, _reading, _partition = schema.ready_head.c, schema.ready_reading.c, schema.ready_partition.c
_subject = schema.center_subject.c
_answer, _report, _standing = schema.ready_answer.c, schema.ready_report.c, schema.ready_standing.c
MOST_HEADS = 20
"""After so many rollbacks in a row, what was said before the oldest of them is forgotten."""


class SqlDependencyStore(SqlStore):
    """The facts of readiness in the state database."""

    def remembered(self, uuid: str, store: int) -> Mapping[int, Remembered]:
        rows = self._rows(select(_head.snapshot_id, _head.value).where(_head.table_uuid == uuid, _head.store == store))
        return {row.snapshot_id: row.value for row in rows}

    def remember(self, uuid: str, store: int, snapshot_id: int, before: Remembered | None, after: Remembered, now: datetime) -> bool:
        values = {"at": now, "value": after}
        of_store = (_head.table_uuid == uuid, _head.store == store)
        with writing(self._engine) as connection:
            lock(connection, f"readiness of {uuid}")
            if connection.execute(select(_head.value).where(*of_store, _head.snapshot_id == snapshot_id)).scalar() != before:
                return False
            row = upsert(connection, schema.ready_head).values(table_uuid=uuid, store=store, snapshot_id=snapshot_id, **values)
            connection.execute(row.on_conflict_do_update(index_elements=["table_uuid", "store", "snapshot_id"], set_=values))
            newest_first = select(_head.snapshot_id).where(*of_store).order_by(_head.at.desc(), _head.snapshot_id)
            old = connection.execute(newest_first.offset(MOST_HEADS)).scalars().all()
            if old:
                connection.execute(delete(schema.ready_head).where(*of_store, _head.snapshot_id.in_(old)))
            return True

    def standings(self, uuid: str) -> Sequence[Standing]:
        rows = self._rows(select(_standing.value).where(_standing.table_uuid == uuid))
        # Databases order texts in ways of their own.
        return sorted((row.value for row in rows), key=lambda one: one.writer)

    def note_standings(self, uuid: str, found: Sequence[Standing]) -> None:
        rows = [{"table_uuid": uuid, "writer": one.writer, "asked_at": one.asked_at, "value": one} for one in found]
        with writing(self._engine) as connection:
            lock(connection, f"readiness of {uuid}")
            connection.execute(delete(schema.ready_standing).where(_standing.table_uuid == uuid))
            if rows:
                connection.execute(insert(schema.ready_standing), rows)

    def read_to(self, uuid: str) -> ReadTo | None:
        row = self._first(select(_reading.value).where(_reading.table_uuid == uuid))
        return None if row is None else row.value

    def partitions(self, uuid: str) -> Sequence[KnownPartition]:
        rows = self._rows(select(schema.ready_partition).where(_partition.table_uuid == uuid).order_by(_partition.place))
        return [KnownPartition(row.spec_id, row.partition, row.files, row.added_at, row.added_by) for row in rows]

    def note_reading(self, uuid: str, before: ReadTo | None, after: ReadTo, reading: PartitionReading, now: datetime) -> bool:
        with writing(self._engine) as connection:
            lock(connection, f"readiness of {uuid}")
            known = connection.execute(select(_reading.value).where(_reading.table_uuid == uuid)).scalar()
            if known != before:
                return False
            if reading.anew:
                connection.execute(delete(schema.ready_partition).where(_partition.table_uuid == uuid))
            for commits in batches(reading.commits):
                _add(connection, uuid, commits)
            values = {"at": now, "value": after}
            row = upsert(connection, schema.ready_reading).values(table_uuid=uuid, **values)
            connection.execute(row.on_conflict_do_update(index_elements=["table_uuid"], set_=values))
            return True

    def answers(self, uuid: str, whats: Collection[str]) -> Mapping[str, Answer]:
        found: dict[str, Answer] = {}
        for some in batches(list(whats)):
            rows = self._rows(select(_answer.what, _answer.value).where(_answer.table_uuid == uuid, _answer.what.in_(some)))
            found.update((row.what, row.value) for row in rows)
        return found

    def save_answers(self, table: TableIdentifier, uuid: str, answers: Sequence[Answer]) -> None:
        with writing(self._engine) as connection:
            for answer in answers:
                values = {"identifier": str(table), "asked_at": answer.asked_at, "value": answer}
                row = upsert(connection, schema.ready_answer).values(table_uuid=uuid, what=answer.what, **values)
                connection.execute(row.on_conflict_do_update(index_elements=["table_uuid", "what"], set_=values))

    def await_answers(self, uuid: str, whats: Collection[str], until: datetime, *, anew: bool) -> None:
        # What it was told is not forgotten: it must hear when that is taken back before it was told again.
        again = case((_answer.told_as == ToldAs.READY, ToldAs.READY_AGAIN.value), else_=_answer.told_as)
        values = {"awaited_until": until, **({"told_as": again} if anew else {})}
        with writing(self._engine) as connection:
            for some in batches(list(whats)):
                rows = update(schema.ready_answer).where(_answer.table_uuid == uuid, _answer.what.in_(some))
                connection.execute(rows.values(values))

    def awaited(self, now: datetime) -> Sequence[AwaitedAnswer]:
        return _awaited(self._rows(_AWAITED.where(_answer.awaited_until >= now)))

    def note_reported(self, table: TableIdentifier, now: datetime) -> None:
        of_table = (_answer.identifier == str(table), _answer.awaited_until >= now, ~_answer.reported)
        # Most reports are of tables that nobody awaits. A read holds up no other process.
        if self._first(select(_answer.what).where(*of_table).limit(1)) is not None:
            self._write(update(schema.ready_answer).where(*of_table).values(reported=True))
        of_center = (_subject.kind == TABLE, _subject.name == str(table), ~_subject.reported)
        if self._first(select(_subject.id).where(*of_center).limit(1)) is not None:
            self._write(update(schema.center_subject).where(*of_center).values(reported=True))

    def take_reported(self, now: datetime) -> Sequence[AwaitedAnswer]:
        of_now = (_answer.awaited_until >= now, _answer.reported)
        found: list[AwaitedAnswer] = []
        for some in batches([row.identifier for row in self._rows(select(_answer.identifier).where(*of_now).distinct())]):
            of_tables = _answer.identifier.in_(some)
            # What is reported from here on is noted anew.
            self._write(update(schema.ready_answer).where(of_tables).values(reported=False))
            found += _awaited(self._rows(_AWAITED.where(of_tables, _answer.awaited_until >= now)))
        return found

    def note_told(self, awaited: AwaitedAnswer, told: str, told_as: ToldAs) -> None:
        same = (_answer.table_uuid == awaited.uuid, _answer.what == awaited.what, _answer.awaited_until == awaited.until)
        self._write(update(schema.ready_answer).where(*same).values(told=told, told_as=told_as))

    def reports(self, uuid: str) -> Sequence[Report]:
        rows = self._rows(select(_report.what, _report.at).where(_report.table_uuid == uuid).order_by(_report.what))
        return [Report(row.what, row.at) for row in rows]

    def report(self, uuid: str, report: Report) -> None:
        with writing(self._engine) as connection:
            row = upsert(connection, schema.ready_report).values(table_uuid=uuid, what=report.what, at=report.at)
            connection.execute(row.on_conflict_do_update(index_elements=["table_uuid", "what"], set_={"at": report.at}))

    def withdraw(self, uuid: str, what: str) -> bool:
        return self._write(delete(schema.ready_report).where(_report.table_uuid == uuid, _report.what == what)) > 0

    def expire(self, before: datetime, reports_before: datetime) -> None:
        with writing(self._engine) as connection:
            connection.execute(delete(schema.ready_answer).where(_answer.asked_at < before))
            connection.execute(delete(schema.ready_report).where(_report.at < reports_before))
            connection.execute(delete(schema.ready_standing).where(_standing.asked_at < before))
            # A head and a reading are as old as the newest commit. Of a table that somebody still asks about, they stay.
            asked = select(_answer.table_uuid)
            connection.execute(delete(schema.ready_head).where(_head.at < before, _head.table_uuid.not_in(asked)))
            # Partitions are counted on from the reading before, so they go together with it.
            connection.execute(delete(schema.ready_reading).where(_reading.at < before, _reading.table_uuid.not_in(asked)))
            is_read = exists().where(_reading.table_uuid == _partition.table_uuid)
            connection.execute(delete(schema.ready_partition).where(~is_read))


_AWAITED = select(_answer.identifier, _answer.table_uuid, _answer.what, _answer.awaited_until, _answer.told, _answer.told_as).order_by(
    _answer.identifier, _answer.table_uuid, _answer.what
)


def _awaited(rows: Sequence[StoredRow]) -> Sequence[AwaitedAnswer]:
    return [
        AwaitedAnswer(identifier_of(row.identifier), row.table_uuid, row.what, row.awaited_until, row.told, row.told_as) for row in rows
    ]


def _add(connection: Connection, uuid: str, commits: Sequence[PartitionCommits]) -> None:
    """Add what was committed to these partitions. The caller holds the lock of the table's readiness."""
    places = {_place(one): one for one in commits}
    rows = select(schema.ready_partition).where(_partition.table_uuid == uuid, _partition.place.in_(list(places)))
    known = {row.place: row for row in connection.execute(rows)}
    fresh = [_row(uuid, place, one, one.files) for place, one in places.items() if place not in known]
    if fresh:
        connection.execute(insert(schema.ready_partition), fresh)
    for place, before in known.items():
        one = places[place]
        after = _row(uuid, place, one, before.files + one.files)
        if one.added_at is None:
            del after["added_at"], after["added_by"]
        elif before.added_at is not None:
            # Writers' clocks differ. A later commit by a slow one makes the partition no quieter.
            after["added_at"] = max(before.added_at, one.added_at)
        connection.execute(update(schema.ready_partition).where(_partition.table_uuid == uuid, _partition.place == place).values(after))


def _row(uuid: str, place: str, one: PartitionCommits, files: int) -> dict[str, object]:
    where = {"table_uuid": uuid, "place": place, "spec_id": one.spec_id, "partition": one.partition}
    return {**where, "files": files, "added_at": one.added_at, "added_by": one.added_by}


def _place(one: PartitionCommits) -> str:
    """Tells partitions of a table apart, as `PartitionValue` does: by their specs, names and values, not by types."""
    values = [(value.name, repr(value.value)) for value in one.partition]
    return sha256(repr((one.spec_id, values)).encode()).hexdigest()
