"""Does works of upkeep in the tables that ask for them, when something is due."""

# This module has no `from __future__ import annotations`. Dagster compares the annotation of an op's context, so it must not be a string.

import dagster as dg

from compaction_pipeline.bootstrap import Services
from compaction_pipeline.core.upkeep.works import WORK_IN_WORDS
from compaction_pipeline.core.words import count_text
from compaction_pipeline.defs.metadata import megabytes
from compaction_pipeline.defs.names import MACHINE_TAGS, UPKEEP_JOB, Names
from compaction_pipeline.defs.op_jobs import op_job
from compaction_pipeline.defs.resources import services_of
from compaction_pipeline.defs.runs import active_run
from compaction_pipeline.defs.ticks import ticking
from compaction_pipeline.settings import Settings

_INTERVALS = 20
"""The sensor ticks once in so many intervals of the sensors that plan: every ten minutes, unless a setting says something else."""

_LONGEST_SECONDS = 86_400


def upkeep_job(names: Names) -> dg.JobDefinition:
    """The job that does works of upkeep."""

    def upkeep(context: dg.OpExecutionContext) -> None:
        _upkeep(names, context)

    return op_job(
        names,
        UPKEEP_JOB,
        upkeep,
        "Expires old snapshots, deletes files that nothing needs any more, and keeps metadata small, in the tables that ask for it.",
        "Does the works of upkeep that tables ask for: old snapshots, merged change files, old rows, small manifests, orphan files.",
    )


def upkeep_sensor(names: Names, settings: Settings) -> dg.SensorDefinition:
    """The sensor `upkeep_sensor`."""
    return ticking(
        names,
        "upkeep_sensor",
        _tick,
        job_name=UPKEEP_JOB,
        every=min(_INTERVALS * settings.sensor_interval_seconds, _LONGEST_SECONDS),
        description="Asks for a run of `upkeep_job` when a table that asks for upkeep changed, when a time has come, or when files need "
        "not wait any more.",
    )


def _tick(names: Names, context: dg.SensorEvaluationContext, services: Services) -> dg.SensorResult:
    due = services.upkeep_tables.due()
    if not due:
        return dg.SensorResult(skip_reason="no table that asks for upkeep has changed, and no files wait whose time is over")
    tables = dict.fromkeys(table for table, _ in due)
    text = f"{count_text(len(tables), 'table')} due, e.g. {next(iter(tables))}"
    serving = active_run(context.instance, names.of(UPKEEP_JOB))
    if serving is not None:
        return dg.SensorResult(skip_reason=f"{text}; run {serving[:8]} is at it")
    return dg.SensorResult(run_requests=[dg.RunRequest(tags=MACHINE_TAGS)])


def _upkeep(names: Names, context: dg.OpExecutionContext) -> None:
    upkept = services_of(names, context).upkeep_tables.run()
    for done in upkept.done:
        for line in done.lines:
            context.log.info(line)
        for refusal in done.refusals:
            context.log.warning(refusal)
    for (table, work), reason in upkept.failed.items():
        context.log.error(f"{table}: {WORK_IN_WORDS[work]}: {reason}")
    stored = {f"{done.table} stored_mb": megabytes(done.stored_bytes) for done in upkept.done if done.stored_bytes is not None}
    if stored:
        # Dagster plots figures of an asset by their names, so they stand beside those of live files.
        figures = {name: dg.MetadataValue.float(value) for name, value in stored.items()}
        context.log_event(dg.AssetObservation(names.table_figures, metadata=figures))
    rest = f"; {upkept.rest} left for the next run" if upkept.rest else ""
    context.log.info(f"{count_text(len(upkept.done), 'work')} done or not needed{rest}")
    if upkept.failed:
        tables = {table for table, _ in upkept.failed}
        raise dg.Failure(f"upkeep of {count_text(len(tables), 'table')} failed; the log names each with its reason")
