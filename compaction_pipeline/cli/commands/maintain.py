"""`maintain expire | changes | rows | deletes | manifests | orphans | list`: what tables no longer need, and what was done to them."""

from __future__ import annotations

import typer

from compaction_pipeline.cli.app import GLOBAL_HELP, command_group
from compaction_pipeline.cli.commands.compaction import compact_as
from compaction_pipeline.cli.exit_codes import ExitCode
from compaction_pipeline.cli.render_upkeep import (
    cleaned_lines,
    cleaned_value,
    done_lines,
    done_value,
    expired_lines,
    kept_table,
    upkeep_table,
)
from compaction_pipeline.cli.session import TABLE_HELP, Session
from compaction_pipeline.core.insight.plain import plain
from compaction_pipeline.core.planning.plan import PlanRequest
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.upkeep.orphan_looks import Cleaned
from compaction_pipeline.core.upkeep.orphan_rules import ACCEPTED_SHARE
from compaction_pipeline.core.upkeep.record import UpkeepStatus
from compaction_pipeline.core.upkeep.works import UpkeepWork
from compaction_pipeline.core.work.kinds import CompactionType

maintain = typer.Typer(
    no_args_is_help=True,
    help=(
        "Remove what tables no longer need, and keep their metadata small. Compaction alone frees no storage: old snapshots keep the old "
        "files."
        "\n\nExamples:\n\n  compaction-pipeline maintain expire lake.shop.orders --dry-run"
    ),
    epilog=GLOBAL_HELP,
)
commands = command_group()
commands.add_typer(maintain, name="maintain")


@maintain.command(epilog=GLOBAL_HELP)
def expire(
    context: typer.Context,
    table: str = typer.Argument(help=TABLE_HELP),
    dry_run: bool = typer.Option(False, "--dry-run", help="Say what would go and what stays, with reasons, and change nothing."),
    accept_older: bool = typer.Option(
        False, "--accept-older-metadata", help="The catalog's pointer was set back on purpose: go by the older metadata."
    ),
) -> None:
    """Remove old snapshots of a table, and delete files that only they needed.

    The properties of the table say what is old (`history.expire.*`, five days by default). What a branch, a tag, a streaming writer that
    starts again, or a task of this program needs stays. The files follow in a later run, when `compaction.expire.grace` is over (1 h).

    Examples:

      compaction-pipeline maintain expire lake.shop.orders --dry-run
      compaction-pipeline maintain expire lake.shop.orders
    """
    identifier = TableIdentifier.parse(table)
    with Session(context) as session:
        session.refresh(identifier)
        service = session.services.expire_snapshots
        if accept_older and not dry_run:
            service.forget_sightings(identifier)
        expired = service.expire(identifier, dry_run=dry_run)
        session.output.answer(
            {**_fields(plain(expired)), "dry_run": dry_run},
            *expired_lines(expired, dry_run),
            *([kept_table(expired)] if dry_run and any(store.expiry and store.expiry.kept for store in expired.stores) else []),
        )
        if any(store.refusal is not None for store in expired.stores):
            raise typer.Exit(ExitCode.REFUSED)
        states = {record.status for record in (*(store.record for store in expired.stores), *expired.earlier) if record is not None}
        if UpkeepStatus.UNKNOWN in states:
            raise typer.Exit(ExitCode.OUTCOME_UNKNOWN)
        # Files that could not be deleted are no success, though nothing is lost.
        waits = any(record.status is UpkeepStatus.REMOVED and record.reason is not None for record in expired.earlier)
        if waits or any(store.record is not None and store.record.status is UpkeepStatus.FAILED for store in expired.stores):
            raise typer.Exit(ExitCode.FAILED)


@maintain.command(epilog=GLOBAL_HELP)
def changes(
    context: typer.Context,
    table: str = typer.Argument(help=TABLE_HELP),
    dry_run: bool = typer.Option(False, "--dry-run", help="Say which change files would go, and write nothing."),
) -> None:
    """Take merged change files out of the change store of a keyed table.

    A file goes when every snapshot of the base store has its changes, and `change.data.ttl.minutes` are over (7 d by default). So old
    snapshots of the base store expire first. The file leaves storage when the snapshots of the change store that name it expire.

    Examples:

      compaction-pipeline maintain changes lake.shop.payments --dry-run
      compaction-pipeline maintain changes lake.shop.payments
    """
    _commit(context, table, UpkeepWork.CHANGE_FILES, dry_run)


@maintain.command(epilog=GLOBAL_HELP)
def rows(
    context: typer.Context,
    table: str = typer.Argument(help=TABLE_HELP),
    dry_run: bool = typer.Option(False, "--dry-run", help="Say which partitions would go, with rows and bytes, and write nothing."),
) -> None:
    """Delete the old rows of a table: partitions or files that hold nothing else.

    `data-expire.field` names the column with the times, and `data-expire.retention-time` says how old rows may become. A file goes only
    when its metadata proves that each row of it is old. It leaves storage when the snapshots expire that name it; until then a rollback
    brings the rows back.

    Examples:

      compaction-pipeline maintain rows lake.shop.orders --dry-run
      compaction-pipeline maintain rows lake.shop.orders
    """
    _commit(context, table, UpkeepWork.OLD_ROWS, dry_run)


@maintain.command(epilog=GLOBAL_HELP)
def deletes(
    context: typer.Context,
    table: str = typer.Argument(help=TABLE_HELP),
    dry_run: bool = typer.Option(False, "--dry-run", help="Only show what would be done."),
) -> None:
    """Merge the delete files of a table, and drop those that apply to no row any more.

    This is `compact --type minor` in those partitions that have delete files. A large data file gets one file of position deletes in place
    of several, and of equality deletes. Small data files are merged, which applies their deletes.

    Examples:

      compaction-pipeline maintain deletes lake.shop.orders --dry-run
      compaction-pipeline maintain deletes lake.shop.orders
    """
    compact_as(context, table, _of_deletes, dry_run)


