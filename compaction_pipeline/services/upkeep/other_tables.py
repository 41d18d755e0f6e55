"""Tells what other known tables have of a table's files. Two registrations of one table, a clone, or a table inside the folder of another
one: what any of them needs is not deleted."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from compaction_pipeline.core.insight.ports import TableReader
from compaction_pipeline.core.tables.ports.files import FileStore
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.upkeep.ports import StoreLook


class OtherTables:
    """Two verbs: why_files_stay, and paths_of."""

    def __init__(self, tables: TableReader, files: FileStore) -> None:
        self._tables = tables
        self._files = files

    def why_files_stay(self, table: TableIdentifier, look: StoreLook) -> str | None:
        """Say which other table has the same files, for all that is known; None when none has."""
        for known in self._tables.with_uuid(look.table_uuid):
            if known.table not in (table, look.store):
                return f"table {known.table} has the same uuid: it is another registration of this table, and may need the files"
        for other, location in self._locations(table, look):
            if location.rstrip("/") == look.location.rstrip("/"):
                return f"table {other} has the same location"
        return None

    def paths_of(self, table: TableIdentifier, look: StoreLook) -> Callable[[Sequence[str]], Collection[str]]:
        """Return what tells which of some paths are live files of other tables, or lie in a folder of one that is inside this table's."""
        inside = tuple(
            f"{place.rstrip('/')}/" for _, place in self._locations(table, look) if place.startswith(f"{look.location.rstrip('/')}/")
        )

        def of_others(paths: Sequence[str]) -> Collection[str]:
            below = {path for path in paths if inside and path.startswith(inside)}
            return below | set(self._files.named_by_others(table, paths))

        return of_others

    def _locations(self, table: TableIdentifier, look: StoreLook) -> Sequence[tuple[TableIdentifier, str]]:
        """The locations of all known tables but this one and the store that is looked at."""
        return [
            (other.table, other.layout.location)
            for other in self._tables.states()
            if other.layout is not None and other.table not in (table, look.store)
        ]
