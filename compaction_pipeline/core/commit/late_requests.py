"""Decides how long the files of a commit are kept when one of its requests got no answer.

The catalog may still receive such a request and carry it out. The request must then find its files.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from compaction_pipeline.core.commit.record import CompactionRecord

LATE_REQUEST = timedelta(days=1)
"""A request without an answer may arrive for this long. No proxy and no queue holds a request for longer."""


def may_arrive(record: CompactionRecord, now: datetime, late: timedelta) -> bool:
    """Return whether a request of this record may still arrive, and so may still land.

    A request requires that main is at one snapshot. After a rollback to that snapshot the catalog would accept the request, so a later
    commit does not end the wait. `late` is how long after the record's end a request may arrive.
    """
    return not record.answered and (record.ended_at is None or now - record.ended_at < late)
