"""`consumer set | list | remove`: readers that read tables from snapshot to snapshot, and what they have read."""

from __future__ import annotations

import typer

from compaction_pipeline.cli.app import GLOBAL_HELP, command_group
from compaction_pipeline.cli.render_upkeep import consumers_table
from compaction_pipeline.cli.session import TABLE_HELP, Session
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.upkeep.consumers import DEFAULT_DAYS, MOST_DAYS
from compaction_pipeline.core.words import time_text

consumer = typer.Typer(
    no_args_is_help=True,
    help=(
        "Register readers that read a table from snapshot to snapshot. What they have not read yet does not expire."
        "\n\nExamples:\n\n  compaction-pipeline consumer set lake.shop.orders nightly-export 4213398027123 --days 14"
    ),
    epilog=GLOBAL_HELP,
)
commands = command_group()
commands.add_typer(consumer, name="consumer")

_TABLE = typer.Argument(help=TABLE_HELP)
_NAME = typer.Argument(help="The name of the consumer.")


@consumer.command("set", epilog=GLOBAL_HELP)
def set_(
    context: typer.Context,
    table: str = _TABLE,
    name: str = _NAME,
    snapshot: int = typer.Argument(help="The id of the last snapshot that the consumer has read."),
    days: float = typer.Option(DEFAULT_DAYS, "--days", help=f"The registration ends after so many days, at most {MOST_DAYS}."),
) -> None:
    """Register what a consumer has read. That snapshot, and every later one of its branch, stays until the registration ends.

    Run it again after each read: it replaces the snapshot and the end. Of a keyed table, the snapshot may be of the change store. A
    snapshot that the table does not have is refused.

    Examples:

      compaction-pipeline consumer set lake.shop.orders nightly-export 4213398027123 --days 14
    """
    with Session(context) as session:
        done = session.services.keep_consumers.set(TableIdentifier.parse(table), name, snapshot, days)
        text = f"{done.store}: snapshot {done.snapshot_id} and what comes after it stay for consumer {name} until {time_text(done.until)}"
        session.output.answer(done, text)


@consumer.command("list", epilog=GLOBAL_HELP)
def list_(context: typer.Context, table: str | None = typer.Argument(None, help=TABLE_HELP + " Without it, every table.")) -> None:
    """List the registered consumers, by table. One that has ended holds nothing, and is listed for a month.

    The column `problem` says when an expiry found that the last snapshot that a consumer has read is gone.

    Examples:

      compaction-pipeline consumer list lake.shop.orders
    """
    with Session(context) as session:
        found = session.services.keep_consumers.consumers(TableIdentifier.parse(table) if table is not None else None)
        session.output.answer(found, consumers_table(found) if found else "no consumers")


@consumer.command(epilog=GLOBAL_HELP)
def remove(context: typer.Context, table: str = _TABLE, name: str = _NAME) -> None:
    """End a registration. The next expiry may remove what only this consumer needed.

    Examples:

      compaction-pipeline consumer remove lake.shop.orders nightly-export
    """
    with Session(context) as session:
        session.services.keep_consumers.remove(TableIdentifier.parse(table), name)
        session.output.answer({"table": table, "consumer": name, "removed": True}, f"{table}: consumer {name} is not registered any more")
