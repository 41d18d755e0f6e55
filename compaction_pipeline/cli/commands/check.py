"""`check`: judge tables, and end with an exit code that stops a pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import RenderableType

from compaction_pipeline.cli.app import GLOBAL_HELP, command_group
from compaction_pipeline.cli.exit_codes import ExitCode
from compaction_pipeline.cli.render import checks_table, failures_table
from compaction_pipeline.cli.session import TABLE_HELP, Session
from compaction_pipeline.core.errors import ConfigError, NotFoundError
from compaction_pipeline.core.insight.plain import plain
from compaction_pipeline.core.tables.table import TableIdentifier

if TYPE_CHECKING:
    from compaction_pipeline.core.insight.checks.every_check import CheckResult
    from compaction_pipeline.core.insight.checks.gate import Checked
    from compaction_pipeline.core.insight.checks.judgement import Failure

commands = command_group()


class FailOn(str, Enum):
    """The values of `--fail-on`."""

    ERROR = "error"
    WARN = "warn"


@commands.command(epilog=GLOBAL_HELP)
def check(
    context: typer.Context,
    tables: list[str] | None = typer.Argument(None, metavar="TABLE", help=TABLE_HELP + " Without it, every table."),
    fail_on: FailOn = typer.Option(
        FailOn.ERROR, "--fail-on", case_sensitive=False, help="How bad a failed check must be to end the command with 1."
    ),
    junit: Path | None = typer.Option(None, "--junit", metavar="FILE", help="Write the results to this file too, as JUnit XML."),
    refresh: bool = typer.Option(True, "--refresh/--no-refresh", help="First read what is new in the tables."),
    as_of_now: bool = typer.Option(
        False,
        "--as-of-now",
        help="Judge the tables as they are at this moment. A partition that is due by its files fails, however short it has been due.",
    ),
    strict: bool = typer.Option(
        False, "--strict", help="End with 1 too when a check has no answer that --as-of-now could give, or when there is no table."
    ),
) -> None:
    """Judge whether tables are well compacted, and end with 1 when they are not. A CI pipeline can stop on it. The command merges nothing.

    The checks are those of Dagster. Each has the severity ERROR or WARN. The command ends with 1 when a check of severity ERROR fails, or
    with `--fail-on warn` when any check fails. It also ends with 1 when a table cannot be read, because nobody knows then whether it is
    well.

    Two checks judge how long work has waited. On a new state database, such as that of a CI runner, nobody knows this: they are "not
    evaluated". With --as-of-now the check `due_now` stands in their place. It needs no history, because it looks only at the files that
    the tables have now: their number, size and deletes. It also looks at tables of a catalog that was added with --observe.

    When COMPACTION_NOTICES_FILE names a file of addresses, this is judged first, without sending anything. A wrong one is an error.

    Examples:

      compaction-pipeline check
      compaction-pipeline check lake.shop.orders lake.shop.returns --fail-on warn
      compaction-pipeline check lake.shop.orders --junit compaction.xml --json
      compaction-pipeline check --as-of-now --strict
    """
    if as_of_now and not refresh:
        raise ConfigError("--as-of-now reads what is new in the tables, and --no-refresh forbids it: leave out one of the two")
    identifiers = list(dict.fromkeys(TableIdentifier.parse(table) for table in tables or ()))
    from compaction_pipeline.cli.junit import JUnitFile
    from compaction_pipeline.core.insight.checks.judgement import Severity

    least = Severity(fail_on.value.upper())
    report = JUnitFile(junit) if junit is not None else None
    with Session(context) as session:
        for warning in session.services.send_notices.check():
            session.output.say(f"warning: {warning}")
        with session.output.progress() as progress:
            progress.add_task("reading and judging tables", total=None)
            names = _unknown_first(session, identifiers)
            checked = session.services.check_tables.check(names, refresh=refresh, as_of_now=as_of_now, strict=strict)
        passed = checked.passes(least)
        code = ExitCode.DONE if passed else ExitCode.FAILED
        if report is not None:
            report.write(checked, least)
        value = {
            "passed": passed,
            "exit_code": int(code),
            "fail_on": least.value,
            "as_of_now": as_of_now,
            "strict": strict,
            "reason": checked.text(least),
            "tables": plain(identifiers) if identifiers else None,
            "checks": [_check_value(result) for result in checked.results],
            "unread": dict(checked.unread),
            "unjudged": dict(checked.unjudged),
            "left_alone": plain(checked.left_alone),
        }
        session.output.answer(value, *_rendered(checked), checked.text(least))
    raise typer.Exit(code)


def _unknown_first(session: Session, tables: Sequence[TableIdentifier]) -> list[TableIdentifier]:
    """Return these tables with unknown ones first. A mistyped name then ends the command before other tables are read, maybe for minutes.

    Raises NotFoundError when the catalog of a table is not registered.
    """
    known = frozenset(session.services.read_tables.names())
    unknown = [table for table in tables if table not in known]
    registered = [entry.name for entry in session.services.explore_catalogs.entries()]
    for table in unknown:
        if registered and table.catalog not in registered:
            raise NotFoundError(f"table {table} is in no registered catalog: correct its name; registered: {', '.join(registered)}")
    return [*unknown, *(table for table in tables if table in known)]


def _check_value(result: CheckResult) -> dict[str, object]:
    check, judgement = result.check, result.judgement
    return {
        "check": check.name,
        "severity": check.severity.value,
        "passed": result.passed if result.evaluated else None,
        "subject": judgement.subject,
        "judged": judgement.judged,
        "failing": len(judgement.failures),
        "text": judgement.text,
        **dict(judgement.figures),
        "description": check.description,
        "failures": [_failure_value(failure) for failure in judgement.failures],
        "unjudged": [_failure_value(unjudged) for unjudged in judgement.unjudged],
    }


def _failure_value(failure: Failure) -> dict[str, object]:
    return {
        "table": None if failure.table is None else str(failure.table),
        "node": None if failure.node is None else str(failure.node),
        "group": failure.group,
        "reason": failure.reason,
    }


def _rendered(checked: Checked) -> list[RenderableType]:
    rendered: list[RenderableType] = [checks_table(checked.results)]
    rendered += [failures_table(result) for result in checked.results if result.failed]
    rendered += [f"{name} could not be read: {why}" for name, why in checked.unread.items()]
    rendered += [f"{table} is left alone: {why}" for table, why in checked.left_alone.items()]
    rendered += [f"{name} not judged: {why}" for name, why in checked.unjudged.items()]
    return rendered
