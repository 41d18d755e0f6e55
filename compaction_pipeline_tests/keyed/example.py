"""Keyed tables of other programs, as folders of this repository hold them."""

from __future__ import annotations

from pathlib import Path

from compaction_pipeline.iceberg.catalogs import Catalog, SqlCatalog
from compaction_pipeline.keyed import KeyedTable
from compaction_pipeline_tests.scenarios.examples.unpacking import CATALOG_NAME, catalog_properties, expected_rows, unpack


class Example:
    def __init__(self, name: str, folder: Path) -> None:
        self.home = unpack(name, folder)
        self.catalog: Catalog = SqlCatalog(CATALOG_NAME, **catalog_properties(self.home))
        self.expected = expected_rows(self.home)

    @property
    def table(self) -> KeyedTable:
        return KeyedTable.open(self.catalog, "db.t")
