"""Tells which of a table's files other tables have.

What another registration of the table needs is not deleted, and neither is what a clone of it or a table inside its folder needs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from compaction_pipeline.core.errors import CompactionError, NotFoundError
from compaction_pipeline.core.insight.ports import TableReader
from compaction_pipeline.core.tables.ports.catalogs import CatalogStore
from compaction_pipeline.core.tables.ports.files import FileStore
from compaction_pipeline.core.tables.ports.scan import TableScan
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.upkeep.paths import Relation, compared, folder_path
from compaction_pipeline.core.upkeep.ports.snapshots import StoreLook


class OtherTables:
    """Two verbs: why_files_stay, and paths_of."""

    def __init__(self, catalogs: CatalogStore, tables: TableReader, files: FileStore, scan: TableScan) -> None:
        self._catalogs = catalogs
        self._tables = tables
        self._files = files
        self._scan = scan

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

    def _is_same(self, other: TableIdentifier, place: str | None, look: StoreLook) -> bool:
        """Whether this is the table that is looked at, under another name. Raises when its catalog does not tell.

        `place` is the path of its metadata, if the catalog tells it without a look at the table. An equal path proves that it is the same
        table. Another path proves nothing: one folder has several spellings, and metadata may lie anywhere.
        """
        if place == look.metadata_location:
            return True
        try:
            loaded = self._tables.state(other).index.loaded
        except NotFoundError:
            loaded = None
        if loaded is not None:
            return loaded.table_uuid == look.table_uuid or _is_one_place(loaded.layout.location, look.location)
        try:
            head = self._scan.head(other)
        except NotFoundError:
            return False
        return head.table_uuid == look.table_uuid or _is_one_place(head.layout.location, look.location)


def _is_one_place(one: str, other: str) -> bool:
    return compared(folder_path(one), folder_path(other)) is not Relation.DIFFERENT


def _another(other: TableIdentifier) -> str:
    return f"table {other} is another registration of this table, or has its location, and may need the files"
