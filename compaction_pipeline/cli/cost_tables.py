"""Tables of what compaction costs: sums of the ledger, the use of optimizers, and what a budget reaches."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from compaction_pipeline.cli.render import node_cell, titled_table
from compaction_pipeline.core.words import bytes_text, duration_text

if TYPE_CHECKING:
    from compaction_pipeline.services.capacity.read_costs import Costs
    from compaction_pipeline.services.capacity.read_use import OptimizerUse
    from compaction_pipeline.services.planning.rank_by_benefit import Ranking


def costs_table(found: Costs) -> Table:
    """One line for each sum."""
    heads = ("attempts", "slot time", "of it in vain", "CPU", "GB-hours", "read", "written")
    table = titled_table(f"costs from {found.first} to {found.last}", found.by.value, *heads, "note")
    for each in found.costs:
        notes = [f"{each.provisional} not reported"] if each.provisional else []
        notes += [f"{each.cut} cut"] if each.cut else []
        table.add_row(
            escape(each.key),
            f"{each.attempts:,}",
            time_cell(each.slot_seconds),
            time_cell(each.slot_seconds - each.merged_slot_seconds),
            "–" if each.cpu_seconds is None else time_cell(each.cpu_seconds),
            hours_cell(each.gb_hours),
            "–" if each.bytes_read is None else bytes_text(each.bytes_read),
            "–" if each.bytes_written is None else bytes_text(each.bytes_written),
            ", ".join(notes),
        )
    return table


def idle_table(found: Costs) -> Table:
    """What the optimizers of each team did beside its tasks."""
    table = titled_table("beside tasks", "team", "slots without a task", "their GB-hours", "optimizers of low use")
    for each in found.idle:
        table.add_row(escape(each.team), time_cell(each.idle_seconds), hours_cell(each.idle_gb_hours), time_cell(3600 * each.low_use_hours))
    return table


def hours_cell(gb_hours: float | None) -> str:
    """GB-hours. Those of a small merge have more zeros than a sum shows."""
    if gb_hours is None:
        return "–"
    return f"{gb_hours:,.2f}" if gb_hours >= 1 or not gb_hours else f"{gb_hours:.2g}"


def own_table(found: Costs) -> Table:
    """What planning, commits and ticks have used. They hold no slot."""
    table = titled_table("planning, commits and ticks", found.by.value, "work", "times", "time", "CPU")
    for each in found.own:
        table.add_row(escape(each.key) or "–", each.kind.value, f"{each.times:,}", time_cell(each.seconds), time_cell(each.cpu_seconds))
    return table


def uses_table(uses: Iterable[OptimizerUse]) -> Table:
    """Each optimizer's score, what is low, and what would be better."""
    table = titled_table("use of optimizers", "id", "group", "slots", "score", "GC of the driver", "why", "proposed")
    for each in uses:
        score = "–" if each.use is None else str(each.use.score)
        why = "it has not lived long enough" if each.use is None else "; ".join(each.use.reasons)
        collected = "–" if each.driver_gc_share is None else f"{each.driver_gc_share:.0%}"
        remedies = [each.use.remedy] if each.use is not None and each.use.remedy else []
        remedies += [f"{each.driver_memory} of memory for the driver"] if each.driver_memory else []
        table.add_row(each.optimizer_id, each.group, f"{each.slots:,}", score, collected, why, "; ".join(remedies))
    return table


def ranking_table(ranking: Ranking) -> Table:
    """One line for each due node in its place, and a line where the budget ends."""
    heads = ("", "table", "node", "type", "files less", "GB-hours", "in all")
    table = titled_table(f"what {ranking.budget_gb_hours:g} GB-hours reach", *heads)
    reached = True
    for place, each in enumerate(ranking.nodes, start=1):
        if reached and not each.is_within:
            table.add_section()
            table.add_row("", "[yellow]the budget ends here[/]", *[""] * 5)
            table.add_section()
        reached, due = each.is_within, each.due
        error = "" if due.error is None else f" (× {due.error:.2f})"
        cost = f"{due.gb_hours:.3g}{error}"
        numbers = (f"{due.benefit:,.3g}", cost, f"{each.gb_hours_so_far:.3g}")
        table.add_row(str(place), escape(str(due.table)), node_cell(due.node), due.type.value, *numbers)
    return table


def time_cell(seconds: float) -> str:
    """A time in words; a sum that measuring errors made a little less than nothing is 0."""
    return duration_text(timedelta(seconds=max(seconds, 0.0)))
