"""Which runs are under way. A sensor asks this before it asks for another run."""

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
    """Take the first of these jobs that has a queued or running run, and return the id of its oldest one. None when no job has any."""
    for job in jobs:
        runs = instance.get_runs(filters=dg.RunsFilter(job_name=job, statuses=ACTIVE))
        if runs:
            return runs[-1].run_id
    return None


def is_active(instance: dg.DagsterInstance, run_id: str | None) -> bool:
    """True when this run is queued or running. Such a run tells its own events."""
    run = instance.get_run_by_id(run_id) if run_id else None
    return run is not None and run.status in ACTIVE
