"""Opens a table: one Iceberg table, or the two stores of a keyed table. Both answer the same questions, so nobody else asks which it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pyiceberg.table import Table

from compaction_pipeline.core.tables.kinds import is_keyed, says_no_key
from compaction_pipeline.core.tables.table import UNKNOWN_PLACE, TableHead, TableIdentifier
from compaction_pipeline.iceberg.catalogs.open_catalogs import Catalogs
from compaction_pipeline.iceberg.file_io import file_io_properties
from compaction_pipeline.iceberg.keyed.stores import KeyedStores, load_known_stores
from compaction_pipeline.iceberg.plain_tables import refusal_of_part
from compaction_pipeline.iceberg.scan import head_of


@dataclass(frozen=True)
class PlainStores:
    """A plain table, as it was when it was loaded: it is its own and only store. `catalogs` tell what stands beside it."""

    table: Table
    catalogs: Catalogs

    @property
    def tables(self) -> tuple[Table, ...]:
        """The Iceberg tables that the table consists of."""
        return (self.table,)

    def names(self, table: TableIdentifier) -> tuple[TableIdentifier, ...]:
        """The names of these Iceberg tables in their catalog. `table` is the name of the table itself."""
        return (table,)

    def file_io(self) -> Mapping[str, str]:
        """The properties that open the table's files."""
        return file_io_properties(self.table)

    def head(self, table: TableIdentifier) -> TableHead:
        """The head of the table. When it may be part of a keyed table, the head says why it is refused."""
        head = head_of(table, self.table)
        part = refusal_of_part(self.catalogs, table, self.table)
        if part is None:
            return head
        # The tables beside it may change without any change of its metadata.
        place = UNKNOWN_PLACE if says_no_key(self.table.metadata.properties) else head.metadata_location
        return replace(head, metadata_location=place, refusal=part)


Stores = PlainStores | KeyedStores


def open_stores(catalogs: Catalogs, table: TableIdentifier) -> Stores:
    """The table as it is now. Raises NotFoundError when it is gone, or its change store is, and TableRefused when it cannot be read."""
    return stores_of(catalogs, table, catalogs.load(table))


def stores_of(catalogs: Catalogs, table: TableIdentifier, loaded: Table) -> Stores:
    """The same for a table of which one store was `loaded` just now: the table itself, or the base store."""
    return load_known_stores(catalogs, table) if is_keyed(loaded.metadata.properties) else PlainStores(loaded, catalogs)
