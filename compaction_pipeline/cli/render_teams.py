"""Renders teams, their loans and the changes of both as tables for people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rich.markup import escape
from rich.table import Table

from compaction_pipeline.cli.render import titled_table
from compaction_pipeline.core.capacity.limits import Standing
from compaction_pipeline.core.capacity.loan import Loan
from compaction_pipeline.core.capacity.team import TeamChange
from compaction_pipeline.core.words import bytes_text, part_text, time_text


def teams_table(standings: Iterable[Standing]) -> Table:
    """Each team's use beside what it may use now, its owners, and why it may begin nothing more."""
    table = titled_table("teams", "team", "slots", "memory", "GB-hours today", "owners", "note")
    for one in standings:
        allowed, use = one.allowed, one.use
        notes = [one.why_held] if one.why_held is not None else []
        notes += [f"whitelisted until {time_text(one.exempt.until)}: {one.exempt.reason}"] if one.exempt is not None else []
        table.add_row(
            escape(one.team.name),
            f"{len(use.started)} of {'any' if allowed.slots is None else allowed.slots}",
            f"{bytes_text(use.memory_bytes)} of {'any' if allowed.memory_bytes is None else bytes_text(allowed.memory_bytes)}",
            f"{use.gb_hours:.2f} of any" if allowed.gb_hours is None else part_text(use.gb_hours, allowed.gb_hours),
            escape(", ".join(one.team.owners) or "–"),
            escape("; ".join(notes) or "–"),
        )
    return table


def loans_table(loans: Iterable[Loan]) -> Table:
    """Each loan, when it ends, who asked for it, and who let it begin."""
    table = titled_table("loans", "loan", "what", "until", "asked by", "state", "low use of the borrower")
    for loan in loans:
        state = "waits for approval" if loan.began_at is None else f"{loan.consent} consented, {loan.approved_by} approved it"
        table.add_row(
            loan.loan_id, escape(loan.in_words), time_text(loan.end), escape(loan.asked_by), escape(state), escape(_excuses(loan))
        )
    return table


def _excuses(loan: Loan) -> str:
    return "; ".join(f"{optimizer}: {why}" for optimizer, why in loan.excuses.items()) or "–"


def mapping_table(mapping: Mapping[str, str]) -> Table:
    """Each table or catalog that an administrator gave to a team."""
    table = titled_table("mapping", "table or catalog", "team")
    for target, team in mapping.items():
        table.add_row(escape(target), escape(team))
    return table


def changes_table(changes: Iterable[TeamChange]) -> Table:
    """Each change: when, who, what, and what was before and after."""
    table = titled_table("changes of teams", "at", "who", "team", "what", "before", "after")
    for one in changes:
        table.add_row(time_text(one.at), *(escape(text or "–") for text in (one.who, one.team, one.what, one.before, one.after)))
    return table
