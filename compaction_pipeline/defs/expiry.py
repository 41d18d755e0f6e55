"""Expires the snapshots of tables that ask for it, when something is due."""

# This module has no `from __future__ import annotations`. Dagster compares the annotation of an op's context, so it must not be a string.

import dagster as dg

from compaction_pipeline.bootstrap import Services
from compaction_pipeline.core.words import count_text
from compaction_pipeline.defs.names import EXPIRE_JOB, MACHINE_TAGS, Names
from compaction_pipeline.defs.op_jobs import op_job
from compaction_pipeline.defs.resources import services_of
from compaction_pipeline.defs.runs import active_run
from compaction_pipeline.defs.ticks import ticking

_EVERY_SECONDS = 600


def expire_job(names: Names) -> dg.JobDefinition:
    """The job that expires snapshots."""

    def expire_snapshots(context: dg.OpExecutionContext) -> None:
        _expire(names, context)

    return op_job(
        names,
        EXPIRE_JOB,
        expire_snapshots,
        "Removes old snapshots from tables with `table-expire.enabled`, and deletes files that only they needed.",
        "Expires old snapshots of the tables that ask for it, and deletes files that nothing needs any more.",
    )


def expiry_sensor(names: Names) -> dg.SensorDefinition:
    """The sensor `expiry_sensor`."""
    return ticking(
        names,
        "expiry_sensor",
        _tick,
        job_name=EXPIRE_JOB,
        every=_EVERY_SECONDS,
        description="Asks for a run of `expire_snapshots_job` when a table with `table-expire.enabled` has old snapshots, or when files "
        "need not wait any more.",
    )


def _tick(names: Names, context: dg.SensorEvaluationContext, services: Services) -> dg.SensorResult:
    due = services.expire_tables.due()
    if not due:
        return dg.SensorResult(skip_reason="no table has snapshots that may be old, or files whose grace time is over")
    text = f"{count_text(len(due), 'table')} due, e.g. {due[0]}"
    serving = active_run(context.instance, names.of(EXPIRE_JOB))
    if serving is not None:
        return dg.SensorResult(skip_reason=f"{text}; run {serving[:8]} is at it")
    return dg.SensorResult(run_requests=[dg.RunRequest(tags=MACHINE_TAGS)])


def _expire(names: Names, context: dg.OpExecutionContext) -> None:
    done = services_of(names, context).expire_tables.expire()
    for expired in done.expired:
        for record in expired.earlier:
            context.log.info(f"{record.store}: {record.summary}")
        for store in expired.stores:
            if store.refusal is not None:
                context.log.warning(f"{store.store}: nothing expires: {store.refusal}")
            elif store.record is not None:
                context.log.info(f"{store.store}: {store.record.summary}")
    for table, reason in done.skipped.items():
        context.log.error(f"{table}: its snapshots were not expired: {reason}")
    rest = f"; {count_text(done.rest, 'table')} left for the next run" if done.rest else ""
    context.log.info(f"{count_text(len(done.expired), 'table')} looked at{rest}")
    if done.skipped:
        raise dg.Failure(f"the snapshots of {count_text(len(done.skipped), 'table')} were not expired; the log names each with its reason")
