"""Catalogs: how they are opened, how long they may take to answer, and what their answers mean.

Only this package imports PyIceberg's catalogs. The rest of the program, its tests and its benchmarks get them from here, and ruff forbids
any other import of them. Python runs this file before any other module of the package. So whoever has a catalog can read tables with any
statistics, and no order of calls has to be remembered.
"""

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.sql import SqlCatalog

from compaction_pipeline.iceberg.catalogs.statistics_blobs import read_any_statistics

__all__ = ["Catalog", "SqlCatalog", "load_catalog"]

read_any_statistics()
