"""How long what a commit wrote is kept for a request that nobody answered: it may still arrive, and must find its files."""

from __future__ import annotations

from datetime import datetime, timedelta

from compaction_pipeline.core.commit.record import CompactionRecord

LATE_REQUEST = timedelta(days=1)
"""No proxy and no queue holds a request for longer."""


def may_arrive(record: CompactionRecord, now: datetime, late: timedelta) -> bool:
    """Whether a request of this record may still be on its way. Its requirement holds again after a rollback of the table."""
    return not record.answered and (record.ended_at is None or now - record.ended_at < late)
