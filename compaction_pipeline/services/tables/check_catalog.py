"""Finds out whether a catalog and its storage give this process access."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from compaction_pipeline.core.errors import AccessDenied, CompactionError
from compaction_pipeline.core.tables.ports import TableScan
from compaction_pipeline.core.tables.table import TableIdentifier

log = logging.getLogger(__name__)


class CheckCatalog:
    """One verb: check. The first table of a catalog stands for all of them."""

    def __init__(self, scan: TableScan, check_writable: Callable[[TableIdentifier], None]) -> None:
        """`check_writable` raises AccessDenied when this process may not write to the table's storage."""
        self._scan = scan
        self._check_writable = check_writable

    def check(self, catalog: str, write: bool = False) -> Sequence[TableIdentifier]:
        """List the catalog's tables and read the first one; with `write`, write and delete one tiny file there too.

        Returns all tables. Raises the error of the catalog or of its storage, for example AccessDenied.
        """
        tables = self._scan.list_tables(catalog)
        self.read_first(tables)
        if write:
            for table in tables[:1]:
                self._check_writable(table)
        return tables

    def read_first(self, tables: Sequence[TableIdentifier]) -> None:
        """Read the metadata and the manifest list of the first table. Raises AccessDenied.

        Any other error is a problem of that one table. It is logged and says nothing about the catalog.
        """
        for table in tables[:1]:
            try:
                head = self._scan.head(table)
                if head.snapshot_id is not None:
                    self._scan.manifests(table, head.snapshot_id)
            except AccessDenied:
                raise
            except CompactionError as error:
                log.warning("table=%s was not read: %s", table, error)
