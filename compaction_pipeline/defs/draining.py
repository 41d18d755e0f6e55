"""When a draining run ends early, so that no person waits longer than one task for a machine's run.

A pool slot held by a draining run keeps a person's run queued whatever its priority, so the run itself looks whether anyone waits.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

import dagster as dg

from compaction_pipeline.defs.keys import POOL


class Ending:
    """Answers `over()` between tasks and keeps the reason why."""

    def __init__(self, clock: Callable[[], datetime], longest: timedelta, wanted_by: Callable[[], str | None]) -> None:
        self._clock = clock
        self._ends_at: datetime = clock() + longest
        self._longest = longest
        self._wanted_by = wanted_by
        self.reason = "the queue is empty"

    def over(self) -> bool:
        """Whether to stop now: time is up, or a queued run wants this run's pool."""
        if self._clock() >= self._ends_at:
            self.reason = f"{self._longest.total_seconds():.0f} s are over; what waits is taken by the next run"
            return True
        waiting = self._wanted_by()
        if waiting is not None:
            self.reason = f"run {waiting[:8]} waits for pool {POOL!r}; what waits is taken by the next run"
            return True
        return False


def pool_wanted_by(instance: dg.DagsterInstance, run_id: str) -> str | None:
    """The id of another run that waits for our pool: queued as a whole, or started and with a step that waits for a slot."""
    queued = instance.get_runs(filters=dg.RunsFilter(statuses=[dg.DagsterRunStatus.QUEUED]))
    for run in queued:
        wants = run.run_op_concurrency
        if run.run_id != run_id and wants is not None and POOL in (wants.all_pools or wants.root_key_counts):
            return run.run_id
    storage = instance.event_log_storage
    if not storage.supports_global_concurrency_limits:
        return None
    pending = storage.get_concurrency_info(POOL).pending_run_ids - {run_id}
    return min(pending, default=None)
