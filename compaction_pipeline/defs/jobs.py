"""The op jobs. One run drains a whole queue, because even an empty run costs 3–5 s; a run for each task or node would cost too much."""

# This module has no `from __future__ import annotations`. Dagster cannot resolve the annotation of a config parameter that is a string.
from datetime import timedelta

import dagster as dg
from pydantic import Field

from compaction_pipeline.bootstrap import Services
from compaction_pipeline.core.errors import CompactionError
from compaction_pipeline.core.planning.conflict_rounds import Requests
from compaction_pipeline.core.planning.plan import PlanRequest
from compaction_pipeline.core.queue.drain import Beside, never
from compaction_pipeline.core.tables.node_keys import table_key
from compaction_pipeline.core.words import count_text
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.defs.draining import LEFT_TO_OPTIMIZERS, TURN, Ending, is_of_machine, pool_wanted_by, when_done
from compaction_pipeline.defs.names import COMMIT_JOB, COMPACT_JOB, Names
from compaction_pipeline.defs.op_jobs import op_job
from compaction_pipeline.defs.refusals import failing_in_words
from compaction_pipeline.defs.report import RunReport
from compaction_pipeline.defs.requests import nodes_by_table, tables_named
from compaction_pipeline.defs.resources import merging_services, services_of
from compaction_pipeline.defs.work_metadata import planned_tasks
from compaction_pipeline.services.compaction.rounds import How


class CompactConfig(dg.Config):
    """What to compact. Without `tables` and `node_keys` the run plans nothing; it merges what the sensors planned."""

    tables: list[str] = Field(
        default_factory=list,
        description="Plan all due nodes of these tables first. Write catalog.namespace.table, for example lake.shop.orders.",
    )
    node_keys: list[str] = Field(
        default_factory=list,
        description="Plan these nodes first. They are partition keys of compacted_files; the table of the worst nodes shows them.",
    )
    type: CompactionType | None = Field(
        default=None,
        description=(
            "What to do with the named nodes and tables. MINOR merges small files. MAJOR also rewrites files with many deleted rows and "
            "joins undersized files. FULL rewrites every file whose rewrite gains something. Without it, the triggers of each node decide."
        ),
    )
    force: bool = Field(
        default=False,
        description="Ignore the thresholds for the named nodes and tables. Nodes that would not get better are still left alone.",
    )
    dry_run: bool = Field(
        default=False,
        description=(
            "Only show what a run with this configuration would plan, and why every other node is left alone. The plan is in the run's log "
            "and on the output of its step. Without names it shows every table."
        ),
    )


def compact_job(names: Names) -> dg.JobDefinition:
    """The job that works on the queue."""

    def compact(context: dg.OpExecutionContext, config: CompactConfig) -> None:
        _compact(names, context, config)

    return op_job(
        names,
        COMPACT_JOB,
        compact,
        "Plans the named tables and nodes, merges waiting tasks on Spark, commits the tables that are due, and reports.",
        "Merges what the sensors planned, and commits the tables that are due. It ends when the queue has been empty for a while, when its "
        "time is up, or when a queued run wants its pool. It leaves the queues of groups to their optimizers, and ends when these take all "
        "that waits. With `tables` or `node_keys` it plans and merges these first, and ends when they "
        "are committed. When a person launched it without names, it does not end for another run before the tasks that waited at its start "
        "are merged. `dry_run` only shows the plan.",
        merges=True,
    )


