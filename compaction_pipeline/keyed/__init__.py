"""Keyed tables: Amoro's Mixed-Iceberg tables with a primary key, for programs that read and write them."""

from compaction_pipeline.keyed.merging_sink import MergingSink
from compaction_pipeline.keyed.scan import KeyedScan
from compaction_pipeline.keyed.table import KeyedTable

__all__ = ["KeyedScan", "KeyedTable", "MergingSink"]
