"""Removes from the state database what has outlived its use: records, ended tasks, and old rows of the ledger."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from datetime import datetime, timedelta

from compaction_pipeline.core.capacity.costs import CostStore
from compaction_pipeline.core.capacity.ledger import KEPT_DAYS, SUMS_KEPT_DAYS
from compaction_pipeline.core.commit.ports import RecordStore
from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.core.queue.ports.tasks import TaskStore

_LOG = logging.getLogger(__name__)


class ExpireRecords:
    """One verb: expire."""

    def __init__(
        self,
        tasks: TaskStore,
        records: RecordStore,
        costs: CostStore,
        still_asked: Callable[[datetime, datetime], Collection[str]],
        clock: Clock,
        ttl: timedelta,
    ) -> None:
        """`ttl` is how long records and ended tasks are kept. `still_asked` returns the records that must stay longer."""
        self._tasks = tasks
        self._records = records
        self._costs = costs
        self._still_asked = still_asked
        self._clock = clock
        self._ttl = ttl

    def expire(self) -> tuple[int, int]:
        """Remove the records and tasks that ended longer ago than the time to live. Return the number of records and of tasks.

        A record stays while one of its requests may still arrive. A record with a request that got no answer also stays while the store
        has a task of it, because the record protects the files of its tasks. Rows of the ledger have their own times to live.
        """
        now = self._clock()
        before = now - self._ttl
        tasks = self._tasks.expire(before)
        records = self._records.expire(before, self._still_asked(now, before))
        self._costs.expire((now - timedelta(days=KEPT_DAYS)).date(), (now - timedelta(days=SUMS_KEPT_DAYS)).date())
        if records or tasks:
            _LOG.info("expired %d record(s) and %d task(s) that ended before %s", records, tasks, before.isoformat())
        return records, tasks
