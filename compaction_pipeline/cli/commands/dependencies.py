"""`ready` and `watermark`: whether the data of a table is there, for people and for shell scripts."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import typer

from compaction_pipeline.cli.app import GLOBAL_HELP, command_group
from compaction_pipeline.cli.exit_codes import ExitCode
from compaction_pipeline.cli.session import TABLE_HELP, Session
from compaction_pipeline.core.dependencies.readiness import Readiness
from compaction_pipeline.core.dependencies.ready_time import instant_of, instant_text, question
from compaction_pipeline.core.insight.plain import plain
from compaction_pipeline.core.tables.expiry_properties import duration_in_unit
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.words import count_text, time_text

commands = command_group()

_TABLE = typer.Argument(help=TABLE_HELP)


@commands.command(epilog=GLOBAL_HELP)
def ready(
    context: typer.Context,
    table: str = _TABLE,
    partitions: list[str] | None = typer.Argument(None, metavar="PARTITION", help="As in the paths of files: day=2026-01-01."),
    start: str | None = typer.Option(None, "--from", metavar="TIME", help="The start of a window, e.g. 2026-01-01T00:00Z."),
    end: str | None = typer.Option(None, "--to", metavar="TIME", help="Its end, which is no part of it."),
) -> None:
    """Say whether partitions of a table are ready, and why. The command ends with 0 when all are, and with 6 when one is not.

    With --from and --to it asks for a window of time: that is ready when every partition that overlaps it is.

    The property compaction.ready-when of the table says when a partition is ready: watermark (nothing set), quiet:2h, flag:KEY, reported
    or exists. Use exists only when each partition gets its files by one commit: the first of many commits makes it ready, long before its
    data is complete.

    Examples:

      compaction-pipeline ready lake.shop.orders day=2026-01-01 && run-the-report
      compaction-pipeline ready lake.shop.orders --from 2026-01-01T00:00Z --to 2026-01-02T00:00Z --json
    """
    asked = question(list(dict.fromkeys(partitions or ())), start, end, ("PARTITION", "--from", "--to"))
    identifier = TableIdentifier.parse(table)
    with Session(context) as session:
        answers = session.services.read_readiness.answers(identifier, asked)
        is_ready = all(answer.ready for answer in answers)
        code = ExitCode.DONE if is_ready else ExitCode.NOT_READY
        value = {"ready": is_ready, "exit_code": int(code), "table": str(identifier), "answers": plain(answers)}
        session.output.answer(value, *(line for answer in answers for line in _lines(answer)))
    raise typer.Exit(code)


@commands.command(epilog=GLOBAL_HELP)
def watermark(
    context: typer.Context,
    table: str = _TABLE,
    reached: str | None = typer.Option(None, "--reached", metavar="TIME", help="End with 6 when the watermark is before this time."),
) -> None:
    """Say up to which time the data of a table is complete, as its writers promise, and where they say so.

    The command ends with 0. With --reached it ends with 6 when the watermark is before that time, and when there is none.

    Examples:

      compaction-pipeline watermark lake.shop.orders
      compaction-pipeline watermark lake.shop.orders --reached 2026-01-02T00:00Z && run-the-report
    """
    wanted = instant_of(reached) if reached is not None else None
    identifier = TableIdentifier.parse(table)
    with Session(context) as session:
        found = session.services.read_readiness.watermark(identifier)
        mark = found.watermark
        is_reached = wanted is None or (mark is not None and mark.at >= wanted)
        code = ExitCode.DONE if is_reached else ExitCode.NOT_READY
        if found.warning is not None:
            session.output.say(f"warning: {identifier}: {found.warning}")
        if mark is None:
            text = f"{identifier}: no watermark; no writer says one under {' or '.join(found.keys)}"
        else:
            where = f"{mark.key} of snapshot {mark.snapshot_id}" if mark.snapshot_id is not None else f"property {mark.key}"
            text = f"{identifier}: complete before {instant_text(mark.at)} ({where})"
        value = {"exit_code": int(code), "reached": is_reached if wanted is not None else None, **_dict(plain(found))}
        session.output.answer(value, text)
    raise typer.Exit(code)


def _dict(value: object) -> dict[str, object]:
    assert isinstance(value, dict)
    return value


def _lines(answer: Readiness) -> Iterator[str]:
    yield f"{answer.table} {answer.what}: {'ready' if answer.ready else 'not ready'} by {answer.rule}: {answer.why}"
    if answer.ready and answer.ready_since is not None and answer.ready_since < answer.at - timedelta(seconds=1):
        yield f"  this was answered first at {time_text(answer.ready_since)} UTC"
    if answer.withdrawals:
        flaps = ": it flaps, because the rule calls it ready too early" if answer.is_flapping else ""
        yield f"  it was ready and taken back {count_text(answer.withdrawals, 'time')}{flaps}"
    if answer.longer_quiet is not None:
        longer = duration_in_unit(answer.longer_quiet)
        yield f"  with 'compaction.ready-when' = 'quiet:{longer}' it would not have been called ready before its files had come"
    if answer.changed_since is None:
        yield "  whether files came later is not known: the table's manifests cannot be read"
    for one in answer.changed_since or ():
        added = time_text(one.added_at)
        yield f"  changed since: snapshot {one.snapshot_id} added files to {one.partition} at {added} UTC; what has run, ran on older data"
