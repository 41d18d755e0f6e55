"""Remembers the ETags of tables that REST catalogs gave, so that a look at an unchanged table needs no metadata.

An ETag stands for one answer of one catalog, which named one place of metadata. The ticks of Dagster open the catalogs anew each time, but
they share a process, so the memory is that of the process. It is bounded for each catalog.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock

from compaction_pipeline.core.tables.table import TableIdentifier

MOST = 50_000
"""Tables of one catalog whose ETags are remembered, about 300 bytes each. Those that were not asked for longest go first."""

MOST_CATALOGS = 100


class ETags:
    """The ETags of tables by catalog, each with the place of the metadata that its answer named. Threads may share it."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._lock = Lock()
        self._by_catalog: OrderedDict[Hashable, OrderedDict[TableIdentifier, tuple[str, str]]] = OrderedDict()

    def note(self, catalog: Hashable, table: TableIdentifier, etag: str, location: str) -> None:
        """Remember what the catalog answered. `catalog` is a value that no catalog with other properties has."""
        with self._lock:
            etags = self._by_catalog.setdefault(catalog, OrderedDict())
            etags[table] = etag, location
            etags.move_to_end(table)
            self._by_catalog.move_to_end(catalog)
            if len(etags) > self._most:
                etags.popitem(last=False)
            if len(self._by_catalog) > MOST_CATALOGS:
                self._by_catalog.popitem(last=False)

    def etag(self, catalog: Hashable, table: TableIdentifier, location: str) -> str | None:
        """Return the ETag of the answer that named this place of metadata; None when it is not known, or was another one."""
        with self._lock:
            etags = self._by_catalog.get(catalog)
            noted = etags.get(table) if etags is not None else None
        return noted[0] if noted is not None and noted[1] == location else None


etags = ETags()
