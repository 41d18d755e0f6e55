"""Reads the keys of an upsert table, to see whether each has one row."""

from __future__ import annotations

from contextlib import closing

from compaction_pipeline.core.tables.keyed.key_reading import MOST_ROWS, KeyReading, RepeatedKey, chosen, related
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.iceberg.catalogs.open_catalogs import Catalogs
from compaction_pipeline.iceberg.file_io import with_change_store
from compaction_pipeline.iceberg.keyed.stores import load_known_stores
from compaction_pipeline.iceberg.scan import layout_of
from compaction_pipeline.merging.keyed.repeated_keys import MEMORY_BYTES, KeyCounter
from compaction_pipeline.merging.reading.file_access import FileAccess


class IcebergKeyReader:
    """Reads live rows as readers of both stores see them, one node at a time and with bounded memory."""

    def __init__(self, catalogs: Catalogs, most_rows: int = MOST_ROWS) -> None:
        self._catalogs = catalogs
        self._most_rows = most_rows

    def read_keys(self, table: TableIdentifier, day: int) -> KeyReading:
        """Read the keys of the nodes that are due on this day (`core.tables.keyed.key_reading.chosen`).

        Raises NotFoundError, StorageUnavailable or TableRefused when the table cannot be loaded, and MergeFailed for a file that cannot be
        read.
        """
        stores = load_known_stores(self._catalogs, table)
        base, change = layout_of(stores.base.metadata), layout_of(stores.change.metadata)
        nodes = stores.nodes(lambda file: True)
        groups = chosen(related(nodes), day, self._most_rows)
        properties = with_change_store(stores.base.io.properties, stores.change.io.properties)
        rows, repeated = 0, []
        with closing(FileAccess(properties, base.location, MEMORY_BYTES, change.location)) as files:
            counter = KeyCounter(files, base, change, stores.key)
            for group in groups:
                found = counter.count(group)
                rows += found.rows
                if found.repeated is not None:
                    repeated.append(RepeatedKey(group[0].node, *found.repeated))
        read = tuple(each for group in groups for each in group)
        on_base = sum(not each.inserts and not each.deletes for each in read)
        return KeyReading(tuple(each.node for each in read), len(nodes), on_base, rows, tuple(repeated))
