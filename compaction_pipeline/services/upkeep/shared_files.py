"""Tells which of a table's files other tables have, or may have, before an expiry deletes them.

What another registration of the table needs is not deleted, and neither is what a clone of it or a table inside its folder needs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from compaction_pipeline.core.errors import CompactionError
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.upkeep.foreign_roots import own_folders
from compaction_pipeline.core.upkeep.neighbours import Neighbours, OwnPlaces, judge_neighbours
from compaction_pipeline.core.upkeep.orphan_looks import Place
from compaction_pipeline.core.upkeep.paths import folder_path, full_path, loose_name
from compaction_pipeline.core.upkeep.ports.files import FilesLooker
from compaction_pipeline.core.upkeep.ports.orphans import OrphanStore
from compaction_pipeline.core.upkeep.ports.snapshots import StoreLook
from compaction_pipeline.core.upkeep.record import UpkeepRecord
from compaction_pipeline.services.upkeep.other_places import OtherPlaces
from compaction_pipeline.services.upkeep.other_tables import OtherTables


class SharedFiles:
    """The verbs neighbours and paths_of."""

    def __init__(self, tables: OtherTables, memory: OrphanStore, looker: FilesLooker, places: OtherPlaces) -> None:
        self._tables = tables
        self._memory = memory
        self._looker = looker
        self._places = places

    def neighbours(self, table: TableIdentifier, looks: Sequence[StoreLook]) -> Neighbours:
        """Say which other tables have a part in the files of a table, in any registered catalog. `looks` are all stores of the table.

        A catalog or a table that cannot be read refuses the deletion too: it may be another registration of this table. The catalogs are
        asked, because tables that a filter leaves out are not known here, and of a table that was refused as a second name nothing is kept.
        """
        own = OwnPlaces(
            names={table, *(look.store for look in looks)},
            stores=[(look.table_uuid, look.location) for look in looks],
            folders=[folder for look in looks for folder in own_folders(look.location, look.properties)],
        )
        for look in looks:
            for known in self._tables.named(look.table_uuid):
                if known not in own.names:
                    return Neighbours(f"table {known} is another registration of this table, and may need the files")
        noted = self._memory.places()
        try:
            living = [*self._tables.living(own.names, noted), *self._tables.same_elsewhere(own, noted)]
        except CompactionError as error:
            return Neighbours(f"it is not certain that no other table has them: {error}")
        read_before = _by_table(noted)
        unread = tuple(now for now in living if not self._places.is_known(now, read_before.get(_key(now))))
        return replace(judge_neighbours(own, living, noted), unread=unread, folders=tuple(own.folders))

    def paths_of(
        self, table: TableIdentifier, neighbours: Neighbours, kept: Sequence[UpkeepRecord], is_over: Callable[[], bool]
    ) -> Callable[[Sequence[str]], Collection[str]]:
        """Return what tells which of some paths other tables have: live files of any table in the index, and everything that clones name.

        All metadata of each clone is read now, and of each that may be one. `kept` are expiries whose files may still be there. Raises
        what the looker raises: nobody knows what a clone names that cannot be read. So does the end of the time; what was read is noted.
        """
        read_before, clones = _by_table(self._memory.places()), set(neighbours.clones)
        for now in neighbours.unread:
            if neighbours.is_clone(self._places.read(now, read_before.get(_key(now)), kept, is_over)):
                clones.add(now.table)
        names = {loose_name(path) for clone in sorted(clones) for path in self._looker.named(clone, kept)}
        inside = [folder_path(place) for place in neighbours.inside]

        def of_others(paths: Sequence[str]) -> Collection[str]:
            found = set(self._tables.live_elsewhere(table, paths))
            if names:
                found |= {path for path in paths if loose_name(path) in names}
            if inside:
                found |= {path for path in paths if any(full_path(path).is_below(folder) for folder in inside)}
            return found

        return of_others


def _key(place: Place) -> tuple[TableIdentifier, str, str]:
    return place.table, place.table_uuid, place.location


def _by_table(noted: Sequence[Place]) -> Mapping[tuple[TableIdentifier, str, str], Place]:
    return {_key(place): place for place in noted}
