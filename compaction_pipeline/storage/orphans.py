"""The OrphanStore: looks for orphan files, their deletions, and the places where tables were ever seen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, Connection, and_, delete, select, update

from compaction_pipeline.core.tables.index import Complete, Empty, TableIndex
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.upkeep.foreign_roots import ForeignRoots
from compaction_pipeline.core.upkeep.orphan_looks import OrphanDeletion, OrphanLook, Place
from compaction_pipeline.storage import schema
from compaction_pipeline.storage.engine import upsert, writing
from compaction_pipeline.storage.sql_store import SqlStore
from compaction_pipeline.storage.table_rows import identifier_of

_look, _deletion, _place = schema.orphan_look.c, schema.orphan_deletion.c, schema.table_place.c


class SqlOrphanStore(SqlStore):
    """Looks, deletions and places in the state database."""

    def save_look(self, look: OrphanLook) -> None:
        values = {"is_done": look.is_done, "value": look}
        with writing(self._engine) as connection:
            row = upsert(connection, schema.orphan_look).values(identifier=str(look.table), listed_at=look.found.listed_at, **values)
            connection.execute(row.on_conflict_do_update(index_elements=["identifier", "listed_at"], set_=values))

    def looks(self, table: TableIdentifier) -> Sequence[OrphanLook]:
        return self._values(select(_look.value).where(_look.identifier == str(table)).order_by(_look.listed_at.desc()))

    def newest_look(self, table: TableIdentifier) -> tuple[datetime, bool] | None:
        query = select(_look.listed_at, _look.is_done).where(_look.identifier == str(table)).order_by(_look.listed_at.desc()).limit(1)
        row = self._first(query)
        return None if row is None else (row.listed_at, row.is_done)

    def save_deletion(self, deletion: OrphanDeletion) -> None:
        values = {"identifier": str(deletion.table), "created_at": deletion.created_at, "value": deletion}
        with writing(self._engine) as connection:
            row = upsert(connection, schema.orphan_deletion).values(record_id=deletion.record_id, **values)
            connection.execute(row.on_conflict_do_update(index_elements=["record_id"], set_=values))

    def deletions(self, table: TableIdentifier | None = None, limit: int | None = None) -> Sequence[OrphanDeletion]:
        query = select(_deletion.value).order_by(_deletion.created_at.desc(), _deletion.record_id.desc())
        if table is not None:
            query = query.where(_deletion.identifier == str(table))
        return self._values(query if limit is None else query.limit(limit))

    def expire(self, looks_before: datetime, deletions_before: datetime) -> None:
        self._write(delete(schema.orphan_look).where(_look.listed_at < looks_before))
        self._write(delete(schema.orphan_deletion).where(_deletion.created_at < deletions_before))

    def places(self) -> Sequence[Place]:
        query = select(schema.table_place).order_by(_place.identifier, _place.table_uuid, _place.location)
        return [
            Place(identifier_of(row.identifier), row.table_uuid, row.location, row.roots, row.metadata_location, row.read_at)
            for row in self._rows(query)
        ]

    def save_place(self, place: Place) -> None:
        values = {"roots": place.roots, "metadata_location": place.metadata_location, "read_at": place.read_at}
        with writing(self._engine) as connection:
            row = upsert(connection, schema.table_place).values(
                identifier=str(place.table), table_uuid=place.table_uuid, location=place.location, **values
            )
            connection.execute(row.on_conflict_do_update(index_elements=["identifier", "table_uuid", "location"], set_=values))

    def forget_place(self, place: Place) -> None:
        self._write(delete(schema.table_place).where(_is(place)))


def _is(place: Place) -> ColumnElement[bool]:
    return and_(_place.identifier == str(place.table), _place.table_uuid == place.table_uuid, _place.location == place.location)


def note_places(connection: Connection, *indexes: TableIndex) -> None:
    """Note where tables lie that were loaded. It counts for ever, also when a table is dropped or moved.

    The metadata is noted once the index has all live files of it, because then their roots are noted too. A keyed table has no index.
    """
    row, key = upsert(connection, schema.table_place), ["identifier", "table_uuid", "location"]
    known = {"metadata_location": row.excluded.metadata_location}
    places = [place for index in indexes for place in _places(index)]
    for statement, found in (
        (row.on_conflict_do_nothing(index_elements=key), [one for one in places if one["metadata_location"] is None]),
        (
            row.on_conflict_do_update(index_elements=key, set_=known, where=_place.read_at.is_(None)),
            [one for one in places if one["metadata_location"] is not None],
        ),
    ):
        if found:
            connection.execute(statement, found)


def _places(index: TableIndex) -> Iterator[dict[str, object]]:
    loaded = index.loaded
    if loaded is None:
        return
    metadata = index.state.metadata_location if isinstance(index.state, (Complete, Empty)) and not loaded.layout.kind.beside else None
    for store in loaded.layout.stores:
        yield {
            "identifier": str(index.table),
            "table_uuid": loaded.table_uuid,
            "location": store.location,
            "roots": (),
            "metadata_location": metadata,
        }


def note_roots(connection: Connection, identifier: str, paths: Iterable[str]) -> None:
    """Note the folders outside a table's own in which these live files of it lie. They count for ever, too."""
    places = connection.execute(select(schema.table_place).where(_place.identifier == identifier)).all()
    foreign = ForeignRoots(row.location for row in places)
    for path in paths:
        foreign.note(path)
    for row in places if foreign.roots else ():
        is_row = and_(_place.identifier == identifier, _place.table_uuid == row.table_uuid, _place.location == row.location)
        roots = tuple(sorted({*row.roots, *foreign.roots}))
        connection.execute(update(schema.table_place).where(is_row).values(roots=roots))
