"""`table list | show`, `pause`, `resume`: what is known of tables, and whether they are left alone for a while."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from enum import Enum
from typing import TYPE_CHECKING

import typer

from compaction_pipeline.cli.app import GLOBAL_HELP, command_group
from compaction_pipeline.cli.exit_codes import ExitCode, exit_code_of
from compaction_pipeline.cli.render import (
    MOST_FILES,
    files_table,
    keyed_files_table,
    nodes_table,
    properties_in_force,
    records_table,
    tables_table,
    tasks_table,
)
from compaction_pipeline.cli.scores import score_line
from compaction_pipeline.cli.session import TABLE_HELP, Session
from compaction_pipeline.core.errors import CompactionError
from compaction_pipeline.core.fragmentation.health import HealthStatus
from compaction_pipeline.core.insight.listed_files import ListedFile
from compaction_pipeline.core.insight.overview import NO_CATALOG, NodeOverview, TableOverview, worst_score_first
from compaction_pipeline.core.insight.plain import plain
from compaction_pipeline.core.tables.keyed.change_rate import ChangeRate
from compaction_pipeline.core.tables.properties import TableProperties
from compaction_pipeline.core.tables.property_rules import PROPERTIES
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.words import count_text

if TYPE_CHECKING:
    from rich.console import RenderableType

    from compaction_pipeline.services.insight.read_tables import TableDetail

_HELP = (
    "Look at tables: their nodes and files, their properties in force, and the reasons for their health."
    "\n\nExamples:\n\n  compaction-pipeline table list\n  compaction-pipeline table show lake.shop.orders"
)
tables = typer.Typer(
    no_args_is_help=True,
    help=_HELP,
    epilog=GLOBAL_HELP,
)
commands = command_group()
commands.add_typer(tables, name="table")


class Order(str, Enum):
    """The values of `--by`."""

    NAME = "name"
    HEALTH = "health"


@tables.command("list", epilog=GLOBAL_HELP)
def list_(
    context: typer.Context,
    catalog: str | None = typer.Option(None, "--catalog", help="Only the tables of this catalog."),
    refresh: bool = typer.Option(False, "--refresh", help="First read what is new in every table."),
    by: Order = typer.Option(Order.NAME, "--by", help="Sort by name, or by health: the lowest score first, and tables without one last."),
) -> None:
    """List the tables of the registered catalogs, with the figures of the last measurement.

    The score is a number from 0 to 100: small files cost up to 40 points, equality deletes 40 and position deletes 20. Beside it stand what
    costs the most, and what to do about it.

    With --refresh the command fails when a table cannot be read or a catalog cannot be listed, and lists all tables all the same. It ends
    with the exit code that `compact` has on the table that cannot be read. It ends with 1 when several tables have different codes, or when
    all tables can be read. With --json each table has `refresh_error`: why it could not be read, or null.

    Examples:

      compaction-pipeline table list
      compaction-pipeline table list --by health
      compaction-pipeline table list --refresh --catalog lake
    """
    with Session(context) as session:
        explored = session.services.explore_catalogs.explore(catalog)
        for name, why in explored.failed:
            session.output.say(f"warning: catalog {name} could not be listed, so its tables are shown as they were seen last: {why}")
        for one in explored.unseen:
            session.output.say(f"warning: {one.sentence}")
        failed = session.refresh_all(catalog) if refresh else {}
        found = session.services.read_tables.tables(catalog)
        if by is Order.HEALTH:
            found = worst_score_first(found)
        errors = {table: str(error) for table, error in failed.items()}
        values = [{**table_value(item), **({"refresh_error": errors.get(item.table)} if refresh else {})} for item in found]
        nothing = "no tables: no registered catalog lists one" if session.services.explore_catalogs.entries() else NO_CATALOG
        session.output.answer(values, tables_table(found) if found else nothing)
        # A refused table is read again and again, and its reason stands in the table.
        unread = sum(not item.is_read and item.health is not HealthStatus.REFUSED for item in found)
        if unread and not refresh:
            session.output.say(f"{count_text(unread, 'table')} not read yet: `compaction-pipeline table list --refresh` reads what is new")
    if failed or (refresh and (explored.failed or explored.unseen)):
        codes = {exit_code_of(error) for error in failed.values()}
        raise typer.Exit(codes.pop() if len(codes) == 1 else ExitCode.FAILED)


@tables.command(epilog=GLOBAL_HELP)
def show(
    context: typer.Context,
    table: str = typer.Argument(help=TABLE_HELP),
    files: bool = typer.Option(True, "--files/--no-files", help=f"List live files too: at most {MOST_FILES}, and all of them with --json."),
) -> None:
    """Show one table: its nodes with the reasons for their health, its files, its properties in force, and its newest records.

    Examples:

      compaction-pipeline table show lake.shop.orders
      compaction-pipeline table show lake.shop.orders --no-files --json
    """
    identifier = TableIdentifier.parse(table)
    with Session(context) as session:
        session.refresh(identifier)
        detail = session.services.read_tables.table(identifier, with_files=files)
        if detail.property_error is not None:
            properties: tuple[RenderableType, ...] = (f"properties: {detail.property_error}",)
        else:
            properties = (properties_in_force(detail.properties or TableProperties(), detail.write_properties_not_honoured),)
        is_keyed = detail.layout is not None and detail.layout.keyed is not None
        rate = session.services.read_change_rate.read(identifier) if is_keyed else None
        listed = _files_of_both_stores(session, identifier) if files and is_keyed else None
        session.output.answer(
            {**detail_value(detail, files, rate), **({} if listed is None else files_value(listed))},
            tables_table([detail.overview]),
            score_line(detail.overview.score),
            *detail.catalog_says,
            *([detail.overview.read_costs] if detail.overview.read_costs is not None else []),
            *([] if rate is None else [rate if isinstance(rate, str) else rate.text]),
            nodes_table(detail.nodes),
            *([files_table(detail.files)] if files and not is_keyed else []),
            *([] if listed is None else [listed if isinstance(listed, str) else keyed_files_table(listed)]),
            *properties,
            *([tasks_table(detail.tasks, "open tasks")] if detail.tasks else []),
            *([records_table(detail.records)] if detail.records else []),
        )


def _files_of_both_stores(session: Session, table: TableIdentifier) -> Sequence[ListedFile] | str:
    """The files of a keyed table; a sentence when they cannot be read now."""
    try:
        return session.services.read_files.read(table)
    except CompactionError as error:
        return f"its files cannot be listed: {error}"


@commands.command(epilog=GLOBAL_HELP)
def pause(context: typer.Context, table: str | None = typer.Argument(None, help=TABLE_HELP + " Without it, every table.")) -> None:
    """Leave one table alone, or all. Paused tables are still measured, but nothing is planned for them, and no waiting task begins.

    Tasks that run now are finished, and what is merged is committed. Waiting tasks have their turn after `resume`.

    When all tables are paused, tables that appear later are paused too, until `resume` without a table. A pause belongs to the name of a
    table: only `resume` ends it, also when the table is dropped and made again.

    Examples:

      compaction-pipeline pause lake.shop.orders
      compaction-pipeline pause
    """
    _pause(context, table, True)


@commands.command(epilog=GLOBAL_HELP)
def resume(context: typer.Context, table: str | None = typer.Argument(None, help=TABLE_HELP + " Without it, every table.")) -> None:
    """Look after a paused table again, or after all of them.

    Examples:

      compaction-pipeline resume lake.shop.orders
      compaction-pipeline resume
    """
    _pause(context, table, False)


def _pause(context: typer.Context, table: str | None, paused: bool) -> None:
    identifier = TableIdentifier.parse(table) if table is not None else None
    with Session(context) as session:
        tables = session.services.explore_catalogs
        changed = tables.pause(identifier) if paused else tables.resume(identifier)
        what = str(identifier) if identifier is not None else "all tables"
        word = "paused" if paused else "resumed"
        later = "; tables that appear later are paused too, until `resume`" if paused and identifier is None else ""
        session.output.answer({"table": table, "paused": paused, "changed": changed}, f"{what}: {word} ({changed} changed){later}")


def table_value(item: TableOverview) -> dict[str, object]:
    """One table as JSON."""
    return {
        "table": str(item.table),
        "health": item.health.value,
        "reason": item.reason,
        "score": plain(item.score),
        "warning": item.warning,
        "observe": item.observe,
        "paused": item.paused,
        "snapshot": item.snapshot_id,
        "metadata": plain(item.metadata),
        "overlap_depth": item.overlap_depth,
        "read_costs": item.read_costs,
        "nodes": item.nodes,
        # Nobody knows the figures of a table that was never read, so they are not 0.
        **(_metrics_value(item) if item.is_read else dict.fromkeys(_metrics_value(item))),
    }


def node_value(node: NodeOverview) -> dict[str, object]:
    """One node as JSON."""
    return {
        "table": str(node.table),
        "key": node.key,
        "node": str(node.node),
        "spec_id": node.node.spec_id,
        "health": node.health.value,
        "reason": node.reason,
        "score": plain(node.score),
        "type": node.type.value if node.type is not None else None,
        "last_done": plain(node.last_done),
        **_metrics_value(node),
    }


def detail_value(detail: TableDetail, with_files: bool, rate: ChangeRate | str | None) -> dict[str, object]:
    """Everything of one table as JSON. Durations are in ms. `rate` is that of a keyed table, or why it is unknown."""
    properties = detail.properties
    value: dict[str, object] = {
        **table_value(detail.overview),
        "properties": {item.key: plain(getattr(properties, item.attribute)) for item in PROPERTIES} if properties is not None else None,
        "upkeep_properties": dict(properties.upkeep) if properties is not None else {},
        "ready_properties": dict(properties.readiness) if properties is not None else {},
        "property_error": detail.property_error,
        "catalog_says": plain(detail.catalog_says),
        "policies": plain(detail.policies),
        "ignored_properties": dict(properties.ignored) if properties is not None else {},
        "unknown_properties": plain(properties.unknown) if properties is not None else [],
        "property_problems": plain(properties.problems) if properties is not None else [],
        "write_properties_not_honoured": dict(detail.write_properties_not_honoured),
        "nodes": [node_value(node) for node in detail.nodes],
        "tasks": [task.task_id for task in detail.tasks],
        "records": [record.record_id for record in detail.records],
    }
    if rate is not None:
        value["change_files_a_day"] = {"error": rate} if isinstance(rate, str) else {"most": rate.most_files, **asdict(rate)}
    if with_files:
        value["files"] = [
            {
                "path": file.path,
                "node": str(file.node),
                "content": file.content.value,
                "size_bytes": file.file_size_bytes,
                "rows": file.record_count,
                "sequence_number": file.data_sequence_number,
            }
            for file in detail.files
        ]
    return value


def files_value(files: Sequence[ListedFile] | str) -> dict[str, object]:
    """The files of both stores of a keyed table as JSON, or why they cannot be listed."""
    if isinstance(files, str):
        return {"files": [], "files_error": files}
    return {
        "files": [
            {
                "path": each.file.path,
                "node": str(each.node),
                "store": each.store.value,
                "content": each.kind,
                "size_bytes": each.file.file_size_bytes,
                "rows": each.file.record_count,
                "sequence_number": each.file.data_sequence_number,
                "transaction": each.transaction,
                "merged": each.merged,
                "hides": plain(each.hides) if each.hides is not None else None,
            }
            for each in files
        ]
    }


def _metrics_value(item: TableOverview | NodeOverview) -> dict[str, object]:
    metrics = item.metrics
    return {
        "data_files": metrics.data_files,
        "small_files": metrics.small_files,
        "delete_files": metrics.delete_files,
        "bytes": metrics.data_bytes + metrics.delete_bytes,
        "rows": metrics.rows,
        "fragmentation": round(metrics.fragmentation, 4),
    }
