"""Tells which of a table's files other tables have.

What another registration of the table needs is not deleted, and neither is what a clone of it or a table inside its folder needs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta

from compaction_pipeline.core.errors import CompactionError, NotFoundError
from compaction_pipeline.core.insight.ports import TableReader
from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.core.tables.ports.catalogs import CatalogStore
from compaction_pipeline.core.tables.ports.files import FileStore
from compaction_pipeline.core.tables.ports.scan import TableScan
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.upkeep.orphan_looks import Place
from compaction_pipeline.core.upkeep.paths import Relation, compared, folder_path
from compaction_pipeline.core.upkeep.ports.snapshots import StoreLook

_REMEMBERED = timedelta(minutes=5)
"""A catalog that does not list the metadata of its tables is asked for each of them, and its answers count for this long."""


class OtherTables:
    """The verbs why_files_stay, paths_of, is_known, known, is_indexed and live_elsewhere."""

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

    def why_files_stay(self, table: TableIdentifier, look: StoreLook) -> str | None:
        """Say which other table of any registered catalog has the same files; None when none has.

        A catalog or a table that cannot be read keeps the files too: it may be another registration of this table. The catalogs are asked,
        because tables that a filter leaves out are not known here, and of a table that was refused as a second name nothing is kept.
        """
        for known in self._tables.with_uuid(look.table_uuid):
            if known.table not in (table, look.store):
                return _another(known.table)
        try:
            for entry in self._catalogs.entries():
                places = self._scan.locations(entry.name)
                for other in self._scan.list_tables(entry.name):
                    if other not in (table, look.store) and self._is_same(other, places.get(other), look):
                        return _another(other)
        except CompactionError as error:
            return f"it is not certain that no other table has them: {error}"
        return None

    def paths_of(self, table: TableIdentifier, look: StoreLook) -> Callable[[Sequence[str]], Collection[str]]:
        """Return what tells which of some paths are live files of other tables, or lie in a folder of one that is inside this table's."""
        here = f"{look.location.rstrip('/')}/"
        places = [
            known.layout.location
            for known in self._tables.states()
            if known.layout is not None and known.table not in (table, look.store) and known.layout.location.startswith(here)
        ]
        inside = tuple(f"{place.rstrip('/')}/" for place in places)

        def of_others(paths: Sequence[str]) -> Collection[str]:
            below = {path for path in paths if inside and path.startswith(inside)}
            return below | set(self._files.named_by_others(table, paths))

        return of_others

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

    def _is_same(self, other: TableIdentifier, place: str | None, look: StoreLook) -> bool:
        """Whether this is the table that is looked at, under another name. Raises when its catalog does not tell.

        `place` is the path of its metadata, if the catalog tells it without a look at the table. An equal path proves that it is the same
        table. Another path proves nothing: one folder has several spellings, and metadata may lie anywhere.
        """
        if place == look.metadata_location:
            return True
        known = self.known(other, place)
        return known is not None and (known.table_uuid == look.table_uuid or _is_one_place(known.location, look.location))

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
        if asked is None or (fresh and place is None) or now - asked[0] >= _REMEMBERED or not _may_be_at(asked[1], place):
            try:
                head = self._scan.head(other)
                asked = now, Place(other, head.table_uuid, head.layout.location, metadata_location=head.metadata_location)
            except NotFoundError:
                asked = now, None
            self._asked[other] = asked
        return asked[1]


def _may_be_at(known: Place | None, place: str | None) -> bool:
    return place is None or (known is not None and known.metadata_location == place)


def _is_one_place(one: str, other: str) -> bool:
    return compared(folder_path(one), folder_path(other)) is not Relation.DIFFERENT


def _another(other: TableIdentifier) -> str:
    return f"table {other} is another registration of this table, or has its location, and may need the files"
