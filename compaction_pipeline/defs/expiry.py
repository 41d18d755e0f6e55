"""Expires the snapshots of tables that ask for it, once an hour."""

# This module has no `from __future__ import annotations`. Dagster compares the annotation of an op's context, so it must not be a string.

import dagster as dg

from compaction_pipeline.core.words import count_text
from compaction_pipeline.defs.names import EXPIRE_JOB, Names
from compaction_pipeline.defs.op_jobs import op_job
from compaction_pipeline.defs.resources import services_of


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


def expire_schedule(names: Names, job: dg.JobDefinition) -> dg.ScheduleDefinition:
    """The schedule of this job."""
    return dg.ScheduleDefinition(
        name=names.of("compaction_expire_schedule"),
        job=job,
        cron_schedule="17 * * * *",
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description="Expires snapshots once an hour, in tables whose property `table-expire.enabled` is true.",
    )


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
