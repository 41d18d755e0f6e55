"""Tells which other tables there are in any catalog, and where they lie.

A table that a catalog hides, for a moment or by a fault, would be taken for gone, and its files for garbage. So a listing is not believed
that lacks what was seen before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime, timedelta

from compaction_pipeline.core.errors import NotFoundError, StorageUnavailable
from compaction_pipeline.core.insight.ports import TableReader
from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.core.tables.ports.catalogs import CatalogStore
from compaction_pipeline.core.tables.ports.files import FileStore
from compaction_pipeline.core.tables.ports.scan import TableScan
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.upkeep.neighbours import OwnPlaces, hidden_names
from compaction_pipeline.core.upkeep.orphan_looks import Place

_REMEMBERED = timedelta(minutes=5)
"""A catalog that does not list the metadata of its tables is asked for each of them, and its answers count for this long."""
_ASKED_EACH = 3
"""So many tables that were seen in a namespace are asked for when it lists none."""


class OtherTables:
    """The verbs is_known, named, living, same_elsewhere, known, is_indexed and live_elsewhere."""

    def __init__(self, catalogs: CatalogStore, tables: TableReader, files: FileStore, scan: TableScan, clock: Clock) -> None:
        self._catalogs = catalogs
        self._tables = tables
        self._files = files
        self._scan = scan
        self._clock = clock
        self._asked: dict[TableIdentifier, tuple[datetime, Place | None]] = {}

    def is_known(self, table_uuid: str) -> bool:
        """Whether a table with this uuid is known, under whatever name."""
        return bool(self._tables.with_uuid(table_uuid))

    def named(self, table_uuid: str) -> Sequence[TableIdentifier]:
        """The names of the known tables with this uuid."""
        return [known.table for known in self._tables.with_uuid(table_uuid)]

    def living(self, own: Collection[TableIdentifier], noted: Sequence[Place], *, fresh: bool = False) -> Iterator[Place]:
        """Yield where each table lies that any catalog lists, but those that are `own`. Known or not does not matter.

        `noted` are the places where tables were ever seen: a namespace that should have some of these tables, and lists none, is not
        believed before they were asked for. Raises StorageUnavailable when one of them is there, and what the scan raises: nobody knows
        then where all tables lie. `fresh` is that of `known`.
        """
        remembered = {*self._tables.seen(), *(place.table for place in noted)}
        for entry in self._catalogs.entries():
            places, listed = self._scan.locations(entry.name), self._scan.every_table(entry.name)
            for hidden in hidden_names(listed, [table for table in remembered if table.catalog == entry.name], _ASKED_EACH):
                if hidden not in own and self.known(hidden, places.get(hidden), fresh=True) is not None:
                    raise StorageUnavailable(
                        f"catalog {entry.name!r} lists no table beside {hidden}, and not that one, but it is there: "
                        "its listings are not whole; see that the catalog is healthy, and try again later"
                    )
            for other in listed:
                now = None if other in own else self.known(other, places.get(other), fresh=fresh)
                if now is not None:
                    yield now

    def same_elsewhere(self, own: OwnPlaces, noted: Sequence[Place]) -> Iterator[Place]:
        """Yield the tables that are there under former names of the table's own uuid, whether their catalogs list them or not."""
        uuids = {uuid for uuid, _ in own.stores}
        registered = {entry.name for entry in self._catalogs.entries()}
        for name in sorted({place.table for place in noted if place.table_uuid in uuids and place.table.catalog in registered}):
            now = None if name in own.names else self.known(name, None, fresh=True)
            if now is not None:
                yield now

    def is_indexed(self, place: Place) -> bool:
        """Whether the index has exactly the live files of the table at this place, as its metadata is now."""
        try:
            state = self._tables.state(place.table)
        except NotFoundError:
            return False
        is_plain = state.layout is not None and not state.layout.kind.beside
        return is_plain and state.whole is not None and state.whole.metadata_location == place.metadata_location

    def live_elsewhere(self, table: TableIdentifier, paths: Sequence[str]) -> frozenset[str]:
        """Return those of these paths that are live files of other tables in the index. Paths are compared as they are written."""
        return frozenset(self._files.named_by_others(table, paths))

    def known(self, other: TableIdentifier, place: str | None, *, fresh: bool = False) -> Place | None:
        """Return where a table lies, without its roots; None when it is gone. `place` is the path of its metadata, if its catalog tells it.

        With `fresh`, a catalog that does not tell it is asked now, however lately it was.

        What was read of it is used only when the catalog tells that it has not changed. A name may have got another table since, and a
        table that was refused as a second name is remembered by what it was before.
        """
        try:
            state = self._tables.state(other)
        except NotFoundError:
            state = None
        if state is not None and state.refusal is None and place is not None and state.metadata_location == place and state.index.loaded:
            return Place(other, state.index.loaded.table_uuid, state.index.loaded.layout.location, metadata_location=place)
        now, asked = self._clock(), self._asked.get(other)
        # That a table is gone is not remembered: it may come back, and need its files, at any moment.
        if (
            asked is None
            or asked[1] is None
            or (fresh and place is None)
            or now - asked[0] >= _REMEMBERED
            or not _may_be_at(asked[1], place)
        ):
            try:
                head = self._scan.head(other)
                asked = now, Place(other, head.table_uuid, head.layout.location, metadata_location=head.metadata_location)
            except NotFoundError:
                asked = now, None
            self._asked[other] = asked
        return asked[1]


def _may_be_at(known: Place | None, place: str | None) -> bool:
    return place is None or (known is not None and known.metadata_location == place)
