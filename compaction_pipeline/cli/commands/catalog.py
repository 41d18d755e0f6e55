"""`catalog add | list | remove`: which catalogs the program looks after."""

from __future__ import annotations

import typer

from compaction_pipeline.cli.app import GLOBAL_HELP, command_group
from compaction_pipeline.cli.key_values import key_values
from compaction_pipeline.cli.render import catalogs_table
from compaction_pipeline.cli.session import Session
from compaction_pipeline.core.errors import AccessDenied
from compaction_pipeline.core.insight.masking import masked_properties
from compaction_pipeline.core.insight.overview import NO_CATALOG
from compaction_pipeline.core.tables.catalog_properties import without_effect
from compaction_pipeline.core.tables.table import CatalogEntry, catalog_name
from compaction_pipeline.core.words import count_text

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
commands.add_typer(catalogs, name="catalog")


@catalogs.command(epilog=GLOBAL_HELP)
def add(
    context: typer.Context,
    name: str = typer.Argument(help="The name that the catalog gets here. It becomes the first level of TABLE."),
    properties: list[str] = typer.Option(
        [], "--property", "-p", metavar="KEY=VALUE", help="A property of PyIceberg's catalogs. Repeat the option for each property."
    ),
    observe: bool = typer.Option(False, "--observe", help="Only measure and plan its tables, and change none of them. Begin this way."),
) -> None:
    """Register a catalog that PyIceberg can open, and list its tables.

    Examples:

      compaction-pipeline catalog add lake -p type=sql -p uri=sqlite:////data/catalog.db -p warehouse=file:///data/lake --observe
      compaction-pipeline catalog add prod -p type=rest -p uri=https://catalog.example.com -p credential=id:secret
      compaction-pipeline catalog add flink -p type=sql -p uri=postgresql://me:pw@db/catalog -p catalog-name=flink_catalog
    """
    entry = CatalogEntry(catalog_name(name), key_values(properties, "type=sql"), observe)
    with Session(context) as session:
        tables = session.services.explore_catalogs.register(entry)
        try:
            session.services.explore_catalogs.read_first(tables)
        except AccessDenied as error:
            # This process may still have access to other tables of the catalog.
            session.output.say(f"warning: catalog {name} is registered, but its storage denies access: {error}")
        for sentence in without_effect(entry.properties):
            session.output.say(f"warning: {sentence}")
        mode = "only observed: no table is changed" if observe else "compacted from now on"
        namespaces = {table.namespace for table in tables}
        counts = f"{count_text(len(tables), 'table')} in {count_text(len(namespaces), 'namespace')}"
        session.output.answer(
            {"catalog": name, "observe": observe, "tables": tables, "table_count": len(tables), "namespace_count": len(namespaces)},
            f"catalog {name} registered, {mode}; {counts}",
            *(f"  {table}" for table in tables),
        )


@catalogs.command("list", epilog=GLOBAL_HELP)
def list_(context: typer.Context) -> None:
    """Show the registered catalogs. Secrets are masked.

    Examples:

      compaction-pipeline catalog list
      compaction-pipeline catalog list --json
    """
    with Session(context) as session:
        entries = session.services.explore_catalogs.entries()
        value = [{"catalog": entry.name, "observe": entry.observe, "properties": masked_properties(entry.properties)} for entry in entries]
        session.output.answer(value, catalogs_table(entries) if entries else NO_CATALOG)


@catalogs.command(epilog=GLOBAL_HELP)
def remove(context: typer.Context, name: str = typer.Argument(help="The catalog to forget.")) -> None:
    """Forget a catalog and what is known of its tables. The tables themselves stay as they are.

    Pauses are kept: a table that was paused is paused again when the catalog is added again.

    Examples:

      compaction-pipeline catalog remove lake
    """
    with Session(context) as session:
        session.services.explore_catalogs.remove(name)
        session.output.answer({"catalog": name, "removed": True}, f"catalog {name} is forgotten; its tables stay as they are")
