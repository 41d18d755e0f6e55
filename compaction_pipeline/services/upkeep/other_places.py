"""Tells where all other tables lie and name files, whether they are there now or were ever seen.

A place counts for ever: a table that a catalog does not list any more may be hidden, or registered elsewhere, and its files may be alive.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta

from compaction_pipeline.core.errors import StorageUnavailable
from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.core.tables.ports.catalogs import CatalogStore
from compaction_pipeline.core.tables.ports.scan import TableScan
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.upkeep.foreign_roots import ForeignRoots
from compaction_pipeline.core.upkeep.orphan_looks import Place
from compaction_pipeline.core.upkeep.orphan_rules import OtherTable, OwnStore
from compaction_pipeline.core.upkeep.paths import folder_path
from compaction_pipeline.core.upkeep.ports.files import FilesLook, FilesLooker
from compaction_pipeline.core.upkeep.ports.orphans import OrphanStore
from compaction_pipeline.services.upkeep.other_tables import OtherTables

_FRESH = timedelta(days=1)
"""To read all metadata of a table costs as much as a look at it, so it is done once a day at most, while the index follows the table."""


class OtherPlaces:
    """The verbs others, live_elsewhere, names_of, note and forget_gone."""

    def __init__(
        self, catalogs: CatalogStore, scan: TableScan, tables: OtherTables, looker: FilesLooker, memory: OrphanStore, clock: Clock
    ) -> None:
        self._catalogs = catalogs
        self._scan = scan
        self._tables = tables
        self._looker = looker
        self._memory = memory
        self._clock = clock

    def others(self, look: FilesLook, is_over: Callable[[], bool]) -> Iterator[OtherTable]:
        """Yield every other table that is known, and every place where one was ever seen.

        A catalog or a table that cannot be read raises: nobody knows then where its files lie. So does the end of the time. What was read
        of tables until then is stored, so the next run goes on there.
        """
        noted, found = self._memory.places(), set[tuple[TableIdentifier, str, str]]()
        for place in self._living(look.names, noted, is_over):
            found.add((place.table, place.table_uuid, place.location))
            yield OtherTable(str(place.table), place.location, place.roots)
        for entry in self._catalogs.entries():
            yield from self._looker.hidden(entry.name)
        names = {entry.name for entry in self._catalogs.entries()}
        for place in noted:
            if (place.table, place.table_uuid, place.location) not in found and not _is_own(place, look.names, look.stores, names):
                yield OtherTable(f"{place.table} (as it was seen earlier)", place.location, place.roots)

    def live_elsewhere(self, table: TableIdentifier, paths: Sequence[str]) -> frozenset[str]:
        """Return those of these paths that are live files of other tables, as far as their index tells."""
        return self._tables.live_elsewhere(table, paths)

    def names_of(self, look: FilesLook) -> Collection[TableIdentifier]:
        """Return every name that the table of a look ever had."""
        uuids = {store.state.uuid for store in look.stores}
        return {*look.names, *(place.table for place in self._memory.places() if place.table_uuid in uuids)}

    def note(self, look: FilesLook, roots: Sequence[str]) -> None:
        """Store where the table of a look lies, and the folders outside in which it names files."""
        known = {(place.table, place.table_uuid, place.location): place.roots for place in self._memory.places()}
        foreign = ForeignRoots(store.location for store in look.stores)
        foreign.note_folders(look.properties)
        for name, store in zip(look.names, look.stores, strict=True):
            uuid = store.state.uuid or ""
            all_roots = {*known.get((name, uuid, store.location), ()), *roots, *foreign.roots}
            place = Place(name, uuid, store.location, tuple(sorted(all_roots)), store.metadata_location, self._clock())
            self._memory.save_place(place)

    def forget_gone(self, table: TableIdentifier) -> Sequence[Place]:
        """Forget the places that keep the files of a table, and of which no catalog lists the table any more. Return these.

        A person has said that nobody needs files there. Raises what the scan raises.
        """
        listed = {table for entry in self._catalogs.entries() for table in self._scan.list_tables(entry.name)}
        folders = [folder_path(store.location) for store in self._scan.head(table).layout.stores]
        gone = []
        for place in self._memory.places():
            reached = [folder_path(text) for text in (place.location, *place.roots)]
            if place.table not in listed and any(folder.overlaps(one) for folder in folders for one in reached):
                self._memory.forget_place(place)
                gone.append(place)
        return gone

    def _living(self, own: Collection[TableIdentifier], noted: Sequence[Place], is_over: Callable[[], bool]) -> Iterator[Place]:
        """Where each other table lies that a catalog lists now."""
        before = {(place.table, place.table_uuid, place.location): place for place in noted}
        for entry in self._catalogs.entries():
            places = self._scan.locations(entry.name)
            for other in self._scan.list_tables(entry.name):
                now = None if other in own else self._tables.known(other, places.get(other))
                if now is not None:
                    yield self._with_roots(now, before.get((other, now.table_uuid, now.location)), is_over)

    def _with_roots(self, now: Place, noted: Place | None, is_over: Callable[[], bool]) -> Place:
        if noted is not None and noted.read_at is not None:
            unchanged = bool(now.metadata_location) and noted.metadata_location == now.metadata_location
            if unchanged or (self._clock() - noted.read_at < _FRESH and self._tables.is_indexed(now)):
                return noted
        if is_over():
            raise StorageUnavailable(f"the time is over before it was read where table {now.table} names files; the next run goes on")
        read = self._looker.place(now.table, noted)
        roots = {*read.roots, *(noted.roots if noted is not None else ())}
        read = replace(read, roots=tuple(sorted(roots)), read_at=self._clock())
        self._memory.save_place(read)
        return read


def _is_own(place: Place, names: Collection[TableIdentifier], stores: Sequence[OwnStore], catalogs: Collection[str]) -> bool:
    """Whether a place that no catalog lists is an earlier one of the table itself.

    The same uuid under another name is: the table was renamed or moved. But when the catalog of that name is not registered any more, the
    table may live on there. A former table of the same name at the same location left metadata files that tell of it, unless it was purged.
    """
    if any(store.state.uuid == place.table_uuid for store in stores):
        return place.table.catalog in catalogs
    return place.table in names and any(folder_path(store.location) == folder_path(place.location) for store in stores)
