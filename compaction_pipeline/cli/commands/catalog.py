"""`catalog add | change | show | list | explore | remove`: which catalogs the program looks after."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import typer

from compaction_pipeline.cli.app import GLOBAL_HELP, command_group
from compaction_pipeline.cli.catalog_tables import catalog_table, catalogs_table
from compaction_pipeline.cli.commands.catalog_file import files
from compaction_pipeline.cli.exit_codes import ExitCode
from compaction_pipeline.cli.key_values import key_values
from compaction_pipeline.cli.session import Session
from compaction_pipeline.core.catalogs.change import CatalogChange
from compaction_pipeline.core.catalogs.definition import read_definition
from compaction_pipeline.core.catalogs.value import catalog_value
from compaction_pipeline.core.errors import AccessDenied, ConfigError
from compaction_pipeline.core.insight.masking import masked_properties
from compaction_pipeline.core.insight.overview import NO_CATALOG
from compaction_pipeline.core.insight.plain import plain
from compaction_pipeline.core.words import count_text

if TYPE_CHECKING:
    from compaction_pipeline.services.tables.manage_catalogs import Tried

_HELP = (
    "Register the catalogs whose tables the program looks after."
    "\n\nExamples:\n\n  compaction-pipeline catalog list\n  compaction-pipeline catalog add --help"
)
catalogs = typer.Typer(
    no_args_is_help=True,
    help=_HELP,
    epilog=GLOBAL_HELP,
)
commands = command_group()
catalogs.add_typer(files, name="file")
commands.add_typer(catalogs, name="catalog")

_MOST_OTHERS = 20
_NAME = typer.Argument(help="The registered name of the catalog.")
_PROPERTY_HELP = (
    "A property: of PyIceberg's catalogs, table.KEY for all tables of the catalog, database-filter, table-filter, table-formats or "
    "authentication. Repeat the option for each property."
)
_DRY_RUN = typer.Option(False, "--dry-run", help="Check everything, list the tables, and store nothing.")


@catalogs.command(epilog=GLOBAL_HELP)
def add(
    context: typer.Context,
    name: str = typer.Argument(help="The name that the catalog gets here. It becomes the first level of TABLE."),
    properties: list[str] = typer.Option([], "--property", "-p", metavar="KEY=VALUE", help=_PROPERTY_HELP),
    group: str | None = typer.Option(None, "--group", help="The resource group of its tables that name none."),
    observe: bool = typer.Option(False, "--observe", help="Only measure and plan its tables, and change none of them. Begin this way."),
    dry_run: bool = _DRY_RUN,
) -> None:
    """Register a catalog that PyIceberg can open, and list its tables. All that is wrong is told at once, and nothing is stored then.

    Filters are regular expressions (RE2) that must match as a whole: database-filter the namespace, table-filter the namespace.table.

    Examples:

      compaction-pipeline catalog add lake -p type=sql -p uri=sqlite:////data/catalog.db -p warehouse=file:///data/lake --observe
      compaction-pipeline catalog add prod -p type=rest -p uri=https://catalog.example.com -p credential=id:secret --group heavy
      compaction-pipeline catalog add flink -p type=sql -p uri=postgresql://me:pw@db/catalog -p catalog-name=flink_catalog
      compaction-pipeline catalog add shop -p type=hive -p uri=thrift://meta:9083 -p database-filter='shop_.*' --dry-run
    """
    given = key_values(properties, "type=sql")
    definition, problems = read_definition({"name": name, "properties": given, "group": group, "observe": observe})
    with Session(context) as session:
        tried = session.services.manage_catalogs.add(definition, problems, dry_run=dry_run)
        try:
            session.services.explore_catalogs.read_first(() if dry_run else tried.tables)
        except AccessDenied as error:
            # This process may still have access to other tables of the catalog.
            session.output.say(f"warning: catalog {name} is registered, but its storage denies access: {error}")
        done = "would be registered" if dry_run else "registered"
        _answer(session, tried, f"catalog {name} {done}, {_mode(tried, dry_run)}", dry_run)


@catalogs.command(epilog=GLOBAL_HELP)
def change(
    context: typer.Context,
    name: str = _NAME,
    properties: list[str] = typer.Option([], "--property", "-p", metavar="KEY=VALUE", help=_PROPERTY_HELP),
    unset: list[str] = typer.Option([], "--unset", metavar="KEY", help="A property that the catalog shall not have any more. Repeatable."),
    observe: bool | None = typer.Option(None, "--observe/--no-observe", help="Only measure and plan its tables, or compact them."),
    take_over: bool = typer.Option(
        False,
        "--take-over",
        help="Also change keys that the file or the component holds. Whichever of them still names the catalog sets them again.",
    ),
    dry_run: bool = _DRY_RUN,
) -> None:
    """Change properties of a catalog, and keep the rest. Its tables keep their history. The new properties are tried by one listing first.

    Examples:

      compaction-pipeline catalog change lake -p credential=id:new-secret
      compaction-pipeline catalog change lake -p table-filter='shop[.].*' --unset database-filter --dry-run
      compaction-pipeline catalog change lake --no-observe
    """
    wanted = CatalogChange(key_values(properties, "uri=…"), tuple(unset), observe)
    if not wanted.keys:
        raise ConfigError("nothing is to be changed: give -p KEY=VALUE, --unset KEY, --observe or --no-observe")
    with Session(context) as session:
        tried = session.services.manage_catalogs.change(name, wanted, dry_run=dry_run, take_over=take_over)
        done = "would be changed" if dry_run else "changed"
        _answer(session, tried, f"catalog {name} {done}, {_mode(tried, dry_run)}", dry_run)


@catalogs.command(epilog=GLOBAL_HELP)
def show(context: typer.Context, name: str = _NAME) -> None:
    """Show one catalog: each key, its value, and who holds it. Secrets are masked.

    Examples:

      compaction-pipeline catalog show lake
    """
    with Session(context) as session:
        entry = session.services.manage_catalogs.entry(name)
        session.output.answer(catalog_value(entry), catalog_table(entry))


@catalogs.command("list", epilog=GLOBAL_HELP)
def list_(context: typer.Context) -> None:
    """Show the registered catalogs. Secrets are masked.

    Examples:

      compaction-pipeline catalog list
      compaction-pipeline catalog list --json
    """
    with Session(context) as session:
        entries = session.services.explore_catalogs.entries()
        for entry in entries:
            if entry.unreadable is not None:
                session.output.say(f"warning: {entry.unreadable}")
        value = [
            {
                "catalog": entry.name,
                "observe": entry.observe,
                "properties": masked_properties(entry.properties),
                "unreadable": entry.unreadable,
            }
            for entry in entries
        ]
        session.output.answer(value, catalogs_table(entries) if entries else NO_CATALOG)


@catalogs.command(epilog=GLOBAL_HELP)
def explore(
    context: typer.Context,
    name: str | None = typer.Argument(None, help="The catalog. Without it, all of them."),
    accept_vanished: bool = typer.Option(
        False, "--accept-vanished", help="Tables that are not listed any more are gone for good. Each is asked for once more."
    ),
) -> None:
    """List the tables of a catalog now, or of all catalogs: new tables appear, those that are gone are forgotten.

    Those that a filter leaves out are left alone.

    When many tables vanish at once, or a namespace cannot be listed, nothing is removed. The command says what was not seen then, and ends
    with 1. With --accept-vanished each table that is not listed is forgotten, if its catalog says of it that it does not exist.

    Examples:

      compaction-pipeline catalog explore
      compaction-pipeline catalog explore lake --json
      compaction-pipeline catalog explore lake --accept-vanished
    """
    with Session(context) as session:
        found = session.services.explore_catalogs.explore(name, accept_vanished=accept_vanished)
        for catalog, reason in found.failed:
            session.output.say(f"catalog {catalog} was not listed: {reason}")
        session.output.answer(
            {
                "appeared": found.appeared,
                "dropped": found.dropped,
                "left_out": found.left_out,
                "others": found.others,
                "failed": [{"catalog": catalog, "reason": reason} for catalog, reason in found.failed],
                "not_seen": [plain(one) for one in found.unseen],
            },
            f"{count_text(len(found.appeared), 'new table')}, {count_text(len(found.dropped), 'dropped table')}, "
            f"{count_text(len(found.left_out), 'table')} newly left out by filters",
            *(f"  {table}" for table in found.appeared),
            *_left_alone(found.others),
            *(f"not all was seen: {one.sentence}" for one in found.unseen),
        )
    if found.failed or found.unseen:
        raise typer.Exit(ExitCode.FAILED)


@catalogs.command(epilog=GLOBAL_HELP)
def remove(
    context: typer.Context,
    name: str = typer.Argument(help="The catalog to forget."),
    yes: bool = typer.Option(False, "--yes", help="Also when something is known of its tables, which is forgotten then."),
    dry_run: bool = typer.Option(False, "--dry-run", help="Say what would be forgotten, and forget nothing."),
) -> None:
    """Forget a catalog and what is known of its tables. The tables themselves stay as they are.

    Without --yes it says what goes, and goes on only when that is nothing. It is refused while tasks of its tables run. Pauses are kept: a
    table that was paused is paused again when the catalog is added again.

    Examples:

      compaction-pipeline catalog remove lake --dry-run
      compaction-pipeline catalog remove lake --yes
    """
    with Session(context) as session:
        going = session.services.manage_catalogs.going(name)
        counts = {"tables": going.tables, "open_tasks": going.open_tasks, "running_tasks": going.running, "records": going.records}
        if dry_run:
            running = f"; it is refused now, because {count_text(going.running, 'task')} run" if going.running else ""
            text = f"catalog {name} would be forgotten with {going.in_words}{running}; its tables stay as they are"
            session.output.answer({"catalog": name, "removed": False, "dry_run": True, **counts}, text)
            return
        if going.is_anything and not yes:
            raise ConfigError(
                f"catalog {name} is not removed, because {going.in_words} would be forgotten with it: add --yes to forget them; "
                f"`catalog change {name}` gives it other properties and keeps them"
            )
        session.services.manage_catalogs.remove(name)
        session.output.answer(
            {"catalog": name, "removed": True, **counts}, f"catalog {name} is forgotten with {going.in_words}; its tables stay as they are"
        )


def _left_alone(others: Mapping[str, str]) -> list[str]:
    """Lines about tables of other formats. The first ones are named."""
    if not others:
        return []
    named = [f"  {table} is {kind}" for table, kind in list(others.items())[:_MOST_OTHERS]]
    rest = [f"  and {len(others) - len(named)} more: --json names all"] if len(others) > len(named) else []
    return [f"{count_text(len(others), 'table')} of other formats, left alone:", *named, *rest]


def _mode(tried: Tried, dry_run: bool) -> str:
    if tried.entry.observe:
        return "only observed: no table is changed"
    return "compacted" if dry_run else "compacted from now on"


def _answer(session: Session, tried: Tried, done: str, dry_run: bool) -> None:
    for sentence in tried.warnings:
        session.output.say(f"warning: {sentence}")
    namespaces = {table.namespace for table in tried.tables}
    counts = f"{count_text(len(tried.tables), 'table')} in {count_text(len(namespaces), 'namespace')}"
    filtered = f", {len(tried.left_out)} more left out by filters" if tried.left_out else ""
    value: dict[str, object] = {
        "catalog": tried.entry.name,
        "observe": tried.entry.observe,
        "tables": tried.tables,
        "table_count": len(tried.tables),
        "namespace_count": len(namespaces),
        "left_out_count": len(tried.left_out),
    }
    tables = (f"  {table}" for table in tried.tables)
    session.output.answer({**value, "dry_run": True} if dry_run else value, f"{done}; {counts}{filtered}", *tables)
