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
from compaction_pipeline.core.upkeep.neighbours import OwnPlaces, is_own
from compaction_pipeline.core.upkeep.orphan_looks import Place
from compaction_pipeline.core.upkeep.orphan_rules import OtherTable
from compaction_pipeline.core.upkeep.paths import folder_path
from compaction_pipeline.core.upkeep.ports.files import FilesLook, FilesLooker
from compaction_pipeline.core.upkeep.ports.orphans import OrphanStore
from compaction_pipeline.core.upkeep.record import UpkeepRecord
from compaction_pipeline.services.upkeep.other_tables import OtherTables

_FRESH = timedelta(days=1)
"""To read all metadata of a table costs as much as a look at it. So, while the index follows the table, it is done once a day at most,
but for a look that deletes."""


class OtherPlaces:
    """The verbs others, is_known, read, live_elsewhere, names_of, note and forget_gone."""

    def __init__(
        self, catalogs: CatalogStore, scan: TableScan, tables: OtherTables, looker: FilesLooker, memory: OrphanStore, clock: Clock
    ) -> None:
        self._catalogs = catalogs
        self._scan = scan
        self._tables = tables
        self._looker = looker
        self._memory = memory
        self._clock = clock

    def others(self, look: FilesLook, kept: Sequence[UpkeepRecord], is_over: Callable[[], bool], *, fresh: bool) -> Iterator[OtherTable]:
        """Yield every other table that is known, and every place where one was ever seen.

        With `fresh`, every table that has changed is read, however lately it was read. `kept` are expiries whose files may still be there.

        A catalog or a table that cannot be read raises: nobody knows then where its files lie. So does the end of the time. What was read
        of tables until then is stored, so the next run goes on there.
        """
        noted, found = self._memory.places(), set[tuple[TableIdentifier, str, str]]()
        read_before = {(place.table, place.table_uuid, place.location): place for place in noted}
        stores = [(store.state.uuid, store.location) for store in look.stores]
        own = OwnPlaces(look.names, stores, [store.location for store in look.stores])
        living = {now.table: now for now in self._tables.living(look.names, noted, fresh=fresh)}
        living |= {now.table: now for now in self._tables.same_elsewhere(own, noted) if now.table not in living}
        for now in living.values():
            before = read_before.get((now.table, now.table_uuid, now.location))
            place = before if before is not None and self.is_known(now, before, fresh=fresh) else self.read(now, before, kept, is_over)
            found.add((place.table, place.table_uuid, place.location))
            yield OtherTable(str(place.table), place.location, place.roots)
        for entry in self._catalogs.entries():
            yield from self._looker.hidden(entry.name)
        listed = {(name, table_uuid) for name, table_uuid, _ in found}
        for place in noted:
            if (place.table, place.table_uuid, place.location) not in found and not is_own(place, look.names, stores):
                # A table that is listed has been read by now, wherever it lay before. Change stores are listed, too.
                unread = place.is_unread and (place.table, place.table_uuid) not in listed
                yield OtherTable(f"{place.table} (as it was seen earlier)", place.location, place.roots, unread=unread)

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

        Another table may have its name by now. A person has said that nobody needs files there. Raises what the scan raises.
        """
        registered = {entry.name for entry in self._catalogs.entries()}
        folders = [folder_path(store.location) for store in self._scan.head(table).layout.stores]
        gone = []
        for place in self._memory.places():
            reached = [folder_path(text) for text in (place.location, *place.roots)]
            if not place.is_unread and not any(folder.overlaps(one) for folder in folders for one in reached):
                continue
            # A listing may hide a table. So the catalog is asked for the table itself, now.
            now = self._tables.known(place.table, None, fresh=True) if place.table.catalog in registered else None
            if now is None or now.table_uuid != place.table_uuid:
                self._memory.forget_place(place)
                gone.append(place)
        return gone

    def is_known(self, now: Place, noted: Place | None, *, fresh: bool = False) -> bool:
        """Whether what was read of a table is enough: it has not changed since, or it was read less than a day ago and is indexed as it is.

        The index alone is not enough. It has the files of the newest snapshot, not those of older ones, of tags and of branches. With
        `fresh` it counts for nothing, and only a table that has not changed is known.
        """
        if noted is None or noted.read_at is None:
            return False
        unchanged = bool(now.metadata_location) and noted.metadata_location == now.metadata_location
        return unchanged or (not fresh and self._clock() - noted.read_at < _FRESH and self._tables.is_indexed(now))

    def read(self, now: Place, noted: Place | None, kept: Sequence[UpkeepRecord], is_over: Callable[[], bool]) -> Place:
        """Read all metadata of a table, note the folders in which it names files, and return its place with all that were ever noted.

        Raises StorageUnavailable when the time is over, and what the looker raises.
        """
        if is_over():
            raise StorageUnavailable(f"the time is over before it was read where table {now.table} names files; the next run goes on")
        read = self._looker.place(now.table, noted, kept)
        roots = {*read.roots, *(noted.roots if noted is not None else ())}
        read = replace(read, roots=tuple(sorted(roots)), read_at=self._clock())
        self._memory.save_place(read)
        return read