@maintain.command(epilog=GLOBAL_HELP)
def manifests(
    context: typer.Context,
    table: str = typer.Argument(help=TABLE_HELP),
    dry_run: bool = typer.Option(False, "--dry-run", help="Say which manifests would become how many, and write nothing."),
) -> None:
    """Rewrite the small manifests of a table into fewer ones.

    A reader of one partition then opens fewer of them. Every file, row and partition stays as it is. The properties of the table say what
    is small, and how many small ones make it worth while (`commit.manifest.target-size-bytes`, `commit.manifest.min-count-to-merge`).

    Examples:

      compaction-pipeline maintain manifests lake.shop.orders --dry-run
      compaction-pipeline maintain manifests lake.shop.orders
    """
    _commit(context, table, UpkeepWork.MANIFESTS, dry_run)


@maintain.command(epilog=GLOBAL_HELP)
def orphans(
    context: typer.Context,
    table: str = typer.Argument(help=TABLE_HELP),
    delete: bool = typer.Option(False, "--delete", help="Delete the files that two looks, at least 24 hours apart, found to be orphans."),
    accept_share: float = typer.Option(
        ACCEPTED_SHARE, "--accept-share", min=0.0, max=1.0, help="Of the listed bytes, this share may be of orphan files."
    ),
    forget_gone: bool = typer.Option(
        False, "--forget-gone-tables", help="Tables that no catalog lists any more need no file here: forget where they were seen."
    ),
) -> None:
    """Find the files below a table's location that nobody needs, and delete them when a look a day later says the same.

    It lists all files there, and reads all metadata of the table. Files that are younger than three days count as those of a writer that
    has not committed yet. Each look is stored for a week. Without --delete nothing is deleted. With it, the files go that two stored looks
    found, and that have not changed by a look right before the deletion. When it is not certain that nobody needs the files, it says why,
    lists none, and ends with exit code 4. A person is shown at most 50 files, the largest first; --json lists all.

    Examples:

      compaction-pipeline maintain orphans lake.shop.orders
      compaction-pipeline maintain orphans lake.shop.orders --delete
    """
    identifier = TableIdentifier.parse(table)
    with Session(context) as session:
        services = session.services
        forgotten = services.other_places.forget_gone(identifier) if forget_gone else ()
        with session.output.progress() as progress:
            progress.add_task(f"reading the files of {table}", total=None)
            if delete:
                cleaned = services.clean_orphans.delete(identifier, accept_share=accept_share)
            else:
                found = services.clean_orphans.look(identifier, accept_share)
                cleaned = Cleaned(identifier, found, found.refusals)
        session.output.answer(
            {"table": table, "dry_run": not delete, "forgotten": plain(forgotten), **cleaned_value(cleaned)},
            *(f"forgotten: {place.table} at {place.location}" for place in forgotten),
            *cleaned_lines(cleaned, delete),
        )
        if cleaned.refusals:
            raise typer.Exit(ExitCode.REFUSED)
        if cleaned.problem is not None or any(one.failed for one in cleaned.deletions):
            raise typer.Exit(ExitCode.FAILED)


@maintain.command("list", epilog=GLOBAL_HELP)
def list_(
    context: typer.Context,
    table: str | None = typer.Argument(None, help=TABLE_HELP + " Without it, every table."),
    limit: int = typer.Option(20, "--limit", "-n", min=1, max=1_000_000, help="Show at most this many records."),
) -> None:
    """List what was done, newest first.

    Examples:

      compaction-pipeline maintain list lake.shop.orders
    """
    identifier = TableIdentifier.parse(table) if table is not None else None
    with Session(context) as session:
        found = session.services.read_upkeep.records(identifier, limit)
        session.output.answer([plain(record) for record in found], upkeep_table(found) if found else "no records")


def _of_deletes(session: Session, table: TableIdentifier) -> PlanRequest:
    """The wish for a MINOR of each node with delete files. An equality delete without a partition may reach every node."""
    detail = session.services.read_tables.table(table)
    everywhere = detail.layout.unpartitioned_spec_ids if detail.layout is not None else frozenset()
    found = {one.node: one.metrics for one in detail.nodes if one.metrics.delete_files}
    is_global = any(metrics.equality_delete_files and node.spec_id in everywhere for node, metrics in found.items())
    return PlanRequest((CompactionType.MINOR,), None if is_global else frozenset(found), force=True)


def _commit(context: typer.Context, table: str, work: UpkeepWork, dry_run: bool) -> None:
    """Do a work that commits, or say what it would do, and end with the exit code of what became of it."""
    identifier = TableIdentifier.parse(table)
    with Session(context) as session:
        session.refresh(identifier)
        service = session.services.commit_upkeep
        done = service.look(identifier, work) if dry_run else service.carry_out(identifier, work)
        session.output.answer({"table": table, "dry_run": dry_run, "stores": done_value(done)}, *done_lines(done, work))
        if any(one.outcome is not None and one.outcome.is_unknown for one in done):
            raise typer.Exit(ExitCode.OUTCOME_UNKNOWN)
        if any(one.is_bad_input for one in done):
            raise typer.Exit(ExitCode.BAD_INPUT)
        if any(one.refusal is not None for one in done):
            raise typer.Exit(ExitCode.REFUSED)


def _fields(value: object) -> dict[str, object]:
    assert isinstance(value, dict)
    return value
