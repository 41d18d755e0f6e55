"""Which runs are under way, and which only seem to be. A sensor asks this before it asks for another run."""

from __future__ import annotations

import dagster as dg

from compaction_pipeline.bootstrap import Services

ACTIVE = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


_BACKFILL_TAG = "dagster/backfill"
"""Dagster writes the id of the backfill into this tag of each of its runs."""


def active_run(instance: dg.DagsterInstance, *jobs: str) -> str | None:
    """Take the first of these jobs that has a queued or running run, and return the id of its oldest one. None when no job has any."""
    for job in jobs:
        runs = instance.get_runs(filters=dg.RunsFilter(job_name=job, statuses=ACTIVE))
        if runs:
            return runs[-1].run_id
    return None


def is_of_backfill(run: dg.DagsterRun) -> bool:
    """True when a backfill has made this run."""
    return _BACKFILL_TAG in run.tags


def is_followed(instance: dg.DagsterInstance, run: dg.DagsterRun) -> bool:
    """True when a later run of the same backfill is queued or running. That one judges the checks, so this one need not.

    The run that was made last always judges. One that ends after it judges too, so no end of a backfill is left without a judgement.
    """
    if not is_of_backfill(run):
        return False
    backfill = run.tags[_BACKFILL_TAG]
    newest = instance.get_runs(filters=dg.RunsFilter(tags={_BACKFILL_TAG: backfill}, statuses=ACTIVE), limit=1)
    return bool(newest) and newest[0].run_id != run.run_id


def is_active(instance: dg.DagsterInstance, run_id: str | None) -> bool:
    """True when this run is queued or running. Such a run tells its own events."""
    run = instance.get_run_by_id(run_id) if run_id else None
    return run is not None and run.status in ACTIVE


_LOST = "the process of this run is gone: it lost its lease in the state database; another run does what is left"
_WITH_PROCESS = [dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING]


def end_lost_runs(instance: dg.DagsterInstance, services: Services) -> list[str]:
    """Mark the runs as failed whose processes were killed, free their slots in pools, and return their ids.

    Dagster's default launcher does not see that a process is gone. Such a run would stay started for ever, and sensors would wait for it.
    """
    started = instance.get_runs(filters=dg.RunsFilter(statuses=_WITH_PROCESS))
    lost = [run for run in started if services.run_leases.is_lost(run.run_id)]
    for run in lost:
        instance.report_run_failed(run, _LOST)
        instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)
    return [run.run_id for run in lost]
