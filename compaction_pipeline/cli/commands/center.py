"""`dependencies …`: jobs, what their instances wait for, and reports of their runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from compaction_pipeline.cli.app import GLOBAL_HELP, command_group
from compaction_pipeline.cli.exit_codes import ExitCode
from compaction_pipeline.cli.session import Session
from compaction_pipeline.core.dependencies.center.inbox import Quality, SetAside
from compaction_pipeline.core.dependencies.center.instances import Instance, InstanceState
from compaction_pipeline.core.dependencies.center.jobs import SCHEDULED
from compaction_pipeline.core.dependencies.center.lineage import with_asset_reads
from compaction_pipeline.core.dependencies.center.ports import InstanceQuery
from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.insight.plain import plain
from compaction_pipeline.core.words import count_text, duration_text, time_text

if TYPE_CHECKING:
    from compaction_pipeline.services.dependencies.center import JobSummary
    from compaction_pipeline.services.dependencies.convert_project import Conversion
    from compaction_pipeline.services.dependencies.why import Missing

dependencies = typer.Typer(
    no_args_is_help=True,
    help=(
        "Start jobs when their data is there. A project is a YAML file of jobs, with what each needs. `serve` makes an instance of "
        "a job for each business time, and releases it when all of that is there."
        "\n\nExamples:\n\n  compaction-pipeline dependencies save sales.yaml\n  compaction-pipeline dependencies why sales.load 2026-01-01"
    ),
    epilog=GLOBAL_HELP,
)
commands = command_group()
commands.add_typer(dependencies, name="dependencies")

_MOST_BYTES = 64 * 1024 * 1024
JOB = typer.Argument(help="The name of the job.")
_BIZ = typer.Argument(help="Its business time: 2026-01-01T03, 2026-01-01, 2026-W01 or 2026-01.")
_ORIGIN = typer.Option(SCHEDULED, "--backfill", metavar="NAME", help="The backfill that made the instance.")


@dependencies.command(epilog=GLOBAL_HELP)
def save(
    context: typer.Context,
    file: Path = typer.Argument(help="The YAML file of one project. It is the whole of it: jobs that it lacks are removed."),
    dry_run: bool = typer.Option(False, "--dry-run", help="Only say what would change."),
    dagster: str | None = typer.Option(
        None, "--dagster", metavar="MODULE", help="Jobs that produce assets read what these depend on in the definitions of this module."
    ),
    many: bool = typer.Option(False, "--many", help="Make also more than 10,000 instances at once."),
) -> None:
    """Save a project, and say what changed and what the first instance of each new or changed job waits for.

    A file with an empty list of jobs removes the project. A job that another project waits for is not removed.

    Examples:

      compaction-pipeline dependencies save sales.yaml --dry-run
      compaction-pipeline dependencies save sales.yaml --dagster my_project.definitions
    """
    from compaction_pipeline.services.yaml_file import yaml_value

    value = yaml_value(file, f"FILE is {str(file)!r}", _MOST_BYTES, "a project")
    if not isinstance(value, dict):
        raise ConfigError(f"FILE is {str(file)!r}, which is no mapping: it must have 'project' and 'jobs'; see docs/center.md")
    if dagster is not None:
        # The import of Dagster takes seconds.
        from compaction_pipeline.defs.asset_graph import asset_reads

        value = with_asset_reads(value, asset_reads(dagster))
    with Session(context) as session:
        change = session.services.center.save_project(value, dry_run=dry_run, many=many)
        lines = [f"{name}: {what}" for what in ("added", "changed", "removed") for name in getattr(change, what)]
        first = [f"{name}: its first instance waits for: {_all_of(needs)}" for name, needs in change.previews.items()]
        said = [str(one) for one in (*change.suggestions, *change.alerts)]
        first += [f"{name}: {count_text(count, 'instance')} made at once" for name, count in change.at_once.items()]
        session.output.answer(change, *(lines or ["nothing changed"]), *first, *said, *(["nothing was saved"] if dry_run else []))


@dependencies.command(epilog=GLOBAL_HELP)
def jobs(context: typer.Context) -> None:
    """List the jobs of all projects, with what each needs.

    Examples:

      compaction-pipeline dependencies jobs --json
    """
    with Session(context) as session:
        found = session.services.center.jobs()
        session.output.answer(found, *([line for job in found for line in _job_lines(job)] or ["no jobs"]))


@dependencies.command(epilog=GLOBAL_HELP)
def instances(
    context: typer.Context,
    job: str | None = typer.Option(None, "--job", help="Only of this job."),
    state: InstanceState | None = typer.Option(None, "--state", help="Only in this state."),
    origin: str | None = typer.Option(None, "--backfill", metavar="NAME", help="Only of this backfill."),
    most: int = typer.Option(50, "--most", min=1, max=10_000, help="At most so many."),
) -> None:
    """List instances, the newest first.

    Examples:

      compaction-pipeline dependencies instances --state WAITING
    """
    with Session(context) as session:
        found = session.services.center.instances(InstanceQuery(job=job, state=state, origin=origin, most=most))
        value = [{"key": one.key, **_dict(plain(one))} for one in found]
        session.output.answer(value, *([_instance_line(one) for one in found] or ["no instances"]))


@dependencies.command(epilog=GLOBAL_HELP)
def why(context: typer.Context, job: str = JOB, biz: str = _BIZ, origin: str = _ORIGIN) -> None:
    """Say what an instance waits for, who makes it, and what it has found.

    Examples:

      compaction-pipeline dependencies why sales.load 2026-01-01
    """
    with Session(context) as session:
        answer = session.services.why(job, biz, origin)
        lines = [_instance_line(answer.instance)]
        lines += [
            f"  waits for {one.subject}{_makers(one.produced_by)}{_expected(one)}{_rule(one.rule)}{_problem(one)}"
            for one in answer.waits_for
        ]
        lines += [f"  found {one.subject}, {time_text(one.at)} UTC" if one.at else f"  found {one.subject}" for one in answer.found]
        lines += [f"  without {one.subject}{_came(one)}{_rule(one.rule)}{_problem(one)}" for one in answer.without]
        if answer.busy is not None:
            lines.append(f"  BUSY_ELSEWHERE: the {answer.busy} instance of this business time is ready or runs; this one starts after it")
        session.output.answer(answer, *lines)


@dependencies.command(epilog=GLOBAL_HELP)
def ready(context: typer.Context, subject: str = typer.Argument(help="For example 'job=sales.load && biz=2026-01-01'.")) -> None:
    """Say whether a subject is there. The command ends with 0 when it is, and with 6 when it is not, or nobody said so.

    Examples:

      compaction-pipeline dependencies ready 'job=sales.load && biz=2026-01-01' && run-the-report
    """
    with Session(context) as session:
        found = session.services.center.ready(subject)
        code = ExitCode.DONE if found else ExitCode.NOT_READY
        text = "is there" if found else "nobody told the center, so it is not ready" if found is None else "is not there"
        session.output.answer({"subject": subject, "ready": found, "exit_code": int(code)}, f"{subject}: {text}")
    raise typer.Exit(code)


@dependencies.command(epilog=GLOBAL_HELP)
def report(
    context: typer.Context,
    subject: str = typer.Argument(help="For example 'job=raw.events && biz=2026-01-01T03'."),
    state: InstanceState = typer.Argument(help="RUNNING, SUCCEEDED or FAILED."),
    generation: int | None = typer.Option(None, "--generation", min=1, help="Which run it is, as its start said."),
    source: str = typer.Option("command line", "--source", help="Who reports."),
    number: int | None = typer.Option(None, "--number", min=0, help="The reporter's own count, by which old reports are known."),
) -> None:
    """Report how a run of a job is, or that an asset is there (SUCCEEDED) or not any more (FAILED).

    Examples:

      compaction-pipeline dependencies report 'job=raw.events && biz=2026-01-01T03' SUCCEEDED
    """
    with Session(context) as session:
        found = session.services.center.report(subject, state, source, generation=generation, number=number)
        session.output.answer({"subject": str(found), "state": state.value}, f"{found}: {state.value} was reported")


@dependencies.command(epilog=GLOBAL_HELP)
def quality(
    context: typer.Context,
    subject: str = typer.Argument(help="For example 'job=sales.load && biz=2026-01-01'."),
    state: Quality = typer.Argument(help="PASSED or FAILED."),
    generation: int | None = typer.Option(None, "--generation", min=1, help="Which run it is, as its start said."),
    source: str = typer.Option("command line", "--source", help="Who tells it."),
    number: int | None = typer.Option(None, "--number", min=0, help="The reporter's own count, by which old reports are known."),
) -> None:
    """Tell whether what a run made is good. Runs of a job with `quality` count once they have succeeded and this has passed.

    Examples:

      compaction-pipeline dependencies quality 'job=sales.load && biz=2026-01-01' PASSED --generation 1
    """
    from compaction_pipeline.services.dependencies.reports import QualityReport

    with Session(context) as session:
        told = QualityReport(subject, state, generation, number)
        (found,) = session.services.center.tell_quality([told], source)
        session.output.answer({"subject": str(found), "quality": state.value}, f"{found}: its quality was told as {state.value}")


@dependencies.command(epilog=GLOBAL_HELP)
def backfill(
    context: typer.Context,
    name: str = typer.Argument(help="The name of the backfill: the origin of its instances."),
    first: str = typer.Argument(metavar="FROM", help="The first business time of the first job."),
    last: str = typer.Argument(metavar="TO", help="The last one."),
    jobs: list[str] = typer.Argument(metavar="JOB", help="The jobs."),
) -> None:
    """Make instances of jobs for a span of business times, all at once.

    They wait for each other, and for scheduled runs of other jobs and times.

    Examples:

      compaction-pipeline dependencies backfill fix-1 2026-01-01 2026-01-07 sales.load sales.report
    """
    with Session(context) as session:
        count = session.services.center.backfill(name, jobs, first, last)
        session.output.answer({"backfill": name, "made": count}, f"{name}: {count_text(count, 'new instance')}")


@dependencies.command("run-again", epilog=GLOBAL_HELP)
def run_again(context: typer.Context, job: str = JOB, biz: str = _BIZ, origin: str = _ORIGIN) -> None:
    """Let an instance run again, as its next generation, when its data is there. What waits for it waits until it has succeeded.

    Examples:

      compaction-pipeline dependencies run-again sales.load 2026-01-01
    """
    with Session(context) as session:
        one = session.services.center.run_again(job, biz, origin)
        session.output.answer({"key": one.key, **_dict(plain(one))}, _instance_line(one))


@dependencies.command("set-aside", epilog=GLOBAL_HELP)
def set_aside(
    context: typer.Context,
    again: int | None = typer.Option(None, "--again", metavar="NUMBER", min=1, help="Let the leader apply this fact once more."),
    remove: int | None = typer.Option(None, "--remove", metavar="NUMBER", min=1, help="Remove this fact for good."),
    most: int = typer.Option(50, "--most", min=1, max=10_000, help="List at most so many."),
) -> None:
    """List facts that could not be applied: what each is about, who said it and when, and what was wrong; or do something with one.

    Examples:

      compaction-pipeline dependencies set-aside

      compaction-pipeline dependencies set-aside --again 17
    """
    if again is not None and remove is not None:
        raise ConfigError("--again and --remove were both given: a fact is either tried again or removed, so give one of them")
    with Session(context) as session:
        facts = session.services.facts_set_aside
        if again is not None:
            one = facts.try_again(again, "a person on the command line")
            session.output.answer(one, f"fact {one.id}, {one.subject}: the leader applies it in its next pass, or sets it aside again")
        elif remove is not None:
            one = facts.remove(remove, "a person on the command line")
            session.output.answer(one, f"fact {one.id}, {one.subject or one.text}: it is removed")
        else:
            found = facts.facts(most)
            session.output.answer(found, *([_fact_line(one) for one in found] or ["no fact is set aside"]))


def _fact_line(one: SetAside) -> str:
    said = f"{one.source} at {time_text(one.at)} UTC" if one.at is not None else "nobody knows who and when"
    return f"{one.id}: {one.subject or one.text}, said by {said}: {one.problem}"


@dependencies.command("convert-project", epilog=GLOBAL_HELP)
def convert_project(
    context: typer.Context,
    project: str = typer.Argument(help="A project that comes after others."),
    shadow: int | None = typer.Option(None, "--shadow", metavar="DAYS", min=1, max=100, help="Run root and end nodes beside the rule."),
    switch: bool = typer.Option(False, "--switch", help="Wait by nodes from now on, when the shadow has shown the same moments."),
    anyway: bool = typer.Option(False, "--anyway", help="Switch without a shadow."),
    tighten: bool = typer.Option(False, "--tighten", help="Let jobs that name what they need of a project wait for that alone."),
    back: bool = typer.Option(False, "--back", help="Wait for each job again, and end a shadow."),
) -> None:
    """Convert the rule of a project (`after`) to root and end nodes, by which its jobs start at the same moments with fewer edges.

    Without an option, say how far it is, and which moments of the shadow differ from those of the rule.

    Examples:

      compaction-pipeline dependencies convert-project reports --shadow 7

      compaction-pipeline dependencies convert-project reports --switch
    """
    if (shadow is not None) + switch + tighten + back > 1 or (anyway and not switch):
        raise ConfigError("'--shadow', '--switch', '--tighten' and '--back' exclude each other, and '--anyway' belongs to '--switch'")
    with Session(context) as session:
        convert = session.services.convert_project
        if shadow is not None:
            found = convert.shadow(project, shadow)
        elif switch:
            found = convert.switch(project, anyway=anyway)
        elif tighten:
            found = convert.tighten(project)
        else:
            found = convert.back(project) if back else convert.look(project)
        session.output.answer(found, *_conversion_lines(found))


def _conversion_lines(found: Conversion) -> Iterator[str]:
    yield f"{found.project} comes after {', '.join(found.after)}, by {found.form}"
    if found.shadow_since is not None and found.shadow_until is not None:
        yield f"a shadow by nodes runs since {time_text(found.shadow_since)} UTC, until {time_text(found.shadow_until)} UTC at least"
        yield (
            f"{found.same} at the same moment, {found.different} at others, {found.open} open, {found.left_out} left out; "
            f"the farthest {duration_text(found.farthest)} apart"
        )
    for one in found.differences:
        rule, nodes = ("not yet" if at is None else f"{time_text(at)} UTC" for at in (one.by_rule, one.by_nodes))
        yield f"  {one.job}/{one.biz}: by the rule {rule}, by nodes {nodes}"
    for name, time in found.earlier.items():
        yield f"  {name} would start {duration_text(time)} earlier, or more, if it waited only for what it names"


def _job_lines(job: JobSummary) -> Iterator[str]:
    who = "reported" if job.receiver is None else f"started by {job.receiver}"
    judged = f", its quality told by {job.quality}" if job.quality else ""
    yield f"{job.name} ({job.project}): each {job.period.lower()} in {job.zone}, trigger {job.trigger}, {who}{judged}"
    yield from (f"  needs {edge}" for edge in job.needs)


def _instance_line(one: Instance) -> str:
    missing = f", {count_text(one.missing, 'thing')} missing" if one.state is InstanceState.WAITING else ""
    changed = f"; it ran on data that changed at {time_text(one.changed_at)} UTC" if one.changed_at is not None else ""
    note = f"; {one.note}" if one.note is not None else ""
    return f"{one.key}: {one.state.value}{missing}{note}{changed}"


def _all_of(needs: tuple[str, ...]) -> str:
    shown = ", ".join(needs[:5])
    return (f"{shown} and {len(needs) - 5} more" if len(needs) > 5 else shown) or "nothing"


def _rule(rule: str) -> str:
    return f" ({rule})" if rule else ""


def _problem(one: Missing) -> str:
    return f": {one.problem}" if one.problem else ""


def _came(one: Missing) -> str:
    return f", which came {time_text(one.at)} UTC" if one.there else _makers(one.produced_by)


def _expected(one: Missing) -> str:
    return f", expected {time_text(one.expected.usual)} UTC" if one.expected is not None else ""


def _makers(jobs: tuple[str, ...]) -> str:
    return f", made by {', '.join(jobs)}" if jobs else ""


def _dict(value: object) -> dict[str, object]:
    assert isinstance(value, dict)
    return value
