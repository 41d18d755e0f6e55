"""Decides when a run that drains the queue ends early. So a person waits no longer than one task, or one commit, for a machine's run.

While a draining run holds the slot of the pool, a person's run stays queued whatever its priority is. So the draining run itself asks
whether another run waits. A person's run first does what the person asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

import dagster as dg

from compaction_pipeline.core.words import duration_text
from compaction_pipeline.defs.names import MACHINE_TAGS, POOL

TURN = timedelta(minutes=1)
"""A run lets a sensor's run take over only after this long. Two sets of definitions share the pool: their runs would else end each other
before either has merged anything. A person waits for no turn."""

LEFT_TO_OPTIMIZERS = "optimizers take the tasks of every queue in which one waits"


class Ending:
    """Says between tasks whether the run should end, and keeps the reason.

    `longest` is how long the run may take. `wanted_by` returns the id of a run that waits for the pool, if there is one. `reason` is why
    the run ends when neither cuts it short.
    """

    def __init__(self, clock: Callable[[], datetime], longest: timedelta, wanted_by: Callable[[], str | None], reason: str) -> None:
        self._clock = clock
        self._ends_at: datetime = clock() + longest
        self._longest = longest
        self._wanted_by = wanted_by
        self.reason = reason

    def over(self) -> bool:
        """True when the run should stop now, because its time is up or another run waits for the pool."""
        if self._clock() >= self._ends_at:
            self.reason = f"this run's time of {duration_text(self._longest)} is up; the next run takes the tasks that still wait"
            return True
        return self.is_wanted()

    def is_wanted(self) -> bool:
        """True when another run waits for the pool, and this run may end for it."""
        waiting = self._wanted_by()
        if waiting is not None:
            self.reason = f"run {waiting[:8]} waits for pool {POOL!r}; the next run takes the tasks that still wait"
        return waiting is not None


def is_of_machine(run: dg.DagsterRun) -> bool:
    """Whether a sensor asked for this run."""
    return MACHINE_TAGS.items() <= run.tags.items()


def when_done(is_busy: Callable[[], bool], wanted_by: Callable[[], str | None]) -> Callable[[], str | None]:
    """Return a function that names a waiting run only while this run is not busy with what a person asked for."""
    return lambda: None if is_busy() else wanted_by()


def pool_wanted_by(instance: dg.DagsterInstance, run_id: str, *, by_sensors: bool = True) -> str | None:
    """The id of another run that waits for our pool, or None. Without `by_sensors`, runs that sensors asked for do not count.

    Such a run is queued as a whole, or it has started and one of its steps waits for a slot.
    """
    queued = instance.get_runs(filters=dg.RunsFilter(statuses=[dg.DagsterRunStatus.QUEUED]))
    for run in queued:
        wants = run.run_op_concurrency
        counts = run.run_id != run_id and (by_sensors or not is_of_machine(run))
        if counts and wants is not None and POOL in (wants.all_pools or wants.root_key_counts):
            return run.run_id
    storage = instance.event_log_storage
    if not storage.supports_global_concurrency_limits:
        return None
    pending = storage.get_concurrency_info(POOL).pending_run_ids - {run_id}
    return min((each for each in pending if by_sensors or not _is_of_sensor(instance, each)), default=None)


def _is_of_sensor(instance: dg.DagsterInstance, run_id: str) -> bool:
    run = instance.get_run_by_id(run_id)
    return run is not None and is_of_machine(run)
