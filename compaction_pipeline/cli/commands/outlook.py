"""`dependencies …` that look ahead: what jobs should wait for, when instances will be done, and what must run again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer

from compaction_pipeline.cli.app import GLOBAL_HELP
from compaction_pipeline.cli.commands.center import JOB, commands, dependencies
from compaction_pipeline.cli.session import Session
from compaction_pipeline.core.words import count_text, time_text

if TYPE_CHECKING:
    from compaction_pipeline.services.dependencies.forecast import InstanceForecast
    from compaction_pipeline.services.dependencies.repair import RepairedJob

__all__ = ["commands"]


@dependencies.command(epilog=GLOBAL_HELP)
def lineage(context: typer.Context, project: str | None = typer.Option(None, "--project", help="Only of this project.")) -> None:
    """Say which jobs should wait for others by what they read, and what owners of jobs should look at.

    Examples:

      compaction-pipeline dependencies lineage --project sales
    """
    with Session(context) as session:
        found = session.services.read_lineage.lineage(project)
        lines = [str(one) for one in (*found.suggestions, *found.alerts)]
        session.output.answer(found, *(lines or ["nothing is to be said"]))


@dependencies.command(epilog=GLOBAL_HELP)
def forecast(
    context: typer.Context,
    job: str | None = typer.Argument(None, help="Only of this job."),
    project: str | None = typer.Option(None, "--project", help="Only of the jobs of this project."),
    hours: float = typer.Option(24, "--hours", help="Instances whose trigger comes within so many hours, beside those that are open."),
) -> None:
    """Say when instances will be ready and done, what holds each up, and which promises are in danger.

    Each time is told as it usually is, and when it is late: half, and nine of ten, of the last 14 runs were no later.

    Examples:

      compaction-pipeline dependencies forecast sales.report
    """
    with Session(context) as session:
        found = session.services.forecast_jobs.forecast(job=job, project=project, hours=hours)
        lines = [line for one in found.instances for line in _forecast_lines(one)]
        right = [f"of the last {found.judged} runs, {found.kept} took no longer than late ones before them"] if found.judged else []
        session.output.answer(found, *(lines or ["no instances"]), *right)


@dependencies.command(epilog=GLOBAL_HELP)
def repair(
    context: typer.Context,
    job: str = JOB,
    first: str = typer.Argument(help="The first business time."),
    last: str | None = typer.Argument(None, help="The last one; the first where nothing is said."),
    only_downstream: bool = typer.Option(False, "--only-downstream", help="Without the job itself, which has run again already."),
    launch: str | None = typer.Option(None, "--launch", metavar="NAME", help="Launch all of it as a backfill of this name."),
) -> None:
    """Show what must run again after runs of a job did: all that was made of their data, layer by layer.

    Examples:

      compaction-pipeline dependencies repair sales.load 2026-01-01 2026-01-07
      compaction-pipeline dependencies repair sales.load 2026-01-01 --only-downstream --launch fix-january
    """
    with Session(context) as session:
        found = session.services.repair_jobs.repair(job, first, last or first, only_downstream=only_downstream, launch=launch)
        lines = [line for number, layer in enumerate(found.layers, start=1) for line in _layer_lines(number, layer)]
        if not lines:
            lines = [f"nothing of {job} has run or is due from {first} to {last or first}, so nothing follows from it"]
        end = f"{count_text(found.count, 'instance')} to start" + (
            "" if launch is None else f"; {found.launched} made in backfill {launch}"
        )
        session.output.answer(found, *lines, end)


def _forecast_lines(one: InstanceForecast) -> Iterator[str]:
    at_least = "at least " if one.is_at_least else ""
    if one.ready is None or one.done is None:
        yield f"{one.job}/{one.biz}: {one.state.value}, nobody knows when, because of {one.blocked_by}, which failed"
    else:
        times = f"ready {time_text(one.ready.usual)} UTC, done {time_text(one.done.usual)} UTC, late {time_text(one.done.late)} UTC"
        yield f"{one.job}/{one.biz}: {one.state.value}, {at_least}{times}"
    if one.promise is not None and one.promised_at is not None:
        yield f"  promised {time_text(one.promised_at)} UTC: {one.promise.value}"
    if len(one.path) > 1:
        yield f"  held up by {' <- '.join(one.path[1:])}"


def _layer_lines(number: int, layer: tuple[RepairedJob, ...]) -> Iterator[str]:
    yield f"layer {number}"
    for one in layer:
        by_itself = ", by itself" if one.virtual else ""
        yield f"  {one.job}: {', '.join(one.times)} ({one.count}){by_itself}"
