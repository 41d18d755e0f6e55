"""`compaction_checks_job`: judges all tables, stores every evaluation, and then fails when a check fails.

A job that Dagster makes of asset checks ends with success whatever they say. So this job has an op of its own, which raises at its end.
"""

# This module has no `from __future__ import annotations`. Dagster cannot resolve the annotation of a config parameter that is a string.
import dagster as dg
from pydantic import Field

from compaction_pipeline.core.insight.checks.every_check import CHECKS, DUE_NOW
from compaction_pipeline.core.insight.checks.judgement import Severity
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.defs.check_events import log_evaluation
from compaction_pipeline.defs.checks import evaluation
from compaction_pipeline.defs.metadata import Column, table_of
from compaction_pipeline.defs.names import CHECKS_JOB, Names
from compaction_pipeline.defs.op_jobs import op_job
from compaction_pipeline.defs.refusals import failing_in_words
from compaction_pipeline.defs.resources import services_of


class ChecksConfig(dg.Config):
    """Which tables are judged, and which failures make the run fail."""

    tables: list[str] = Field(default_factory=list, description="Judge these tables (catalog.namespace.table). Without it, all tables.")
    fail_on: Severity = Field(
        default=Severity.ERROR,
        description="ERROR: the run fails when a check of severity ERROR fails. WARN: it fails when any check fails.",
    )
    as_of_now: bool = Field(
        default=False,
        description=(
            "Judge the tables as they are at this moment, which needs no history: a node that is due by its files fails the run, however "
            "short it has been due. In a deployment nodes are due all the time, so use it where no sensors work. It needs `refresh`."
        ),
    )
    strict: bool = Field(
        default=False, description="The run fails too when a check has no answer that `as_of_now` could give, or when there is no table."
    )
    refresh: bool = Field(default=True, description="First read what is new in the tables. A table that cannot be read fails the run.")


def compaction_checks_job(names: Names) -> dg.JobDefinition:
    """The job that judges all tables."""

    def judge(context: dg.OpExecutionContext, config: ChecksConfig) -> None:
        _judge(names, context, config)

    return op_job(
        names,
        CHECKS_JOB,
        judge,
        "Judges all checks, logs an evaluation of each, and fails when one of them fails.",
        f"Reads what is new in the tables and runs the {len(CHECKS)} checks on them. The run fails when a check of severity ERROR fails, "
        "or when a table cannot be read. It merges nothing.",
    )


def _judge(names: Names, context: dg.OpExecutionContext, config: ChecksConfig) -> None:
    """Log the evaluation of every check before the run fails, so that Dagster stores all of them."""
    services = services_of(names, context)
    with failing_in_words():
        tables = [TableIdentifier.parse(table) for table in config.tables]
        checked = services.check_tables.check(tables, refresh=config.refresh, as_of_now=config.as_of_now, strict=config.strict)
    for result in checked.results:
        # Nothing is stored for a check without an answer. `due_now` is no check of an asset: it would be red whenever work waits.
        if result.evaluated and result.check is not DUE_NOW:
            log_evaluation(context, evaluation(names, result))
        else:
            context.log.info(f"{result.check.name}: {result.judgement.text}")
    for table, why in checked.left_alone.items():
        context.log.info(f"{table} is left alone: {why}")
    if checked.passes(config.fail_on):
        context.log.info(checked.text(config.fail_on))
        return
    failed = [
        *((result.check.name, result.check.severity, result.judgement.text) for result in checked.stopping(config.fail_on)),
        *((name, Severity.ERROR, f"could not be read: {why}") for name, why in checked.unread.items()),
        *((name, Severity.ERROR, f"not judged: {why}") for name, why in checked.unjudged.items()),
    ]
    columns: tuple[Column[tuple[str, Severity, str]], ...] = (
        ("what", "string", "check or table", lambda row: row[0]),
        ("severity", "string", "ERROR or WARN", lambda row: row[1].value),
        ("reason", "string", "why", lambda row: row[2]),
    )
    raise dg.Failure(checked.text(config.fail_on), metadata={"failed": table_of(failed, columns)}, allow_retries=False)
