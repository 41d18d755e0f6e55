"""Lets merged changes of a keyed table expire, as a process does that holds the lease, for tests."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from uuid import uuid4

from compaction_pipeline.core.ids import RecordId
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.upkeep.commit_record import UpkeepOutcome
from compaction_pipeline.core.upkeep.works import UpkeepWork
from compaction_pipeline.iceberg.catalogs.open_catalogs import Catalogs
from compaction_pipeline.iceberg.rewrite_files import CommitStep
from compaction_pipeline.iceberg.upkeep.commits import IcebergUpkeepCommitter

WEEK = timedelta(days=7)


def expire_changes(
    catalogs: Catalogs,
    table: TableIdentifier,
    now: datetime | None = None,
    *,
    record_id: str | None = None,
    on_step: Callable[[CommitStep], None] = lambda step: None,
) -> UpkeepOutcome:
    """Let changes expire that may. Without a time it is next week, when everything is old enough."""
    later = now or datetime.now(timezone.utc) + WEEK
    committer = IcebergUpkeepCommitter(catalogs, lambda: later, on_step=on_step, sleep=lambda seconds: None)
    (target,) = committer.targets(table, UpkeepWork.CHANGE_FILES)
    return committer.commit(target, RecordId(record_id or uuid4().hex), {})
