"""Reads how often the change store of a keyed table is committed to."""

from __future__ import annotations

from datetime import datetime, timezone

from pyiceberg.table.snapshots import Operation

from compaction_pipeline.core.tables.keyed.change_rate import ChangeRate, change_rate
from compaction_pipeline.core.tables.keyed.creation import CHANGE_BUCKETS_KEY, DEFAULT_BUCKETS
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.iceberg.catalogs.open_catalogs import Catalogs
from compaction_pipeline.iceberg.failures import translated
from compaction_pipeline.iceberg.keyed.stores import load_known_stores


class IcebergChangeRates:
    """The ChangeRates port on PyIceberg."""

    def __init__(self, catalogs: Catalogs) -> None:
        self._catalogs = catalogs

    def rate(self, table: TableIdentifier, now: datetime) -> ChangeRate:
        """Load both stores and read the live files. Raises as TableScan.head and TableScan.keyed_content do."""
        stores = load_known_stores(self._catalogs, table)
        with translated(f"the files of table {table}"):
            base, changes = stores.files()
        appended = [
            datetime.fromtimestamp(each.timestamp_ms / 1000, timezone.utc)
            for each in stores.change.metadata.snapshots
            if each.summary is not None and each.summary.operation is Operation.APPEND and int(each.summary["added-data-files"] or 0)
        ]
        text = stores.change.properties.get(CHANGE_BUCKETS_KEY, "")
        partitions = {file.partition for file in (*base, *changes)}
        return change_rate(appended, changes, partitions, int(text) if text.isdecimal() else DEFAULT_BUCKETS, now)
