"""Which runs are under way: what a sensor asks before it starts another one."""

from __future__ import annotations

import dagster as dg

ACTIVE = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


def active_run(instance: dg.DagsterInstance, *jobs: str) -> str | None:
    """The id of a queued or running run of one of these jobs, the oldest one."""
    for job in jobs:
        runs = instance.get_runs(filters=dg.RunsFilter(job_name=job, statuses=ACTIVE))
        if runs:
            return runs[-1].run_id
    return None


def is_active(instance: dg.DagsterInstance, run_id: str | None) -> bool:
    """Whether this run is queued or running (and will tell its own events)."""
    run = instance.get_run_by_id(run_id) if run_id else None
    return run is not None and run.status in ACTIVE
