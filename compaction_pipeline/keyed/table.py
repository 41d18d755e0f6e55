"""A keyed table: rows with a primary key that streams change. Amoro calls the format Mixed-Iceberg."""

from __future__ import annotations

from collections.abc import Sequence

from pyiceberg.catalog import Catalog
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.parser import parse
from pyiceberg.schema import Schema
from pyiceberg.typedef import Identifier

from compaction_pipeline.iceberg.keyed.stores import KeyedStores, load_stores
from compaction_pipeline.keyed.scan import KeyedScan


class KeyedTable:
    """A keyed table of a PyIceberg catalog.

    It consists of two Iceberg tables. The base store has the table's name. Streams append inserts and deletes to the change store, and a
    reader applies those that are not in the base store yet.
    """

    def __init__(self, catalog: Catalog, identifier: Identifier, stores: KeyedStores) -> None:
        """Use `open`."""
        self._catalog = catalog
        self._identifier = identifier
        self._stores = stores

    @classmethod
    def open(cls, catalog: Catalog, name: str | Identifier) -> KeyedTable:
        """Open the keyed table whose base store is called `name`, for example `db.orders`.

        Raises NotFoundError when one of the stores does not exist. Raises TableRefused for a table that is not keyed, and for a change
        store alone, whose files make no sense without the base store.
        """
        identifier = Catalog.identifier_to_tuple(name)
        return cls(catalog, identifier, load_stores(catalog, identifier))

    @property
    def name(self) -> str:
        """The catalog, the namespace and the name of the table, with dots between them."""
        return self._stores.name

    @property
    def schema(self) -> Schema:
        """The columns of the table, as they were when it was opened."""
        return self._stores.base.schema()

    @property
    def primary_key(self) -> tuple[str, ...]:
        """The columns of the primary key, in the order in which they are hashed."""
        return tuple(str(self.schema.find_column_name(number)) for number in self._stores.key)

    def scan(self, row_filter: str | BooleanExpression = AlwaysTrue(), selected_fields: Sequence[str] | None = None) -> KeyedScan:
        """The table's rows as they are now, with all changes applied.

        `row_filter` keeps the rows that it is true for; partitions that cannot have such rows are not read. `selected_fields` are the
        top-level columns of the result, in this order; all columns by default. Raises ConfigError for a column that the table does not
        have.
        """
        stores = load_stores(self._catalog, self._identifier)
        return KeyedScan(stores, parse(row_filter) if isinstance(row_filter, str) else row_filter, selected_fields)
