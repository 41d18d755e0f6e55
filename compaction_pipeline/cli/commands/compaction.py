"""`plan` and `compact`: show what would be done, and do it now."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum

import typer
from rich.console import RenderableType

from compaction_pipeline.cli.app import GLOBAL_HELP, INTERRUPTED, Interrupted, command_group, explain
from compaction_pipeline.cli.compaction_answer import (
    PAUSED,
    CompactionAnswer,
    TableBefore,
    answer_of,
    cut_off_answer,
    dry_run_answer,
    error_answer,
    exit_code_of_plan,
    interrupted_answer,
    interrupted_in_words,
)
from compaction_pipeline.cli.cost_tables import ranking_table
from compaction_pipeline.cli.following import Following
from compaction_pipeline.cli.render import left_alone, left_alone_table, plan_tasks_table, record_table
from compaction_pipeline.cli.session import TABLE_HELP, Session
from compaction_pipeline.cli.where import selected_nodes
from compaction_pipeline.core.commit.record import CompactionRecord
from compaction_pipeline.core.commit.snapshot_properties import snapshot_properties
from compaction_pipeline.core.errors import CompactionError, ConfigError
from compaction_pipeline.core.fragmentation.verdict import PlanReasonCode
from compaction_pipeline.core.insight.overview import TableOverview
from compaction_pipeline.core.insight.plain import plain
from compaction_pipeline.core.insight.plan_value import plan_value
from compaction_pipeline.core.planning.benefit import budget_of
from compaction_pipeline.core.planning.plan import CompactionPlan, PlanRequest
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.words import count_text
from compaction_pipeline.core.work.kinds import CompactionType

commands = command_group()


class TypeChoice(str, Enum):
    """The values of `--type`, in the lower case of a command line."""

    MINOR = "minor"
    MAJOR = "major"
    FULL = "full"


_TYPE = typer.Option(
    None,
    "--type",
    case_sensitive=False,
    help="Do only this kind of work, and ignore thresholds. Nodes that would not get better are still left alone.",
)
_SNAPSHOT_PROPERTY = typer.Option(
    [],
    "--snapshot-property",
    metavar="KEY=VALUE",
    help="Put this into the summary of the snapshots that commit this plan. Repeat the option for each property.",
)
_WHERE = typer.Option(
    None,
    "--where",
    metavar="PARTITION",
    help="Only these partitions: field=value, several pairs joined by ',' or '/', or a node's key. A value may hold ',', '/' and '='.",
)


@commands.command(epilog=GLOBAL_HELP)
def plan(
    context: typer.Context,
    table: str | None = typer.Argument(None, help=TABLE_HELP + " With --budget it may be left out, which means all tables."),
    kind: TypeChoice | None = _TYPE,
    where: str | None = _WHERE,
    budget: str | None = typer.Option(
        None, "--budget", metavar="GBh", help="Order what is due in all tables by benefit for cost, and draw the line at so many GB-hours."
    ),
) -> None:
    """Show what `compact` would do now, and why every other node is left alone. The command changes nothing.

    With --budget it shows which nodes readers gain most from for their cost, and how far the budget reaches. Tables are taken as they were
    read last, and by their own thresholds.

    Examples:

      compaction-pipeline plan lake.shop.orders
      compaction-pipeline plan lake.shop.orders --type full --where day=2024-01-01
      compaction-pipeline plan --budget 4GBh
    """
    identifier = None if table is None else TableIdentifier.parse(table)
    if budget is not None:
        if kind is not None or where is not None:
            raise ConfigError("--budget goes with no --type and no --where: it orders what is due by the tables' own thresholds")
        with Session(context) as session:
            found = session.services.rank_by_benefit.rank(budget_of(budget), identifier)
            lines = [f"{name}: {why}" for name, why in found.unknown.items()]
            session.output.answer(plain(found), ranking_table(found) if found.nodes else "no table has work that is due", *lines)
        return
    if identifier is None:
        raise ConfigError("the table is missing: name one, for example lake.shop.orders, or give --budget for all tables")
    with Session(context) as session:
        session.refresh(identifier, strict=True)
        request = _request(session, identifier, kind, where)
        made = session.services.one_table.explain(identifier, request)
        _must_be_valid(session, made)
        overview = session.services.read_tables.table(identifier).overview
        value = {**plan_value(identifier, made), "paused": overview.paused, "observe": overview.observe}
        value |= {"warning": overview.warning} if overview.warning is not None else {}
        session.output.answer(value, *_left_alone(overview), *_plan_rendered(made, request))
    raise typer.Exit(exit_code_of_plan(made))


@commands.command(epilog=GLOBAL_HELP)
def compact(
    context: typer.Context,
    table: str = typer.Argument(help=TABLE_HELP),
    kind: TypeChoice | None = _TYPE,
    where: str | None = _WHERE,
    dry_run: bool = typer.Option(False, "--dry-run", help="Only show what would be done."),
    snapshot_property: list[str] = _SNAPSHOT_PROPERTY,
) -> None:
    """Read, plan, merge and commit a table now. Without --type, the table's own thresholds decide.

    Examples:

      compaction-pipeline compact lake.shop.orders
      compaction-pipeline compact lake.shop.orders --type major --where day=2024-01-01
      compaction-pipeline compact lake.shop.orders --type full --dry-run --json
      compaction-pipeline compact lake.shop.orders --snapshot-property requested-by=nightly
    """

    def request(session: Session, identifier: TableIdentifier) -> PlanRequest:
        return replace(_request(session, identifier, kind, where), snapshot_properties=snapshot_properties(snapshot_property))

    compact_as(context, table, request, dry_run)


def compact_as(context: typer.Context, table: str, request: Callable[[Session, TableIdentifier], PlanRequest], dry_run: bool) -> None:
    """Do what `request` makes of the table as it is now, or say it, and end with the exit code of what became of it."""
    identifier = TableIdentifier.parse(table)
    with Session(context) as session:
        try:
            answer, rendered = _compacted(session, identifier, request, dry_run)
        except CompactionError as error:
            if not session.output.as_json:
                raise
            answer, rendered = error_answer(str(identifier), error, _before(session, identifier)), []
        except KeyboardInterrupt:
            if not session.output.as_json:
                raise
            answer, rendered = interrupted_answer(identifier, INTERRUPTED, 0, [], _before(session, identifier)), []
        session.output.answer(answer, *rendered)
    raise typer.Exit(answer.exit_code)


def _compacted(
    session: Session, table: TableIdentifier, wish: Callable[[Session, TableIdentifier], PlanRequest], dry_run: bool
) -> tuple[CompactionAnswer, list[RenderableType]]:
    session.refresh(table, strict=True)
    request = wish(session, table)
    before = _before(session, table)
    if dry_run:
        made = session.services.one_table.explain(table, request)
        _must_be_valid(session, made)
        first = [f"{table} is {PAUSED}"] if before.paused else []
        answer = dry_run_answer(str(table), made, before, plan_value(table, made))
        return answer, ["dry run: nothing is done", *first, *_plan_rendered(made, request)]
    with session.output.progress() as progress:
        following = Following(session.output, progress, table, session.services.merges_on)
        try:
            compaction = session.services.compact_tables.compact(table, request, listener=following)
            if compaction.committed or compaction.failed:
                session.services.one_table.look_again(table)
        except KeyboardInterrupt:
            records = following.own(session.services.read_records.newest(table))
            message = interrupted_in_words(records, len(session.services.read_tasks.merged(table)))
            if not session.output.as_json:
                raise Interrupted(message) from None
            return interrupted_answer(table, message, following.tasks(records), records, before), []
        except CompactionError as error:
            ended = _cut_off(session, table, following, error, before)
            if ended is None:
                raise
            return ended
    if not compaction.records:
        _must_be_valid(session, compaction.plan)
    answer = answer_of(compaction, before)
    said = [text for text in dict.fromkeys((answer.reason, answer.held)) if text is not None]
    return answer, [*_own_rendered(compaction.records, following), *(f"{table}: {text}" for text in said)]


def _cut_off(
    session: Session, table: TableIdentifier, following: Following, error: CompactionError, before: TableBefore
) -> tuple[CompactionAnswer, list[RenderableType]] | None:
    """The answer of a compaction that an error ended after a commit, or during one; None when there was no commit."""
    try:
        records, is_unread = following.own(session.services.read_records.newest(table)), False
    except CompactionError:
        records, is_unread = following.own(()), following.has_uncommitted_merges()
    answer = cut_off_answer(table, error, following.tasks(records), records, is_unread, before)
    if answer is None:
        return None
    if not session.output.as_json:
        session.output.error(answer.error or str(error), answer.exit_code, error.code)
        explain(session.output)
    return answer, _own_rendered(records, following)


def _must_be_valid(session: Session, made: CompactionPlan) -> None:
    """Raise ConfigError for people when a property of the table is wrong. Programs get that as the reason of the answer."""
    if made.reason.code in (PlanReasonCode.INVALID_PROPERTY, PlanReasonCode.GROUP_MISSING) and not session.output.as_json:
        raise ConfigError(made.reason.text)


def _request(session: Session, table: TableIdentifier, kind: TypeChoice | None, where: str | None) -> PlanRequest:
    nodes = None
    if where is not None:
        nodes = selected_nodes(session.services.read_tables.nodes(table), where)
    return PlanRequest((CompactionType(kind.value.upper()),) if kind is not None else None, nodes, force=kind is not None)


def _before(session: Session, table: TableIdentifier) -> TableBefore:
    try:
        overview = session.services.read_tables.table(table).overview
    except CompactionError:
        # The table is unknown, or the state database is down. The reason of the answer says so already.
        return TableBefore()
    return TableBefore(overview.snapshot_id, overview.metrics, overview.paused)


def _left_alone(table: TableOverview) -> list[str]:
    """Say for a person why nobody does what a plan shows."""
    alone = [f"{table.table} is {PAUSED}"] if table.paused else []
    alone += [f"warning: {table.warning}"] if table.warning is not None else []
    if table.observe:
        name = table.table.catalog
        alone.append(f"catalog {name} is only observed: `compact` does nothing before `catalog change {name} --no-observe`")
    return alone


def _own_rendered(records: Sequence[CompactionRecord], following: Following) -> list[RenderableType]:
    rendered: list[RenderableType] = []
    for record in records:
        if following.is_earlier(record):
            rendered.append(
                f"record {record.record_id} commits {count_text(len(record.task_ids), 'task')}, merged before this command began:"
            )
        rendered.append(record_table(record))
    return rendered


def _plan_rendered(made: CompactionPlan, request: PlanRequest) -> list[RenderableType]:
    rendered: list[RenderableType] = []
    alone = [verdict for verdict in left_alone(made) if verdict.reason.code is not PlanReasonCode.NOT_REQUESTED]
    others = len(left_alone(made)) - len(alone)
    if made.tasks:
        rendered.append(plan_tasks_table(made))
        rendered.append(made.files_after(request))
    if alone:
        rendered.append(left_alone_table(alone))
    if others:
        rendered.append(f"{count_text(others, 'other node')} not asked for")
    return [*rendered, made.reason.text]
