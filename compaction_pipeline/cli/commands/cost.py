"""`cost`: what compaction has cost, by team, table, type, group or day."""

from __future__ import annotations

import typer

from compaction_pipeline.cli.app import GLOBAL_HELP, command_group
from compaction_pipeline.cli.cost_tables import costs_table, idle_table, own_table, time_cell
from compaction_pipeline.cli.session import Session
from compaction_pipeline.core.capacity.costs import CostKey, SlotSum
from compaction_pipeline.core.insight.plain import plain

commands = command_group()


@commands.command(epilog=GLOBAL_HELP)
def cost(
    context: typer.Context,
    by: CostKey = typer.Option(CostKey.TABLE, "--by", help="What is summed."),
    days: int = typer.Option(7, "--days", min=1, help="So many UTC days, today included."),
) -> None:
    """Show what compaction has cost: the time of slots, CPU, reserved memory, and bytes. Failed and lost work is in it.

    Examples:

      compaction-pipeline cost
      compaction-pipeline cost --by day --days 30 --json
    """
    with Session(context) as session:
        found = session.services.read_costs.costs(by, days)
        empty = f"no attempt has ended from {found.first} to {found.last}"
        lines = [_slots_text(each) for each in found.slots if each.seconds > 0]
        beside = [own_table(found)] if found.own else []
        beside += [idle_table(found)] if found.idle else []
        session.output.answer(plain(found), costs_table(found) if found.costs else empty, *beside, *lines)


def _slots_text(each: SlotSum) -> str:
    parts = [f"{name} {time_cell(seconds)}" for name, seconds in _parts(each) if seconds > 0]
    memory = "" if each.gb_hours is None else f", {each.gb_hours:,.2f} GB-hours in all"
    return f"slots of the optimizers of group {each.group}: {', '.join(parts)}; idle {each.idle / each.seconds:.0%}{memory}"


def _parts(each: SlotSum) -> tuple[tuple[str, float], ...]:
    return ("starting", each.starting), ("held by attempts", each.held), ("idle", each.idle), ("ending", each.ending)
