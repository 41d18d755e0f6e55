"""Lets merged changes of a keyed table expire, by the product's strategy and one swap, for tests."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from uuid import uuid4

from compaction_pipeline.core.ids import RecordId
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.upkeep.merged_changes import MergedChanges
from compaction_pipeline.iceberg.catalogs.open_catalogs import Catalogs
from compaction_pipeline.iceberg.head_reader import HeadReader
from compaction_pipeline.iceberg.rewrite_files import Transaction
from compaction_pipeline.iceberg.upkeep.merged_changes import MergedChangesOfTable

WEEK = timedelta(days=7)


def expire_changes(catalogs: Catalogs, table: TableIdentifier, now: datetime | None = None) -> MergedChanges:
    """Let changes expire that may. Without a time it is next week, when everything is old enough. Returns what has left."""
    later = now or datetime.now(timezone.utc) + WEEK
    strategy = MergedChangesOfTable(catalogs, table, RecordId(uuid4().hex), {}, later)
    loaded = strategy.opened()
    reader = HeadReader(loaded.io)
    plan = strategy.plan(loaded, reader)
    if plan.is_due:
        transaction = Transaction(loaded, reader=reader)
        assert strategy.stage(loaded, plan, transaction)["change_files"] == len(plan.files)
        transaction.commit()
    return plan