def _compact(names: Names, context: dg.OpExecutionContext, config: CompactConfig) -> None:
    """Plan the named tables and nodes, drain the queue and commit the tables that are due. Log an event for each node and record."""
    services = merging_services(names, context)
    report = RunReport(names, context, services)
    whole = tables_named(config.tables, report.unknown)
    named = nodes_by_table(services, config.node_keys, report.unknown)
    types = (config.type,) if config.type else None
    asked = {table: PlanRequest(types, frozenset(nodes.values()), config.force) for table, nodes in named.items()}
    asked |= dict.fromkeys(whole, PlanRequest(types, None, config.force))
    if (config.tables or config.node_keys) and not asked:
        # Without names the run would do other work, for which nobody asked.
        report.fail_if_anything_failed("nothing is planned")
    report.asked_for({**named, **{table: [name] for table, name in whole.items()}})
    if config.dry_run:
        everything = dict.fromkeys(services.read_tables.names(), PlanRequest(types, None, config.force))
        _explain(context, services, asked if config.tables or config.node_keys else everything, report)
        report.fail_if_anything_failed("the other plans are in the log")
        return
    services.keep_watch.keep()
    settings = services.settings
    is_machine = is_of_machine(context.run)
    # A run with names is busy until these are merged. `carry_out` sees to that.
    is_busy = services.await_tasks.under_way() if not is_machine and not asked else lambda: False
    began = services.clock()

    def wanted() -> str | None:
        return pool_wanted_by(context.instance, context.run.run_id, by_sensors=services.clock() - began >= TURN)

    wanted_by = when_done(is_busy, wanted)
    when_not_cut_short = "what this run was asked for is merged and committed" if asked else "the queue is empty"
    ending = Ending(services.clock, timedelta(seconds=settings.drain_seconds), wanted_by, when_not_cut_short)
    with failing_in_words(), report.saying_what_is_left():
        how = How(
            Beside.EVERY_QUEUE,
            listener=report,
            run_id=context.run.run_id,
            until=ending.over,
            linger=timedelta(seconds=settings.linger_seconds),
            in_a_hurry=ending.is_wanted if is_machine else never,
        )
        outcome = services.compact_tables.carry_out(asked, how)
    report.task_failures(outcome.failed)
    left_to_optimizers = not asked and services.share_queues.all_served()
    context.log.info(f"ends: {LEFT_TO_OPTIMIZERS if left_to_optimizers else ending.reason}")
    report.close()
    context.add_output_metadata(report.done_metadata)


def _explain(context: dg.OpExecutionContext, services: Services, asked: Requests, report: RunReport) -> None:
    """Log the plan that a run would carry out, and put it on the step's output."""
    metadata: dict[str, dg.MetadataValue] = {}
    for table, request in asked.items():
        try:
            plan = services.one_table.explain(table, request)
        except CompactionError as error:
            context.log.warning(f"dry run, {table}: {error}")
            report.not_planned(table, error)
            continue
        context.log.info(f"dry run, {table}: {count_text(len(plan.tasks), 'task')}; {plan.reason.text}")
        if plan.tasks:
            context.log.info(f"dry run, {table}: {plan.files_after(request)}")
        for verdict in plan.verdicts:
            if request.nodes is None or verdict.node in request.nodes:
                context.log.info(
                    f"dry run, {table} {verdict.node}: {verdict.type.value if verdict.type else 'left alone'}; {verdict.reason.text}"
                )
        metadata[table_key(table)] = planned_tasks(plan)
    context.add_output_metadata(metadata)


def commit_job(names: Names) -> dg.JobDefinition:
    """The job that commits what is due."""

    def commit(context: dg.OpExecutionContext) -> None:
        _commit(names, context)

    return op_job(
        names,
        COMMIT_JOB,
        commit,
        "Commits every table that is due, as one record each.",
        "Commits every table whose merged tasks have waited for its commit interval, as one record each.",
    )


def _commit(names: Names, context: dg.OpExecutionContext) -> None:
    """Claim and commit the merged tasks of every table that is due."""
    services = services_of(names, context)
    services.keep_watch.keep()
    report = RunReport(names, context, services)
    with failing_in_words(), report.saying_what_is_left():
        for record in services.commit_due.commit(context.run.run_id, report):
            report.committed(record)
    context.log.info(f"{count_text(len(report.records), 'table')} committed")
    report.close()
    context.add_output_metadata(report.done_metadata)
