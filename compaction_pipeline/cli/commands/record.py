"""`record list | show`, `status`: what our commits did, and how everything stands."""

from __future__ import annotations

import typer

from compaction_pipeline.cli.app import GLOBAL_HELP, command_group
from compaction_pipeline.cli.commands.table import node_value, table_value
from compaction_pipeline.cli.render import nodes_table, queue_line, record_table, records_table, tables_table, tasks_table
from compaction_pipeline.cli.session import TABLE_HELP, Session
from compaction_pipeline.core.ids import RecordId
from compaction_pipeline.core.insight.overview import NO_CATALOG
from compaction_pipeline.core.insight.plain import plain
from compaction_pipeline.core.insight.task_value import task_value
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.words import count_text

records = typer.Typer(
    no_args_is_help=True,
    help=(
        "Look at compaction records, which tell what each commit of ours did."
        "\n\nExamples:\n\n  compaction-pipeline record list lake.shop.orders"
    ),
    epilog=GLOBAL_HELP,
)
commands = command_group()
commands.add_typer(records, name="record")


@records.command("list", epilog=GLOBAL_HELP)
def list_(
    context: typer.Context,
    table: str | None = typer.Argument(None, help=TABLE_HELP + " Without it, every table."),
    limit: int = typer.Option(20, "--limit", "-n", min=1, max=1_000_000, help="Show at most this many records."),
) -> None:
    """List records, newest first.

    Examples:

      compaction-pipeline record list
      compaction-pipeline record list lake.shop.orders -n 5 --json
    """
    identifier = TableIdentifier.parse(table) if table is not None else None
    with Session(context) as session:
        found = session.services.read_records.records(identifier, limit=limit)
        session.output.answer([plain(record) for record in found], records_table(found) if found else "no records")


@records.command(epilog=GLOBAL_HELP)
def show(
    context: typer.Context, record: str = typer.Argument(help="The record's id, or the beginning of it if no other id begins so.")
) -> None:
    """Show one record: its figures, durations, tasks, attempts and conflicts.

    Examples:

      compaction-pipeline record show 3f0c2b7a
    """
    with Session(context) as session:
        detail = session.services.read_records.record(RecordId(record))
        session.output.answer(
            {**_dictionary(plain(detail.record)), "tasks": [task_value(task) for task in detail.tasks], "attempts": plain(detail.attempts)},
            record_table(detail.record),
            *([tasks_table(detail.tasks, "tasks", detail.attempts)] if detail.tasks else []),
        )


@commands.command(epilog=GLOBAL_HELP)
def status(context: typer.Context) -> None:
    """Show how everything stands: the tables, the worst nodes, the tasks that run, the queue and the newest records.

    The command reads only the state database, so it answers at once.

    Examples:

      compaction-pipeline status
      compaction-pipeline status --json
    """
    with Session(context) as session:
        now = session.services.read_status.status()
        if not now.catalogs:
            session.output.say(NO_CATALOG)
        unsettled = (
            f"{count_text(len(now.unsettled), 'record')} not settled: "
            "the next tick or command finds out from the table whether the commit landed"
            if now.unsettled
            else "every record is settled"
        )
        session.output.answer(
            {
                "at": plain(now.at),
                "catalogs": [{"catalog": entry.name, "observe": entry.observe} for entry in now.catalogs],
                "tables": [table_value(item) for item in now.tables],
                "nodes": now.nodes,
                "due": now.due,
                "worst_nodes": [node_value(node) for node in now.worst],
                "executing": [task_value(task) for task in now.executing],
                "queue": plain(now.queue),
                "unsettled": [record.record_id for record in now.unsettled],
                "records": [plain(record) for record in now.records],
            },
            *([tables_table(now.tables)] if now.tables else []),
            *([nodes_table(now.worst, "worst nodes", with_table=True)] if now.worst else []),
            *([tasks_table(now.executing, "executing")] if now.executing else []),
            *([records_table(now.records)] if now.records else []),
            queue_line(now.queue),
            f"{now.due} of {count_text(now.nodes, 'node')} due; {unsettled}",
        )


def _dictionary(value: object) -> dict[str, object]:
    assert isinstance(value, dict)
    return value
