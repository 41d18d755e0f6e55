"""The jobs that leave tables alone for a while, and that take them up again. They do what the commands `pause` and `resume` do."""

# This module has no `from __future__ import annotations`. Dagster cannot resolve the annotation of a config parameter that is a string.
from collections.abc import Callable

import dagster as dg
from pydantic import Field

from compaction_pipeline.bootstrap import Services
from compaction_pipeline.core.errors import CompactionError, NotFoundError
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.words import count_text
from compaction_pipeline.defs.names import PAUSE_JOB, RESUME_JOB, Names
from compaction_pipeline.defs.op_jobs import op_job
from compaction_pipeline.defs.report import RunReport
from compaction_pipeline.defs.requests import tables_named, unknown_table
from compaction_pipeline.defs.resources import services_of


class PauseConfig(dg.Config):
    """Which tables to pause, or to resume: either names, or all tables."""

    tables: list[str] = Field(
        default_factory=list,
        description="Names of tables, written as catalog.namespace.table, for example lake.shop.orders.",
    )
    all_tables: bool = Field(
        default=False,
        description="Every table, and also the tables that appear later. Leave `tables` out then.",
    )


def pause_job(names: Names) -> dg.JobDefinition:
    """The job that leaves tables alone."""

    def pause(context: dg.OpExecutionContext, config: PauseConfig) -> None:
        services = services_of(names, context)
        _switch(names, context, config, services, services.explore_catalogs.pause, "paused")

    return op_job(
        names,
        PAUSE_JOB,
        pause,
        "Leaves the named tables alone, or every table.",
        "Leaves the tables that its configuration names alone, or with `all_tables: true` every table. Paused tables are still measured, "
        "but nothing is planned for them, and no waiting task begins. Tasks that run now are finished. `resume_job` ends the pause.",
    )


def resume_job(names: Names) -> dg.JobDefinition:
    """The job that looks after paused tables again."""

    def resume(context: dg.OpExecutionContext, config: PauseConfig) -> None:
        services = services_of(names, context)
        _switch(names, context, config, services, services.explore_catalogs.resume, "resumed")

    return op_job(
        names,
        RESUME_JOB,
        resume,
        "Looks after the named paused tables again, or after all of them.",
        "Looks after paused tables again: those that its configuration names, or with `all_tables: true` all of them. The next tick plans "
        "what is due.",
    )


def _switch(
    names: Names,
    context: dg.OpExecutionContext,
    config: PauseConfig,
    services: Services,
    switch: Callable[[TableIdentifier | None], int],
    word: str,
) -> None:
    """Pause or resume the tables of this configuration. When a name fits no table, the others are switched, and then the run fails.

    A launch without configuration fails, because it would change every table, and nobody asked for that.
    """
    if bool(config.tables) == config.all_tables:
        given = "names tables and also says `all_tables: true`" if config.tables else "names no table"
        raise dg.Failure(
            f"nothing was {word}: the configuration {given}. Write `tables` with names such as lake.shop.orders, "
            f"or `all_tables: true` if every table shall be {word}, but not both",
            allow_retries=False,
        )
    report = RunReport(names, context, services)
    if config.all_tables:
        context.log.info(f"all tables {word}; {count_text(switch(None), 'table')} changed")
    found = False
    for table, name in tables_named(config.tables, report.unknown).items():
        try:
            context.log.info(f"{table} {word}" if switch(table) else f"{table} was {word} before; nothing changed")
            found = True
        except NotFoundError:
            report.not_done([name], unknown_table(name))
        except CompactionError as error:
            report.not_done([name], error)
    report.fail_if_anything_failed(f"the rest is {word}" if found else f"nothing is {word}")
